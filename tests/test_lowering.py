"""Programs of graphs: what their outputs are views of, where constants and values live."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from planish.assembly import compile_graph
from planish.build import compile_imported, resolve_target
from planish.compiler.dtypes import BOOL, F32, I64
from planish.compiler.expr.nodes import Const, Var, as_expr, le
from planish.compiler.graph.ir import Array, Graph, GraphBuilder, Value, tensor
from planish.compiler.graph.reference import run_reference
from planish.compiler.loop import te
from planish.compiler.loop.ir import Function
from planish.compiler.loop.lower import lower
from planish.compiler.ops.activations import Relu, Sigmoid
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.convolution import Conv
from planish.compiler.ops.creation import Where
from planish.compiler.ops.elementwise import Add, Mul
from planish.compiler.ops.indexing import Gather
from planish.compiler.ops.matmul import MatMul
from planish.compiler.ops.recurrent import SIGMOID as SIGMOID_GATE
from planish.compiler.ops.recurrent import TANH, Lstm
from planish.compiler.ops.reduction import ReduceSum
from planish.compiler.ops.sampling import f32, ints
from planish.compiler.ops.shape import Reshape, ShapeOf, Split, Transpose
from planish.compiler.program import Program
from planish.lowering import Kernel, Kernels
from planish.runtime.module import Module
from planish.schedules.choices import Choices
from planish.schedules.moves.winograd import is_inexact
from planish.schedules.rules import schedule
from planish.schedules.schedule import Schedule, parse_trace
from planish.targets.llvm.target import host

N, M = Var("n"), Var("m")
RELU, SIGMOID = Relu(), Sigmoid()

Make = Callable[[GraphBuilder], list[Value]]


def built(make: Make) -> Graph:
    b = GraphBuilder("g")
    outputs = make(b)
    return b.finish(outputs, [f"out{k}" for k in range(len(outputs))])


def program(graph: Graph, optimize: bool = True, threads: int = 1) -> Program:
    return compile_graph(graph, host().machine, threads, optimize)


def module(graph: Graph, optimize: bool = True, threads: int = 1) -> Module:
    return compile_imported(graph, resolve_target("llvm"), threads, optimize)


def check(graph: Graph, *cases: Mapping[str, Array]) -> Module:
    """Compiled both ways, the graph gives what its references give."""
    for optimize, threads in ((False, 1), (True, 2)):
        compiled = module(graph, optimize, threads)
        for inputs in cases:
            wanted = run_reference(graph, inputs)
            found = list(compiled.run(inputs).values())
            assert len(found) == len(wanted)
            for a, b in zip(found, wanted, strict=True):
                assert (a.dtype, a.shape) == (b.dtype, b.shape)
                scale = np.abs(b).max(initial=1) if b.dtype.kind == "f" else 0
                np.testing.assert_allclose(a, b, rtol=0, atol=1e-6 * scale)
    return compiled


def matrix(b: GraphBuilder, name: str = "x") -> Value:
    return b.input(name, tensor(F32, N, 6))


X = {"x": f32(5, 6)}
CASES = ({"x": f32(1, 6)}, {"x": f32(5, 6)}, {"x": f32(0, 6)})


def relu_twice(b: GraphBuilder) -> list[Value]:
    y = b.one(RELU, matrix(b))
    return [y, y, y]


def input_as_output(b: GraphBuilder) -> list[Value]:
    x = matrix(b)
    return [x, b.one(RELU, x), x]


def view_of_an_input(b: GraphBuilder) -> list[Value]:
    return [b.one(Reshape((as_expr(3), N * 2)), b.one(Reshape((N * 6,)), matrix(b)))]


def view_and_value(b: GraphBuilder) -> list[Value]:
    y = b.one(RELU, matrix(b))
    flat = b.one(Reshape((N * 6,)), y)
    return [flat, y, flat, b.one(Reshape((N, as_expr(2), as_expr(3))), flat)]


def output_that_is_read(b: GraphBuilder) -> list[Value]:
    y = b.one(SIGMOID, matrix(b))
    return [y, b.one(MatMul(), y, b.constant(f32(6, 3)))]


def view_that_is_read(b: GraphBuilder) -> list[Value]:
    y = b.one(MatMul(), matrix(b), b.constant(f32(6, 4)))
    wide = b.one(Reshape((N, as_expr(2), as_expr(2))), y)
    turned = b.one(Transpose((0, 2, 1)), wide)
    return [b.one(Add(), turned, wide)]


def constants_only(b: GraphBuilder) -> list[Value]:
    matrix(b)
    c = b.constant(f32(2, 3))
    return [c, b.one(Reshape((as_expr(3), as_expr(2))), c), b.constant(np.array(7, np.int64)), c]


def scalars(b: GraphBuilder) -> list[Value]:
    total = b.one(ReduceSum((0, 1), keepdims=False), matrix(b))
    return [total, b.one(Mul(), total, b.constant(np.float32(2))), b.one(RELU, total)]


def twice_the_same_operand(b: GraphBuilder) -> list[Value]:
    x = matrix(b)
    y = b.one(Transpose((1, 0)), x)
    return [b.one(Mul(), x, x), b.one(MatMul(), y, x), b.one(MatMul(transpose_b=True), x, x)]


def view_beside_its_source(b: GraphBuilder) -> list[Value]:
    x = matrix(b)
    same = b.one(Reshape((N, as_expr(1), as_expr(6))), x)
    return [b.one(Add(), same, x)]


def unused_results(b: GraphBuilder) -> list[Value]:
    x = matrix(b)
    b.one(SIGMOID, x)
    _, middle, _ = b.apply(Split((as_expr(2), as_expr(1), as_expr(3)), 1), x)
    return [middle]


def shapes(b: GraphBuilder) -> list[Value]:
    x = matrix(b)
    return [b.one(ShapeOf(), x), b.one(RELU, x)]


def recurrent(b: GraphBuilder) -> list[Value]:
    """An operator with loops of its own; only one of its results is wanted."""
    gates = b.one(MatMul(), matrix(b), b.constant(f32(6, 16)))
    x = b.one(Reshape((N, as_expr(1), as_expr(16))), gates)
    _, last, _ = b.apply(Lstm(activations=(SIGMOID_GATE, TANH, TANH)), x, b.constant(f32(4, 16)))
    return [last]


@pytest.mark.parametrize(
    "make",
    [
        relu_twice, input_as_output, view_of_an_input, view_and_value, output_that_is_read,
        view_that_is_read, constants_only, scalars, twice_the_same_operand,
        view_beside_its_source, unused_results, shapes, recurrent,
    ],
)  # fmt: skip
def test_outputs(make: Make) -> None:
    check(built(make), *CASES)


def test_rank_0_everywhere() -> None:
    def make(b: GraphBuilder) -> list[Value]:
        x, k = b.input("x", tensor(F32)), b.input("k", tensor(I64))
        flag = b.input("flag", tensor(BOOL))
        y = b.one(Add(), x, b.constant(np.float32(1.5)))
        chosen = b.one(Where(), flag, y, x)
        return [y, k, chosen, b.one(Cast(F32), k), b.one(Reshape((as_expr(1),)), x), x]

    for flag in (True, False):
        inputs = {"x": np.float32(3), "k": np.int64(-4), "flag": np.bool_(flag)}
        check(built(make), {name: np.asarray(v) for name, v in inputs.items()})


def test_no_inputs_and_no_nodes() -> None:
    graph = built(lambda b: [b.constant(f32(3))])
    compiled = check(graph, {})
    assert compiled()[0].tobytes() == f32(3).tobytes()


def test_unused_inputs_are_still_checked() -> None:
    graph = built(lambda b: [b.one(RELU, matrix(b)), *[b.input("z", tensor(F32, M))][:0]])
    compiled = check(graph, {**X, "z": f32(3)})
    with pytest.raises(TypeError, match="the input z is missing"):
        compiled.run(X)
    with pytest.raises(TypeError, match="1 dimensions are wanted"):
        compiled.run({**X, "z": f32(3, 3)})


def test_outputs_do_not_share_memory() -> None:
    x = f32(5, 6)
    for make in (relu_twice, input_as_output, view_and_value):
        results = module(built(make))(x)
        for k, a in enumerate(results):
            assert not np.may_share_memory(a, x)
            assert not any(np.may_share_memory(a, b) for b in results[:k])


def test_outputs_are_written_where_they_are_wanted() -> None:
    """Nothing is copied that a kernel can write in place."""
    for make, copies in ((relu_twice, 2), (view_and_value, 3), (output_that_is_read, 0)):
        steps = program(built(make)).steps
        assert sum(s.function.startswith("copy") for s in steps) == copies
        assert program(built(make)).arena_bytes is as_expr(0)


@pytest.mark.parametrize("optimize", [True, False])
def test_zero_sizes_inside(optimize: bool) -> None:
    """A dimension of no elements; sums over it are 0."""

    def make(b: GraphBuilder) -> list[Value]:
        x = b.input("x", tensor(F32, N, M))
        total = b.one(ReduceSum((1,), keepdims=False), x)
        y = b.one(MatMul(transpose_b=True), x, x)
        flat = b.one(Reshape((N * M,)), x)
        return [total, b.one(SIGMOID, y), b.one(RELU, flat), b.one(Transpose((1, 0)), x)]

    compiled = module(built(make), optimize)
    for n, m in ((3, 0), (0, 3), (0, 0), (1, 1), (7, 17)):
        inputs = {"x": f32(n, m)}
        wanted = run_reference(built(make), inputs)
        for a, b in zip(compiled.run(inputs).values(), wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
            assert a.shape == b.shape


def test_defaults_may_be_overridden() -> None:
    def make(b: GraphBuilder) -> list[Value]:
        w = b.input("w", tensor(F32, 6, 3))
        x = matrix(b)
        b.defaults["w"] = f32(6, 3)
        return [b.one(MatMul(), x, w), w]

    graph = built(make)
    compiled = check(graph, X, {**X, "w": f32(6, 3, low=0)})
    np.testing.assert_allclose(compiled(X["x"])[0], X["x"] @ f32(6, 3), rtol=1e-5, atol=1e-5)


def test_conditions_are_kept() -> None:
    def make(b: GraphBuilder) -> list[Value]:
        b.constraints.append(le(2, N))
        return [b.one(RELU, matrix(b))]

    with pytest.raises(TypeError, match="2 <= n does not hold"):
        module(built(make)).run({"x": f32(1, 6)})


# -------------------------------------------------------------------------------------- constants


def test_a_view_of_a_constant_is_a_constant() -> None:
    """Also without passes that fold it; so the kernel can lay it out."""

    def make(b: GraphBuilder) -> list[Value]:
        flat = b.constant(f32(48 * 40))
        return [
            b.one(
                MatMul(),
                b.input("x", tensor(F32, N, 48)),
                b.one(Reshape((as_expr(48), as_expr(40))), flat),
            )
        ]

    check(built(make), {"x": f32(5, 48)})
    found = program(built(make))
    assert [s.arguments[1].kind for s in found.steps] == ["constant"]
    assert len(found.constants) == 1


def test_a_view_of_a_constant_whose_shape_is_not_known() -> None:
    def make(b: GraphBuilder) -> list[Value]:
        x = b.input("x", tensor(F32, N))
        b.constraints.append(le(N, 12))
        c = b.constant(f32(12))
        seen = b.one(Reshape((N, 12 // N)), c)
        return [b.one(Mul(), seen, b.one(Reshape((N, as_expr(1))), x)), seen]

    graph = built(make)
    compiled = module(graph, optimize=False)
    for n in (1, 3, 12):
        inputs = {"x": f32(n)}
        for a, b in zip(compiled.run(inputs).values(), run_reference(graph, inputs), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


def test_equal_constants_are_kept_once() -> None:
    def make(b: GraphBuilder) -> list[Value]:
        x = matrix(b)
        out = []
        for k in range(3):
            w, bias = b.constant(f32(6, 8)), b.constant(f32(8) + np.float32(k == 2))
            out.append(b.one(Add(), b.one(MatMul(), x, w), bias))
        return out

    graph = built(make)
    check(graph, *CASES)
    for optimize in (True, False):
        found = program(graph, optimize)
        assert len(found.constants) == 3  # one weight, two biases
        assert len({s.arguments[1] for s in found.steps if "matmul" in s.function}) == 1


def test_numbers_that_only_look_equal_are_kept_apart() -> None:
    def make(b: GraphBuilder) -> list[Value]:
        zero, minus = np.zeros((2, 3), np.float32), -np.zeros((2, 3), np.float32)
        nan = np.full((2, 3), np.nan, np.float32)
        return [b.constant(c) for c in (zero, minus, nan, nan.copy(), zero.view(np.int32))]

    graph = built(make)
    assert len(program(graph).constants) == 4
    found = module(graph)()
    assert [np.signbit(a).any() for a in found[:2]] == [False, True]
    assert np.isnan(found[3]).all()


def test_a_constant_that_two_kernels_want_in_two_forms() -> None:
    """A table of embeddings that is also the last layer's weight."""

    def make(b: GraphBuilder) -> list[Value]:
        table = b.constant(f32(40, 32))
        x = b.one(Gather(0), table, b.input("k", tensor(I64, N)))
        return [b.one(MatMul(transpose_b=True), x, table), x]

    graph = built(make)
    check(graph, {"k": ints(5, low=0, high=40)}, {"k": ints(1, low=0, high=40)})
    found = program(graph)
    assert len(found.constants) <= 2
    assert sum(c.nbytes for c in found.constants) <= 3 * 40 * 32 * 4


def test_constants_are_aligned_and_contiguous() -> None:
    def make(b: GraphBuilder) -> list[Value]:
        turned = np.asfortranarray(f32(7, 9))
        return [b.one(Mul(), b.input("x", tensor(F32, 7, 9)), b.constant(turned))]

    for c in check(built(make), {"x": f32(7, 9)}).constants:
        assert c.flags.c_contiguous
        assert c.ctypes.data % 64 == 0


def test_a_constant_of_one_element_is_part_of_the_code() -> None:
    def make(b: GraphBuilder) -> list[Value]:
        scale = b.constant(np.full((1, 1), 3, np.float32))
        shift = b.one(Reshape((as_expr(1),)), b.constant(np.float32(-1)))
        return [b.one(Add(), b.one(Mul(), matrix(b), scale), shift)]

    check(built(make), *CASES)
    for optimize in (True, False):
        assert program(built(make), optimize).constants == ()


# ----------------------------------------------------------------------------------------- memory


def layers(count: int) -> Make:
    def make(b: GraphBuilder) -> list[Value]:
        x = b.input("x", tensor(F32, N, 32))
        for _ in range(count):
            x = b.one(MatMul(), x, b.constant(f32(32, 32) / np.float32(8)))
        return [x]

    return make


def test_the_arena_does_not_grow_with_depth() -> None:
    check(built(layers(5)), {"x": f32(1, 32)}, {"x": f32(9, 32)})
    assert str(program(built(layers(5))).arena_bytes) == "n * 256"
    assert program(built(layers(5))).arena_bytes is program(built(layers(3))).arena_bytes


def test_the_arena_of_known_sizes() -> None:
    graph = built(layers(6))
    fixed = graph.with_()
    compiled = module(fixed)
    compiled(f32(3, 32))
    assert compiled.stats()["arena_bytes"] == 3 * 256
    compiled(f32(300, 32))
    compiled(f32(1, 32))
    assert compiled.stats()["arena_bytes"] == 300 * 256
    assert compiled.stats()["arena_bytes_peak"] == 300 * 256


def test_equal_groups_share_a_kernel() -> None:
    found = program(built(layers(5)))
    assert len(found.steps) == 5
    assert len(found.functions) == 1
    assert set(found.schedules) == set(found.functions)


def test_symbols_of_kernels_are_those_of_their_groups() -> None:
    """Two groups that share a kernel may give its symbols other values."""

    def make(b: GraphBuilder) -> list[Value]:
        x = b.input("x", tensor(F32, N, 4))
        y = b.input("y", tensor(F32, M, 4))
        return [b.one(SIGMOID, x), b.one(SIGMOID, y), b.one(RELU, b.one(Reshape((M * 4,)), y))]

    graph = built(make)
    check(graph, {"x": f32(3, 4), "y": f32(7, 4)}, {"x": f32(2, 4), "y": f32(0, 4)})
    found = program(graph)
    shared = [s for s in found.steps if "sigmoid" in s.function]
    assert len({s.function for s in shared}) == 1
    assert [s.symbols for s in shared] == [(N,), (M,)]


def test_steps_say_where_they_come_from() -> None:
    b = GraphBuilder("g")
    y = b.one(RELU, matrix(b), origin="the layer")
    found = program(b.finish([b.one(SIGMOID, y), y]))
    assert [s.origin for s in found.steps][0][0] == "the layer"


def test_a_program_is_the_same_each_time() -> None:
    graph = built(view_and_value)
    a, b = program(graph), program(graph)
    assert a.steps == b.steps
    assert a.functions == b.functions
    assert isinstance(a.arena_bytes, Const)


def test_strict_takes_no_schedule_whose_sums_are_not_plain():
    """Not even one that was tuned."""
    x, w = te.placeholder((1, 16, 16, 32), F32), te.placeholder((3, 3, 32, 32), F32, "w")
    y = Conv((1, 1), (1, 1), (1, 1, 1, 1), 1, True).compute(x, w)
    func = lower("f", [x, w], [y])

    def kernel(size: int, strict: bool) -> Kernel:
        def tuned(f: Function, constants: frozenset[str]) -> Schedule:
            given = Choices({"rule": "winograd", "size": size})
            return schedule(f, host().machine, 1, constants, given)

        made = Kernels(host().machine, 1, True, True, tuned, strict)
        return made.kernel(func, [False, True], "conv")

    for size, strict, how in ((4, False, "tuned"), (4, True, "default"), (2, True, "default")):
        found = kernel(size, strict)
        assert found.schedule.how == how
        assert not (strict and is_inexact(parse_trace(found.schedule.trace)))
        assert list(found.forms) == [1]
