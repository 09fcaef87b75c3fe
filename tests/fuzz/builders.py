"""Nodes of ONNX's operators that need inputs of certain shapes, drawn around a value."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from onnx import TensorProto, helper

from .maker import Impossible, Known, Maker
from .values import dtypes_of, is_float, is_int

Builder = Callable[[Maker, Known], Known]

UNARY: Final = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Celu", "Cos",
    "Cosh", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "IsInf",
    "IsNaN", "LeakyRelu", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Selu",
    "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh",
    "ThresholdedRelu",
)  # fmt: skip
BINARY: Final = (
    "Add", "Sub", "Mul", "Div", "Pow", "Mod", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor",
    "And", "Or", "Xor", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "PRelu",
)  # fmt: skip
MOVEMENTS: Final = (
    "Where", "Clip", "Cast", "TopK", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze",
    "Expand", "Tile", "Slice", "Concat", "Split", "Pad", "Gather", "GatherElements", "GatherND",
    "Trilu", "Shape", "Size", "NonZero", "Compress", "ArgMax", "ArgMin", "ReduceMax", "ReduceMin",
)  # fmt: skip
VARIADIC: Final = ("Max", "Min", "Mean", "Sum")
REDUCE: Final = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
BUILDERS: Final[dict[str, tuple[Builder, int, int]]] = {}  # with the ranks they take


def builds(*names: str, ranks: tuple[int, int] = (0, 5)) -> Callable[[Builder], Builder]:
    def register(builder: Builder) -> Builder:
        for name in names:
            BUILDERS[name] = (lambda m, x, n=name: builder(m, x, n), *ranks)  # type: ignore
        return builder

    return register


def _floats(m: Maker, name: str, *names: str) -> dict[str, float | None]:
    """Attributes that are left out or drawn."""
    some = [0.0, 1.0, 0.5, -1.0, 0.2, 2.0, 1.6]
    return {n: m.draw.choice(some) if m.draw.one_in(2) else None for n in names}


_ALPHA: Final = {
    "Elu": ("alpha",), "LeakyRelu": ("alpha",), "Celu": ("alpha",), "ThresholdedRelu": ("alpha",),
    "Selu": ("alpha", "gamma"), "HardSigmoid": ("alpha", "beta"), "Shrink": ("bias", "lambd"),
}  # fmt: skip


@builds(*UNARY)
def unary(m: Maker, x: Known, name: str) -> Known:
    attributes: dict[str, Any] = _floats(m, name, *_ALPHA.get(name, ()))
    if name == "Celu" and attributes["alpha"] == 0.0:
        attributes["alpha"] = 1.0
    if name == "Gelu":
        attributes["approximate"] = m.draw.choice([None, "tanh", "none"])
    return m.add(name, [x], **attributes)


@builds(*BINARY)
def binary(m: Maker, x: Known, name: str) -> Known:
    same = [v for v in m.values if v.dtype == x.dtype and _broadcast(v.shape, x.shape)]
    attributes: dict[str, Any] = {}
    if name == "BitShift":
        attributes["direction"] = m.draw.choice(["LEFT", "RIGHT"])
    if name == "Mod" and is_float(x.dtype):
        attributes["fmod"] = 1
    if name == "PRelu":
        return m.add(name, [x, m.weights(*m.draw.smaller(x.shape), dtype=x.dtype)])
    if same and m.draw.one_in(2):
        y = m.draw.choice(same)
    else:
        kind = "positive" if name in ("Pow", "Mod", "Div") and not m.draw.one_in(4) else "any"
        shape = m.draw.smaller(x.shape)
        if m.draw.one_in(4):
            shape = [2, *x.shape]
        y = m.given(m.draw.array(x.dtype, shape, kind), 3)
    pair = [y, x] if m.draw.one_in(3) else [x, y]
    if name in ("Div", "Mod") and is_int(x.dtype) and not pair[1].array.all():
        raise Impossible("divides by zero")
    return m.add(name, pair, **attributes)


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    pairs = zip(reversed(a), reversed(b), strict=False)
    return all(p == q or 1 in (p, q) for p, q in pairs)


@builds(*VARIADIC)
def variadic(m: Maker, x: Known, name: str) -> Known:
    some = [
        m.given(m.draw.array(x.dtype, m.draw.smaller(x.shape))) for _ in range(m.draw.number(0, 3))
    ]
    return m.add(name, [x, *some])


@builds("Where")
def where(m: Maker, x: Known, name: str) -> Known:
    c = m.given(m.draw.array(bool, m.draw.smaller(x.shape)), 2)
    y = m.given(m.draw.array(x.dtype, m.draw.smaller(x.shape)), 2)
    return m.add(name, [c, x, y] if m.draw.one_in(2) else [c, y, x])


@builds("Clip")
def clip(m: Maker, x: Known, name: str) -> Known:
    low, high = (m.given(m.draw.array(x.dtype, [])) if m.draw.one_in(2) else None for _ in "ab")
    if m.opset < 11:
        low_high = [None if v is None else float(v.array) for v in (low, high)]
        return m.add(name, [x], min=low_high[0], max=low_high[1])
    return m.add(name, [x, low, high])


@builds("Cast")
def cast(m: Maker, x: Known, name: str) -> Known:
    import onnx.defs

    schema: Any = onnx.defs.get_schema("Cast", m.opset, "")
    kinds = dtypes_of(sorted(schema.outputs[0].types))
    usual = [
        k for k in kinds if k.name in ("float32", "int32", "int64", "bool", "float16", "uint8")
    ]
    to = m.draw.choice(usual if m.draw.number(0, 2) else [k for k in kinds if k.kind != "O"])
    return m.add(name, [x], to=helper.np_dtype_to_tensor_dtype(to))


@builds(*REDUCE, ranks=(0, 5))
def reduce(m: Maker, x: Known, name: str) -> Known:
    axes: list[int] | None = [a - m.draw.choice([0, x.rank]) for a in m.draw.some(range(x.rank))]
    if not axes and m.draw.number(0, 2):
        axes = None
    attributes: dict[str, Any] = {"keepdims": m.draw.choice([None, 0, 1])}
    version = 13 if name == "ReduceSum" else 18
    if m.opset < version:
        return m.add(name, [x], axes=axes or None, **attributes)
    attributes["noop_with_empty_axes"] = m.draw.choice([None, 0, 1])
    return m.add(name, [x, None if axes is None else m.ints(axes)], **attributes)


@builds("ArgMax", "ArgMin", ranks=(1, 5))
def arg(m: Maker, x: Known, name: str) -> Known:
    last = m.draw.choice([None, 0, 1]) if m.opset >= 12 else None
    keep = m.draw.choice([None, 0, 1])
    return m.add(name, [x], axis=m.axis(x), keepdims=keep, select_last_index=last)


@builds("Softmax", "LogSoftmax", "Hardmax", ranks=(1, 5))
def softmax(m: Maker, x: Known, name: str) -> Known:
    return m.add(name, [x], axis=m.draw.choice([None, m.axis(x)]))


@builds("LpNormalization", ranks=(1, 5))
def lp_normalization(m: Maker, x: Known, name: str) -> Known:
    return m.add(name, [x], axis=m.axis(x), p=m.draw.choice([1, 2]))


@builds("CumSum", "CumProd", ranks=(1, 4))
def scan(m: Maker, x: Known, name: str) -> Known:
    axis = m.given(np.array(m.axis(x), m.draw.choice([np.int32, np.int64])), 6)
    flags = {n: m.draw.choice([None, 0, 1]) for n in ("exclusive", "reverse")}
    return m.add(name, [x, axis], **flags)


@builds("TopK", ranks=(1, 4))
def top_k(m: Maker, x: Known, name: str) -> Known:
    axis = m.axis(x)
    k = m.draw.number(0, x.shape[axis])
    if m.opset < 10:
        return m.add(name, [x], 2, axis=axis, k=max(1, k))
    flags = {} if m.opset < 11 else {"largest": m.draw.choice([None, 0, 1]), "sorted": 1}
    return m.add(name, [x, m.ints([k])], 2, axis=axis, **flags)


# ----------------------------------------------------------------------------------- movements


@builds("Transpose", ranks=(0, 5))
def transpose(m: Maker, x: Known, name: str) -> Known:
    return m.add(name, [x], perm=m.draw.order(x.rank) if m.draw.number(0, 4) else None)


@builds("Reshape", ranks=(0, 5))
def reshape(m: Maker, x: Known, name: str) -> Known:
    dims = list(x.shape)
    for _ in range(m.draw.number(1, 3)):
        k = m.draw.number(0, len(dims))
        divisors = [d for d in (2, 3, 4, 8) if k < len(dims) and dims[k] and dims[k] % d == 0]
        if k + 1 < len(dims) and m.draw.one_in(2):
            dims[k : k + 2] = [dims[k] * dims[k + 1]]
        elif divisors:
            d = m.draw.choice(divisors)
            dims[k : k + 1] = [d, dims[k] // d]
        elif len(dims) < 6:
            dims.insert(k, 1)
    if dims and m.draw.one_in(2) and math.prod(dims):
        dims[m.draw.number(0, len(dims) - 1)] = -1
    for k in range(min(x.rank, len(dims))):
        if dims[k] == x.shape[k] and m.draw.one_in(3):
            dims[k] = 0
    return m.add(name, [x, m.ints(dims)])


@builds("Flatten", ranks=(0, 5))
def flatten(m: Maker, x: Known, name: str) -> Known:
    return m.add(name, [x], axis=m.draw.number(-x.rank if m.opset >= 11 else 0, x.rank))


@builds("Squeeze", ranks=(1, 5))
def squeeze(m: Maker, x: Known, name: str) -> Known:
    axes = [
        k - m.draw.choice([0, x.rank])
        for k, d in enumerate(x.shape)
        if d == 1 and m.draw.number(0, 2)
    ]
    if m.opset < 13:
        return m.add(name, [x], axes=axes or None)
    return m.add(name, [x, m.ints(axes) if axes else None])


@builds("Unsqueeze", ranks=(0, 4))
def unsqueeze(m: Maker, x: Known, name: str) -> Known:
    rank = x.rank + m.draw.number(1, 2)
    axes = m.draw.order(rank)[: rank - x.rank]
    axes = [a - m.draw.choice([0, rank]) for a in axes]
    return m.add(name, [x], axes=axes) if m.opset < 13 else m.add(name, [x, m.ints(axes)])


@builds("Expand", ranks=(0, 5))
def expand(m: Maker, x: Known, name: str) -> Known:
    shape = [d if d != 1 or m.draw.one_in(2) else m.draw.size() for d in x.shape]
    shape = [1 if m.draw.one_in(4) else d for d in shape]
    if m.draw.one_in(3) and len(shape) < 5:
        shape = [m.draw.number(0, 3), *shape]
    elif m.draw.one_in(3):
        shape = shape[m.draw.number(0, len(shape)) :]
    return m.add(name, [x, m.ints(shape)])


@builds("Tile", ranks=(1, 4))
def tile(m: Maker, x: Known, name: str) -> Known:
    return m.add(name, [x, m.ints([m.draw.choice([1, 1, 2, 3, 0]) for _ in x.shape])])


@builds("Slice", ranks=(1, 5))
def slice_(m: Maker, x: Known, name: str) -> Known:
    axes = m.draw.some(range(x.rank)) or [0]
    starts, ends, steps = [], [], []
    far = [np.iinfo(np.int64).max, np.iinfo(np.int64).min, 2**31 - 1, -(2**31), -1, 0]
    for a in axes:
        d = x.shape[a]
        starts.append(m.draw.choice(far) if m.draw.one_in(6) else m.draw.number(-d - 1, d + 1))
        ends.append(m.draw.choice(far) if m.draw.one_in(3) else m.draw.number(-d - 1, d + 1))
        steps.append(m.draw.choice([1, 1, 1, 2, 3, -1, -1, -2, 5]))
    signed = [a - m.draw.choice([0, x.rank]) for a in axes]
    if m.opset < 10:
        return m.add(name, [x], starts=starts, ends=ends, axes=axes)
    inputs = [m.ints(starts), m.ints(ends), m.ints(signed), m.ints(steps)]
    return m.add(name, [x, *inputs[: 4 if m.draw.number(0, 2) else 3]])


@builds("Concat", ranks=(1, 5))
def concat(m: Maker, x: Known, name: str) -> Known:
    axis = m.axis(x)
    others = [
        v
        for v in m.values
        if v.dtype == x.dtype
        and v.rank == x.rank
        and all(
            p == q
            for k, (p, q) in enumerate(zip(v.shape, x.shape, strict=True))
            if k != axis % x.rank
        )
    ]
    some = [m.draw.choice(others) for _ in range(m.draw.number(0, 2))]
    if m.draw.one_in(2):
        shape = [m.draw.size() if k == axis % x.rank else d for k, d in enumerate(x.shape)]
        some.append(m.given(m.draw.array(x.dtype, shape, "plain")))
    some.insert(m.draw.number(0, len(some)), x)
    return m.add(name, some, axis=axis)


@builds("Split", ranks=(1, 5))
def split(m: Maker, x: Known, name: str) -> Known:
    axis = m.axis(x)
    d, count = x.shape[axis], m.draw.number(1, 3)
    cuts = sorted(m.draw.number(0, d) for _ in range(count - 1))
    sizes = [b - a for a, b in zip([0, *cuts], [*cuts, d], strict=True)]
    if m.opset < 13:
        return m.add(name, [x], count, axis=axis, split=sizes)
    if m.opset >= 18 and m.draw.one_in(2):
        return m.add(name, [x], count, axis=axis, num_outputs=count)
    return m.add(name, [x, m.ints(sizes)], count, axis=axis)


@builds("Pad", ranks=(0, 5))
def pad(m: Maker, x: Known, name: str) -> Known:
    modes = ["constant", "constant", "reflect", "edge", *(["wrap"] if m.opset >= 19 else [])]
    mode = m.draw.choice(modes)
    low = -1 if m.draw.one_in(3) else 0
    pads = [m.draw.choice([0, m.draw.number(low, 3)]) for _ in range(2 * x.rank)]
    if m.opset < 11:
        return m.add(name, [x], pads=pads, mode=mode)
    fill = m.given(m.draw.array(x.dtype, [])) if m.draw.one_in(2) else None
    axes = None
    if m.opset >= 18 and m.draw.one_in(3):
        order = m.draw.order(x.rank)[: m.draw.number(0, x.rank)]
        pads = [*pads[: len(order)], *pads[x.rank : x.rank + len(order)]]
        axes = m.ints(order)
    return m.add(name, [x, m.ints(pads), fill, axes], mode=mode)


@builds("Gather", ranks=(1, 5))
def gather(m: Maker, x: Known, name: str) -> Known:
    axis = m.axis(x)
    kind = m.draw.choice([np.int32, np.int64])
    indices = m.draw.index(kind, m.draw.shape(0, 2, 20), x.shape[axis], wild=False)
    return m.add(name, [x, m.given(indices, 2)], axis=axis)


@builds("GatherElements", ranks=(1, 4))
def gather_elements(m: Maker, x: Known, name: str) -> Known:
    axis = m.axis(x)
    shape = [
        m.draw.number(0, 4) if k == axis % x.rank else m.draw.number(0, d)
        for k, d in enumerate(x.shape)
    ]
    return m.add(
        name, [x, m.given(m.draw.index(np.int64, shape, x.shape[axis], False), 2)], axis=axis
    )


@builds("GatherND", ranks=(1, 4))
def gather_nd(m: Maker, x: Known, name: str) -> Known:
    depth = m.draw.number(1, x.rank)
    batch = m.draw.number(0, depth - 1) if m.opset >= 12 else 0
    shape = [*x.shape[:batch], *m.draw.shape(0, 2, 12)]
    columns = [m.draw.index(np.int64, [*shape, 1], d, False) for d in x.shape[batch:depth]]
    return m.add(name, [x, m.given(np.concatenate(columns, -1), 2)], batch_dims=batch or None)


@builds("ScatterElements", ranks=(1, 4))
def scatter_elements(m: Maker, x: Known, name: str) -> Known:
    axis = m.axis(x)
    shape = [m.draw.number(0, d) for d in x.shape]
    indices = m.given(m.draw.index(np.int64, shape, x.shape[axis], False), 2)
    kinds = [
        None,
        *(["add", "mul"] if m.opset >= 16 else []),
        *(["min", "max"] if m.opset >= 18 else []),
    ]
    reduction = m.draw.choice(kinds)
    if reduction is None:  # which of two writes to one place is last is not defined
        flat = np.argsort(m.draw.generator().random((*shape[:0], *shape)), axis).astype(np.int64)
        indices = m.given(flat, 2)
    return m.add(
        name,
        [x, indices, m.given(m.draw.array(x.dtype, shape, "plain"), 2)],
        axis=axis,
        reduction=reduction,
    )


@builds("ScatterND", ranks=(1, 4))
def scatter_nd(m: Maker, x: Known, name: str) -> Known:
    depth = m.draw.number(1, x.rank)
    count = m.draw.number(0, 4)
    columns = [m.draw.index(np.int64, [count, 1], d, False) for d in x.shape[:depth]]
    kinds = [*(["add", "mul"] if m.opset >= 16 else []), *(["min", "max"] if m.opset >= 18 else [])]
    if not kinds or m.draw.one_in(3):
        kinds, count = [None], 1  # type: ignore
        columns = [c[:1] for c in columns]
    index = np.concatenate(columns, -1)
    updates = m.draw.array(x.dtype, [len(index), *x.shape[depth:]], "plain")
    return m.add(name, [x, m.given(index, 2), m.given(updates, 2)], reduction=m.draw.choice(kinds))


@builds("Trilu", ranks=(2, 4))
def trilu(m: Maker, x: Known, name: str) -> Known:
    k = m.given(np.array(m.draw.number(-4, 4), np.int64)) if m.draw.one_in(2) else None
    return m.add(name, [x, k], upper=m.draw.choice([None, 0, 1]))


@builds("ReverseSequence", ranks=(2, 4))
def reverse_sequence(m: Maker, x: Known, name: str) -> Known:
    time = m.draw.number(0, 1)
    lengths = np.array(
        [m.draw.number(0, x.shape[time]) for _ in range(x.shape[1 - time])], np.int64
    )
    return m.add(name, [x, m.given(lengths, 2)], time_axis=time, batch_axis=1 - time)


@builds("DepthToSpace", "SpaceToDepth", ranks=(4, 4))
def blocks(m: Maker, x: Known, name: str) -> Known:
    mode = m.draw.choice([None, "DCR", "CRD"]) if name == "DepthToSpace" and m.opset >= 11 else None
    return m.add(name, [x], blocksize=m.draw.choice([1, 2, 3]), mode=mode)


@builds("Shape", "Size", ranks=(0, 5))
def shape_of(m: Maker, x: Known, name: str) -> Known:
    ends: dict[str, int] = {}
    if name == "Shape" and m.opset >= 15:
        ends = {
            n: m.draw.number(-x.rank - 1, x.rank + 1) for n in ("start", "end") if m.draw.one_in(2)
        }
    return m.add(name, [x], **ends)


@builds("NonZero", ranks=(0, 4))
def non_zero(m: Maker, x: Known, name: str) -> Known:
    return m.add(name, [x])


@builds("Unique", ranks=(0, 3))
def unique(m: Maker, x: Known, name: str) -> Known:
    axis = m.axis(x) if x.rank and m.draw.one_in(2) else None
    return m.add(name, [x], m.draw.number(1, 4), axis=axis, sorted=m.draw.choice([None, 0, 1]))


@builds("Compress", ranks=(1, 4))
def compress(m: Maker, x: Known, name: str) -> Known:
    axis = m.axis(x) if m.draw.one_in(2) else None
    extent = x.array.size if axis is None else x.shape[axis]
    return m.add(
        name, [x, m.given(m.draw.array(bool, [m.draw.number(0, min(extent, 20))]), 2)], axis=axis
    )


@builds("OneHot", ranks=(0, 3))
def one_hot(m: Maker, x: Known, name: str) -> Known:
    depth = m.draw.number(1, 6)
    pair = m.given(m.draw.array(m.draw.choice([np.float32, np.int64]), [2], "plain"))
    axis = m.draw.number(-x.rank - 1, x.rank)
    return m.add(
        name, [x, m.given(np.array(depth, np.int64)), pair], axis=m.draw.choice([None, axis])
    )


@builds("EyeLike", ranks=(2, 2))
def eye_like(m: Maker, x: Known, name: str) -> Known:
    dtype = m.draw.choice([None, TensorProto.FLOAT, TensorProto.INT64, TensorProto.DOUBLE])
    return m.add(name, [x], k=m.draw.number(-4, 4), dtype=dtype)


__all__ = ["BINARY", "BUILDERS", "REDUCE", "UNARY", "VARIADIC", "builds", "TensorProto"]
