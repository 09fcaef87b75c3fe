"""Operators of ONNX Runtime's own domain that its optimiser makes of several of ONNX's."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

import numpy as np
import onnx.defs

from planish.compiler.dtypes import F32
from planish.compiler.graph.ir import Value
from planish.compiler.ops.activations import (
    Clip,
    Elu,
    Gelu,
    HardSigmoid,
    HardSwish,
    LeakyRelu,
    Relu,
    Sigmoid,
    Softplus,
    Softsign,
    Swish,
    Tanh,
    ThresholdedRelu,
)
from planish.compiler.ops.elementwise import Add, Mul, Unary
from planish.compiler.ops.matmul import MatMul
from planish.compiler.ops.normalization import LayerNorm, RMSNorm
from planish.compiler.ops.shape import Transpose

from .elementwise import step
from .microsoft_quantized import MICROSOFT
from .nn import channels_behind, channels_in_front, conv_from, conv_of, gemm_of
from .normalization import stash_of
from .reader import NodeReader, handles

_OPSETS = range(1, onnx.defs.onnx_opset_version() + 1)


@handles("Gelu", 1, domain=MICROSOFT)
def gelu(r: NodeReader) -> Value:
    """By the error function."""
    return r.one(Gelu(), r.input(0))


@handles("BiasGelu", 1, domain=MICROSOFT)
def bias_gelu(r: NodeReader) -> Value:
    """Of a sum."""
    return r.one(Gelu(), step(r, Add(), r.input(0), r.input(1)))


@handles("FastGelu", 1, domain=MICROSOFT)
def fast_gelu(r: NodeReader) -> Value:
    """By tanh, of a sum if there is a bias."""
    x, bias = r.input(0), r.optional(1)
    return r.one(Gelu(True), x if bias is None else step(r, Add(), x, bias))


@handles("QuickGelu", 1, domain=MICROSOFT)
def quick_gelu(r: NodeReader) -> Value:
    """x * sigmoid(alpha * x)."""
    return r.one(Swish(float(r.attribute("alpha", 1.702))), r.input(0))


def _fused_matmul(r: NodeReader) -> Value:
    """alpha * A B, the last two axes of either transposed, or the first moved behind the others."""
    a, b = r.input(0), r.input(1)
    if a.type.rank < 2 or b.type.rank < 2:
        raise r.fail(f"operands {a!r} and {b!r} must be matrices")
    alpha = float(r.attribute("alpha", 1.0))
    op = MatMul(bool(r.attribute("transA", 0)), bool(r.attribute("transB", 0)))
    batches = [bool(r.attribute(name, 0)) for name in ("transBatchA", "transBatchB")]
    a, b = (
        # [m, batch..., k] as [batch..., m, k]
        step(r, Transpose((*range(1, v.type.rank - 1), 0, v.type.rank - 1)), v) if moved else v
        for v, moved in zip((a, b), batches, strict=True)
    )
    y = step(r, op, a, b)
    if alpha == 1:
        return y
    return r.one(Mul(), y, r.constant(np.array(alpha, y.type.dtype.numpy)))


for _name in ("FusedMatMul", "TransposeMatMul"):
    handles(_name, 1, domain=MICROSOFT)(_fused_matmul)

_ACTIVATIONS: Final[dict[str, type[Unary]]] = {
    "Relu": Relu,
    "LeakyRelu": LeakyRelu,
    "Sigmoid": Sigmoid,
    "HardSigmoid": HardSigmoid,
    "Tanh": Tanh,
    "Clip": Clip,
    "HardSwish": HardSwish,
    "Elu": Elu,
    "Softplus": Softplus,
    "Softsign": Softsign,
    "ThresholdedRelu": ThresholdedRelu,
}


def _activated(r: NodeReader, x: Value, numbers: list[float | None]) -> Value:
    """What the activation that a node names, with its own numbers in their order, makes of x."""
    name = r.attribute("activation", "")
    if not name:
        return x
    if name not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise r.fail(f"activation {name} is not supported", hint=f"those that are: {known}")
    kind = _ACTIVATIONS[name]
    names = [f.name for f in fields(kind)]
    if any(v is not None for v in numbers[len(names) :]):
        raise r.fail(f"activation {name} takes no {len(numbers)} numbers")
    given = zip(names, numbers, strict=False)
    return r.one(kind(**{name: v for name, v in given if v is not None}), x)


def _fused_conv(r: NodeReader, last: bool) -> Value:
    y, more = conv_of(r, last), r.optional(3)
    if more is not None:
        y = step(r, Add(), y, more)
    return _activated(r, y, [float(v) for v in r.attribute("activation_params", ())])


@handles("FusedConv", 1, domain=MICROSOFT)
def fused_conv(r: NodeReader) -> Value:
    """A convolution, plus a fourth input, then an activation."""
    return _fused_conv(r, False)


@handles("NhwcFusedConv", 1, domain=MICROSOFT)
def nhwc_fused_conv(r: NodeReader) -> Value:
    """The same with the channels behind, but those of the weights."""
    return _fused_conv(r, True)


@handles("NhwcConv", 1, domain=MICROSOFT)
def nhwc_conv(r: NodeReader) -> Value:
    """The channels are behind in the weights too: [out, sizes..., in]."""
    x, w = (channels_in_front(r, v) for v in (r.input(0), r.input(1)))
    return channels_behind(r, conv_from(r, x, w, r.optional(2)))


def _numbers(r: NodeReader) -> list[float | None]:
    """The numbers of an activation that are attributes, None for what is not given."""
    given = [r.attribute(f"activation_{name}") for name in ("alpha", "beta", "gamma")]
    return [None if v is None else float(v) for v in given]


@handles("FusedGemm", 1, domain=MICROSOFT)
def fused_gemm(r: NodeReader) -> Value:
    """Gemm, then an activation."""
    return _activated(r, gemm_of(r, 13), _numbers(r))


@handles("FusedMatMulActivation", 1, domain=MICROSOFT)
def fused_matmul_activation(r: NodeReader) -> Value:
    """As FusedMatMul, then an activation."""
    return _activated(r, _fused_matmul(r), _numbers(r))


@handles("GemmFastGelu", 1, domain=MICROSOFT)
def gemm_fast_gelu(r: NodeReader) -> Value:
    """A product, plus a bias if there is one, then Gelu by tanh."""
    y, bias = step(r, MatMul(), r.input(0), r.input(1)), r.optional(2)
    return r.one(Gelu(True), y if bias is None else step(r, Add(), y, bias))


def _sum(r: NodeReader, bias: int) -> Value:
    """The input, plus what skipped the layer, plus a bias."""
    total = step(r, Add(), r.input(0), r.input(1))
    given = r.optional(bias)
    return total if given is None else step(r, Add(), total, given)


@handles("SkipLayerNormalization", 1, domain=MICROSOFT)
def skip_layer_normalization(r: NodeReader) -> list[Value | None]:
    """The fourth output is the sum that is normalised."""
    total = _sum(r, 4)
    statistics = any(r.output_names[1:3])
    op = LayerNorm(-1, float(r.attribute("epsilon", 1e-12)), statistics, F32)
    found = r.builder.apply(op, total, r.input(2), r.optional(3), origin=r.label)
    return [found[0], *(found[1:] if statistics else (None, None)), total]


@handles("SkipSimplifiedLayerNormalization", 1, domain=MICROSOFT)
def skip_simplified_layer_normalization(r: NodeReader) -> list[Value | None]:
    """The fourth output is the sum that is normalised."""
    if any(r.output_names[1:3]):
        raise r.fail("the statistics (outputs 1 and 2) are not supported")
    total = _sum(r, 3)
    op = RMSNorm(-1, float(r.attribute("epsilon", 1e-12)))
    return [step(r, op, total, r.input(2)), None, None, total]


@handles("SimplifiedLayerNormalization", *_OPSETS)
def simplified_layer_normalization(r: NodeReader) -> Value:
    """An RMS normalisation, which ONNX Runtime has among ONNX's operators."""
    if any(r.output_names[1:]):
        raise r.fail("the statistics (output 1) are not supported")
    axis, epsilon = int(r.attribute("axis", -1)), float(r.attribute("epsilon", 1e-5))
    return r.one(RMSNorm(axis, epsilon, stash_of(r)), r.input(0), r.input(1))
