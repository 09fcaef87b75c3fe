"""The matrices of minimal filtering: they filter, and are exact in binary where it counts."""

from __future__ import annotations

from fractions import Fraction

import pytest

from planish.compiler.winograd import SIZES, TAPS, Matrix, matrices


def times(a: Matrix, x: list[Fraction]) -> list[Fraction]:
    return [sum((c * v for c, v in zip(row, x, strict=True)), Fraction(0)) for row in a]


@pytest.mark.parametrize("m", SIZES)
def test_they_filter(m: int):
    found = matrices(m)
    data = [Fraction(k * k - 3 * k + 1, 7) for k in range(m + TAPS - 1)]
    taps = [Fraction(2), Fraction(-1, 3), Fraction(5)]
    products = zip(times(found.weights, taps), times(found.inputs, data), strict=True)
    results = times(found.results, [a * b for a, b in products])
    assert results == [
        sum((taps[k] * data[i + k] for k in range(TAPS)), Fraction(0)) for i in range(m)
    ]


@pytest.mark.parametrize("m", SIZES)
def test_what_data_and_results_meet_is_exact(m: int):
    found = matrices(m)
    for row in (*found.inputs, *found.results):
        assert all(c.denominator & (c.denominator - 1) == 0 for c in row)
