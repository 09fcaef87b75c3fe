"""Convolutions by Winograd's tiles, compiled, as the interpreter has the plain ones."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from planish.compiler.graph.prepack import formed
from planish.compiler.loop.interpret import interpret
from planish.schedules.space import Space
from planish.targets.llvm.target import host

from .running import THREADS, Batch
from .test_schedules import shared

convolutions = shared("schedules/rules/convolutions.py")
POINTS = 4  # of a function's space


@pytest.mark.parametrize("case", convolutions.CASES, ids=str)
def test_points_are_right(case: Any):
    func, pick = case.function(), Random(str(case))
    arrays = case.arrays(func)
    (wanted,) = interpret(func, arrays)
    space = Space(func, host().machine, THREADS, convolutions.WEIGHTS)
    points = [space.point({"rule": "winograd", "size": size}) for size in (2, 4)]
    while len(points) < POINTS:
        other = space.mutated(pick.choice(points), pick)
        points += [] if other is None else [other]
    batch = Batch.of({f"f{k}": p.schedule.func for k, p in enumerate(points)})
    for k, p in enumerate(points):
        forms = p.schedule.forms()
        given = [formed(x, forms.get(k, ())) for k, x in enumerate(arrays)]
        for threads in (1, THREADS):
            (found,) = batch.run(f"f{k}", given, {}, threads, front=threads > 1)
            scale = float(np.abs(wanted).max())
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * scale)
