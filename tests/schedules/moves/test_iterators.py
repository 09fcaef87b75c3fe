"""Moves on iterators: what is refused, and edges of what is legal."""

from __future__ import annotations

import numpy as np
import pytest

from planish.compiler.loop.interpret import interpret
from planish.compiler.loop.text import parse
from planish.schedules.moves import iterators as I
from planish.schedules.schedule import Schedule

from .refusals import Refusal, check_refusal, refusals


@pytest.mark.parametrize("case", refusals("iterators"))
def test_what_is_refused(case: Refusal):
    check_refusal(case)


GUARDED = parse(
    """\
def f(x: f32[6, 8], bias: f32[8], *, C: f32[6, 8]):
    for i in serial(6):
        for j in serial(8):
            with block("C0", i=spatial(6, i), j=spatial(8, j)):
                C[i, j] = f32(1.0)
    for i in serial(6):
        for j in serial(8):
            for k in serial(4):
                with block("C", i=spatial(6, i), j=spatial(8, j), k=reduce(4, k), init=bias[j],
                           where=i < 4 and j + k < 8):
                    C[i, j] += x[i, (j + k) % 8]"""
)


@pytest.mark.parametrize("move", ["merge", "divide i", "divide j", "divide k"])
def test_starts_and_conditions_follow(move: str):
    """What a reduction starts from, and on what its loops depend, is said anew as well."""
    s = Schedule(GUARDED)
    s = I.merge(s, "C", "i", "j") if move == "merge" else I.divide(s, "C", move[-1], 2)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(d).astype(np.float32) for d in ((6, 8), (8,))]
    np.testing.assert_allclose(
        interpret(s.func, arrays)[0], interpret(GUARDED, arrays)[0], rtol=1e-6
    )
