"""Random schedules, compiled, as the interpreter has them."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planish.compiler.errors import CodegenError
from planish.compiler.loop.interpret import interpret
from planish.schedules.schedule import Schedule

from .running import Batch

TESTS = Path(__file__).parents[2]


def shared(path: str) -> ModuleType:
    """A module of other tests, which are no package of these."""
    name = f"shared_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, TESTS / path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


programs = shared("schedules/moves/programs.py")
moves = shared("schedules/moves/randomly.py")
ON_CPU = [m for m in moves.ARGUMENTS if m != "bind"]


def check(program: Any, seed: int) -> None:
    pick = random.Random(seed)
    s = Schedule(program.function)
    for _ in range(pick.randint(1, 25)):
        s = moves.attempt(s, pick, ON_CPU)
    arrays = program.arrays(seed)
    try:
        batch = Batch.of({"f": s.func})
    except CodegenError as error:
        assert "in registers" in error.message  # of a size that is not known, or too many
        return
    wanted = interpret(program.function, arrays, program.symbols)
    for threads in (1, 2):
        found = batch.run("f", arrays, program.symbols, threads, front=threads > 1)
        for x, y in zip(found, wanted, strict=True):
            np.testing.assert_allclose(x, y, rtol=3e-4, atol=3e-5)


@pytest.mark.parametrize("program", programs.PROGRAMS, ids=repr)
@settings(max_examples=4)
@given(seed=st.integers(0, 1 << 32))
def test_random_schedule(program: Any, seed: int) -> None:
    check(program, seed)


@pytest.mark.long
@pytest.mark.parametrize("program", programs.PROGRAMS, ids=repr)
@settings(max_examples=200)
@given(seed=st.integers(0, 1 << 32))
def test_many_random_schedules(program: Any, seed: int) -> None:
    check(program, seed)
