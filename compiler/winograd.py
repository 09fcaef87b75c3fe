"""The matrices of Winograd's minimal filtering: F(m x m, 3 x 3) for m = 2 and m = 4.

A row of ``m`` results of a filter of three taps is ``A^T ((G g) * (B^T d))`` of ``m + 2`` inputs,
with ``m + 2`` products instead of ``3 m``. They come of evaluating polynomials at ``m + 1`` points
and at infinity (Toom-Cook). Where the points are decides the error: 0, +-3/4, +-3/2 has half that
of the usual 0, +-1, +-2, and A^T and B^T are exact in binary all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Final, TypeAlias

Row: TypeAlias = tuple[Fraction, ...]
Matrix: TypeAlias = tuple[Row, ...]

TAPS: Final = 3
_POINTS: Final = {
    2: (Fraction(0), Fraction(1), Fraction(-1)),
    4: (Fraction(0), Fraction(3, 4), Fraction(-3, 4), Fraction(3, 2), Fraction(-3, 2)),
}
SIZES: Final = tuple(_POINTS)


@dataclass(frozen=True)
class Matrices:
    """``A^T``, of m rows; ``G``, of three columns; ``B^T``, square."""

    results: Matrix
    weights: Matrix
    inputs: Matrix


@cache
def matrices(m: int) -> Matrices:
    """The matrices for tiles of ``m`` results."""
    points = _POINTS[m]
    n = m + TAPS - 1
    inputs, weights = [], []
    for k, p in enumerate(points):
        others = [q for j, q in enumerate(points) if j != k]
        scale = Fraction(1)
        for q in others:
            scale *= p - q
        inputs.append((*_with_roots(others), Fraction(0)))
        weights.append(tuple(p**i / scale for i in range(TAPS)))
    inputs.append(_with_roots(points))
    weights.append((Fraction(0), Fraction(0), Fraction(1)))
    results = [[p**i for p in points] + [Fraction(int(i == m - 1))] for i in range(m)]
    assert all(len(row) == n for row in (*inputs, *results))
    return Matrices(tuple(map(tuple, results)), tuple(weights), tuple(inputs))


def _with_roots(roots: Sequence[Fraction]) -> Row:
    """The coefficients of the polynomial with these roots, the constant one first."""
    out = [Fraction(1)]
    for p in roots:
        shifted, scaled = [Fraction(0), *out], [*(p * c for c in out), Fraction(0)]
        out = [a - b for a, b in zip(shifted, scaled, strict=True)]
    return tuple(out)
