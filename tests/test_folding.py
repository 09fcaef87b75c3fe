from __future__ import annotations

import numpy as np
import pytest

from planish.build import compile_imported, resolve_target
from planish.compiler.dtypes import F16, F32, F64, I8, I32, I64, DType
from planish.compiler.graph.fold import EXACT, WHOLE, fold_constants
from planish.compiler.graph.text import parse
from planish.compiler.graph.verify import verify
from planish.compiler.ops.base import Op
from planish.compiler.ops.elementwise import Binary, Unary
from planish.compiler.ops.registry import load_operators
from planish.compiler.ops.sampling import extremes, special
from planish.folding import constant_nodes, fold_by_kernels

FOLDED = """
def f(x: f32[n, 40]) -> (y, b):
    c: f32[40] = constant("c")
    w: f32[40, 40] = constant("w")
    a: f32[1, 40] = reshape(c, shape=(1, 40))
    b: f32[1, 40] = exp(a)
    d: f32[1, 40] = matmul(b, w)
    e: f32[1, 40] = softmax(d)
    y: f32[n, 40] = add(x, e)
"""
COMPUTED = """
def f(x: f32[n, 40], c: f32[40]) -> (y, b):
    w: f32[40, 40] = constant("w")
    a: f32[1, 40] = reshape(c, shape=(1, 40))
    b: f32[1, 40] = exp(a)
    d: f32[1, 40] = matmul(b, w)
    e: f32[1, 40] = softmax(d)
    y: f32[n, 40] = add(x, e)
"""


def test_a_folded_constant_is_the_computed_one() -> None:
    rng = np.random.default_rng(0)
    arrays = {"c": rng.normal(size=40).astype("f4"), "w": rng.normal(size=(40, 40)).astype("f4")}
    target = resolve_target(None)
    graph = fold_by_kernels(parse(FOLDED, arrays), target)
    verify(graph)
    assert [node.op.name for node in graph.nodes] == ["add"]
    module = compile_imported(parse(COMPUTED, arrays), target, 1)
    x = np.zeros((1, 40), np.float32)
    for constant, computed in zip(
        graph.constants.values(), module(x, arrays["c"])[::-1], strict=True
    ):
        np.testing.assert_array_equal(constant, computed)


@pytest.mark.parametrize("dtype", [F32, F16, F64, I8, I32, I64], ids=str)
def test_what_numpy_folds_is_the_computed_one_bit_for_bit(dtype: DType) -> None:
    load_operators()
    kind, names = dtype.kind, EXACT if dtype.is_float else EXACT | WHOLE
    values = special(str(dtype.numpy)) if kind == "f" else extremes(str(dtype.numpy))
    x, y = (a.reshape(-1).copy() for a in np.meshgrid(values, values))
    lines, outputs = [], []
    for name in sorted(names):
        cls = Op.registry[name]
        if not issubclass(cls, Unary | Binary) or kind not in cls.kinds:
            continue
        if name in ("cast", "full_like"):  # of another dtype
            continue
        result = cls().result(dtype)
        operands = "a" if issubclass(cls, Unary) else "a, b"
        lines.append(f"    {name}_: {result}[{len(x)}] = {name}({operands})")
        outputs.append(f"{name}_")
    body, n = "\n".join(lines), len(x)
    give = f"-> ({', '.join(outputs)},):"
    known = f'    a: {dtype}[{n}] = constant("a")\n    b: {dtype}[{n}] = constant("b")\n'
    folded = fold_constants(parse(f"def f() {give}\n{known}{body}", {"a": x, "b": y}))
    assert len(outputs) >= 10
    computed = parse(f"def f(a: {dtype}[{n}], b: {dtype}[{n}]) {give}\n{body}")
    module = compile_imported(computed, resolve_target(None), 1)
    found = dict(zip(outputs, module(x, y), strict=True))
    constants = dict(zip(outputs, (folded.constants[v] for v in folded.outputs), strict=True))
    wrong = [name for name in outputs if constants[name].tobytes() != found[name].tobytes()]
    assert not wrong


@pytest.mark.parametrize(
    "line",
    [
        "y: f32[n, 4] = exp(x)",
        "y: f32[n, 4] = expand(c, shape=(n, 4))",  # how large is not known
        "y: f32[2048, 2048, 4] = expand(c, shape=(2048, 2048, 4))",  # too large
        "y: f32[2048, 2048] = constant_of_shape(shape=(2048, 2048), value=f32(1.0))",
    ],
)
def test_left_alone(line: str) -> None:
    graph = parse(
        f"""
def f(x: f32[n, 4]) -> (y,):
    c: f32[4] = constant([1.0, 2.0, 3.0, 4.0])
    {line}
"""
    )
    assert constant_nodes(graph) == []
    assert fold_by_kernels(graph, resolve_target(None)) is graph
