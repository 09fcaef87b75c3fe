"""Compiled loops, scans, and sizes that only the data tells: against what they compute by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import planish
from planish.compiler.errors import ImportModelError, RuntimeFault
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.graph.ir import Array
from planish.compiler.graph.reference import run_reference
from planish.compiler.graph.text import large_constants, parse, show
from planish.runtime.module import Module
from planish.targets.llvm.target import host

X = np.array([[1.0, -2.0, 0.5]], np.float32)
MODELS: dict[str, str] = {}

MODELS["powers"] = """
g (int64 n, float[3] x) => (float[3] y, float[t, 3] s) {
  y, s = Loop(n, , x) <body = b (int64 i, bool c, float[3] a) => (bool d, float[3] e, float[3] f) {
    d = Identity(c)
    two = Constant<value = float {2.0}>()
    e = Mul(a, two)
    f = Add(a, two)
  }>
}"""


def powers(n: Any, x: Array) -> list[Array]:
    kept = [x * np.float32(2) ** k + np.float32(2) for k in range(max(0, int(n)))]
    return [x * np.float32(2) ** max(0, int(n)), np.array(kept, np.float32).reshape(-1, 3)]


MODELS["until"] = """
g (float[3] x, bool c0) => (float[3] y, int64[t] s) {
  y, s = Loop(, c0, x) <body = b (int64 i, bool c, float[3] a) => (bool d, float[3] e, int64 f) {
    two = Constant<value = float {2.0}>()
    big = Constant<value = float {50.0}>()
    e = Mul(a, two)
    m = ReduceMax<keepdims = 0>(e)
    d = Less(m, big)
    f = Identity(i)
  }>
}"""


def until(x: Array, c0: Any) -> list[Array]:
    times = 0
    while bool(c0) and (times == 0 or float(x.max()) < 50):
        x, times = x * np.float32(2), times + 1
    return [x, np.arange(times)]


MODELS["unasked"] = """
g (int64 n, float[3] x) => (float[3] y, bool[t] s) {
  y, s = Loop(n, , x) <body = b (int64 i, bool c, float[3] a) => (bool d, float[3] e, bool f) {
    d = Not(c)
    e = Add(a, x)
    f = Identity(c)
  }>
}"""


def unasked(n: Any, x: Array) -> list[Array]:
    """Without a first condition those of the body are passed on, and end nothing."""
    y = x
    for _ in range(int(n)):
        y = y + x
    return [y, np.arange(int(n)) % 2 == 0]


MODELS["growing"] = """
g (int64 n, float[k, 3] x) => (float[l, 3] y, float[t, 3] s) {
  y, s = Loop(n, , x) <body = b (int64 i, bool c, float[q, 3] a)
      => (bool d, float[r, 3] e, float[3] f) {
    d = Identity(c)
    e = Concat<axis = 0>(a, x)
    axes = Constant<value = int64[1] {0}>()
    f = ReduceSum<keepdims = 0>(e, axes)
  }>
}"""


def growing(n: Any, x: Array) -> list[Array]:
    sums = [x.sum(0) * (k + 2) for k in range(int(n))]
    return [np.concatenate([x] * (int(n) + 1)), np.array(sums, np.float32).reshape(-1, 3)]


MODELS["within"] = """
g (int64 n, float[k, 3] x) => (float[k, 3] y) {
  y = Loop(n, , x) <body = b (int64 i, bool c, float[k, 3] a) => (bool d, float[k, 3] e) {
    d = Identity(c)
    e = Loop(i, , a) <body = b2 (int64 j, bool c2, float[k, 3] a2) => (bool d2, float[k, 3] e2) {
      d2 = Identity(c2)
      fi = Cast<to = 1>(i)
      t = Add(a2, fi)
      e2 = Add(t, x)
    }>
  }>
}"""


def within(n: Any, x: Array) -> list[Array]:
    y = x
    for i in range(int(n)):
        for _ in range(i):
            y = y + np.float32(i) + x
    return [y]


MODELS["choosing"] = """
g (int64 n, float[k] x, bool c0) => (float[q] y, float[z] w) {
  y = Loop(n, c0, x) <body = b (int64 i, bool c, float[j] a) => (bool d, float[l] e) {
    d = Identity(c)
    one = Constant<value = int64 {1}>()
    two = Constant<value = int64 {2}>()
    m = Mod(i, two)
    odd = Equal(m, one)
    e = If(odd) <
      then_branch = tb () => (float[r1] u) { u = Concat<axis = 0>(a, x) },
      else_branch = eb () => (float[r2] v) { v = Neg(a) }
    >
  }>
  w = Concat<axis = 0>(y, x)
}"""


def choosing(n: Any, x: Array, c0: Any) -> list[Array]:
    y = x
    for i in range(int(n) if c0 else 0):
        y = np.concatenate([y, x]) if i % 2 else -y
    return [y, np.concatenate([y, x])]


MODELS["swapping"] = """
g (int64 n, float[3] x, float[3] z) => (float[3] y, float[3] w, float[t, 3] s) {
  y, w, s = Loop(n, , x, z) <body = b (int64 i, bool c, float[3] a, float[3] e)
      => (bool d, float[3] e, float[3] a, float[3] e) {
    d = Identity(c)
  }>
}"""


def swapping(n: Any, x: Array, z: Array) -> list[Array]:
    kept = []
    for _ in range(int(n)):
        kept.append(z)
        x, z = z, x
    return [x, z, np.array(kept, np.float32).reshape(-1, 3)]


MODELS["running"] = """
g (float[t, 2, 3] x, float[2, 3] first, float[3, t] w) => (float[2, 3] last, float[2, t, 3] s) {
  last, s = Scan<num_scan_inputs = 2, scan_input_axes = [0, 1], scan_input_directions = [0, 1],
      scan_output_axes = [1], scan_output_directions = [1],
      body = b (float[2, 3] a, float[2, 3] e, float[3] v) => (float[2, 3] f, float[2, 3] h) {
        f = Add(a, e)
        h = Mul(f, v)
      }>(first, x, w)
}"""


def running(x: Array, first: Array, w: Array) -> list[Array]:
    kept, a = [], first
    for k in range(len(x)):
        a = a + x[k]
        kept.append(a * w[:, len(x) - 1 - k])
    stack = np.array(kept[::-1], np.float32).reshape(-1, 2, 3)
    return [a, np.ascontiguousarray(stack.transpose(1, 0, 2))]


MODELS["shapes"] = """
g (int64[2] s, float[k, m] x, int64 a, int64 b, int64 c)
    => (float[p, q] y, float[u, v] z, int64[l] r, float[t] f) {
  y = ConstantOfShape<value = float[1] {1.5}>(s)
  e = Expand(x, s)
  z = Add(e, y)
  r = Range(a, b, c)
  all = Constant<value = int64[1] {-1}>()
  f = Reshape(z, all)
}"""


def shapes(s: Array, x: Array, a: Any, b: Any, c: Any) -> list[Array]:
    y = np.full(s, 1.5, np.float32)
    z = np.broadcast_to(x, s) + y
    return [y, z, np.arange(a, b, c), z.ravel()]


MODELS["cuts"] = """
g (float[n, m] x, int64[2] starts, int64[2] ends, int64[2] axes, int64[2] steps, int64[4] pads,
   int64[1] axis, int64[3] shape)
    => (float[a, b] y, float[c, d] z, float[e, f] p, float[h, i] sum, float[j] mean,
        float[k, l, o] w) {
  y = Slice(x, starts, ends, axes, steps)
  z = Slice(x, starts, ends)
  p = Pad(x, pads)
  sum = ReduceSum(x, axis)
  mean = ReduceMean<keepdims = 0>(x, axis)
  w = Reshape(x, shape)
}"""


def cuts(
    x: Array, starts: Array, ends: Array, axes: Array, steps: Array, pads: Array, axis: Array,
    shape: Array,
) -> list[Array]:  # fmt: skip
    index: list[Any] = [slice(None)] * 2
    for a, s, e, t in zip(axes, starts, ends, steps, strict=True):
        index[a] = slice(s, None if t < 0 and e < -x.shape[a] else e, t)
    plain = tuple(slice(s, e) for s, e in zip(starts, ends, strict=True))
    (a,) = axis
    return [
        x[tuple(index)],
        x[plain],
        padded(x, pads.reshape(2, 2).T),
        x.sum(a, keepdims=True),
        x.mean(a),
        x.reshape([x.shape[k] if d == 0 else d for k, d in enumerate(shape)]),
    ]


def padded(x: Array, pads: Array) -> Array:
    """Zeros around x; fewer elements where a pad is negative."""
    out = np.pad(x, np.maximum(pads, 0))
    return out[
        tuple(slice(max(0, -a), n - max(0, -b)) for n, (a, b) in zip(out.shape, pads, strict=True))
    ]


def i64(*x: int) -> Array:
    return np.array(x, np.int64)


NUMBERS = np.arange(24, dtype=np.float32).reshape(4, 6)
RNG = np.random.default_rng(3)


def steps_of(t: int) -> dict[str, Array]:
    draw = RNG.standard_normal
    shapes = {"x": (t, 2, 3), "first": (2, 3), "w": (3, t)}
    return {name: draw(shape).astype(np.float32) for name, shape in shapes.items()}


CASES: list[tuple[str, Callable[..., list[Array]], list[dict[str, Array]]]] = [
    ("powers", powers, [{"n": np.array(n), "x": X[0]} for n in (5, 0, 1, -3)]),
    ("until", until, [{"x": X[0], "c0": np.array(c)} for c in (True, False)]),
    ("unasked", unasked, [{"n": np.array(n), "x": X[0]} for n in (4, 1, 0)]),
    ("growing", growing, [{"n": np.array(n), "x": np.tile(X, (k, 1))}
                          for n, k in ((4, 1), (0, 2), (17, 3), (1, 0))]),
    ("within", within, [{"n": np.array(n), "x": np.tile(X, (k, 1))} for n, k in ((4, 2), (1, 5))]),
    ("choosing", choosing, [{"n": np.array(n), "x": X[0], "c0": np.array(c)}
                            for n, c in ((5, True), (4, False), (0, True))]),
    ("swapping", swapping, [{"n": np.array(n), "x": X[0], "z": X[0] + 1} for n in (0, 3, 4)]),
    ("running", running, [steps_of(t) for t in (3, 0, 1, 20)]),
    ("shapes", shapes, [
        {"s": i64(2, 3), "x": X, "a": np.array(1), "b": np.array(9), "c": np.array(3)},
        {"s": i64(1, 3), "x": X, "a": np.array(5), "b": np.array(-4), "c": np.array(-2)},
        {"s": i64(0, 3), "x": X, "a": np.array(5), "b": np.array(4), "c": np.array(2)},
    ]),
    ("cuts", cuts, [
        {"x": NUMBERS, "starts": i64(1, 0), "ends": i64(3, 5), "axes": i64(0, 1),
         "steps": i64(1, 2), "pads": i64(1, 0, 2, 3), "axis": i64(1), "shape": i64(2, -1, 3)},
        {"x": NUMBERS, "starts": i64(-1, -2), "ends": i64(-100, 100), "axes": i64(1, 0),
         "steps": i64(-2, 1), "pads": i64(0, 0, 0, 0), "axis": i64(0), "shape": i64(0, 0, 1)},
        {"x": NUMBERS[:1], "starts": i64(5, 1), "ends": i64(9, 1), "axes": i64(1, 0),
         "steps": i64(3, 3), "pads": i64(-1, 2, 1, -4), "axis": i64(-1), "shape": i64(3, 2, 1)},
    ]),
]  # fmt: skip


def model(name: str) -> onnx.ModelProto:
    return onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 18]>' + MODELS[name])


def close(found: Array, wanted: Array) -> None:
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "wanted", "inputs"), CASES, ids=[c[0] for c in CASES])
@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "plain"])
@pytest.mark.parametrize("target", ["llvm", "interpreter"])
def test_values(
    name: str,
    wanted: Callable[..., list[Array]],
    inputs: list[dict[str, Array]],
    optimize: bool,
    target: str,
) -> None:
    module = planish.compile(model(name), target, optimize=optimize, threads=2, logs=[])
    for given in (*inputs, *reversed(inputs)):  # sizes change from call to call
        for a, b in zip(module.run(given).values(), wanted(**given), strict=True):
            close(a, b)
        held_nothing(module)


@pytest.mark.parametrize(("name", "wanted", "inputs"), CASES, ids=[c[0] for c in CASES])
def test_the_graph_and_its_text(
    name: str, wanted: Callable[..., list[Array]], inputs: list[dict[str, Array]]
) -> None:
    graph = import_model(model(name))
    again = parse(show(graph), large_constants(graph))
    assert show(again) == show(graph)
    for g in (graph, again, planish.build.optimized(graph, host())):
        for given in inputs:
            for a, b in zip(run_reference(g, given), wanted(**given), strict=True):
                close(a, b)


@pytest.mark.parametrize("name", ["growing", "choosing", "cuts"])
def test_a_saved_module_gives_the_same(name: str, tmp_path: Any) -> None:
    module = planish.compile(model(name), logs=[])
    module.save(tmp_path / "m.planish")
    again = planish.load(tmp_path / "m.planish")
    inputs = next(given for n, _, given in CASES if n == name)[0]
    for a, b in zip(again.run(inputs).values(), module.run(inputs).values(), strict=True):
        np.testing.assert_array_equal(a, b)


def held_nothing(module: Module) -> None:
    """Whether a call has left no memory that it allocated, but for its outputs."""
    layout = module.interface.layout
    for frame in module._frames:
        assert not any(frame.slots[layout.heap_word(0) :])


def test_results_are_freed() -> None:
    """Many calls of random sizes, each result dropped: the process does not grow."""
    import resource

    module = planish.compile(model("growing"), logs=[])
    rng = np.random.default_rng(0)

    def calls(count: int) -> None:
        for _ in range(count):
            rows = int(rng.integers(0, 4000))
            module(np.array(int(rng.integers(0, 6))), np.ones((rows, 3), np.float32))

    calls(200)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    calls(2000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40 << 10  # KiB


FAILS = """
g (int64 n, float[6] x, int64[2] shape) => (float[6] y) {
  y = Loop(n, , x) <body = b (int64 i, bool c, float[6] a) => (bool d, float[6] e) {
    d = Identity(c)
    u = Reshape(a, shape)
    six = Constant<value = int64[1] {6}>()
    e = Reshape(u, six)
  }>
}"""


@pytest.mark.parametrize("target", ["llvm", "interpreter"])
def test_a_failure_within_a_loop(target: str) -> None:
    """It ends the call, leaves no memory, and the next call is right."""
    MODELS["fails"] = FAILS
    module = planish.compile(model("fails"), target, logs=[])
    x = np.arange(6, dtype=np.float32)
    for _ in range(3):
        with pytest.raises(RuntimeFault, match="do not fit"):
            module(np.array(3), x, i64(4, 2))
        held_nothing(module)
        np.testing.assert_array_equal(module(np.array(3), x, i64(3, 2))[0], x)
        np.testing.assert_array_equal(module(np.array(0), x, i64(4, 2))[0], x)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("(int64 i, bool c, float[3] a) => (bool d, float[3] e) { d = Identity(c) e = Cast<to = 7>"
         "(a) }", r"carried as f32\[3\], and becomes i64\[3\]"),
        ("(int64 i, bool c, float[3] a) => (bool d, float[3] e) { d = Identity(c) z = Constant<"
         "value = int64[1] {0}>() e = Unsqueeze(a, z) }", r"becomes f32\[1, 3\]"),
        ("(int64 i, bool c, float[3] a) => (bool d, float[3] e) { d = Cast<to = 7>(c) e = Neg(a) }",
         "not one bool"),
        ("(int64 i, bool c) => (bool d) { d = Identity(c) }", "to carry 1, it must take 3"),
        ("(int64 i, bool c, float[3] a) => (bool d, float[3] e) { d = Identity(c) e = Add(a, q) }",
         "'q', which nothing makes"),
    ],
)  # fmt: skip
def test_loops_that_are_refused(body: str, message: str) -> None:
    text = f"g (int64 n, float[3] x) => (float[3] y) {{ y = Loop(n, , x) <body = b {body}> }}"
    MODELS["refused"] = text
    with pytest.raises(ImportModelError, match=message):
        import_model(model("refused"))


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_scans_of_known_lengths(steps: int) -> None:
    text = MODELS["running"].replace("t, 2, 3] x", f"{steps}, 2, 3] x")
    text = text.replace("[3, t] w", f"[3, {steps}] w").replace("[2, t, 3]", f"[2, {steps}, 3]")
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    rng = np.random.default_rng(0)
    shapes = (steps, 2, 3), (2, 3), (3, steps)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    for found, wanted in zip(planish.compile(model)(*arrays), running(*arrays), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
