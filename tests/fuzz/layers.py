"""Nodes as networks have them: products, convolutions, pools, normalisations, branches, loops."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from onnx import helper

from .builders import builds
from .case import Array
from .maker import F32, Impossible, Known, Maker


@builds("MatMul", ranks=(1, 4))
def matmul(m: Maker, x: Known, name: str) -> Known:
    columns = m.draw.size()
    if m.draw.one_in(4):  # x on the right
        k = x.shape[-2] if x.rank > 1 else x.shape[0]
        return m.add(name, [m.weights(m.draw.size(), k, dtype=x.dtype), x])
    shape = [x.shape[-1], columns]
    if x.rank > 2 and m.draw.one_in(3):
        shape = [*(d if m.draw.number(0, 2) else 1 for d in x.shape[:-2]), *shape]
    y = m.add(
        name, [x, m.weights(*(shape if m.draw.number(0, 8) else shape[-2:-1]), dtype=x.dtype)]
    )
    if m.draw.one_in(2) and y.rank:
        y = m.add("Add", [y, m.weights(y.shape[-1], dtype=x.dtype)])
    return y


@builds("Gemm", ranks=(2, 2))
def gemm(m: Maker, x: Known, name: str) -> Known:
    a, b = (m.draw.choice([None, 0, 1]) for _ in "ab")
    rows, k = (x.shape[1], x.shape[0]) if a else x.shape
    columns = m.draw.size()
    w = m.weights(*((columns, k) if b else (k, columns)), dtype=x.dtype)
    c = m.weights(*m.draw.smaller([rows, columns]), dtype=x.dtype)
    if m.opset >= 11 and m.draw.one_in(4):
        c = None  # type: ignore
    scales = {n: m.draw.choice([None, 0.0, 0.5, 1.0, -2.0]) for n in ("alpha", "beta")}
    return m.add(name, [x, w, c], transA=a, transB=b, **scales)


def _windows(m: Maker, spatial: tuple[int, ...], dilated: bool = True) -> dict[str, Any]:
    """kernel_shape, and the rest as it happens."""
    rank = len(spatial)
    out: dict[str, Any] = {
        "kernel_shape": [m.draw.number(1, max(1, min(5, d + 1))) for d in spatial]
    }
    if m.draw.one_in(2):
        out["strides"] = [m.draw.number(1, 3) for _ in range(rank)]
    if dilated and m.draw.one_in(3):
        out["dilations"] = [m.draw.number(1, 3) for _ in range(rank)]
    kind = m.draw.number(0, 6)
    if kind < 3:
        out["pads"] = [m.draw.number(0, max(0, k - 1)) for k in out["kernel_shape"] * 2]
    elif kind == 3:
        out["auto_pad"] = m.draw.choice(["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"])
    return out


@builds("Conv", ranks=(3, 5))
def conv(m: Maker, x: Known, name: str) -> Known:
    channels = x.shape[1]
    divisors = [g for g in (1, 2, 3, 4, channels) if g and channels % g == 0]
    group = m.draw.choice(divisors or [1]) if m.draw.one_in(2) else 1
    w = _windows(m, x.shape[2:])
    out = group * m.draw.choice([1, 1, 2, 3, 8] if group > 1 else [1, 2, 4, 7, 8, 16])
    if any(d == 0 for d in x.shape):
        raise Impossible("nothing to convolve")
    kernel = m.weights(out, channels // group, *w["kernel_shape"], dtype=x.dtype)
    bias = m.weights(out, dtype=x.dtype) if m.draw.one_in(2) else None
    if m.draw.one_in(2):
        del w["kernel_shape"]
    return m.add(name, [x, kernel, bias], group=group if group > 1 else None, **w)


@builds("ConvTranspose", ranks=(3, 4))
def conv_transpose(m: Maker, x: Known, name: str) -> Known:
    channels = x.shape[1]
    group = m.draw.choice([g for g in (1, 2, channels) if g and channels % g == 0] or [1])
    w = _windows(m, x.shape[2:])
    kernel = m.weights(channels, m.draw.number(1, 4), *w["kernel_shape"], dtype=x.dtype)
    if "strides" in w and m.draw.one_in(3):
        w["output_padding"] = [m.draw.number(0, s - 1) for s in w["strides"]]
    bias = m.weights(kernel.shape[1] * group, dtype=x.dtype) if m.draw.one_in(2) else None
    return m.add(name, [x, kernel, bias], group=group, **w)


@builds("MaxPool", "AveragePool", "LpPool", ranks=(3, 5))
def pool(m: Maker, x: Known, name: str) -> Known:
    since = {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[name]
    w = _windows(m, x.shape[2:], m.opset >= since)
    if m.opset >= (10 if name != "LpPool" else 18) and m.draw.one_in(3):
        w["ceil_mode"] = 1
    if name == "AveragePool" and m.draw.one_in(2):
        w["count_include_pad"] = 1
    return m.add(name, [x], 2 if name == "MaxPool" and m.draw.one_in(4) else 1, **w)


@builds("GlobalAveragePool", "GlobalMaxPool", ranks=(3, 5))
def global_pool(m: Maker, x: Known, name: str) -> Known:
    return m.add(name, [x])


@builds("BatchNormalization", ranks=(2, 5))
def batch_norm(m: Maker, x: Known, name: str) -> Known:
    c = x.shape[1]
    some = [m.weights(c, dtype=x.dtype) for _ in range(3)]
    epsilon = m.draw.choice([None, 1e-3])
    return m.add(name, [x, *some, m.weights(c, kind="positive", dtype=x.dtype)], epsilon=epsilon)


@builds("InstanceNormalization", ranks=(3, 5))
def instance_norm(m: Maker, x: Known, name: str) -> Known:
    return m.add(
        name, [x, m.weights(x.shape[1], dtype=x.dtype), m.weights(x.shape[1], dtype=x.dtype)]
    )


@builds("GroupNormalization", ranks=(3, 5))
def group_norm(m: Maker, x: Known, name: str) -> Known:
    c = x.shape[1]
    groups = m.draw.choice([g for g in (1, 2, 4, c) if g and c % g == 0] or [1])
    width = c if m.opset >= 21 else groups
    return m.add(
        name,
        [x, m.weights(width, dtype=x.dtype), m.weights(width, dtype=x.dtype)],
        num_groups=groups,
    )


@builds("LayerNormalization", "RMSNormalization", ranks=(1, 4))
def layer_norm(m: Maker, x: Known, name: str) -> Known:
    axis = m.axis(x)
    shape = x.shape[axis % x.rank :]
    some = [m.weights(*m.draw.smaller(shape), dtype=x.dtype)]
    if name == "LayerNormalization" and m.draw.one_in(2):
        some.append(m.weights(*shape, dtype=x.dtype))
    return m.add(name, [x, *some], axis=axis, epsilon=m.draw.choice([None, 1e-3]))


@builds("LRN", ranks=(3, 4))
def lrn(m: Maker, x: Known, name: str) -> Known:
    return m.add(
        name, [x], size=m.draw.choice([1, 3, 5]), alpha=0.1, bias=m.draw.choice([None, 2.0])
    )


@builds("Resize", ranks=(1, 4))
def resize(m: Maker, x: Known, name: str) -> Known:
    mode = m.draw.choice(["nearest", "linear", "cubic"])
    if m.opset < 11:
        scales = m.constant(np.array([m.draw.choice([1, 1, 2, 0.5]) for _ in x.shape], np.float32))
        return m.add(name, [x, scales], mode=m.draw.choice(["nearest", "linear"]))
    where = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
    attributes = {"mode": mode, "coordinate_transformation_mode": m.draw.choice([None, *where])}
    if mode == "nearest":
        attributes["nearest_mode"] = m.draw.choice([None, "floor", "ceil", "round_prefer_ceil"])
    keep = [k < x.rank - 2 or m.draw.one_in(4) for k in range(x.rank)]
    if m.draw.one_in(2):
        sizes = [d if k else m.draw.number(1, 9) for d, k in zip(x.shape, keep, strict=True)]
        return m.add(name, [x, None, None, m.ints(sizes)], **attributes)
    factors = [1.0 if k else m.draw.choice([0.5, 2.0, 1.5, 0.6, 3.0]) for k in keep]
    return m.add(name, [x, None, m.given(np.array(factors, np.float32), 9)], **attributes)


# -------------------------------------------------------------------------------------- idioms


def _scalar(m: Maker, x: Known, value: float, shape: tuple[int, ...] = ()) -> Known:
    return m.constant(np.full(shape, value, x.dtype))


@builds("idiom: gate", "idiom: swish", "idiom: hard", "idiom: gelu", "idiom: tanh gelu")
def gate(m: Maker, x: Known, name: str) -> Known:
    s = lambda v: _scalar(m, x, v, m.draw.choice([(), (), (1,)]))  # noqa: E731
    if name == "idiom: gelu":
        y = m.add("Erf", [m.add("Div", [x, s(2**0.5)])])
        return m.add("Mul", [m.add("Mul", [x, m.add("Add", [y, s(1)])]), s(0.5)])
    if name == "idiom: tanh gelu":
        cube = m.add("Add", [x, m.add("Mul", [m.add("Pow", [x, s(3)]), s(0.044715)])])
        y = m.add("Tanh", [m.add("Mul", [cube, s(0.7978845608)])])
        return m.add("Mul", [m.add("Mul", [x, s(0.5)]), m.add("Add", [y, s(1)])])
    if name == "idiom: hard":
        y = m.add("Clip", [m.add("Add", [x, s(3)]), _scalar(m, x, 0), _scalar(m, x, 6)])
        return m.add("Mul", [x, m.add("Div", [y, s(6)])])
    act = (
        "Sigmoid" if name == "idiom: swish" else m.draw.choice(["Tanh", "Softplus", "HardSigmoid"])
    )
    return m.add("Mul", [x, m.add(act, [x])])


@builds("idiom: layer norm", ranks=(1, 4))
def written_norm(m: Maker, x: Known, name: str) -> Known:
    axes = [x.rank - 1] if m.draw.number(0, 3) else m.draw.some(range(x.rank)) or [0]
    keep = 1 if m.draw.number(0, 6) else 0
    mean = lambda v: _mean(m, v, axes, keep)  # noqa: E731
    d = m.add("Sub", [x, mean(x)])
    square = m.add("Mul", [d, d]) if m.draw.one_in(2) else m.add("Pow", [d, _scalar(m, x, 2)])
    v = m.add("Add", [mean(square), _scalar(m, x, m.draw.choice([1e-5, 1e-2]))])
    root = m.add("Sqrt", [v])
    y = (
        m.add("Div", [d, root])
        if m.draw.one_in(2)
        else m.add("Mul", [d, m.add("Reciprocal", [root])])
    )
    if m.draw.one_in(2):
        y = m.add("Mul", [y, m.weights(x.shape[-1], dtype=x.dtype)])
        y = m.add("Add", [y, m.weights(x.shape[-1], dtype=x.dtype)])
    return y


def _mean(m: Maker, x: Known, axes: list[int], keep: int) -> Known:
    if m.opset < 18:
        return m.add("ReduceMean", [x], axes=axes, keepdims=keep)
    return m.add("ReduceMean", [x, m.constant(np.array(axes, np.int64))], keepdims=keep)


@builds("idiom: attention", ranks=(2, 4))
def attention(m: Maker, x: Known, name: str) -> Known:
    d = x.shape[-1]
    heads = m.draw.choice([h for h in (1, 2, 3, 4) if d and d % h == 0] or [1])
    parts = []
    for _ in "qkv":
        y = m.add("MatMul", [x, m.weights(d, d, dtype=x.dtype)]) if m.draw.one_in(2) else x
        if x.rank == 3:
            y = m.add("Reshape", [y, m.constant(np.array([*x.shape[:2], heads, d // heads]))])
            y = m.add("Transpose", [y], perm=[0, 2, 1, 3])
        parts.append(y)
    q, k, v = parts
    rank = q.rank
    k = m.add("Transpose", [k], perm=[*range(rank - 2), rank - 1, rank - 2])
    s = m.add("MatMul", [q, k])
    s = m.add(m.draw.choice(["Mul", "Div"]), [s, _scalar(m, x, m.draw.choice([0.125, 0.5, 2.0]))])
    if m.draw.one_in(2):
        mask = np.triu(np.full(s.shape[-2:], m.draw.choice([-1e4, -np.inf, -1.0])), 1).astype(
            x.dtype
        )
        s = m.add("Add", [s, m.given(np.nan_to_num(mask, nan=0.0, neginf=-np.inf), 3)])
    y = m.add("MatMul", [m.add("Softmax", [s], axis=-1), v])
    if x.rank == 3:
        y = m.add("Transpose", [y], perm=[0, 2, 1, 3])
        y = m.add("Reshape", [y, m.constant(np.array([0, 0, d]))])
    return y


@builds("idiom: block", ranks=(4, 4))
def block(m: Maker, x: Known, name: str) -> Known:
    """Convolution, batch norm, activation, and what it came from added."""
    c = x.shape[1]
    y = x
    for _ in range(m.draw.number(1, 2)):
        k = m.draw.choice([1, 3, 3])
        depthwise = m.draw.one_in(3)
        w = m.weights(c, 1 if depthwise else c, k, k, dtype=x.dtype)
        y = m.add("Conv", [y, w], pads=[k // 2] * 4, group=c if depthwise else 1)
        if m.draw.number(0, 2):
            some = [m.weights(c, dtype=x.dtype) for _ in range(3)]
            y = m.add(
                "BatchNormalization", [y, *some, m.weights(c, kind="positive", dtype=x.dtype)]
            )
        y = m.add(m.draw.choice(["Relu", "Sigmoid", "HardSwish" if m.opset >= 14 else "Relu"]), [y])
    return m.add("Add", [x, y])


# ------------------------------------------------------------------------------------- control


def _info(name: str, array: Array) -> Any:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), None)


@builds("If", ranks=(0, 4))
def branch(m: Maker, x: Known, name: str) -> Known:
    c = m.given(np.array(bool(m.draw.number(0, 1))), 2)
    graphs = []
    for side in ("then", "other"):
        op = m.draw.choice(["Relu", "Neg", "Abs", "Sqrt", "Exp", "Identity"])
        nodes = [helper.make_node(op, [x.name], [f"{side}0"])]
        if m.draw.one_in(2):
            nodes.append(helper.make_node("Add", [f"{side}0", x.name], [f"{side}1"]))
        last = nodes[-1].output[0]
        graphs.append(helper.make_graph(nodes, side, [], [_info(last, x.array)]))
    node = helper.make_node(
        name, [c.name], [f"v{len(m.values)}"], then_branch=graphs[0], else_branch=graphs[1]
    )
    return m.append(node, [c, x])


@builds("Loop", ranks=(0, 3))
def loop(m: Maker, x: Known, name: str) -> Known:
    trip = m.given(np.array(m.draw.number(0, 4), np.int64), 2)
    go = m.constant(np.array(True)) if m.draw.one_in(2) else None
    step = m.draw.choice(["Add", "Mul", "Max"] if x.dtype == F32 else ["Add"])
    other = "a" if m.draw.one_in(2) else x.name
    nodes = [
        helper.make_node("Identity", ["go"], ["more"]),
        helper.make_node(step, ["a", other], ["b"]),
        helper.make_node("Relu" if x.dtype == F32 else "Identity", ["b"], ["s"]),
    ]
    scans = ["s"] if m.draw.one_in(2) else []
    body = helper.make_graph(
        nodes,
        "body",
        [
            helper.make_tensor_value_info("i", 7, []),
            helper.make_tensor_value_info("go", 9, []),
            helper.make_tensor_value_info("a", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape),
        ],
        [
            helper.make_tensor_value_info("more", 9, []),
            _info("b", x.array),
            *(_info(s, x.array) for s in scans),
        ],
    )
    first = len(m.values)
    outputs = [f"v{first + k}" for k in range(1 + len(scans))]
    inputs = [trip.name, go.name if go else "", x.name]
    return m.append(
        helper.make_node(name, inputs, outputs, body=body), [v for v in (trip, go, x) if v]
    )


IDIOMS: Final = (
    "idiom: gate", "idiom: swish", "idiom: hard", "idiom: gelu", "idiom: tanh gelu",
    "idiom: layer norm", "idiom: attention", "idiom: block", "If", "Loop",
)  # fmt: skip
