"""Convolutions, pooling and matrix products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, as_expr
from planish.compiler.graph.ir import TensorType, Value, unify
from planish.compiler.ops.base import Op, is_one
from planish.compiler.ops.convolution import Conv, ConvTranspose
from planish.compiler.ops.creation import ConstantOfShape
from planish.compiler.ops.determinant import Det
from planish.compiler.ops.elementwise import Add, Mul
from planish.compiler.ops.global_pooling import GlobalAveragePool, GlobalLpPool, GlobalMaxPool
from planish.compiler.ops.matmul import Einsum, MatMul, parse
from planish.compiler.ops.pooling import AveragePool, LpPool, MaxPool, MaxPoolIndices
from planish.compiler.ops.shape import Reshape, Transpose
from planish.compiler.ops.windows import Dim, plain, reach, same_pads

from .reader import NodeReader, handles

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def step(r: NodeReader, op: Op, *inputs: Value | None) -> Value:
    """Apply an operator whose result is not yet the node's."""
    return r.builder.one(op, *inputs, origin=r.label)


# ------------------------------------------------------------------------------------- windows


@dataclass(frozen=True)
class Geometry:
    """The attributes that convolutions and pooling share, complete."""

    kernel: tuple[Expr, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[Dim, ...]
    auto_pad: str

    @property
    def extents(self) -> tuple[int, ...]:
        """The kernel's extents as numbers."""
        return tuple(int(k.value) for k in self.kernel if isinstance(k, Const))


def per_axis(r: NodeReader, name: str, count: int, default: int) -> tuple[int, ...]:
    """An attribute with a number for each axis."""
    values = tuple(int(v) for v in r.attribute(name) or [default] * count)
    if len(values) != count:
        raise r.fail(f"attribute {name} {list(values)} has {len(values)} numbers, not {count}")
    return values


def geometry(
    r: NodeReader,
    sizes: tuple[Expr, ...],
    kernel: tuple[Expr, ...],
    dilated: bool = True,
    cuts: bool = False,
) -> Geometry:
    """The windows over spatial axes of these sizes; ``cuts`` as for ``same_pads``."""
    rank = len(sizes)
    if rank < 1:
        raise r.fail(f"the input {r.input(0)!r} has no spatial axes")
    if len(kernel) != rank:
        raise r.fail(f"the kernel {list(kernel)} has {len(kernel)} axes, the input {rank}")
    strides = per_axis(r, "strides", rank, 1)
    dilations = per_axis(r, "dilations", rank, 1) if dilated else (1,) * rank
    explicit = per_axis(r, "pads", 2 * rank, 0)
    auto_pad = r.attribute("auto_pad", "NOTSET")
    if auto_pad not in ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"):
        raise r.fail(f"auto_pad {auto_pad} does not exist")
    if min(*strides, *dilations) < 1:
        raise r.fail(f"strides {strides} and dilations {dilations} must be at least 1")
    if min(explicit) < 0:
        raise r.fail(f"pads {list(explicit)} must not be negative")
    pads: tuple[Dim, ...] = explicit
    if auto_pad == "VALID":
        pads = (0,) * (2 * rank)
    elif auto_pad != "NOTSET":
        found = [
            same_pads(size, k, stride, dilation, auto_pad == "SAME_UPPER", cuts)
            for size, k, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True)
        ]
        pads = (*(begin for begin, _ in found), *(end for _, end in found))
    return Geometry(kernel, strides, dilations, pads, auto_pad)


def weights_kernel(r: NodeReader, w: TensorType) -> tuple[Expr, ...]:
    """The kernel's extents, from the weights; kernel_shape must be the same."""
    kernel = w.shape[2:]
    given = r.attribute("kernel_shape")
    if given is not None:
        same = len(given) == len(kernel) and all(
            n.eq(k, int(g)) is not n.FALSE for k, g in zip(kernel, given, strict=True)
        )
        if not same:
            raise r.fail(f"kernel_shape {list(given)} does not fit the weights {w}")
    return kernel


@handles("Conv", 1, 11, 22)
def conv(r: NodeReader) -> Value:
    """All versions alike."""
    return conv_of(r)


def conv_of(r: NodeReader, last: bool = False) -> Value:
    """The sum of products, of the first three inputs; ``last``: x has its channels behind."""
    x, w, b = r.input(0), r.input(1), r.optional(2)
    if last:
        return channels_behind(r, conv_from(r, channels_in_front(r, x), w, b))
    return conv_from(r, x, w, b)


def channels_in_front(r: NodeReader, x: Value) -> Value:
    """[batch, sizes..., channels] as [batch, channels, sizes...]."""
    rank = x.type.rank
    if rank < 3:
        raise r.fail(f"the input {x!r} has no spatial axes")
    return step(r, Transpose((0, rank - 1, *range(1, rank - 1))), x)


def channels_behind(r: NodeReader, x: Value) -> Value:
    """[batch, channels, sizes...] as [batch, sizes..., channels]."""
    return step(r, Transpose((0, *range(2, x.type.rank), 1)), x)


def conv_from(r: NodeReader, x: Value, w: Value, b: Value | None) -> Value:
    """A convolution by the node's attributes."""
    g = geometry(r, x.type.shape[2:], weights_kernel(r, w.type))
    return r.one(Conv(g.strides, g.dilations, g.pads, int(r.attribute("group", 1))), x, w, b)


@handles("ConvTranspose", 1, 11, 22)
def conv_transpose(r: NodeReader) -> Value:
    """A wanted output shape, or one by auto_pad, decides the pads."""
    x, w, b = r.input(0), r.input(1), r.optional(2)
    sizes = x.type.shape[2:]
    g = geometry(r, sizes, weights_kernel(r, w.type))
    rank = len(sizes)
    adjust: tuple[Dim, ...] = per_axis(r, "output_padding", rank, 0)
    wanted = r.attribute("output_shape")
    pads = (0,) * (2 * rank) if g.auto_pad == "VALID" else g.pads
    outs: list[Expr] = []
    if wanted is not None:
        if len(wanted) not in (rank, rank + 2):
            raise r.fail(f"output_shape {wanted} must have {rank} numbers")
        outs = [as_expr(int(d)) for d in wanted[-rank:]]
    elif g.auto_pad.startswith("SAME"):
        outs = [n.mul(d, s) for d, s in zip(sizes, g.strides, strict=True)]
    if outs:
        pads, adjust = _fitting_pads(r, g, sizes, outs, adjust)
    groups = int(r.attribute("group", 1))
    return r.one(ConvTranspose(g.strides, g.dilations, pads, adjust, groups), x, w, b)


def _fitting_pads(
    r: NodeReader,
    g: Geometry,
    sizes: tuple[Expr, ...],
    outs: list[Expr],
    adjust: tuple[Dim, ...],
) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    """Pads, and output paddings, for which a transposed convolution has these output sizes."""
    begins: list[Dim] = []
    ends: list[Dim] = []
    extra: list[Dim] = []
    for k, (size, out) in enumerate(zip(sizes, outs, strict=True)):
        span = reach(g.kernel[k], g.dilations[k])
        # size * stride stands alone, so that it cancels against an output that is just that.
        scaled, fixed = n.mul(size, g.strides[k]), n.sub(span, g.strides[k])
        beyond = n.sub(scaled, out)
        total = n.maximum(n.add(beyond, n.add(fixed, as_expr(adjust[k]))), 0)
        small = n.floordiv(total, 2)
        begin, end = small, n.sub(total, small)
        if g.auto_pad != "SAME_UPPER":
            begin, end = end, begin
        begins.append(plain(begin))
        ends.append(plain(end))
        extra.append(plain(n.sub(total, n.add(beyond, fixed))))
    return (*begins, *ends), tuple(extra)


def pool_geometry(r: NodeReader, dilated: bool, last: bool = False) -> Geometry:
    """The windows of a pool; ``last``: over an input with the channels behind."""
    shape = r.input(0).type.shape
    sizes = shape[1:-1] if last else shape[2:]
    kernel = tuple(as_expr(int(k)) for k in r.required("kernel_shape"))
    if any(n.lt(k, 1) is n.TRUE for k in kernel):
        raise r.fail(f"kernel_shape {list(kernel)} must be at least 1")
    return geometry(r, sizes, kernel, dilated, cuts=True)


def ceil_mode(r: NodeReader, g: Geometry, since: int) -> bool:
    """Whether windows that reach beyond the end count."""
    if r.version < since:
        return False
    return bool(r.attribute("ceil_mode", 0)) and g.auto_pad == "NOTSET"


@handles("MaxPool", 1, 8, 10, 11, 12, 22)
def max_pool(r: NodeReader) -> list[Value]:
    """Indices since version 8, dilations and ceil_mode since 10."""
    x = r.input(0)
    g = pool_geometry(r, r.version >= 10)
    ceil = ceil_mode(r, g, 10)
    order = int(r.attribute("storage_order", 0)) if r.version >= 8 else 0
    fields = (g.extents, g.strides, g.dilations, g.pads, ceil, False)
    outputs = [r.one(MaxPool(*fields), x)]
    if len(r.output_names) > 1 and r.output_names[1]:
        indices = MaxPoolIndices(*fields, order)
        outputs.append(r.builder.one(indices, x, name=r.output_names[1], origin=r.label))
    return outputs


@handles("AveragePool", 1, 7, 10, 11, 19, 22)
def average_pool(r: NodeReader) -> Value:
    """count_include_pad since version 7, ceil_mode since 10, dilations since 19."""
    g = pool_geometry(r, r.version >= 19)
    ceil = ceil_mode(r, g, 10)
    include = r.version >= 7 and bool(r.attribute("count_include_pad", 0))
    op = AveragePool(g.extents, g.strides, g.dilations, g.pads, ceil, False, include)
    return r.one(op, r.input(0))


def norm_order(r: NodeReader) -> int:
    """The attribute p, which was a float in version 1."""
    p = r.attribute("p", 2)
    if p != int(p):
        raise r.fail(f"p is {p}, and only integers are supported")
    return int(p)


@handles("LpPool", 1, 2, 11, 18, 22)
def lp_pool(r: NodeReader) -> Value:
    """ceil_mode and dilations since version 18."""
    g = pool_geometry(r, r.version >= 18)
    ceil = ceil_mode(r, g, 18)
    p = norm_order(r)
    return r.one(LpPool(g.extents, g.strides, g.dilations, g.pads, ceil, False, p), r.input(0))


@handles("GlobalAveragePool", 1, 22)
def global_average_pool(r: NodeReader) -> Value:
    """All versions alike."""
    return r.one(GlobalAveragePool(), r.input(0))


@handles("GlobalMaxPool", 1, 22)
def global_max_pool(r: NodeReader) -> Value:
    """All versions alike."""
    return r.one(GlobalMaxPool(), r.input(0))


@handles("GlobalLpPool", 1, 2, 22)
def global_lp_pool(r: NodeReader) -> Value:
    """All versions alike."""
    return r.one(GlobalLpPool(False, norm_order(r)), r.input(0))


# ------------------------------------------------------------------------------ matrix products


@handles("MatMul", 1, 9, 13)
def matmul(r: NodeReader) -> Value:
    """An operand of rank 1 is a row on the left, a column on the right."""
    a, b = r.input(0), r.input(1)
    if 1 in (a.type.rank, b.type.rank):
        return product(r, a, b, lambda a, b: step(r, MatMul(), a, b))
    return product(r, a, b, lambda a, b: r.one(MatMul(), a, b))


def product(r: NodeReader, a: Value, b: Value, multiply: Callable[[Value, Value], Value]) -> Value:
    """What ``multiply`` makes of two operands, after one of rank 1 became a row or a column.

    The result has that axis no more.
    """
    if a.type.rank == 0 or b.type.rank == 0:
        raise r.fail(f"operands {a!r} and {b!r} must have axes")
    row, column = a.type.rank == 1, b.type.rank == 1
    if row:
        a = step(r, Reshape((as_expr(1), *a.type.shape)), a)
    if column:
        b = step(r, Reshape((*b.type.shape, as_expr(1))), b)
    y = multiply(a, b)
    if not row and not column:
        return y
    shape = y.type.shape
    outer, m, n = shape[:-2], shape[-2:-1], shape[-1:]
    return r.one(Reshape((*outer, *(() if row else m), *(() if column else n))), y)


@handles("Gemm", 1, 6, 7, 9, 11, 13)
def gemm(r: NodeReader) -> Value:
    """alpha * A B + beta * C; C broadcasts where asked before version 7, may lack since 11."""
    return gemm_of(r, r.version)


def gemm_of(r: NodeReader, version: int) -> Value:
    """Gemm as it is in a version of ONNX's."""
    a, b = r.input(0), r.input(1)
    c = r.input(2) if version < 11 else r.optional(2)
    alpha, beta = float(r.attribute("alpha", 1.0)), float(r.attribute("beta", 1.0))
    op = MatMul(bool(r.attribute("transA", 0)), bool(r.attribute("transB", 0)))
    if a.type.rank != 2 or b.type.rank != 2:
        raise r.fail(f"operands {a!r} and {b!r} must be matrices")
    if c is None and alpha == 1:
        return r.one(op, a, b)
    y = step(r, op, a, b)
    if version < 7 and not r.attribute("broadcast", 0) and c is not None:
        if c.type.rank != 2:
            raise r.fail(f"C {c!r} has not the shape {y.type}, and broadcast is 0")
        for d, e in zip(c.type.shape, y.type.shape, strict=True):
            unify(d, e, f"C {c!r} has not the shape {y.type}, and broadcast is 0")
    if alpha != 1:
        factor = _scalar(r, alpha, y.type, "alpha")
        y = r.one(Mul(), y, factor) if c is None else step(r, Mul(), y, factor)
    if c is None:
        return y
    if c.type.rank > 2:
        raise r.fail(f"C {c!r} must broadcast to {y.type}")
    if beta != 1:
        factor = _scalar(r, beta, y.type, "beta")
        known = r.builder.constants.get(c)
        if known is None:
            c = step(r, Mul(), c, factor)
        else:
            c = r.constant(known * r.builder.constants[factor], f"{c.name}_beta")
    out = r.one(Add(), y, c)
    if out.type.rank != 2 or any(
        is_one(d) and not is_one(e) for d, e in zip(y.type.shape, out.type.shape, strict=True)
    ):
        raise r.fail(f"C {c!r} must broadcast to {y.type}")
    return out


def _scalar(r: NodeReader, value: float, type: TensorType, what: str) -> Value:
    if not type.dtype.is_float and value != int(value):
        raise r.fail(f"{what} {value} is no {type.dtype}")
    return r.constant(np.array(value).astype(type.dtype.numpy), what)


@handles("Det", 11, 22)
def det(r: NodeReader) -> Value:
    """That of a matrix without elements is 1."""
    x = r.input(0)
    if x.type.size == 0 and x.type.rank >= 2:
        return r.one(ConstantOfShape(x.type.shape[:-2], n.const(1, x.type.dtype)))
    return r.one(Det(), x)


@handles("Einsum", 12, 28)
def einsum(r: NodeReader) -> Value:
    """A sum of products of two operands at a time; a matrix product where it is one."""
    operands = r.inputs()
    equation = explicit_equation(r, r.required("equation"), [v.type.rank for v in operands])
    terms, result = parse(equation)
    while len(operands) > 2:  # by pairs, from the left: less work than all at once
        kept = set("".join(terms[2:])) | set(result)
        letters = dict.fromkeys(terms[0] + terms[1])
        pair = "".join(letter for letter in letters if letter in kept)
        first = step(r, Einsum(f"{terms[0]},{terms[1]}->{pair}"), *operands[:2])
        operands, terms = [first, *operands[2:]], [pair, *terms[2:]]
    if len(operands) == 2 and (found := _as_matmul(terms, result, operands)) is not None:
        return r.one(found, *operands)
    return r.one(Einsum(f"{','.join(terms)}->{result}"), *operands)


def _as_matmul(terms: list[str], result: str, operands: list[Value]) -> MatMul | None:
    """The matrix product that a pair of terms is, if it is one as it stands."""
    a, b = terms
    if len(a) != len(b) or len(a) < 2 or any(len(set(t)) < len(t) for t in terms):
        return None
    batch, pair = a[:-2], set(a[-2:]) & set(b[-2:])
    if b[:-2] != batch or len(pair) != 1:
        return None
    (k,) = pair
    i, j = (next(c for c in t[-2:] if c != k) for t in terms)
    if result != batch + i + j:
        return None
    sums = [v.type.shape[t.index(k)] for v, t in zip(operands, terms, strict=True)]
    if is_one(sums[0]) != is_one(sums[1]):
        return None
    return MatMul(a[-2] == k, b[-1] == k)


def explicit_equation(r: NodeReader, equation: str, ranks: list[int]) -> str:
    """An equation of einsum with the ellipsis expanded and the result written."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise r.fail(f"equation {equation!r} does not fit {len(ranks)} operands")
    spare = [c for c in _LETTERS if c not in equation]
    counts = [
        rank - len(term.replace("...", ""))
        for term, rank in zip(terms, ranks, strict=True)
        if "..." in term
    ]
    most = max(counts, default=0)
    if min(counts, default=0) < 0 or most > len(spare):
        raise r.fail(f"equation {equation!r} does not fit operands of ranks {ranks}")
    dots = "".join(spare[:most])
    filled = [
        term.replace("...", dots[most - (rank - len(term.replace("...", ""))) :])
        for term, rank in zip(terms, ranks, strict=True)
    ]
    if arrow:
        result = right.replace("...", dots)
    else:
        named = left.replace(",", "").replace("...", "")
        once = sorted(c for c in set(named) if named.count(c) == 1)
        result = dots + "".join(once)
    for term in (*filled, result):
        if not all(c in _LETTERS for c in term):
            raise r.fail(f"equation {equation!r} is malformed")
    return f"{','.join(filled)}->{result}"
