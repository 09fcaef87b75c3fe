"""What arithmetic alone tells of two accesses: it must never say more than is true."""

# ruff: noqa: E501 (lines of programs)

from __future__ import annotations

import pytest

from planish.compiler.loop.apart import apart
from planish.compiler.loop.sites import sites
from planish.compiler.loop.text import parse

TEXT = """\
def f(*, y: f32[m, n]):
    for f in serial(48):
        for i in serial(4):
            for j in serial(n):
                with block("y", i0=spatial(m, ROW), i1=spatial(n, COLUMN)):
                    y[i0, i1] = f32(0.0)"""


@pytest.mark.parametrize(
    ("row", "column", "proven"),
    [
        ("f", "i", "fi"),
        ("f * 4 + i", "0", "fi"),
        ("f * 3 + i", "0", ""),
        ("i * 48 + f", "0", "fi"),
        ("f // 6", "f % 6", "f"),
        ("f // 6", "f % 5", ""),
        ("f // 6 * 4 + i", "f % 6", "fi"),
        ("f % 6 * 4 + i", "f // 6", "fi"),
        ("f % 6 * 3 + i", "f // 6", ""),
        ("(f * 4 + i) // n", "(f * 4 + i) % n", "fi"),
        ("(f * 3 + i) // n", "(f * 3 + i) % n", ""),
        ("f // 2 % 3", "f % 2", ""),
        ("f + j", "i", "i"),
        ("f", "j * 4 + i", "fi"),
        ("f", "j * 3 + i", "f"),
        ("f + i", "i", "fi"),
        ("0", "0", ""),
    ],
)
def test_which_loops_are_proven(row: str, column: str, proven: str):
    (site,) = sites(parse(TEXT.replace("ROW", row).replace("COLUMN", column)).body)
    access = site.accesses[0]
    names = {x.var.name: x.var for x in site.loops}
    found = "".join(v for v in "fi" if apart(site, access, site, access, 0, (names[v],)))
    assert found == proven


def test_fused_tiles_of_symbolic_extent():
    func = parse(
        """\
def f(x: f32[k, m, n], *, y: f32[k, m, n]):
    for fo in parallel((k * m * n + 15) // 16):
        for fi in vector(16):
            with block("y", i0=spatial(k, (fo * 16 + fi) // (m * n)), i1=spatial(m, (fo * 16 + fi) // n % m), i2=spatial(n, (fo * 16 + fi) % n), where=fo * 16 + fi < k * m * n):
                y[i0, i1, i2] = x[i0, i1, i2]"""
    )
    (site,) = sites(func.body)
    access = site.accesses[0]
    assert apart(site, access, site, access, 0, tuple(x.var for x in site.loops))
