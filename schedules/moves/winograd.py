"""Winograd's convolution: fewer products, and weights that are transformed ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from planish.compiler.dtypes import F32
from planish.compiler.errors import ScheduleError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.expansions import fma
from planish.compiler.expr.nodes import Expr, Load, Mul, Var
from planish.compiler.expr.simplify import simplify
from planish.compiler.loop import ir
from planish.compiler.loop.ir import Block, Buffer, Function, Iter, Loop, Stmt, constant
from planish.compiler.loop.known import anywhere, entered
from planish.compiler.winograd import SIZES, TAPS, Matrix, Row, matrices
from planish.schedules.edit import replace
from planish.schedules.legality import check_loops, check_new, plain
from planish.schedules.schedule import Schedule, Trace, move, show_loop

PARTS: Final = ("d", "u", "t", "v", "m", "s")  # what stands between data, weights and result


@move
def winograd(s: Schedule, name: str, m: int) -> Schedule:
    """Compute a convolution of 3 x 3 taps by tiles of ``m`` x ``m`` results, with fewer products.

    The tiles' data, ``m + 2`` elements a side, is transformed (stages ``t`` and ``v``), so are the
    weights (``u``); they are multiplied place by place and summed over the channels (``m``), and
    that is transformed back (``s``, and the block itself). Where tiles reach beyond the data, it
    gets zeros behind it (``d``). Sums of tiles of 2 are more exact than those of the convolution;
    those of 4 have some twice their error. What is not finite in a tile makes its results NaN.

    Legal if: the block sums float32 products of data at ``row + tap`` and of weights, over two
    times three taps and channels, in plain loops of its own, all sizes being known; and ``m`` is 2
    or 4.

    Before:
        def f(x: f32[1, 4, 4, 1], w: f32[3, 3, 1, 1], *, y: f32[1, 2, 2, 1]):
            for b in serial(1):
                for i in serial(2):
                    for j in serial(2):
                        for o in serial(1):
                            for p in serial(3):
                                for q in serial(3):
                                    for c in serial(1):
                                        with block("y", i0=spatial(1, b), i1=spatial(2, i),
                                            i2=spatial(2, j), i3=spatial(1, o), r0=reduce(3, p),
                                            r1=reduce(3, q), r2=reduce(1, c), init=f32(0.0)):
                                            y[i0, i1, i2, i3] += (x[i0, i1 + r0, i2 + r1, r2] *
                                                w[r0, r1, r2, i3])
    Move:
        winograd("y", 2)
    After:
        def f(x: f32[1, 4, 4, 1], w: f32[3, 3, 1, 1], *, y: f32[1, 2, 2, 1]):
            y_u = buffer(f32[4, 4, 1, 1], "global")
            y_t = buffer(f32[4, 4, 1, 1], "global")
            y_v = buffer(f32[4, 4, 1, 1], "global")
            y_m = buffer(f32[4, 4, 1, 1], "global")
            y_s = buffer(f32[2, 4, 1, 1], "global")
            for row in serial(4):
                for col in serial(4):
                    for channel in serial(1):
                        for out in serial(1):
                            with block("y_u", row=spatial(4, row), col=spatial(4, col),
                                channel=spatial(1, channel), out=spatial(1, out)):
                                y_u[row, col, channel, out] = (select(col == 0, f32(-1.0),
                                    select(col == 1, f32(0.5), select(col == 2, f32(0.5),
                                    f32(0.0)))) * (select(row == 0, f32(-1.0), select(row == 1,
                                    f32(0.5), select(row == 2, f32(0.5), f32(0.0)))) * w[0, 0,
                                    channel, out] + select(row == 0, f32(0.0), select(row == 1,
                                    f32(0.5), select(row == 2, f32(-0.5), f32(0.0)))) * w[1, 0,
                                    channel, out] + select(row == 0, f32(0.0), select(row == 1,
                                    f32(0.5), select(row == 2, f32(0.5), f32(1.0)))) * w[2, 0,
                                    channel, out]) + select(col == 0, f32(0.0), select(col == 1,
                                    f32(0.5), select(col == 2, f32(-0.5), f32(0.0)))) * (select(row
                                    == 0, f32(-1.0), select(row == 1, f32(0.5), select(row == 2,
                                    f32(0.5), f32(0.0)))) * w[0, 1, channel, out] + select(row ==
                                    0, f32(0.0), select(row == 1, f32(0.5), select(row == 2,
                                    f32(-0.5), f32(0.0)))) * w[1, 1, channel, out] + select(row ==
                                    0, f32(0.0), select(row == 1, f32(0.5), select(row == 2,
                                    f32(0.5), f32(1.0)))) * w[2, 1, channel, out]) + select(col ==
                                    0, f32(0.0), select(col == 1, f32(0.5), select(col == 2,
                                    f32(0.5), f32(1.0)))) * (select(row == 0, f32(-1.0), select(row
                                    == 1, f32(0.5), select(row == 2, f32(0.5), f32(0.0)))) * w[0,
                                    2, channel, out] + select(row == 0, f32(0.0), select(row == 1,
                                    f32(0.5), select(row == 2, f32(-0.5), f32(0.0)))) * w[1, 2,
                                    channel, out] + select(row == 0, f32(0.0), select(row == 1,
                                    f32(0.5), select(row == 2, f32(0.5), f32(1.0)))) * w[2, 2,
                                    channel, out]))
            for row in serial(4):
                for col in serial(4):
                    for tile in serial(1):
                        for channel in serial(1):
                            with block("y_t", row=spatial(4, row), col=spatial(4, col),
                                tile=spatial(1, tile), channel=spatial(1, channel)):
                                y_t[row, col, tile, channel] = (select(row == 0, x[0, 2, col,
                                    channel] - x[0, 0, col, channel], select(row == 1, x[0, 2, col,
                                    channel] + x[0, 1, col, channel], select(row == 2, x[0, 2, col,
                                    channel] - x[0, 1, col, channel], x[0, 3, col, channel] - x[0,
                                    1, col, channel]))))
            for row in serial(4):
                for col in serial(4):
                    for tile in serial(1):
                        for channel in serial(1):
                            with block("y_v", row=spatial(4, row), col=spatial(4, col),
                                tile=spatial(1, tile), channel=spatial(1, channel)):
                                y_v[row, col, tile, channel] = (select(col == 0, y_t[row, 2, tile,
                                    channel] - y_t[row, 0, tile, channel], select(col == 1,
                                    y_t[row, 2, tile, channel] + y_t[row, 1, tile, channel],
                                    select(col == 2, y_t[row, 2, tile, channel] - y_t[row, 1, tile,
                                    channel], y_t[row, 3, tile, channel] - y_t[row, 1, tile,
                                    channel]))))
            for row in serial(4):
                for col in serial(4):
                    for tile in serial(1):
                        for out in serial(1):
                            for channel in serial(1):
                                with block("y_m", row=spatial(4, row), col=spatial(4, col),
                                    tile=spatial(1, tile), out=spatial(1, out), channel=reduce(1,
                                    channel), init=f32(0.0)):
                                    y_m[row, col, tile, out] += (y_v[row, col, tile, channel] *
                                        y_u[row, col, channel, out])
            for row in serial(2):
                for col in serial(4):
                    for tile in serial(1):
                        for out in serial(1):
                            with block("y_s", row=spatial(2, row), col=spatial(4, col),
                                tile=spatial(1, tile), out=spatial(1, out)):
                                y_s[row, col, tile, out] = (select(row == 0, y_m[0, col, tile, out]
                                    + (y_m[1, col, tile, out] + y_m[2, col, tile, out]), y_m[1,
                                    col, tile, out] - y_m[2, col, tile, out] + y_m[3, col, tile,
                                    out]))
            for b in serial(1):
                for i in serial(2):
                    for j in serial(2):
                        for o in serial(1):
                            with block("y", i0=spatial(1, b), i1=spatial(2, i), i2=spatial(2, j),
                                i3=spatial(1, o)):
                                y[i0, i1, i2, i3] = (select(i2 % 2 == 0, y_s[i1 % 2, 0, 0, i3] +
                                    (y_s[i1 % 2, 1, 0, i3] + y_s[i1 % 2, 2, 0, i3]), y_s[i1 % 2, 1,
                                    0, i3] - y_s[i1 % 2, 2, 0, i3] + y_s[i1 % 2, 3, 0, i3]))
    """
    conv = convolution(s, name)
    if m not in SIZES:
        raise ScheduleError(f"there are no tiles of {m} results", hint=f"one of {SIZES}")
    loops, block = s.nest(name)
    made = _Stages(s.func, conv, m)
    for part in PARTS:
        check_new(s, f"{name}_{part}", f"{block.buffer}_{part}")
    stages = made.stages()
    for stage in stages[:-1]:
        check_loops(s, [x.var.name for x in ir.walk(stage) if isinstance(x, Loop)], (), block)
    func = s.func.with_(body=replace(s.func.body, loops[0], ir.seq(*stages)))
    for buffer in made.buffers.values():
        func = func.with_buffer(buffer)
    return s.with_func(func)


def is_inexact(trace: Trace) -> bool:
    """Whether moves make other results than the plain sums have, beyond the order of the sums.

    Of larger tiles they are less exact, and of all sizes NaN where what is not finite is summed.
    """
    return any(x.move == "winograd" for x in trace)


@dataclass(frozen=True)
class Convolution:
    """A sum over 3 x 3 taps and channels, with steps of one: its iterators and what it reads."""

    block: Block
    spatial: tuple[Iter, Iter, Iter, Iter]  # batch, rows, columns, channels
    taps: tuple[Iter, Iter]
    channels: Iter
    data: Load
    weights: Load


def convolution(s: Schedule, name: str) -> Convolution:
    """The convolution that a block is.

    Errors: ScheduleError if it is none that tiles are known for.
    """
    loops, block = s.nest(name)
    found = as_convolution(block)
    if found is None:
        raise ScheduleError(
            f"{name} is no float32 convolution of 3 x 3 taps with steps of one",
            node=show_loop(loops[0] if loops else block),
        )
    if [i.binding for i in block.iters] != [x.var for x in loops] or any(
        x.extent is not i.extent for x, i in zip(loops, block.iters, strict=True)
    ):
        raise ScheduleError(
            f"{name} does not stand in plain loops of its own", node=show_loop(loops[0])
        )
    for x in loops:
        plain(s, x)
    if sum(1 for _ in ir.blocks(loops[0])) != 1:
        raise ScheduleError(f"{name} shares loops with others", node=show_loop(loops[0]))
    return found


def as_convolution(block: Block) -> Convolution | None:
    """The block as a convolution of 3 x 3 taps; told by what it computes, not by names."""
    value = block.value
    if block.combiner != "sum" or block.init is not n.const(0.0, F32) or block.where is not n.TRUE:
        return None
    if not isinstance(value, Mul) or len(block.spatial) != 4 or len(block.reduce) != 3:
        return None
    if block.indices != tuple(i.var for i in block.spatial):
        return None
    if any((constant(i.extent) or 0) < 1 for i in block.iters):
        return None
    batch, rows, columns, out = block.spatial
    down, across, channels = block.reduce
    if [constant(i.extent) for i in (down, across)] != [TAPS, TAPS]:
        return None
    wanted = (batch.var, rows.var + down.var, columns.var + across.var, channels.var)
    for data, weights in ((value.lhs, value.rhs), (value.rhs, value.lhs)):
        if not isinstance(data, Load) or not isinstance(weights, Load):
            return None
        if data.type is not F32 or weights.type is not F32 or block.value.dtype is not F32:
            return None
        if len(data.indices) != 4 or data.buffer == weights.buffer:
            continue
        same = all(
            constant(simplify(a - b)) == 0 for a, b in zip(data.indices, wanted, strict=True)
        )
        used = {down.var, across.var, channels.var, out.var}
        if same and len(weights.indices) == 4 and set(weights.indices) == used:
            return Convolution(
                block, (batch, rows, columns, out), (down, across), channels, data, weights
            )
    return None


class _Stages:
    """The stages of a convolution by tiles of ``m`` x ``m`` results."""

    def __init__(self, func: Function, conv: Convolution, m: int) -> None:
        self.func, self.conv, self.m = func, conv, m
        self.matrices = matrices(m)
        self.buffers: dict[str, Buffer] = {}
        batch, rows, columns, out = (constant(i.extent) or 0 for i in conv.spatial)
        self.down, self.across = -(-rows // m), -(-columns // m)
        self.tiles = batch * self.down * self.across
        self.batch, self.inputs, self.outputs = batch, constant(conv.channels.extent) or 0, out
        self.data = conv.data.buffer

    def stages(self) -> list[Stmt]:
        """All of them, in order; ``buffers`` then are those between them."""
        out: list[Stmt] = []
        if (more := self._more_data()) is not None:
            out.append(more)
        return [*out, self._weights(), *self._tiles(), *self._products(), self._results()]

    def _stage(
        self,
        part: str,
        axes: Sequence[tuple[Var, int]],
        value: Expr,
        over: Sequence[tuple[Var, int]] = (),
    ) -> Stmt:
        """A nest of plain loops that computes a buffer of this name."""
        b = self.conv.block
        shape = tuple(n.as_expr(extent) for _, extent in axes)
        buffer = Buffer(f"{b.buffer}_{part}", F32, shape, "global")
        self.buffers[part] = buffer
        iters = [Iter(v, n.as_expr(extent), "spatial", v) for v, extent in axes]
        iters += [Iter(v, n.as_expr(extent), "reduce", v) for v, extent in over]
        out: Stmt = Block(
            f"{b.name}_{part}", tuple(iters), buffer.name, tuple(v for v, _ in axes), value,
            "sum" if over else None, n.const(0.0, F32) if over else None, origin=b.origin,
        )  # fmt: skip
        for i in reversed(iters):
            out = Loop(i.var, i.extent, out)
        return out

    def _load(self, part: str, *indices: Expr | int) -> Load:
        return Load(self.buffers[part].name, tuple(map(n.as_expr, indices)), F32)

    def _more_data(self) -> Stmt | None:
        """The data with zeros behind it, where the last tiles reach beyond it."""
        shape = [constant(d) or 0 for d in self.func.buffers[self.data].shape]
        reach = [self.down * self.m + TAPS - 1, self.across * self.m + TAPS - 1]
        if reach[0] <= shape[1] and reach[1] <= shape[2]:
            return None
        b, y, x, c = axes = [Var(k) for k in ("batch", "row", "col", "channel")]
        extents = [shape[0], max(shape[1], reach[0]), max(shape[2], reach[1]), shape[3]]
        inside = n.all_of(n.lt(y, shape[1]), n.lt(x, shape[2]))
        value = n.select(inside, Load(self.data, (b, y, x, c), F32), n.const(0.0, F32))
        stage = self._stage("d", list(zip(axes, extents, strict=True)), value)
        self.data = self.buffers["d"].name
        return stage

    def _weights(self) -> Stmt:
        """G g G^T."""
        rows, conv = self.matrices.weights, self.conv
        y, x, c, o = (Var(k) for k in ("row", "col", "channel", "out"))

        def weight(down: int, across: int) -> Expr:
            taps = zip(conv.taps, (down, across), strict=True)
            values: dict[Var, Expr] = {i.var: n.as_expr(k) for i, k in taps}
            values |= {conv.channels.var: c, conv.spatial[3].var: o}
            return n.substitute(conv.weights, values)

        def factor(at: Var, tap: int) -> Expr:
            return _chosen(at, [n.const(float(row[tap]), F32) for row in rows])

        total: Expr | None = None
        for across in range(TAPS):
            column: Expr | None = None
            for down in range(TAPS):
                term = factor(y, down) * weight(down, across)
                column = term if column is None else column + term
            assert column is not None
            term = factor(x, across) * column
            total = term if total is None else total + term
        assert total is not None
        size = len(rows)
        axes = [(y, size), (x, size), (c, self.inputs), (o, self.outputs)]
        return self._stage("u", axes, total)

    def _tiles(self) -> tuple[Stmt, Stmt]:
        """B^T d B of the tiles of the data, down and then across."""
        rows, m = self.matrices.inputs, self.m
        size = len(rows)
        y, x, t, c = (Var(k) for k in ("row", "col", "tile", "channel"))
        axes = [(y, size), (x, size), (t, self.tiles), (c, self.inputs)]
        known = entered(anywhere(self.func), [Iter(t, n.as_expr(self.tiles), "spatial", t)])
        first = simplify(t // (self.down * self.across), known)
        top = simplify(t // self.across % self.down * m, known)
        left = simplify(t % self.across * m, known)
        column = [Load(self.data, (first, top + k, left + x, c), F32) for k in range(size)]
        down = self._stage("t", axes, _chosen(y, _products_of_inputs(rows, column)))
        row = [self._load("t", y, k, t, c) for k in range(size)]
        return down, self._stage("v", axes, _chosen(x, _products_of_inputs(rows, row)))

    def _products(self) -> tuple[Stmt, Stmt]:
        """For each place in a tile, tiles times weights; then A^T times these, down."""
        rows = self.matrices.results
        size = len(rows[0])
        y, x, t, o, c = (Var(k) for k in ("row", "col", "tile", "out", "channel"))
        axes = [(y, size), (x, size), (t, self.tiles), (o, self.outputs)]
        value = self._load("v", y, x, t, c) * self._load("u", y, x, c, o)
        products = self._stage("m", axes, value, [(c, self.inputs)])
        column = [self._load("m", k, x, t, o) for k in range(size)]
        sums = _products_of_results(rows, column)
        return products, self._stage("s", [(y, self.m), *axes[1:]], _chosen(y, sums))

    def _results(self) -> Stmt:
        """A^T times what is left, across: the block that was the convolution."""
        conv, m = self.conv, self.m
        b, y, x, o = (i.var for i in conv.spatial)
        known = entered(anywhere(self.func), conv.spatial)
        t = simplify((b * self.down + y // m) * self.across + x // m, known)
        row = [self._load("s", y % m, k, t, o) for k in range(len(self.matrices.inputs))]
        value = _chosen(x % m, _products_of_results(self.matrices.results, row))
        block = conv.block
        out: Stmt = block.with_(iters=conv.spatial, value=value, combiner=None, init=None)
        for i in reversed(conv.spatial):
            assert isinstance(i.binding, Var)
            out = Loop(i.binding, i.extent, out)
        return out


def _chosen(at: Expr, options: Sequence[Expr]) -> Expr:
    """The option of a number; the last one for others."""
    *first, out = options
    for k in reversed(range(len(first))):
        out = n.select(n.eq(at, n.as_expr(k)), first[k], out)
    return out


def _sum(row: Sequence[Fraction], terms: Sequence[Expr]) -> Expr | None:
    """The terms by their coefficients, added up; what needs no multiplication comes first."""
    used = [(c, x) for c, x in zip(row, terms, strict=True) if c]
    out: Expr | None = None
    for c, x in sorted(used, key=lambda term: (term[0] != 1, abs(term[0]) != 1)):
        factor = n.const(float(c), F32)
        if out is None:
            out = x if c == 1 else x * factor
        elif abs(c) == 1:
            out = out + x if c == 1 else out - x
        else:
            out = fma(x, factor, out)
    return out


def _products_of_inputs(rows: Matrix, terms: Sequence[Expr]) -> list[Expr]:
    """B^T times a row: two rows that differ in the signs of odd places share what those make."""
    out: list[Expr] = []
    for k, row in enumerate(rows):
        other = next((j for j in range(k) if rows[j] == _mirrored(row)), k)
        even, odd = (_sum(_every_other(rows[other], p), terms) for p in (0, 1))
        if even is None or odd is None:
            whole = _sum(row, terms)
            assert whole is not None
            out.append(whole)
        else:
            out.append(even + odd if other == k else even - odd)
    return out


def _products_of_results(rows: Matrix, terms: Sequence[Expr]) -> list[Expr]:
    """A^T times a row: columns that differ in the signs of odd places are added up before."""
    columns = list(zip(*rows, strict=True))
    pairs = {
        j: k
        for j in range(len(columns))
        for k in range(j + 1, len(columns))
        if columns[k] == _mirrored(columns[j]) and columns[k] != columns[j]
    }
    out: list[Expr] = []
    for k, row in enumerate(rows):
        some = [j for j in range(len(columns)) if j not in pairs.values()]
        parts = [
            terms[j] if j not in pairs
            else terms[j] + terms[pairs[j]] if k % 2 == 0
            else terms[j] - terms[pairs[j]]
            for j in some
        ]  # fmt: skip
        whole = _sum([row[j] for j in some], parts)
        assert whole is not None
        out.append(whole)
    return out


def _mirrored(row: Row) -> Row:
    return tuple(c if k % 2 == 0 else -c for k, c in enumerate(row))


def _every_other(row: Row, first: int) -> Row:
    return tuple(c if k % 2 == first else Fraction(0) for k, c in enumerate(row))
