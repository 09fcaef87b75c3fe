from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planish.compiler.calling import ALIGNMENT
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, Var, as_expr, const
from planish.compiler.expr.sizes import evaluate
from planish.compiler.graph.memory import Lifetime, aligned, arena, pack
from planish.compiler.program import Place

B, S = Var("b"), Var("s")
SIZES: list[Expr] = [B * 4, B * 4096, B * S * 768, B * S * S * 16, S * 128, (B + S) // 2 * 4 + 12]


def number(size: Expr, values: dict[Var, int]) -> int:
    found = evaluate(size, {v: const(k, v.dtype) for v, k in values.items()})
    assert found is not None
    return int(found)


def check(lifetimes: list[Lifetime], offsets: list[Expr], total: Expr, **sizes: int) -> int:
    """What is alive together is apart, and all is aligned and inside; gives the total."""
    values = {Var(name): size for name, size in sizes.items()}
    end = number(total, values)
    spans = []
    for x, offset in zip(lifetimes, offsets, strict=True):
        at, size = number(offset, values), number(x.size, values)
        assert at % ALIGNMENT == 0
        assert 0 <= at <= at + size <= end
        spans.append((x, at, at + size))
    for k, (x, a, b) in enumerate(spans):
        for y, c, d in spans[:k]:
            if x.overlaps(y):
                assert b <= c or d <= a or a == b or c == d
    return end


@st.composite
def lifetimes(draw: st.DrawFn, sizes: st.SearchStrategy[Expr]) -> list[Lifetime]:
    out = []
    for _ in range(draw(st.integers(0, 12))):
        first = draw(st.integers(0, 8))
        out.append(Lifetime(draw(sizes), first, first + draw(st.integers(0, 4))))
    return out


KNOWN = st.integers(0, 5000).map(as_expr)


@given(lifetimes(KNOWN))
def test_known_sizes(found: list[Lifetime]) -> None:
    offsets, total = pack(found)
    end = check(found, offsets, total)
    assert isinstance(total, Const)
    # Never more than if nothing were shared, nor less than what is alive at once.
    padded = [number(aligned(x.size), {}) for x in found]
    alive = [
        sum(p for x, p in zip(found, padded, strict=True) if x.first <= t <= x.last)
        for t in range(13)
    ]
    assert max(alive) <= end <= sum(padded)


@given(lifetimes(st.one_of(KNOWN, st.sampled_from(SIZES))), st.integers(0, 50), st.integers(0, 50))
def test_sizes_over_symbols(found: list[Lifetime], b: int, s: int) -> None:
    """One plan is right at all sizes, 0 included."""
    offsets, total = pack(found)
    end = check(found, offsets, total, b=b, s=s)
    values = {B: b, S: s}
    assert end <= sum(number(aligned(x.size), values) for x in found)


@given(lifetimes(st.sampled_from(SIZES)))
def test_plans_are_the_same_each_time(found: list[Lifetime]) -> None:
    first, again = pack(found), pack(list(found))
    assert all(x is y for x, y in zip((*first[0], first[1]), (*again[0], again[1]), strict=True))


def test_a_chain_needs_two_places() -> None:
    for size in (as_expr(6400), B * 256):
        chain = [Lifetime(size, k, k + 1) for k in range(20)]
        offsets, total = pack(chain)
        assert len(set(offsets)) == 2
        assert number(total, {B: 25}) == 2 * 6400


def test_smaller_values_take_turns_with_larger_ones() -> None:
    """A known order of sizes makes no maximum; an unknown one does."""
    offsets, total = pack([Lifetime(B * 64, 0, 0), Lifetime(B * 256, 1, 1), Lifetime(B * 4, 2, 2)])
    assert set(offsets) == {as_expr(0)}
    assert str(total) == "b * 256"
    _, total = pack([Lifetime(B * 64, 0, 0), Lifetime(S * 64, 1, 1)])
    assert isinstance(total, n.Max) or "max" in str(total)
    assert number(total, {B: 3, S: 5}) == 320
    assert number(total, {B: 7, S: 5}) == 448


def test_a_small_value_takes_the_smallest_place() -> None:
    offsets, _ = pack(
        [
            Lifetime(B * 6400, 0, 0),
            Lifetime(B * 64, 0, 0),
            Lifetime(B * 64, 1, 1),
            Lifetime(B * 6400, 1, 1),
        ]
    )
    assert offsets[0] is offsets[3]
    assert offsets[1] is offsets[2]


def test_a_hole_between_known_values_is_used() -> None:
    found = [
        Lifetime(as_expr(640), 0, 9),
        Lifetime(as_expr(512), 0, 3),
        Lifetime(as_expr(256), 0, 9),
        Lifetime(as_expr(500), 4, 9),
    ]
    offsets, total = pack(found)
    assert check(found, offsets, total) == 640 + 512 + 256
    assert offsets[3] is offsets[1]


@pytest.mark.parametrize(("size", "wanted"), [(0, 0), (1, 64), (64, 64), (65, 128)])
def test_aligned(size: int, wanted: int) -> None:
    assert number(aligned(as_expr(size)), {}) == wanted
    assert number(aligned(B), {B: size}) == wanted


def test_sizes_that_are_aligned_stay_as_they_are() -> None:
    assert aligned(B * S * 768) is aligned(aligned(B * S * 768))
    assert "//" not in str(aligned(B * S * 768))


def test_nothing_takes_nothing() -> None:
    assert pack([]) == ([], as_expr(0))
    assert arena(as_expr(64)) == Place("arena", 0, as_expr(64))


def test_many_values_are_packed_quickly() -> None:
    rng = np.random.default_rng(0)
    found = [
        Lifetime(SIZES[int(rng.integers(len(SIZES)))], k, k + int(rng.integers(1, 30)))
        for k in range(1500)
    ]
    offsets, total = pack(found)
    check(found[:200], offsets[:200], total, b=3, s=17)
