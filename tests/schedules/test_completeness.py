"""Which blocks compute every element that their iterators speak of."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planish.compiler.expr.evaluate import evaluate
from planish.compiler.expr.nodes import Var
from planish.compiler.loop.sites import Site, sites
from planish.compiler.loop.text import parse
from planish.compiler.loop.verify import verify
from planish.schedules.completeness import is_complete, runs_within
from planish.schedules.schedule import Schedule, parse_trace, replay

from .moves.programs import PROGRAMS, Program, dense, softmax, transposes, windows
from .moves.randomly import attempt


def complete(s: Schedule, block: str, *shared: str) -> bool:
    """Whether a block is, while the loops of these names stand still."""
    (site,) = (x for x in sites(verify(s.func).body) if x.block.name == block)
    return is_complete(s.func, site, {x.var for x in site.loops if x.var.name not in shared})


N = Var("n")
DENSE, ROWS, COLUMNS = dense(), softmax(N, 5, n=4), softmax(3, N, n=7)
TURNED, SEEN = transposes(N, n=5), windows(4, N, n=9)


@pytest.mark.parametrize(
    ("program", "trace"),
    [
        (DENSE, 'split("dot.i0", 2)\nsplit("dot.i1", 4)'),
        (DENSE, 'split("dot.i1", 4)\nsplit("dot.i1_1", 3)\nsplit("dot.i1_0", 2)'),
        (DENSE, 'fuse("dot.i0", "i1")'),
        (DENSE, 'fuse("dot.i0", "i1")\nsplit("dot.i0_i1", 4)'),
        (DENSE, 'fuse("dot.i1", "r0")\nsplit("dot.i1_r0", 7)'),
        (DENSE, 'split("dot.i1", 4)\nfuse("dot.i0", "i1_0")'),
        (DENSE, 'split("dot.i1", 4)\nfuse("dot.i1_0", "i1_1")'),
        (DENSE, 'merge("dot", "i0", "i1")\nsplit("dot.i0_i1", 4)'),
        (ROWS, 'fuse("e.i0", "i1")\nsplit("e.i0_i1", 8)'),
        (COLUMNS, 'fuse("e.i0", "i1")'),
        (COLUMNS, 'split("e.i1", 8)\nsplit("e.i1_1", 4)\nreorder("e", ("i1_1_1", "i1_0", "i0"))'),
        (COLUMNS, 'split("e.i1", 8)\nsplit("e.i1_0", 3)'),
        (TURNED, 'fuse("y.i1", "i2")\nfuse("y.i0", "i1_i2")\nsplit("y.i0_i1_i2", 8)'),
    ],
)
def test_loops_that_are_cut_and_joined_reach_everything(program: Program, trace: str):
    s = replay(program.function, parse_trace(trace))
    assert complete(s, s.trace[0].arguments[0].partition(".")[0])  # type: ignore[union-attr]


def test_what_is_left_of_a_stage_may_be_all_that_it_can_compute():
    s = replay(DENSE.function, parse_trace('compute_at("dot", "relu.i0")'))
    assert complete(s, "dot", "i0") and complete(s, "dot")
    s = replay(TURNED.function, parse_trace('split("z.i1", 4)\ncompute_at("y", "z.i1_0")'))
    assert complete(s, "y") and complete(s, "y", "i0")
    assert not complete(s, "y", "i0", "i1_0")


PART = """\
def f(x: f32[n, 3], *, z: f32[n]):
    t = buffer(f32[n, 3], "global")
    for i in serial(n):
        for j in serial(3):
            with block("t", i0=spatial(n, i), i1=spatial(3, j)):
                t[i0, i1] = x[i0, i1]
    for i in serial(n):
        with block("z", i=spatial(n, i)):
            z[i] = t[i, 0] + t[i, 1]"""


def test_a_stage_of_which_a_part_is_read_leaves_the_rest_out():
    s = Schedule(parse(PART))
    assert complete(s, "t")
    s = replay(s.func, parse_trace('compute_at("t", "z.i")'))
    assert not complete(s, "t") and not complete(s, "t", "i")
    s = replay(parse(PART.replace("t[i, 1]", "t[i, 2]")), parse_trace('compute_at("t", "z.i")'))
    assert complete(s, "t", "i") and complete(s, "t")


@pytest.mark.parametrize(
    ("loops", "binding", "where", "right"),
    [
        ("for i in serial(6)", "i", "", True),
        ("for i in serial(5)", "i", "", False),
        ("for i in serial(6)", "5 - i", "", True),
        ("for i in serial(6)", "max(i - 1, 0)", "", False),
        ("for i in serial(3)", "i * 2", "", False),
        ("for i in serial(3)|for j in serial(2)", "i * 2 + j", "", True),
        ("for i in serial(3)|for j in serial(2)", "i + j * 3", "", True),
        ("for i in serial(2)|for j in serial(2)", "i * 4 + j", "", False),
        ("for i in serial(3)|for j in serial(2)", "i + j", "", False),
        ("for i in serial(4)|for j in serial(3)", "i + j", "", True),
        ("for i in serial(3)|for j in serial(4)", "i * 2 + j", "where=i * 2 + j < 6", True),
        ("for i in serial(3)|for j in serial(4)", "i * 4 + j", "where=i * 4 + j < 6", True),
        ("for i in serial(3)|for j in serial(4)", "i * 4 + j", "where=i * 4 + j < 5", False),
        ("for i in serial(3)|for j in serial(i + 1)", "i + j", "", False),
        ("for i in serial(6)|for j in serial(n)", "i", "", False),
        ("for i in serial(6)|for j in serial(n + 1)", "i", "", True),
    ],
)
def test_bindings_of_one_iterator(loops: str, binding: str, where: str, right: bool):
    lines = ["def f(x: f32[6, n], *, y: f32[6]):"]
    for k, loop in enumerate(loops.split("|")):
        lines.append(f"{'    ' * (k + 1)}{loop}:")
    depth = "    " * len(lines)
    ends = f", {where}" if where else ""
    lines += [
        f'{depth}with block("y", i=spatial(6, {binding}){ends}):',
        f"{depth}    y[i] = x[i, 0]",
    ]
    s = Schedule(parse("\n".join(lines)))
    assert is_complete(s.func, sites(s.func.body)[0]) is right


MOVES = ("split", "fuse", "reorder", "compute_at", "merge", "divide")
FIXED = [p for p in PROGRAMS if not p.symbols]


@pytest.mark.parametrize("program", FIXED, ids=repr)
@given(st.integers(0, 1 << 32), st.integers(1, 12))
@settings(max_examples=8, suppress_health_check=list(HealthCheck))
def test_a_complete_block_computes_everything(program: Program, seed: int, attempts: int):
    pick = random.Random(seed)
    s = Schedule(program.function)
    for _ in range(attempts):
        s = attempt(s, pick, MOVES)
    for site in sites(s.func.body):
        if is_complete(s.func, site):
            assert reached(site) == set(
                itertools.product(*(range(int(str(i.extent))) for i in site.block.iters))
            )


def reached(site: Site) -> set[tuple[int, ...]]:
    """The points at which a block runs, by running its loops."""
    found = set()

    def run(k: int, env: dict[str, int]) -> None:
        if k < len(site.loops):
            for v in range(int(evaluate(site.loops[k].extent, env))):
                run(k + 1, {**env, site.loops[k].var.name: v})
        elif evaluate(site.block.where, env):
            found.add(tuple(int(evaluate(i.binding, env)) for i in site.block.iters))

    run(0, {})
    return found


@pytest.mark.parametrize("program", PROGRAMS, ids=repr)
@given(st.integers(0, 1 << 32), st.integers(1, 12))
@settings(max_examples=8, suppress_health_check=list(HealthCheck))
def test_loops_that_are_only_changed_stay_complete(program: Program, seed: int, attempts: int):
    """What is refused for not being complete must be so: other moves need the answer too."""
    pick = random.Random(seed)
    s = Schedule(program.function)
    whole = {x.block.name for x in sites(s.func.body) if is_complete(s.func, x)}
    for _ in range(attempts):
        s = attempt(s, pick, ("split", "fuse", "reorder"))
    for x in sites(s.func.body):
        if x.block.name in whole and runs_within(s.func, x):
            assert is_complete(s.func, x)
