"""ONNX operators that read elements at chosen places: slices, gathers, padding and the like."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planish.compiler.dtypes import I64, STRING
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, as_expr
from planish.compiler.expr.sizes import at_least, bounds, ceildiv, normal
from planish.compiler.graph.ir import Array, Content, Value, assume
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.indexing import (
    Gather,
    GatherElements,
    GatherND,
    OneHot,
    Slice,
    Trilu,
)
from planish.compiler.ops.padding import PAD_MODES, Pad
from planish.compiler.ops.scans import CumProd, CumSum, ScanAlong
from planish.compiler.ops.shape import Concat, Reshape

from .dynamic import Integers, sliced
from .reader import NodeReader, handles
from .shape import LATE, positive

_FAR = (1 << 31) - 1  # a bound at least this far is "to the end" of a symbolic dimension
_STEP = 1 << 41  # a step this great leaves every dimension


@handles("Slice", 1, 10, 11, 13)
def slice_(r: NodeReader) -> Value:
    """Attributes before version 10, inputs with steps since."""
    x = r.input(0)
    starts: Sequence[Expr]
    ends: Sequence[Expr]
    given_axes: Sequence[int] | None
    given_steps: Sequence[int] | None
    if r.version == 1:
        starts, ends = (tuple(map(as_expr, r.required(name))) for name in ("starts", "ends"))
        given_axes, given_steps = r.attribute("axes"), None
    else:
        if any(v is not None and v.content is None for v in map(r.optional, range(1, 5))):
            return sliced(r, x, r.input(1), r.input(2), *(_ints_or_value(r, k) for k in (3, 4)))
        starts, ends = r.content(1, "the starts"), r.content(2, "the ends")
        given_axes = None if r.optional(3) is None else r.ints(3, "the axes")
        given_steps = None if r.optional(4) is None else r.ints(4, "the steps")
    axes = range(len(starts)) if given_axes is None else given_axes
    steps = [1] * len(starts) if given_steps is None else given_steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise r.fail("starts, ends, axes and steps differ in number")
    rank = x.type.rank
    from_, by, shape = [as_expr(0)] * rank, [1] * rank, list(x.type.shape)
    for axis, start, end, step in zip(positive(r, axes, rank), starts, ends, steps, strict=True):
        if step == 0:
            raise r.fail("a step is 0")
        step = max(-_STEP, min(_STEP, step))
        extent = x.type.shape[axis]
        first, count = clamped(start, end, step, extent)
        if same_as_one(count):
            step = 1
        from_[axis], by[axis], shape[axis] = first, step, count
    return r.one(Slice(tuple(from_), tuple(by), tuple(shape)), x)


def _ints_or_value(r: NodeReader, index: int) -> Value | tuple[int, ...] | None:
    """An input as numbers if they are known."""
    value = r.optional(index)
    return value if value is None or r.array(index) is None else r.ints(index, f"input {index}")


def same_as_one(e: Expr) -> bool:
    """Whether this is the number 1."""
    return isinstance(e, Const) and e.value == 1


def clamped(start: Expr, end: Expr, step: int, extent: Expr) -> tuple[Expr, Expr]:
    """Where a slice of a dimension begins, and its length; of none it may begin anywhere."""
    start, end = from_front(start, extent), from_front(end, extent)
    if step > 0:
        far = isinstance(start, Const) and 0 <= start.value < _FAR
        first = start if far else clamp(start, as_expr(0), extent)
        count = steps(clamp(end, as_expr(0), extent), first, step)
    else:
        top = normal(extent - 1)
        bound = as_expr(-1 if at_least(start, 0) or start is top else 0)
        first = clamp(start, bound, top)
        count = steps(first, clamp(end, as_expr(-1), top), -step)
        if same(bound, 0):  # the first element of none would count
            count = n.minimum(count, extent)
    count = from_zero(count)
    return (as_expr(0), count) if same(count, 0) else (first, count)


def steps(high: Expr, low: Expr, step: int) -> Expr:
    """``(high - low) / step`` rounded up, with minima and maxima outside of it."""
    match high, low:
        case n.Min(a, b), _:
            return normal(n.minimum(steps(a, low, step), steps(b, low, step)))
        case n.Max(a, b), _:
            return normal(n.maximum(steps(a, low, step), steps(b, low, step)))
        case _, n.Min(a, b):
            return normal(n.maximum(steps(high, a, step), steps(high, b, step)))
        case _, n.Max(a, b):
            return normal(n.minimum(steps(high, a, step), steps(high, b, step)))
        case _:
            return ceildiv(normal(high - low), step)


def from_zero(e: Expr) -> Expr:
    """``max(0, e)`` without what is never more than 0."""
    _, most = bounds(e)
    if most is not None and most <= 0:
        return as_expr(0)
    match e:
        case n.Max(a, b):
            return normal(n.maximum(from_zero(a), from_zero(b)))
        case n.Min(a, b):
            return normal(n.minimum(from_zero(a), from_zero(b)))
        case _:
            return normal(n.maximum(0, e))


def same(e: Expr, value: int) -> bool:
    """Whether this is that number."""
    return isinstance(e, Const) and e.value == value


def from_front(index: Expr, extent: Expr) -> Expr:
    """An index counted from the front; what is far off stays far off."""
    if isinstance(index, Const):
        value = int(index.value)
        if abs(value) >= _FAR and not isinstance(extent, Const):
            return as_expr(_FAR if value > 0 else -_FAR)
        return normal(index + extent) if value < 0 else index
    if at_least(index, 0):
        return index
    return normal(n.select(index < 0, index + extent, index))


def clamp(index: Expr, low: Expr, high: Expr) -> Expr:
    """``index`` held between two bounds."""
    if isinstance(index, Const) and not isinstance(high, Const):
        if index.value >= _FAR:
            return high
        if index.value <= -_FAR:
            return low
    return normal(n.maximum(low, n.minimum(index, high)))


@handles("Gather", 1, 11, 13)
def gather(r: NodeReader) -> Value:
    """Known, evenly spaced indices make a slice."""
    x, indices = r.input(0), r.input(1)
    (axis,) = positive(r, [r.attribute("axis", 0)], x.type.rank)
    progression = as_progression(indices, x.type.shape[axis])
    if progression is None:
        return r.one(Gather(axis), x, indices)
    first, step, count = progression
    extent = x.type.shape[axis]
    last = normal(first + step * (count - 1))
    for place in (first, last):
        if not at_least(place, 0) or not at_least(extent, place + 1):
            if isinstance(place, Const) and isinstance(extent, Const):
                raise r.fail(f"an index is out of range for the {extent} of {x!r}")
            assume(n.le(0, place))
            assume(n.lt(place, extent))
    rank, shape = x.type.rank, list(x.type.shape)
    shape[axis] = as_expr(count)
    starts, steps = [as_expr(0)] * rank, [1] * rank
    starts[axis], steps[axis] = first, step
    whole = count == 1 and same(extent, 1)
    y = (
        x
        if whole
        else r.builder.one(
            Slice(tuple(starts), tuple(steps), tuple(shape)),
            x,
            name=r.output_names[0],
            origin=r.label,
        )
    )
    if indices.type.rank == 1:
        return y
    out = (*shape[:axis], *indices.type.shape, *shape[axis + 1 :])
    return r.one(Reshape(out), y)


def as_progression(indices: Value, extent: Expr) -> tuple[Expr, int, int] | None:
    """Known indices as first, step and count, if they are evenly spaced."""
    content = indices.content
    if not content:
        return None
    if len(content) == 1:
        (e,) = content
        if isinstance(e, Const):
            return (normal(e + extent) if e.value < 0 else e), 1, 1
        return (e, 1, 1) if at_least(e, 0) else None
    numbers = [int(e.value) for e in content if isinstance(e, Const)]
    if len(numbers) < len(content) or not (min(numbers) >= 0 or max(numbers) < 0):
        return None
    step = numbers[1] - numbers[0]
    if step == 0 or any(b - a != step for a, b in zip(numbers, numbers[1:], strict=False)):
        return None
    first = as_expr(numbers[0])
    return (normal(first + extent) if numbers[0] < 0 else first), step, len(numbers)


@handles("GatherElements", 11, 13)
def gather_elements(r: NodeReader) -> Value:
    """All versions alike."""
    return r.one(GatherElements(r.attribute("axis", 0)), r.input(0), r.input(1))


@handles("GatherND", 11, 12, 13)
def gather_nd(r: NodeReader) -> Value:
    """batch_dims since version 12."""
    batch = r.attribute("batch_dims", 0) if r.version >= 12 else 0
    return r.one(GatherND(batch), r.input(0), r.input(1))


@handles("Pad", 1, 2, 11, 13, 18, 19, *LATE)
def pad(r: NodeReader) -> Value:
    """Attributes before version 11; axes since 18, wrap since 19."""
    return pad_of(r, r.version)


def pad_of(r: NodeReader, version: int) -> Value:
    """Pad as it is in a version of ONNX's."""
    x = r.input(0)
    rank = x.type.rank
    mode = r.attribute("mode", "constant")
    if mode not in PAD_MODES or (mode == "wrap" and version < 19):
        raise r.fail(f"there is no mode {mode}")
    operand: Value | None = None
    fill: float | int | bool = 0
    axes = list(range(rank))
    pads: Sequence[Expr]
    if version < 11:
        pads = tuple(map(as_expr, r.required("pads" if version >= 2 else "paddings")))
        fill = r.attribute("value", 0.0)
    else:
        pads = ()
        operand = r.optional(2)
        if operand is not None and (known := r.array(2)) is not None and known.size == 1:
            if operand.type.dtype is not x.type.dtype:
                raise r.fail(f"the value {operand!r} is not {x.type.dtype}")
            if x.type.dtype.kind not in "cs":  # an attribute is one real number
                fill, operand = plain(known), None
        if operand is not None and operand.type.rank:  # one number with an axis, all the same
            operand = r.builder.one(Reshape(()), operand, origin=r.label)
        given = r.optional(3) if version >= 18 else None
        if given is None or r.array(3) is not None:
            pads = r.content(1, "the pads", signed=True)
            if given is not None:
                axes = positive(r, r.ints(3, "the axes"), rank)
        else:
            pads = _pads_by_axis(r, given, rank)
    if len(pads) != 2 * len(axes):
        raise r.fail(f"there are {len(pads)} pads for {len(axes)} dimensions")
    before, after = [as_expr(0)] * rank, [as_expr(0)] * rank
    for k, axis in enumerate(axes):
        before[axis], after[axis] = pads[k], pads[k + len(axes)]
    if mode != "constant":
        fill, operand = 0, None
    if all(same(p, 0) for p in (*before, *after)):
        return x
    if x.type.dtype is STRING and mode == "constant" and operand is None:
        operand = r.constant(np.array("", object), "empty")
    return (
        r.one(Pad(tuple(before), tuple(after), mode, fill), x, operand)
        if operand
        else r.one(Pad(tuple(before), tuple(after), mode, fill), x)
    )


def _pads_by_axis(r: NodeReader, axes: Value, rank: int) -> Content:
    """The pads of all axes, where only the data tells of which they are given."""
    i = Integers(r)
    pads, count = r.input(1), axes.type.size
    if count is None or pads.type.size != 2 * count:
        raise r.fail(f"{pads!r} are not two pads for each of {axes!r}")
    ends = [i(Gather(0), pads, list(range(at, at + count))) for at in (0, count)]
    spread = i(Concat(0), *(i.spread(end, axes, rank, 0) for end in ends))
    return r.symbols(spread, "the pads", signed=True)


def plain(array: Array) -> float | int | bool:
    """The only element of an array as a Python number."""
    one: float | int | bool = array.reshape(()).item()
    return one


@handles("CumSum", 11, 14)
def cumsum(r: NodeReader) -> Value:
    """All versions alike."""
    return scan(r, False)


@handles("CumProd", 26)
def cumprod(r: NodeReader) -> Value:
    """As CumSum."""
    return scan(r, True)


def scan(r: NodeReader, product: bool) -> Value:
    """A running sum or product; the axis may come with the call."""
    x, axes = r.input(0), r.content(1, "the axis", signed=True)
    if len(axes) != 1:
        raise r.fail(f"there are {len(axes)} axes")
    exclusive, reverse = bool(r.attribute("exclusive", 0)), bool(r.attribute("reverse", 0))
    if not isinstance(axes[0], Const):
        return r.one(ScanAlong(axes[0], product, exclusive, reverse), x)
    (axis,) = positive(r, r.ints(1, "the axis"), x.type.rank)
    return r.one((CumProd if product else CumSum)(axis, exclusive, reverse), x)


@handles("Trilu", 14)
def trilu(r: NodeReader) -> Value:
    """The diagonal is known."""
    k: Expr = as_expr(0)
    if r.optional(1) is not None:
        content = r.content(1, "the diagonal", signed=True)
        if len(content) != 1:
            raise r.fail(f"there are {len(content)} diagonals")
        k = content[0]
        if isinstance(k, Const):
            k = as_expr(max(-_STEP, min(_STEP, int(k.value))))
    return r.one(Trilu(bool(r.attribute("upper", 1)), k), r.input(0))


@handles("OneHot", 9, 11, 28)
def one_hot(r: NodeReader) -> Value:
    """The depth may be of any number type; all versions alike."""
    given = r.input(1)
    if given.type.size != 1:
        raise r.fail(f"the depth is {given!r}, not one number")
    if (array := r.array(1)) is not None:
        depth: Expr = as_expr(int(array.reshape(())))
    else:
        whole = given
        if given.content is None and given.type.dtype is not I64:
            whole = r.builder.one(Cast(I64), given, origin=r.label)
        depth = r.symbol(whole, "the depth")
    return r.one(OneHot(depth, r.attribute("axis", -1)), r.input(0), r.input(2))
