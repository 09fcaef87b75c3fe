"""The register tile of a contraction: which there are, and which is estimated to be the fastest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from planish.compiler.machine import Machine
from planish.compiler.remembering import remembered
from planish.schedules.choices import Setting

# Row streams read together: as many as a cache set has ways, since strides are often powers of two.
MAX_ROWS = 8
MAX_VECTORS = 8
MANY = 1 << 12  # rows or columns that are counted on where their number is not known
LOAD_SHARE = 0.15  # of the loads' time that is not hidden behind multiplications


@dataclass(frozen=True)
class Tile:
    """Rows and vectors of a register tile, and lanes of a vector."""

    rows: int
    vectors: int
    lanes: int

    @property
    def width(self) -> int:
        return self.vectors * self.lanes


def pick_tile(
    m: int | None, width: int | None, bits: int, setting: Setting, rest: float = 1.0
) -> Tile:
    """The tile for a result of ``m`` rows and ``width`` columns, of numbers of so many bits.

    Estimated is the one that takes the least time: in one step of the reduction, a tile costs the
    larger of its multiplications, its loads, and the latency that its chains of sums cannot hide.
    Tiles that leave a rest count ``rest`` times as much: code is made for that as well.
    """
    options, best = _options(m or MANY, width or MANY, bits, setting.machine, rest)
    return Tile(*setting.pick("tile", options, best))


@remembered(1 << 10)
def _options(
    m: int, width: int, bits: int, machine: Machine, rest: float
) -> tuple[list[tuple[int, int, int]], tuple[int, int, int]]:
    """Rows, vectors and lanes of all tiles, and those of the one that is estimated to be best."""
    every = list(_tiles(m, width, bits, machine))
    few = [t for t in every if t.rows <= MAX_ROWS]
    best = min(few, key=lambda t: _cost(m, t, width, bits, machine) * _share(m, width, t, rest))
    return sorted((t.rows, t.vectors, t.lanes) for t in every), (
        best.rows,
        best.vectors,
        best.lanes,
    )


def _share(m: int, width: int, tile: Tile, rest: float) -> float:
    return (rest if m % tile.rows else 1.0) * (rest if width % tile.width else 1.0)


@remembered(1 << 12)
def least_cost(m: int, width: int, bits: int, machine: Machine, rest: float = 1.0) -> float:
    """What the tile that ``pick_tile`` estimates to be the best costs.

    In cycles, for one step of the reduction over the whole result.
    """
    return min(
        _cost(m, t, width, bits, machine) * _share(m, width, t, rest)
        for t in _tiles(m, width, bits, machine)
        if t.rows <= MAX_ROWS
    )


def _tiles(m: int, width: int, bits: int, machine: Machine) -> Iterator[Tile]:
    """Tiles whose sums, one row of the right operand and one element of the left fit in registers.

    The widest vectors come first.
    """
    full = machine.vector_bytes * 8 // bits
    for lanes in (full, full // 2, full // 4):
        if lanes < 2:
            continue
        for vectors in range(1, MAX_VECTORS + 1):
            if vectors > 1 and (vectors - 1) * lanes >= width:
                break
            for rows in range(1, min(m, machine.vector_registers) + 1):
                if rows * vectors + vectors + 1 > machine.vector_registers:
                    break
                yield Tile(rows, vectors, lanes)


def _cost(m: int, tile: Tile, width: int, bits: int, machine: Machine) -> float:
    """Cycles for one step of the reduction over the whole result."""
    rows, vectors, lanes = tile.rows, tile.vectors, tile.lanes
    # A vector wider than 32 bytes is taken to issue at half the rate.
    size = max(1.0, lanes * bits / 256) if machine.vector_bytes > 32 else 1.0

    def step(r: int, v: int) -> float:
        multiply = r * v * size / 2
        load = (v * size + r) / 2
        latency = 4.0 if r * v * size < 8 else 0.0
        return max(multiply, load, latency) + LOAD_SHARE * load

    panels, rest = divmod(width, vectors * lanes)
    tiles, left = divmod(m, rows)
    out = 0.0
    for count, v in ((panels, vectors), (1 if rest else 0, -(-rest // lanes))):
        if count:
            out += count * (tiles * step(rows, v) + (step(left, v) if left else 0))
    return out
