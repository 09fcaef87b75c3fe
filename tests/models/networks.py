"""Small networks of the kinds that people deploy, with seeded weights: made here, of nothing.

Each is a function that gives a ``Network``: a model, what its inputs are like, and sizes of its
symbolic dimensions at which it is to be right.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

Array: TypeAlias = npt.NDArray[Any]
Sizes: TypeAlias = dict[str, int]

OPSET: Final = 18


@dataclass(frozen=True)
class Network:
    """A model; ``ranges`` are what integer inputs lie below: numbers, or symbols."""

    name: str
    model: onnx.ModelProto
    sizes: tuple[Sizes, ...] = ({},)
    ranges: Mapping[str, int | str] = field(default_factory=dict)

    def inputs(self, sizes: Sizes, seed: int = 0) -> dict[str, Array]:
        """Seeded inputs: normal numbers, or integers below the bound."""
        out: dict[str, Array] = {}
        for info in self.model.graph.input:
            kind = info.type.tensor_type
            shape = [
                sizes[d.dim_param] if d.HasField("dim_param") else d.dim_value
                for d in kind.shape.dim
            ]
            rng = np.random.default_rng([seed, zlib.crc32(info.name.encode()), *shape])
            dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
            if dtype.kind == "f":
                out[info.name] = rng.standard_normal(shape).astype(dtype)
            else:
                bound = self.ranges[info.name]
                bound = sizes[bound] if isinstance(bound, str) else bound
                out[info.name] = rng.integers(0, max(1, bound), shape).astype(dtype)
        return out


class Net:
    """A model while it is made: a call adds a node and gives the names of its outputs."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.constants: list[onnx.TensorProto] = []

    def input(self, name: str, *dims: int | str, dtype: Any = np.float32) -> str:
        code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.inputs.append(helper.make_tensor_value_info(name, code, dims))
        return name

    def constant(self, value: Any, dtype: Any = None) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def ints(self, *values: int) -> str:
        return self.constant(values, np.int64)

    def float(self, value: float) -> str:
        return self.constant(value, np.float32)

    def weight(self, *shape: int, fan: int | None = None) -> str:
        """Normal numbers whose sum over ``fan`` terms has the spread 1."""
        fan = fan or int(np.prod(shape[1:])) or 1
        return self.constant(self.rng.standard_normal(shape) / np.sqrt(fan), np.float32)

    def positive(self, *shape: int) -> str:
        return self.constant(self.rng.uniform(0.5, 1.5, shape), np.float32)

    def many(self, op: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        names = [f"v{len(self.nodes)}_{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names

    def __call__(self, op: str, *inputs: str, **attributes: Any) -> str:
        (out,) = self.many(op, *inputs, outputs=1, **attributes)
        return out

    def finish(self, *outputs: str, **options: Any) -> Network:
        infos = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph(self.nodes, self.name, self.inputs, infos, self.constants)
        imports = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=8)
        model = onnx.shape_inference.infer_shapes(model)
        return Network(self.name, model, **options)

    # ------------------------------------------------------------------------- pieces

    def linear(self, x: str, n: int, k: int) -> str:
        return self("Add", self("MatMul", x, self.weight(n, k, fan=n)), self.weight(k, fan=9))

    def conv(self, x: str, n: int, k: int, size: int = 3, **attributes: Any) -> str:
        groups = attributes.get("group", 1)
        w = self.weight(k, n // groups, size, size)
        attributes.setdefault("pads", [size // 2] * 4)
        return self("Conv", x, w, **attributes)

    def batch_norm(self, x: str, n: int) -> str:
        scale, bias, mean, variance = (
            self.positive(n),
            self.weight(n, fan=9),
            self.weight(n, fan=9),
            self.positive(n),
        )
        return self("BatchNormalization", x, scale, bias, mean, variance, epsilon=1e-5)

    def spelled_norm(self, x: str, n: int, center: bool) -> str:
        """Layer or root-mean-square normalisation over the last axis, as exporters spell it."""
        if center:
            x = self("Sub", x, self("ReduceMean", x, self.ints(-1)))
        square = self("ReduceMean", self("Pow", x, self.float(2.0)), self.ints(-1))
        root = self("Sqrt", self("Add", square, self.float(1e-5)))
        out = self("Mul", self("Div", x, root), self.positive(n))
        return self("Add", out, self.weight(n, fan=9)) if center else out

    def gelu(self, x: str) -> str:
        inner = self("Erf", self("Div", x, self.float(2.0**0.5)))
        return self("Mul", self("Mul", x, self("Add", inner, self.float(1.0))), self.float(0.5))

    def heads(self, x: str, count: int, width: int) -> str:
        """[b, s, count * width] -> [b, count, s, width]."""
        split = self("Reshape", x, self.ints(0, 0, count, width))
        return self("Transpose", split, perm=[0, 2, 1, 3])

    def joined(self, x: str, n: int) -> str:
        """[b, heads, s, width] -> [b, s, n]."""
        return self("Reshape", self("Transpose", x, perm=[0, 2, 1, 3]), self.ints(0, 0, n))


# ----------------------------------------------------------------------------------- networks


def mlp() -> Network:
    net = Net("mlp")
    x = net.input("x", "batch", 20)
    for n, k in ((20, 33), (33, 64)):
        x = net("Relu", net("Gemm", x, net.weight(k, n), net.weight(k, fan=9), transB=1))
    logits = net.linear(x, 64, 7)
    sizes = tuple({"batch": b} for b in (1, 2, 3, 8, 17, 64))
    return net.finish(net("Softmax", logits, axis=-1), logits, sizes=sizes)


def resnet() -> Network:
    net = Net("resnet")
    x = net.input("image", "n", 3, 32, 32)
    x = net("Relu", net.batch_norm(net.conv(x, 3, 16, 7, strides=[2, 2]), 16))
    x = net("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for n, k, stride in ((16, 16, 1), (16, 24, 2)):
        strides = [stride, stride]
        y = net("Relu", net.batch_norm(net.conv(x, n, k, strides=strides), k))
        y = net.batch_norm(net.conv(y, k, k), k)
        short = net.batch_norm(net.conv(x, n, k, 1, strides=strides), k) if n != k else x
        x = net("Relu", net("Add", y, short))
    average = net("AveragePool", x, kernel_shape=[2, 2], pads=[0, 0, 1, 1])
    flat = net("Flatten", net("GlobalAveragePool", x))
    logits = net("Gemm", flat, net.weight(24, 10), net.weight(10, fan=9))
    return net.finish(logits, average, sizes=tuple({"n": n} for n in (1, 2, 3)))


def mobilenet() -> Network:
    net = Net("mobilenet")
    x = net.input("image", "n", 3, 31, 29)
    x = net("HardSwish", net.batch_norm(net.conv(x, 3, 16, strides=[2, 2]), 16))
    for n, wide, k, size, stride in ((16, 48, 16, 3, 1), (16, 40, 24, 5, 2)):
        y = net("HardSwish", net.batch_norm(net.conv(x, n, wide, 1), wide))
        y = net.conv(y, wide, wide, size, group=wide, strides=[stride, stride])
        y = net("HardSwish", net.batch_norm(y, wide))
        squeezed = net("Relu", net.conv(net("GlobalAveragePool", y), wide, 8, 1))
        gate = net("HardSigmoid", net.conv(squeezed, 8, wide, 1), alpha=1 / 6, beta=0.5)
        y = net.batch_norm(net.conv(net("Mul", y, gate), wide, k, 1), k)
        x = net("Add", x, y) if n == k else y
    x = net("Clip", net.conv(x, 24, 32, 1), net.float(0.0), net.float(6.0))
    pooled = net("ReduceMean", x, net.ints(2, 3), keepdims=0)
    return net.finish(net.linear(pooled, 32, 10), sizes=tuple({"n": n} for n in (1, 3)))


def transformer() -> Network:
    """A block with a mask, the norms once as an operator and once spelled out."""
    n, count = 32, 4
    net = Net("transformer")
    tokens = net.input("tokens", "batch", "sequence", dtype=np.int64)
    mask = net.input("mask", "batch", "sequence", dtype=np.int64)
    x = net("Gather", net.weight(50, n, fan=1), tokens)
    allowed = net("Unsqueeze", net("Cast", mask, to=1), net.ints(1, 2))
    bias = net("Mul", net("Sub", net.float(1.0), allowed), net.float(-1e4))
    y = net("LayerNormalization", x, net.positive(n), net.weight(n, fan=9), axis=-1)
    q, k, v = (net.heads(net.linear(y, n, n), count, n // count) for _ in range(3))
    scores = net("MatMul", q, net("Transpose", k, perm=[0, 1, 3, 2]))
    scores = net("Add", net("Div", scores, net.float((n // count) ** 0.5)), bias)
    context = net.joined(net("MatMul", net("Softmax", scores, axis=-1), v), n)
    x = net("Add", x, net.linear(context, n, n))
    y = net.linear(net.gelu(net.linear(net.spelled_norm(x, n, True), n, 4 * n)), 4 * n, n)
    x = net("Add", x, y)
    weighed = net("Mul", x, net("Unsqueeze", net("Cast", mask, to=1), net.ints(-1)))
    pooled = net("ReduceSum", weighed, net.ints(1), keepdims=0)
    unit = net("Div", pooled, net("ReduceL2", pooled, net.ints(1)))
    sizes = tuple(
        {"batch": b, "sequence": s} for b, s in ((1, 1), (1, 7), (2, 8), (3, 16), (1, 33))
    )
    return net.finish(x, unit, sizes=sizes, ranges={"tokens": 50, "mask": 2})


def llama() -> Network:
    """A decoder block: rotary positions, grouped keys and values, a causal mask from the shape."""
    n, count, groups, width = 32, 4, 2, 8
    net = Net("llama")
    tokens = net.input("tokens", "batch", "sequence", dtype=np.int64)
    positions = net.input("positions", "batch", "sequence", dtype=np.int64)
    x = net("Gather", net.weight(40, n, fan=1), tokens)
    frequencies = net.constant(10000.0 ** (-np.arange(0, width, 2) / width), np.float32)
    angles = net("Unsqueeze", net("Cast", positions, to=1), net.ints(-1))
    angles = net("Mul", angles, frequencies)
    angles = net("Unsqueeze", net("Concat", angles, angles, axis=-1), net.ints(1))
    cosine, sine = net("Cos", angles), net("Sin", angles)

    def rotated(t: str) -> str:
        half = width // 2
        low = net("Slice", t, net.ints(0), net.ints(half), net.ints(-1))
        high = net("Slice", t, net.ints(half), net.ints(2**62), net.ints(-1))
        turned = net("Concat", net("Neg", high), low, axis=-1)
        return net("Add", net("Mul", t, cosine), net("Mul", turned, sine))

    def repeated(t: str) -> str:
        """[b, groups, s, w] -> [b, count, s, w]."""
        shape = net("Shape", t)
        b, s = (net("Gather", shape, net.ints(k)) for k in (0, 2))
        per = count // groups
        wide = net("Concat", b, net.ints(groups, per), s, net.ints(width), axis=0)
        flat = net("Concat", b, net.ints(count), s, net.ints(width), axis=0)
        return net("Reshape", net("Expand", net("Unsqueeze", t, net.ints(2)), wide), flat)

    y = net.spelled_norm(x, n, False)
    q = rotated(net.heads(net.linear(y, n, n), count, width))
    k = rotated(net.heads(net.linear(y, n, groups * width), groups, width))
    v = net.heads(net.linear(y, n, groups * width), groups, width)
    scores = net("MatMul", q, net("Transpose", repeated(k), perm=[0, 1, 3, 2]))
    length = net("Gather", net("Shape", tokens), net.ints(1))
    square = net("Concat", length, length, axis=0)
    full = net("Expand", net.float(-1e9), square)
    causal = net("Trilu", full, net.constant(1, np.int64), upper=1)
    scores = net("Add", net("Mul", scores, net.float(width**-0.5)), causal)
    context = net.joined(net("MatMul", net("Softmax", scores, axis=-1), repeated(v)), n)
    x = net("Add", x, net.linear(context, n, n))
    y = net.spelled_norm(x, n, False)
    gate, up = net.linear(y, n, 48), net.linear(y, n, 48)
    gated = net("Mul", net("Mul", gate, net("Sigmoid", gate)), up)
    x = net("Add", x, net.linear(gated, 48, n))
    sizes = tuple({"batch": b, "sequence": s} for b, s in ((1, 1), (1, 5), (2, 9), (1, 32)))
    ranges = {"tokens": 40, "positions": 100}
    return net.finish(net.linear(x, n, 40), k, v, sizes=sizes, ranges=ranges)


def lstm() -> Network:
    """Two directions from given states, then one direction from zeros."""
    net = Net("lstm")
    x = net.input("x", "steps", "batch", 10)
    start = net.input("start", 2, "batch", 12)
    cell = net.input("cell", 2, "batch", 12)
    y, _, last = net.many(
        "LSTM", x, net.weight(2, 48, 10), net.weight(2, 48, 12), net.weight(2, 96, fan=9), "",
        start, cell, outputs=3, hidden_size=12, direction="bidirectional",
    )  # fmt: skip
    y = net("Transpose", y, perm=[0, 2, 1, 3])
    y = net("Reshape", y, net.ints(0, 0, 24))
    y, _ = net.many(
        "LSTM", y, net.weight(1, 32, 24), net.weight(1, 32, 8), outputs=2, hidden_size=8
    )
    y = net("Squeeze", y, net.ints(1))
    sizes = tuple({"steps": s, "batch": b} for s, b in ((1, 1), (7, 1), (5, 3)))
    return net.finish(net.linear(y, 8, 6), last, sizes=sizes)


def gru() -> Network:
    """Backwards, and forwards with the reset behind the product, as PyTorch has it."""
    net = Net("gru")
    x = net.input("x", "steps", "batch", 9)
    y, _ = net.many(
        "GRU", x, net.weight(1, 33, 9), net.weight(1, 33, 11), net.weight(1, 66, fan=9),
        outputs=2, hidden_size=11, direction="reverse",
    )  # fmt: skip
    y = net("Tanh", net("Squeeze", y, net.ints(1)))
    _, last = net.many(
        "GRU", y, net.weight(1, 24, 11), net.weight(1, 24, 8), net.weight(1, 48, fan=9),
        outputs=2, hidden_size=8, linear_before_reset=1,
    )  # fmt: skip
    last = net("Squeeze", last, net.ints(0))
    sizes = tuple({"steps": s, "batch": b} for s, b in ((1, 1), (6, 1), (5, 3)))
    return net.finish(net("LogSoftmax", net.linear(last, 8, 5), axis=1), sizes=sizes)


def unet() -> Network:
    """Down twice and up twice, once by a transposed convolution and once by resizing."""
    net = Net("unet")
    x = net.input("image", 1, 2, "height", "width")

    def block(t: str, n: int, k: int) -> str:
        t = net.conv(t, n, k)
        t = net("InstanceNormalization", t, net.positive(k), net.weight(k, fan=9))
        return net("PRelu", t, net.constant(net.rng.uniform(0, 0.5, (k, 1, 1)), np.float32))

    a = block(x, 2, 8)
    b = block(net("MaxPool", a, kernel_shape=[2, 2], strides=[2, 2]), 8, 12)
    c = block(net.conv(b, 12, 16, strides=[2, 2]), 16, 16)
    up = net("ConvTranspose", c, net.weight(16, 12, 2, 2, fan=16), strides=[2, 2])
    d = block(net("Concat", up, b, axis=1), 24, 12)
    scales = net.constant([1, 1, 2, 2], np.float32)
    up = net("Resize", d, "", scales, mode="linear", coordinate_transformation_mode="half_pixel")
    e = block(net("Concat", up, a, axis=1), 20, 8)
    out = net("Sigmoid", net.conv(e, 8, 1, 1))
    sizes = tuple({"height": h, "width": w} for h, w in ((4, 4), (8, 20), (16, 12), (32, 32)))
    return net.finish(out, sizes=sizes)


def detection() -> Network:
    """What follows a detector: decoded boxes, the best class, a threshold."""
    net = Net("detection")
    boxes = net.input("boxes", "anchors", 4)
    scores = net.input("scores", "anchors", 6)
    wanted = net.input("wanted", "picks", dtype=np.int64)
    low = net("Slice", boxes, net.ints(0), net.ints(2), net.ints(1))
    size = net("Exp", net("Slice", boxes, net.ints(2), net.ints(4), net.ints(1)))
    half = net("Mul", size, net.float(0.5))
    corners = net("Concat", net("Sub", low, half), net("Add", low, half), axis=1)
    corners = net("Clip", corners, net.float(-2.0), net.float(2.0))
    best = net("ArgMax", scores, axis=1, keepdims=0)
    confidence = net("ReduceMax", net("Sigmoid", scores), net.ints(1), keepdims=0)
    sure = net("Greater", confidence, net.float(0.75))
    label = net("Where", sure, best, net.constant(-1, np.int64))
    picked = net("Gather", corners, wanted, axis=0)
    labels = net("Cast", net("Gather", label, wanted), to=6)
    count = net("ReduceSum", net("Cast", sure, to=7), net.ints(0), keepdims=0)
    sizes = tuple({"anchors": a, "picks": p} for a, p in ((1, 1), (7, 3), (100, 9), (33, 1)))
    return net.finish(picked, labels, label, sure, count, sizes=sizes, ranges={"wanted": "anchors"})


NETWORKS: Final[tuple[Callable[[], Network], ...]] = (
    mlp, resnet, mobilenet, transformer, llama, lstm, gru, unet, detection,
)  # fmt: skip


def session_outputs(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> Sequence[Array]:
    """What ONNX Runtime computes."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return list(session.run(None, dict(inputs)))
