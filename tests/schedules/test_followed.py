"""Instances of blocks are followed through all moves that rename blocks or change iterators."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planish.compiler.loop.ir import Function, Loop, Seq, blocks
from planish.compiler.loop.relations import corresponding, legal_order
from planish.compiler.loop.text import parse
from planish.schedules.schedule import Schedule, parse_trace, replay

from .followed import followed, numbered
from .moves.programs import PROGRAMS, RECURRENT, Program, dense, softmax
from .moves.randomly import attempt

DENSE, ROWS = dense().function, softmax().function
SUMS = parse(
    """\
def f(x: i32[8], *, C: i32[4]):
    for i in serial(4):
        for k in serial(8):
            with block("C", i=spatial(4, i), k=reduce(8, k), init=i32(0)):
                C[i] += x[(i + k) % 8]"""
)
STEPS = parse(
    """\
def f(x: f32[6, 4], *, C: f32[6, 4]):
    for i in serial(6):
        for j in serial(4):
            with block("C"):
                C[i, j] = x[5 - i, j]"""
)


@pytest.mark.parametrize(
    ("func", "trace"),
    [
        (DENSE, 'cache_write("dot", "local")\nsplit("dot_cache.i1", 4)'),
        (DENSE, 'divide("dot", "r0", 2)\nmerge("dot", "i0", "i1")\nsplit("dot.i0_i1", 4)'),
        (ROWS, 'split("total.r0", 3)\nrfactor("total.r0_1")\ncache_write("total_rf", "local")'),
        (ROWS, 'split("top.r0", 4)\nrfactor("top.r0_0")'),
        (ROWS, 'split("top.r0", 3)\nrfactor("top.r0_0")\nfuse("top_rf.r0_0", "r0_1")'),
        (SUMS, 'group("C", "k", 4)\nreorder("C", ("k", "i"))'),
        (STEPS, 'split("C.i", 4)\nfuse("C.i_1", "j")\nreorder("C", ("i_1_j", "i_0"))'),
        (RECURRENT, 'cache_write("hr", "register")\nmerge("y", "i", "j")'),
    ],
)  # fmt: skip
def test_every_block_is_compared(func: Function, trace: str):
    before, after = numbered(func), followed(func, parse_trace(trace))
    assert corresponding(before, after) == {b.name for b in blocks(func.body)}
    assert legal_order(before, after) is None


def test_what_is_left_out_or_turned_around_is_found():
    func, trace = ROWS, parse_trace('cache_write("e", "local")')
    after = followed(func, trace)
    assert isinstance(after.body, Seq)
    names = [next(blocks(x)).name for x in after.body.body]
    assert names == ["top", "e", "new e", "total", "y"]
    top, e, *rest = after.body.body
    turned = after.with_(body=Seq((e, top, *rest)))
    assert str(legal_order(numbered(func), turned)).startswith("e no longer comes after top")
    assert isinstance(e, Loop)
    short = after.with_(body=Seq((top, e.with_(extent=e.extent - 1), *rest)))
    assert str(legal_order(numbered(func), short)).startswith("instances of e are left out")


MOVES = (
    "split", "fuse", "reorder", "merge", "divide", "cache_write", "rfactor", "unroll", "vectorize",
    "parallel", "layout", "pad", "set_scope",
)  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=repr)
@given(st.integers(0, 1 << 32), st.integers(1, 8))
@settings(max_examples=8, suppress_health_check=list(HealthCheck))
def test_random_schedules_keep_the_order(program: Program, seed: int, attempts: int):
    pick = random.Random(seed)
    s = Schedule(program.function)
    for _ in range(attempts):
        s = attempt(s, pick, MOVES)
    before, after = numbered(program.function), followed(program.function, s.trace)
    assert corresponding(before, after) == {b.name for b in blocks(program.function.body)}
    assert legal_order(before, after) is None
    assert replay(program.function, s.trace).func == s.func
