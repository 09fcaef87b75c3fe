"""Changes of statements."""

from __future__ import annotations

from planish.compiler.expr.nodes import Load, Var, as_expr
from planish.compiler.loop.ir import Block, Seq, blocks
from planish.compiler.loop.text import parse, show_statement
from planish.schedules.edit import guard, map_loads, rebind, replace

FUNC = parse(
    """\
def f(x: i64[8], *, C: i64[8]):
    for i in serial(8):
        if x[i] < 4:
            with block("A", i0=spatial(8, i)):
                C[i0] = x[i0]
        else:
            with block("B", i0=spatial(8, i), where=x[i] < i):
                C[x[i0]] = i0"""
)
A, B = blocks(FUNC.body)


def shown(old: Block, new: Block | None) -> list[str]:
    return show_statement(replace(FUNC.body, old, new)).splitlines()[1:]


def test_a_branch_that_is_removed_leaves_the_other_under_its_condition():
    assert shown(B, None) == [
        "    if x[i] < 4:",
        '        with block("A", i0=spatial(8, i)):',
        "            C[i0] = x[i0]",
    ]
    assert shown(A, None) == [
        "    if 4 <= x[i]:",
        '        with block("B", i0=spatial(8, i), where=x[i] < i):',
        "            C[x[i0]] = i0",
    ]


def test_what_holds_nothing_is_removed_with_it():
    rest = replace(replace(FUNC.body, A, None), B, None)
    assert rest == Seq(())
    assert replace(FUNC.body, Block("Z", (), "C", (), as_expr(0)), None) is FUNC.body


def test_rebind_reaches_bindings_conditions_and_extents():
    new = rebind(FUNC.body, {Var("i"): Var("j") + 1})
    assert show_statement(new).splitlines()[1:5] == [
        "    if x[j + 1] < 4:",
        '        with block("A", i0=spatial(8, j + 1)):',
        "            C[i0] = x[i0]",
        "    else:",
    ]


def test_guard_adds_to_what_there_is():
    found = [str(b.where) for b in blocks(guard(FUNC.body, Var("i") < 6))]
    assert found == ["i < 6", "x[i] < i and i < 6"]


def test_map_loads_reaches_all_loads_and_says_whose_indices_they_have():
    seen: list[tuple[str, str | None]] = []

    def change(load: Load, b: Block | None) -> Load:
        seen.append((str(load), None if b is None else b.name))
        return Load("y", load.indices, load.type)

    new = map_loads(FUNC.body, "x", change, frozenset({"node"}))
    assert "x[" not in show_statement(new)
    assert seen == [("x[i0]", "A"), ("x[i0]", "B"), ("x[i]", None), ("x[i]", None)]
    assert all("node" in b.origin for b in blocks(new))
