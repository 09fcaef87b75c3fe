"""Sequences and optionals whose length only a call knows, against what Python's lists do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import planish
from planish.compiler.errors import ImportModelError, PlanishError, RuntimeFault, TypeCheckError
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.graph.ir import Array
from planish.compiler.graph.reference import run_reference
from planish.compiler.graph.text import large_constants, parse, show
from planish.runtime.interface import Interface
from planish.runtime.packing import Boundary

MODELS: dict[str, str] = {}


def model(name: str) -> onnx.ModelProto:
    return onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 18]>' + MODELS[name])


def f32(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


MODELS["at"] = """
g (seq(float[]) s, int64 k) => (float[a, b] y, int64 n) {
  y = SequenceAt(s, k)
  n = SequenceLength(s)
}"""
MODELS["change"] = """
g (seq(float[a, 3]) s, float[b, 3] x, int64 i, int64 e)
    => (seq(float[]) more, seq(float[]) fewer, seq(float[]) end, seq(float[]) last) {
  more = SequenceInsert(s, x, i)
  fewer = SequenceErase(s, e)
  end = SequenceInsert(s, x)
  last = SequenceErase(s)
}"""
MODELS["join"] = """
g (seq(float[a, b, c]) s) => (float[a, b, c] x, float[a, b, c] y, float[a, b, c] z) {
  x = ConcatFromSequence<axis = 0>(s)
  y = ConcatFromSequence<axis = 1>(s)
  z = ConcatFromSequence<axis = -1>(s)
}"""
MODELS["stack"] = """
g (seq(float[]) s) => (float[n, a, b] x, float[a, n, b] y, float[a, b, n] z) {
  x = ConcatFromSequence<axis = 0, new_axis = 1>(s)
  y = ConcatFromSequence<axis = 1, new_axis = 1>(s)
  z = ConcatFromSequence<axis = -1, new_axis = 1>(s)
}"""
MODELS["split"] = """
g (float[a, b, c] x, int64 size, int64[n] sizes)
    => (seq(float[]) ones, seq(float[]) flat, seq(float[]) even, seq(float[]) own,
        seq(float[]) first) {
  ones = SplitToSequence<axis = 1>(x)
  flat = SplitToSequence<axis = 1, keepdims = 0>(x)
  even = SplitToSequence<axis = 2>(x, size)
  own = SplitToSequence<axis = 1>(x, sizes)
  first = SplitToSequence(x, size)
}"""
MODELS["collect"] = """
g (int64 n, float[k, 2] x) => (seq(float[]) s, float[l, 2] whole, seq(float[]) t) {
  empty = SequenceEmpty()
  s, t = Loop(n, , empty, empty) <body = b (int64 i, bool c, seq(float[]) a, seq(float[]) p)
      => (bool d, seq(float[]) e, seq(float[]) q) {
    d = Identity(c)
    one = Constant<value = int64[1] {1}>()
    zero = Constant<value = int64[1] {0}>()
    j = Reshape(i, one)
    part = Slice(x, zero, j)
    e = SequenceInsert(a, part)
    q = SequenceInsert(p, x, zero)
  }>
  whole = ConcatFromSequence<axis = 0>(s)
}"""
MODELS["carry"] = """
g (int64 n, float[k] x, float[k] y) => (float[k] u, float[k] v, int64 m) {
  s0 = SequenceConstruct(x, y)
  s = Loop(n, , s0) <body = b (int64 i, bool c, seq(float[]) a) => (bool d, seq(float[]) e) {
    d = Identity(c)
    zero = Constant<value = int64 {0}>()
    one = Constant<value = int64 {1}>()
    p = SequenceAt(a, zero)
    q = SequenceAt(a, one)
    r = Add(p, q)
    e = SequenceConstruct(q, r)
  }>
  zero = Constant<value = int64 {0}>()
  one = Constant<value = int64 {1}>()
  u = SequenceAt(s, zero)
  v = SequenceAt(s, one)
  m = SequenceLength(s)
}"""
MODELS["choose"] = """
g (bool c, float[k] x, float[m, 2] y, int64 at) => (seq(float[]) s, int64 n, int64 r) {
  s = If(c) <
    then_branch = tb () => (seq(float[]) a) {
      a0 = SequenceConstruct(x, x)
      a = SequenceInsert(a0, y)
    },
    else_branch = eb () => (seq(float[]) b) { b = SequenceConstruct(y) }
  >
  n = SequenceLength(s)
  t = SequenceErase(s, at)
  r = SequenceLength(t)
}"""
MODELS["map"] = """
g (seq(float[k]) s, seq(float[k]) t, float[1] x) => (seq(float[]) u, seq(int64[]) v) {
  u, v = SequenceMap(s, t, x) <body = b (float[k] a, float[k] p, float[1] q)
      => (float[k] e, int64[1] f) {
    m = Mul(a, p)
    e = Add(m, q)
    f = Shape(e)
  }>
}"""
MODELS["known"] = """
g (float[3] x, float[3] y, float[2] z, int64 k) => (float[n] u, int64 v, seq(float[]) w) {
  s = SequenceConstruct(x, y)
  u = SequenceAt(s, k)
  t = SequenceErase(s, k)
  v = SequenceLength(t)
  w = SequenceInsert(s, z, k)
}"""
MODELS["maybe"] = """
g (optional(float[k]) o, optional(seq(int64[])) p, float[1] x)
    => (bool a, bool b, float[k] y, optional(float[k]) q, optional(seq(int64[])) r) {
  a = OptionalHasElement(o)
  b = OptionalHasElement(p)
  y = If(a) <
    then_branch = tb () => (float[k] t) { t = OptionalGetElement(o) },
    else_branch = eb () => (float[k] u) { u = Identity(x) }
  >
  q = Identity(o)
  r = Identity(p)
}"""
MODELS["get"] = """
g (optional(seq(float[2])) o) => (seq(float[2]) s, float[2] x) {
  s = OptionalGetElement(o)
  k = Constant<value = int64 {-1}>()
  x = SequenceAt(s, k)
}"""


def joined(s: list[Array]) -> list[Array]:
    return [np.concatenate(s, axis) for axis in (0, 1, -1)]


def stacked(s: list[Array]) -> list[Array]:
    return [np.stack(s, axis) for axis in (0, 1, -1)]


def changed(s: list[Array], x: Array, i: Any, e: Any) -> list[Any]:
    more, fewer, last = list(s), list(s), s[:-1]
    more.insert(int(i), x)
    del fewer[int(e)]
    return [more, fewer, [*s, x], last]


def split(x: Array, size: Any, sizes: Array) -> list[Any]:
    def by(axis: int, widths: Any) -> list[Array]:
        return np.split(x, np.cumsum(widths)[:-1], axis) if len(widths) else []

    def even(axis: int, step: int) -> list[Array]:
        extent = x.shape[axis]
        return by(axis, [min(step, extent - k) for k in range(0, extent, step)])

    flat = [x[:, k] for k in range(x.shape[1])]
    return [even(1, 1), flat, even(2, int(size)), by(1, sizes), even(0, int(size))]


def collect(n: Any, x: Array) -> list[Any]:
    parts = [x[:k] for k in range(int(n))]
    return [parts, np.concatenate(parts), [x] * int(n)]


def carry(n: Any, x: Array, y: Array) -> list[Any]:
    for _ in range(int(n)):
        x, y = y, x + y
    return [x, y, np.array(2)]


def choose(c: Any, x: Array, y: Array, at: Any) -> list[Any]:
    s = [x, x, y] if c else [y]
    return [s, np.array(len(s)), np.array(len(s) - 1)]


def mapped(s: list[Array], t: list[Array], x: Array) -> list[Any]:
    u = [a * b + x for a, b in zip(s, t, strict=True)]
    return [u, [np.array(a.shape) for a in u]]


def known(x: Array, y: Array, z: Array, k: Any) -> list[Any]:
    w = [x, y]
    w.insert(int(k), z)
    return [[x, y][int(k)], np.array(1), w]


def maybe(o: Array | None, p: list[Array] | None, x: Array) -> list[Any]:
    return [np.array(o is not None), np.array(p is not None), x if o is None else o, o, p]


SOME = [f32(2, 3), f32(1, 4), f32(0, 5), f32(3, 1)]
ROWS = [f32(2, 3), f32(1, 3), f32(0, 3), f32(4, 3)]
CUBES = [f32(2, 3, 4, seed=k) for k in range(3)]
X = f32(5, 7, 3)
Inputs = dict[str, Any]
CASES: list[tuple[str, Callable[..., list[Any]], list[Inputs]]] = [
    ("at", lambda s, k: [s[int(k)], np.array(len(s))],
     [{"s": SOME, "k": np.array(k)} for k in (0, 1, 2, 3, -1, -4)]),
    ("change", changed, [{"s": ROWS, "x": f32(7, 3), "i": np.array(i), "e": np.array(e)}
                         for i, e in ((0, 0), (4, 3), (2, -1), (-1, -4), (3, 1))]),
    ("join", joined, [{"s": CUBES}, {"s": CUBES[:1]}, {"s": [f32(0, 3, 4)] * 2}]),
    ("stack", stacked, [{"s": SOME[:1]}, {"s": [f32(3, 2, seed=k) for k in range(5)]}]),
    ("split", split, [
        {"x": X, "size": np.array(2), "sizes": np.array([3, 0, 4])},
        {"x": X, "size": np.array(1), "sizes": np.array([7])},
        {"x": X, "size": np.array(9), "sizes": np.array([1] * 7)},
        {"x": f32(1, 2, 6), "size": np.array(4), "sizes": np.array([0, 2, 0])},
        {"x": f32(0, 2, 6), "size": np.array(4), "sizes": np.array([0, 2, 0])},
    ]),
    ("collect", collect, [{"n": np.array(n), "x": f32(k, 2)} for n, k in ((4, 3), (1, 5))]),
    ("carry", carry, [{"n": np.array(n), "x": f32(3), "y": f32(3, seed=1)} for n in (0, 1, 5)]),
    ("choose", choose, [{"c": np.array(c), "x": f32(3), "y": f32(2, 2), "at": np.array(at)}
                        for c, at in ((True, 1), (False, -1), (True, -3))]),
    ("map", mapped, [
        {"s": [f32(k) for k in (3, 1, 4)], "t": [f32(k, seed=1) for k in (3, 1, 4)], "x": f32(1)},
        {"s": [], "t": [], "x": f32(1)},
    ]),
    ("known", known, [{"x": f32(3), "y": f32(3, seed=1), "z": f32(2), "k": np.array(k)}
                      for k in (0, 1, -1)]),
    ("maybe", maybe, [
        {"o": f32(3), "p": [np.arange(3), np.array(5)], "x": f32(1)},
        {"o": None, "p": None, "x": f32(1)},
        {"o": f32(0), "p": [], "x": f32(1)},
    ]),
    ("get", lambda o: [o, o[-1]], [{"o": [f32(2), f32(2, seed=1)]}, {"o": [f32(2)]}]),
]  # fmt: skip


def same(found: Any, wanted: Any) -> None:
    if wanted is None:
        assert found is None
    elif isinstance(wanted, list):
        assert isinstance(found, list)
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            same(a, b)
    else:
        assert (found.dtype, found.shape) == (wanted.dtype, np.shape(wanted))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "wanted", "inputs"), CASES, ids=[c[0] for c in CASES])
@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "plain"])
def test_values(
    name: str, wanted: Callable[..., list[Any]], inputs: list[Inputs], optimize: bool
) -> None:
    module = planish.compile(model(name), optimize=optimize, threads=2, logs=[])
    for given in (*inputs, *reversed(inputs)):
        same(list(module.run(given).values()), wanted(**given))
    same(list(module(*inputs[0].values())), wanted(**inputs[0]))


@pytest.mark.parametrize(("name", "wanted", "inputs"), CASES, ids=[c[0] for c in CASES])
def test_the_graph_and_its_text(
    name: str, wanted: Callable[..., list[Any]], inputs: list[Inputs]
) -> None:
    graph = import_model(model(name))
    again = parse(show(graph), large_constants(graph))
    assert show(again) == show(graph)
    boundary = Boundary(interface(model(name)))
    for g in (graph, again):
        for given in inputs:
            same(list(boundary.results(run_reference(g, boundary.given(given)))), wanted(**given))


def interface(source: onnx.ModelProto) -> Interface:
    return planish.compile(source, logs=[]).interface


def test_a_saved_module_gives_the_same(tmp_path: Any) -> None:
    module = planish.compile(model("maybe"), logs=[])
    module.save(tmp_path / "m.planish")
    again = planish.load(tmp_path / "m.planish")
    assert again.inputs == module.inputs
    assert str(again) == str(module)
    for given in CASES[-2][2]:
        same(list(again.run(given).values()), maybe(**given))


@pytest.mark.parametrize(
    ("name", "inputs", "kind", "message"),
    [
        ("at", {"s": SOME, "k": np.array(4)}, RuntimeFault, "position in a sequence is out of"),
        ("at", {"s": [], "k": np.array(0)}, RuntimeFault, "position in a sequence is out of"),
        ("at", {"s": [f32(3)], "k": np.array(0)}, RuntimeFault, "has another rank than 2"),
        ("join", {"s": []}, PlanishError, "joins an empty sequence"),
        ("join", {"s": [f32(1, 2, 3), f32(2, 2, 2)]}, RuntimeFault, "that differ in rank, or in"),
        ("stack", {"s": [f32(1, 2), f32(2, 2)]}, RuntimeFault, "that differ in rank, or in"),
        ("stack", {"s": [f32(1)]}, RuntimeFault, "another rank than 2"),
        ("split", {"x": X, "size": np.array(0), "sizes": np.array([7])}, RuntimeFault,
         "less than 1"),
        ("split", {"x": X, "size": np.array(1), "sizes": np.array([6])}, RuntimeFault,
         "do not add up"),
        ("split", {"x": X, "size": np.array(1), "sizes": np.array([8, -1])}, RuntimeFault,
         "is negative"),
        ("map", {"s": [f32(1)], "t": [], "x": f32(1)}, TypeCheckError, "do not fit"),
        ("map", {"s": [f32(2)], "t": [f32(3)], "x": f32(1)}, PlanishError, "do not fit"),
        ("get", {"o": None}, PlanishError, "is empty"),
        ("get", {"o": []}, PlanishError, "position in a sequence is out of"),
        ("get", {"o": [f32(3)]}, TypeCheckError, r"input o\[0\] is f32\[3\]: dimension 0 must"),
        ("get", {"o": [f32(2, 1)]}, TypeCheckError, r"input o\[0\] is .*: 1 dimensions are wanted"),
        ("get", {"o": [f32(2), np.zeros(2)]}, TypeCheckError, r"input o\[1\] is f64\[2\], and mus"),
        ("get", {"o": f32(2)}, TypeCheckError, "is a numpy.ndarray, not a list of arrays"),
        ("get", {"o": [[1.0, 2.0]]}, TypeCheckError, r"input o\[0\] is a list, not an array"),
        ("get", {}, TypeCheckError, "the input o is missing"),
        ("get", {"o": [], "q": 1}, TypeCheckError, "there is no input q"),
        ("at", {"s": None, "k": np.array(0)}, TypeCheckError, "None, not a list of arrays"),
        ("at", {"s": [f32(*[1] * 9)], "k": np.array(0)}, TypeCheckError, "at most 8 dimensions"),
    ],
)  # fmt: skip
def test_calls_that_are_refused(
    name: str, inputs: Inputs, kind: type[Exception], message: str
) -> None:
    module = planish.compile(model(name), logs=[])
    with pytest.raises(kind, match=message):
        module.run(inputs)
    given = next(c for c in CASES if c[0] == name)
    same(list(module.run(given[2][0]).values()), given[1](**given[2][0]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(seq(float[]) s, int64 k) => (float y) { a = SequenceAt(s, k)\n y = Neg(a) }",
         "the rank of the tensors in a sequence of f32"),
        ("(seq(float[]) s, int64[1] k) => (seq(float[]) y) { y = SequenceInsert(s, k) }",
         r"i64\[1\] is put into a sequence of f32"),
        ("(seq(float[]) s) => (seq(int64[]) y) { y = Identity(s) }", "declared as i64 but is f32"),
        ("(seq(seq(float[])) s) => (seq(seq(float[])) y) { y = Identity(s) }", "not supported"),
        ("(seq(float[]) s) => (seq(float[]) y) { y = Neg(s) }", "sequence of .*, not a tensor"),
    ],
)  # fmt: skip
def test_models_that_are_refused(text: str, message: str) -> None:
    MODELS["refused"] = f"g {text}"
    with pytest.raises(ImportModelError, match=message):
        import_model(model("refused"))
