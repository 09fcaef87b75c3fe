"""Patterns of exported models that are one operator of ours: activations, normalisations, softmax.

One operator of several stages becomes one kernel. The constants of an approximation are compared
within the precision with which models write them down; what is composed differs from its parts by
roundings only.
"""

from __future__ import annotations

from collections import Counter
from math import pi, sqrt
from typing import Final

from planish.compiler.expr.nodes import Const
from planish.compiler.expr.sizes import volume
from planish.compiler.ops.activations import Gelu, HardSigmoid, HardSwish, Mish, Swish
from planish.compiler.ops.base import is_one
from planish.compiler.ops.elementwise import Add, Mul, Sub
from planish.compiler.ops.normalization import LayerNorm, RMSNorm
from planish.compiler.ops.power import PowScalar
from planish.compiler.ops.reduction import ReduceMax, ReduceMean, ReduceSum
from planish.compiler.ops.shape import Transpose
from planish.compiler.ops.softmax import Softmax

from .axes import inverse
from .ir import Graph, Node, Replacement, Value
from .match import Rules, Site, is_elementwise, same_shape

COMPOSITIONS: Final = Rules("compose")
CLOSE: Final = 1e-5  # how far a model's sqrt(2 / pi) may be from ours, relatively
EXACT: Final = 2.0**-50  # the same where x is of 64 bits, in which models' ten digits show
DEPTH: Final = 6  # multiplications in a product


def compose(graph: Graph) -> Graph:
    """The graph with patterns replaced by operators."""
    return COMPOSITIONS.run(graph)


# ------------------------------------------------------------------------------------ products


def factors(
    s: Site, v: Value, depth: int = DEPTH, root: bool = True
) -> tuple[float, Counter[Value]]:
    """A value as a number times factors with exponents: through products that nobody else reads."""
    node = s.makers.get(v)
    whole: tuple[float, Counter[Value]] = (1.0, Counter({v: 1}))
    if node is None or depth == 0:
        return whole
    op, inputs = node.op, node.inputs
    if isinstance(op, PowScalar) and op.exponent in (2.0, 3.0) and inputs[0] is not None:
        return 1.0, Counter({inputs[0]: int(op.exponent)})
    square = op.name == "mul" and inputs[0] is inputs[1]
    if not root and not square and not s.alone(v):
        return whole
    if op.name not in ("mul", "div") or not _is_full(s, node):
        return whole
    number, out = 1.0, Counter[Value]()
    for k, x in enumerate(inputs):
        assert x is not None
        scalar = s.scalar(x)
        if scalar is not None and x.type.rank <= v.type.rank:
            if k == 1 and op.name == "div" and scalar == 0:
                return whole
            number = number / scalar if k == 1 and op.name == "div" else number * scalar
        elif k == 1 and op.name == "div":
            return whole
        else:
            more, found = factors(s, x, depth - 1, False)
            number *= more
            out.update(found)
    return number, out


def _is_full(s: Site, node: Node) -> bool:
    """Whether the operands that are no numbers have the shape of the result."""
    out = node.outputs[0].type.shape
    full = (x for x in node.operands if s.scalar(x) is None)
    return all(same_shape(x.type.shape, out) for x in full)


def close(a: float | None, b: float, x: Value) -> bool:
    """Whether a number of the model is this one, as far as the elements of x tell."""
    within = CLOSE if x.type.dtype.computed.bits <= 32 else EXACT
    return a is not None and abs(a - b) <= within * abs(b)


def scaled(s: Site, v: Value) -> tuple[float, Value] | None:
    """A value as a number times one other value."""
    number, found = factors(s, v)
    if len(found) == 1:
        ((x, power),) = found.items()
        if power == 1:
            return number, x
    return None


def offset(s: Site, v: Value) -> tuple[Value, float] | None:
    """A value as another one plus a number."""
    node = s.maker(v, "add", "sub")
    if node is None:
        return None
    for k in (1, 0):
        number, x = s.scalar(node.inputs[k]), node.inputs[1 - k]
        if number is not None and x is not None and same_shape(x.type.shape, v.type.shape):
            if node.op.name == "add":
                return x, number
            return (x, -number) if k == 1 else None
    return None


# --------------------------------------------------------------------------------- activations


@COMPOSITIONS.rule("mul", "div")
def activation(s: Site, node: Node) -> Replacement:
    """x * g(x) -> gelu(x), swish(x), hard_swish(x) or mish(x), in any of the ways to write them"""
    if not node.outputs[0].type.dtype.is_float:
        return None
    number, found = factors(s, node.outputs[0])
    if len(found) != 2 or set(found.values()) != {1}:
        return None
    one, two = found
    for x, gate in ((one, two), (two, one)):
        maker = s.makers.get(gate)
        if maker is None or not s.alone(gate) or not same_shape(x.type.shape, gate.type.shape):
            continue
        for match in (_gelu, _swish, _hard_swish, _mish):
            op = match(s, number, x, gate)
            if op is not None:
                return s.make(op, x)
    return None


def _gelu(s: Site, number: float, x: Value, gate: Value) -> Gelu | None:
    """number * x * (erf(x / sqrt 2) + 1), or with the tanh of a cubic."""
    parts = offset(s, gate)
    if parts is None:
        return None
    inner = scaled(s, parts[0])
    if inner is None or not close(inner[0], parts[1], x) or not close(number * parts[1], 0.5, x):
        return None
    node = s.maker(inner[1], "erf", "tanh")
    if node is None or node.inputs[0] is None:
        return None
    if node.op.name == "erf":
        argument = scaled(s, node.inputs[0])
        if argument is not None and argument[1] is x and close(argument[0], 0.5**0.5, x):
            return Gelu()
        return None
    return Gelu(True) if _is_cubic(s, node.inputs[0], x) else None


def _is_cubic(s: Site, v: Value, x: Value) -> bool:
    """Whether v is sqrt(2 / pi) * (x + 0.044715 * x^3)."""
    number, found = factors(s, v)
    if not close(number, sqrt(2 / pi), x):
        return False
    if len(found) == 1:
        (total,) = found
        node = s.maker(total, "add")
        if node is None or x not in node.inputs:
            return False
        other = node.inputs[1] if node.inputs[0] is x else node.inputs[0]
        if other is None:
            return False
        cube, powers = factors(s, other)
        return close(cube, 0.044715, x) and powers == Counter({x: 3})
    if len(found) == 2 and found[x] == 1:
        (rest,) = (v for v in found if v is not x)
        parts = offset(s, rest)
        if parts is None or not close(parts[1], 1.0, x):
            return False
        square, powers = factors(s, parts[0])
        return close(square, 0.044715, x) and powers == Counter({x: 2})
    return False


def _swish(s: Site, number: float, x: Value, gate: Value) -> Swish | None:
    """x * sigmoid(alpha * x)."""
    node = s.maker(gate, "sigmoid")
    if node is None or node.inputs[0] is None or number != 1.0:
        return None
    if node.inputs[0] is x:
        return Swish()
    inner = scaled(s, node.inputs[0])
    return Swish(inner[0]) if inner is not None and inner[1] is x else None


def _hard_swish(s: Site, number: float, x: Value, gate: Value) -> HardSwish | None:
    """x * clip(x / 6 + 1 / 2, 0, 1)."""
    node = s.maker(gate, "hard_sigmoid", "clip")
    if node is None or node.inputs[0] is None:
        return None
    source = node.inputs[0]
    if isinstance(node.op, HardSigmoid):
        fits = source is x and number == 1.0
        fits = fits and close(node.op.alpha, 1 / 6, x) and close(node.op.beta, 0.5, x)
        return HardSwish() if fits else None
    parts = offset(s, source)
    low, high = getattr(node.op, "low", None), getattr(node.op, "high", None)
    if parts is None or low != 0 or high is None or not close(number * high, 1.0, x):
        return None
    slope = scaled(s, parts[0])
    if parts[0] is x:
        slope = 1.0, x
    if slope is None or slope[1] is not x:
        return None
    fits = close(number * slope[0], 1 / 6, x) and close(number * parts[1], 0.5, x)
    return HardSwish() if fits else None


def _mish(s: Site, number: float, x: Value, gate: Value) -> Mish | None:
    """x * tanh(softplus(x))."""
    node = s.maker(gate, "tanh")
    inner = None if node is None else s.maker(node.inputs[0], "softplus")
    return Mish() if number == 1.0 and inner is not None and inner.inputs[0] is x else None


# ------------------------------------------------------------------------------ normalisations


def _squared(s: Site, v: Value | None) -> Value | None:
    """What is squared."""
    node = s.maker(v, "mul", "pow_scalar")
    if node is None:
        return None
    if isinstance(node.op, PowScalar):
        return node.inputs[0] if node.op.exponent == 2.0 else None
    return node.inputs[0] if node.inputs[0] is node.inputs[1] else None


def _mean(s: Site, v: Value | None) -> tuple[Value, tuple[int, ...]] | None:
    """What a value is the mean of, and over which axes; they stay with extent 1."""
    node = s.maker(v, "reduce_mean")
    if node is None or not isinstance(node.op, ReduceMean) or not node.op.keepdims:
        return None
    x = node.inputs[0]
    return None if x is None else (x, node.op.over(x.type.rank))


@COMPOSITIONS.rule("mul")
def mean(s: Site, node: Node) -> Replacement:
    """reduce_sum(x) * (1 / n) -> reduce_mean(x)"""
    for k in (0, 1):
        number, inner = s.scalar(node.inputs[k]), s.maker(node.inputs[1 - k], "reduce_sum")
        if number is None or inner is None or not isinstance(inner.op, ReduceSum):
            continue
        x, out = inner.inputs[0], node.outputs[0].type
        if (
            x is None
            or not out.dtype.is_float
            or not same_shape(inner.outputs[0].type.shape, out.shape)
        ):
            continue
        size = volume(x.type.shape[axis] for axis in inner.op.over(x.type.rank))
        if isinstance(size, Const) and size.value and close(number, 1 / int(size.value), x):
            return s.make(ReduceMean(inner.op.axes, inner.op.keepdims), x)
    return None


def _inverse_root(s: Site, v: Value | None) -> tuple[Value, float] | None:
    """1 / sqrt(w + epsilon) as w and epsilon."""
    node = s.maker(v, "reciprocal", "div", "pow_scalar")
    if node is None:
        return None
    if isinstance(node.op, PowScalar):
        root: Value | None = node.inputs[0] if node.op.exponent == -0.5 else None
        return None if root is None else offset(s, root)
    if node.op.name == "div" and s.scalar(node.inputs[0]) != 1:
        return None
    return _root(s, node.inputs[-1])


def _root(s: Site, v: Value | None) -> tuple[Value, float] | None:
    """sqrt(w + epsilon) as w and epsilon."""
    node = s.maker(v, "sqrt", "pow_scalar")
    if node is None or getattr(node.op, "exponent", 0.5) != 0.5 or node.inputs[0] is None:
        return None
    return offset(s, node.inputs[0])


def _over_root(s: Site, node: Node) -> tuple[Value, Value | None, Value, float] | None:
    """y / sqrt(w + epsilon) * p as y, p, w and epsilon."""
    a, b = node.inputs
    assert a is not None and b is not None
    if node.op.name == "div":
        found = _root(s, b)
        return None if found is None else (a, None, *found)
    for y, root in ((a, b), (b, a)):
        if (found := _inverse_root(s, root)) is not None:
            return y, None, *found
        inner = s.maker(root, "mul")
        if inner is None:
            continue
        for p, r in (inner.inputs, inner.inputs[::-1]):
            if (
                p is not None
                and p in s.graph.constants
                and (found := _inverse_root(s, r)) is not None
            ):
                return y, p, *found
    return None


@COMPOSITIONS.rule("mul", "div")
def normalization(s: Site, node: Node) -> Replacement:
    """(x - mean(x)) / sqrt(variance(x) + eps) -> layer_norm(x), and the same for rms_norm"""
    found = _over_root(s, node)
    if found is None or found[0].type.dtype.computed is not found[0].type.dtype:
        return None
    y, p, variance, epsilon = found
    if epsilon < 0 or not same_shape(y.type.shape, node.outputs[0].type.shape):
        return None
    out = _normalized(s, y, variance, epsilon)
    return out if out is None or p is None else s.make(Mul(), out, p)


def _normalized(s: Site, y: Value, variance: Value, epsilon: float) -> Value | None:
    rank = y.type.rank
    centred = _centred(s, y)
    if centred is not None and _is_variance(s, variance, *centred):
        x, axes = centred
        if axes == tuple(range(rank - len(axes), rank)):
            return s.make(LayerNorm(-len(axes), epsilon), x)
        if axes == (1,) and rank > 2 and _is_convolved(s, x):  # its channels will be last
            perm = (0, *range(2, rank), 1)
            normal = s.make(LayerNorm(-1, epsilon), s.make(Transpose(perm), x))
            return s.make(Transpose(inverse(perm)), normal)
    mean = _mean(s, variance)
    if mean is None or _squared(s, mean[0]) is not y:
        return None
    axes = mean[1]
    if axes != tuple(range(rank - len(axes), rank)):
        return None
    return s.make(RMSNorm(-len(axes), epsilon), y)


def _is_convolved(s: Site, v: Value | None, depth: int = DEPTH) -> bool:
    """Whether a value follows from a convolution element by element."""
    node = s.maker(v)
    if node is None or v is None or depth == 0:
        return False
    if node.op.name in ("conv", "conv_transpose"):
        return True
    full = [x for x in node.operands if same_shape(x.type.shape, v.type.shape)]
    return is_elementwise(node.op) and any(_is_convolved(s, x, depth - 1) for x in full)


def _centred(s: Site, v: Value) -> tuple[Value, tuple[int, ...]] | None:
    """x and axes, if v is x - mean(x, axes)."""
    node = s.maker(v, "sub")
    mean = None if node is None else _mean(s, node.inputs[1])
    return mean if node is not None and mean is not None and mean[0] is node.inputs[0] else None


def _is_variance(s: Site, v: Value, x: Value, axes: tuple[int, ...]) -> bool:
    """Whether v is mean((x - mean(x))^2), or mean(x^2) - mean(x)^2 held above 0."""
    mean = _mean(s, v)
    if mean is not None:
        base = _squared(s, mean[0])
        return mean[1] == axes and base is not None and _centred(s, base) == (x, axes)
    held = s.maker(v, "relu")
    difference = s.maker(v if held is None else held.inputs[0], "sub")
    if difference is None:
        return False
    square, base = _mean(s, difference.inputs[0]), _squared(s, difference.inputs[1])
    if square is None or square[1] != axes or _squared(s, square[0]) is not x:
        return False
    return _mean(s, base) == (x, axes)


@COMPOSITIONS.rule("add")
def shifted_product(s: Site, node: Node) -> Replacement:
    """x * k + (b - mean(x) * k) -> (x - mean(x)) * k + b, where k is the inverse of a root"""
    for product, rest in (node.inputs, node.inputs[::-1]):
        first, difference = s.maker(product, "mul"), s.maker(rest, "sub")
        second = None if difference is None else s.maker(difference.inputs[1], "mul")
        if first is None or second is None or difference is None:
            continue
        for x, k in (first.inputs, first.inputs[::-1]):
            if k not in second.inputs or x is None or k is None:
                continue
            m = second.inputs[1] if second.inputs[0] is k else second.inputs[0]
            found = _mean(s, m)
            inner = s.maker(k, "mul")
            roots = [k] if inner is None else inner.inputs
            if (
                found is None
                or found[0] is not x
                or all(_inverse_root(s, r) is None for r in roots)
            ):
                continue
            y = s.make(Mul(), s.make(Sub(), x, m), k)
            return s.make(Add(), y, difference.inputs[0])
    return None


@COMPOSITIONS.rule("mul", "add")
def normalization_parameters(s: Site, node: Node) -> Replacement:
    """layer_norm(x) * scale + bias -> layer_norm(x, scale, bias), and the same for rms_norm"""
    for k in (0, 1):
        y, p = node.inputs[k], node.inputs[1 - k]
        inner = s.maker(y, "layer_norm", "rms_norm")
        if inner is None or y is None or p is None or not s.alone(y) or len(inner.outputs) > 1:
            continue
        x, *given = inner.inputs
        scale, bias = [*given, None, None][:2]
        axes = -getattr(inner.op, "axis", -1)
        own = same_shape(y.type.shape, node.outputs[0].type.shape)
        width = [d for d in p.type.shape[: max(0, p.type.rank - axes)] if not is_one(d)]
        if not own or width or p.type.rank > y.type.rank or p.type.dtype is not y.type.dtype:
            continue
        if axes < 1:
            continue
        if node.op.name == "mul" and scale is None and bias is None:
            return s.make(inner.op, x, p)
        if node.op.name == "add" and bias is None and inner.op.name == "layer_norm":
            return s.make(inner.op, x, scale, p)
    return None


# ------------------------------------------------------------------------------------- softmax


@COMPOSITIONS.rule("div", "mul")
def shares(s: Site, node: Node) -> Replacement:
    """e / sum(e), where e is exp(x - max(x)) -> softmax(x)"""
    for e, total in (node.inputs, node.inputs[::-1]):
        if node.op.name == "mul":
            reciprocal = s.maker(total, "reciprocal")
            total = None if reciprocal is None else reciprocal.inputs[0]
        elif e is node.inputs[1]:
            continue
        summed, power = s.maker(total, "reduce_sum"), s.maker(e, "exp")
        if summed is None or power is None or summed.inputs[0] is not e:
            continue
        shifted = s.maker(power.inputs[0], "sub")
        peak = None if shifted is None else s.maker(shifted.inputs[1], "reduce_max")
        if shifted is None or peak is None or peak.inputs[0] is not shifted.inputs[0]:
            continue
        x = peak.inputs[0]
        assert x is not None
        if not isinstance(summed.op, ReduceSum) or not isinstance(peak.op, ReduceMax):
            continue
        axes = summed.op.over(x.type.rank)
        if axes != peak.op.over(x.type.rank) or not (summed.op.keepdims and peak.op.keepdims):
            continue
        return s.make(Softmax(axes), x)
    return None
