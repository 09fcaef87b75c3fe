"""The importer: names, symbols, initialisers, functions, and what it must refuse."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_harness import check, compare, model_of, node

from planish.compiler.errors import (
    ImportModelError,
    ParseError,
    PlanishError,
    RuntimeFault,
    TypeCheckError,
)
from planish.compiler.expr.nodes import Var
from planish.compiler.frontends.onnx.importer import import_model, load_handlers
from planish.compiler.frontends.onnx.reader import HANDLERS, Entry
from planish.compiler.graph.ir import Array
from planish.compiler.graph.reference import run_reference
from planish.compiler.ops.sampling import f32, ints

i64 = lambda *x: np.array(x, np.int64)  # noqa: E731
FLOAT = TensorProto.FLOAT


def graph_model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[str],
    initialisers: list[onnx.TensorProto] | None = None,
    opset: int = 20,
    **options: Any,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "g", inputs, [onnx.ValueInfoProto(name=o) for o in outputs], initialisers or []
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], **options)


def floats(name: str, *dims: int | str | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, FLOAT, list(dims))


def relu_of(*dims: int | str | None) -> onnx.ModelProto:
    return graph_model([node("Relu", "x", "y")], [floats("x", *dims)], ["y"])


def refuses(
    model: Any, message: str, kind: type[PlanishError] = ImportModelError, **options: Any
) -> PlanishError:
    with pytest.raises(kind, match=message) as caught:
        import_model(model, **options)
    return caught.value


# ----------------------------------------------------------------------------------- symbols


def test_symbols_are_named_after_the_model() -> None:
    graph = import_model(relu_of("batch", 3, "batch", None, "?", "a b", "a_b"))
    assert str(graph.inputs[0].type) == "f32[batch, 3, batch, x_3, x_4, a_b, a_b_1]"
    assert graph.symbols[0] is Var("batch")


def test_minus_one_is_unknown() -> None:
    model = relu_of("n", 3)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = -1
    assert str(import_model(model).inputs[0].type) == "f32[n, x_1]"
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = -2
    refuses(model, "dimension 1 of input 'x' is -2")


def test_dims_fix_symbols() -> None:
    model = relu_of("batch", "a b", None)
    graph = import_model(model, dims={"batch": 2, "a b": 3, "x_2": 4})
    assert str(graph.outputs[0].type) == "f32[2, 3, 4]"
    error = refuses(model, "no dimension 'n'", TypeCheckError, dims={"n": 2})
    assert error.hint == "symbolic dimensions: batch, a_b, x_2"
    for wrong in (-1, 2.5, True, 1 << 60):
        refuses(model, "dimension 'batch' cannot be", TypeCheckError, dims={"batch": wrong})


def test_dims_by_the_names_that_are_printed() -> None:
    model = relu_of("p2o.Dim.0", "a b", "a_b")
    graph = import_model(model, dims={"p2o_Dim_0": 2, "a_b_1": 3, "a b": 4})
    assert str(graph.inputs[0].type) == "f32[2, 4, 3]"
    # A name of the model's own comes before one that another is printed as.
    assert str(import_model(model, dims={"a_b": 5}).inputs[0].type) == "f32[p2o_Dim_0, a_b, 5]"
    twice = {"p2o.Dim.0": 2, "p2o_Dim_0": 3}
    refuses(model, "two sizes: 'p2o.Dim.0' 2 and 'p2o_Dim_0' 3", TypeCheckError, dims=twice)
    assert import_model(model, dims=dict.fromkeys(twice, 2))


def test_conditions_on_symbols_are_checked_by_a_call() -> None:
    inputs = [floats("x", "n", 3), floats("y", "m", 3)]
    model = graph_model([node("Add", "x y", "z")], inputs, ["z"])
    graph = import_model(model)
    assert len(graph.constraints) == 1
    run_reference(graph, {"x": f32(2, 3), "y": f32(2, 3)})
    with pytest.raises(TypeCheckError, match="sizes of the inputs do not fit: n == m does not"):
        run_reference(graph, {"x": f32(2, 3), "y": f32(5, 3)})


# ----------------------------------------------------------------------------------- initialisers

ARRAYS: list[Array] = [
    f32(2, 3),
    f32(2, 3).astype(np.float64),
    f32(2, 3).astype(np.float16),
    f32(2, 3).astype(ml_dtypes.bfloat16),
    *(ints(2, 3, low=0, dtype=f"{s}int{n}") for s in ("", "u") for n in (8, 16, 32, 64)),
    ints(2, 3, low=0, high=2).astype(bool),
    np.array(2.5, np.float32),
    np.zeros((2, 0), np.float32),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}{list(a.shape)}")
@pytest.mark.parametrize("raw", [True, False])
def test_initialisers(array: Array, raw: bool) -> None:
    code = helper.np_dtype_to_tensor_dtype(array.dtype)
    data: Any = array.tobytes() if raw else array.ravel()
    if (
        not raw
        and array.dtype.itemsize == 2
        and code in (TensorProto.FLOAT16, TensorProto.BFLOAT16)
    ):
        tensor = TensorProto(data_type=code, dims=array.shape, name="c")
        tensor.int32_data.extend(array.view(np.uint16).ravel().tolist())
    else:
        tensor = helper.make_tensor("c", code, array.shape, data, raw=raw)
    graph = import_model(graph_model([], [floats("x", 1)], ["c"], [tensor]))
    (got,) = run_reference(graph, {"x": f32(1)})
    assert got.dtype == array.dtype and got.tobytes() == array.tobytes()


def broken(**changes: Any) -> onnx.ModelProto:
    tensor = numpy_helper.from_array(f32(2, 3), "c")
    for name, value in changes.items():
        if name == "dims":
            tensor.ClearField("dims")
            tensor.dims.extend(value)
        elif name == "floats":
            tensor.ClearField("raw_data")
            tensor.float_data.extend(value)
        else:
            setattr(tensor, name, value)
    return graph_model([node("Add", "x c", "y")], [floats("x", 2, 3)], ["y"], [tensor])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dims": (2, 4)}, "has 24 bytes of data, .* takes 32"),
        ({"dims": (-2, -3)}, r"has the shape \[-2, -3\]"),
        ({"dims": (2**40, 2**40)}, "no memory holds"),
        ({"dims": (2**62, 4, 0)}, "no memory holds"),
        ({"dims": (1,) * 40}, "40 dimensions"),
        ({"raw_data": b""}, "has 0 bytes of data"),
        ({"floats": [1.0]}, "has 1 numbers in float_data"),
        ({"data_type": 77}, "unknown element type 77"),
        ({"data_type": TensorProto.STRING}, "do not lie in string_data"),
        ({"data_type": TensorProto.UNDEFINED}, "UNDEFINED, which are not supported"),
        ({"data_type": TensorProto.INT4}, "has 24 bytes of data, .* of i4 takes 3"),
    ],
)
def test_broken_initialisers(changes: dict[str, Any], message: str) -> None:
    error = refuses(broken(**changes), message)
    assert "'c'" in str(error)


def test_numbers_outside_of_the_dtype() -> None:
    tensor = TensorProto(data_type=TensorProto.UINT8, dims=[1], name="c", int32_data=[300])
    refuses(graph_model([], [], ["c"], [tensor]), "numbers that are no u8")


def test_bytes_of_bool_may_be_anything() -> None:
    tensor = helper.make_tensor("c", TensorProto.BOOL, [3], bytes([0, 1, 7]), raw=True)
    graph = import_model(graph_model([], [], ["c"], [tensor]))
    np.testing.assert_array_equal(run_reference(graph, {})[0], [False, True, True])


# ----------------------------------------------------------------------------------- external data


@pytest.fixture
def outside(tmp_path: Path) -> tuple[Path, onnx.ModelProto, Array]:
    """A model in a file, whose weights lie in another, and the weights."""
    weights = f32(64, 8)
    model = model_of(node("MatMul", "x w", "y"), {"x": f32(2, 64)}, constants={"w": weights})
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="m.data", size_threshold=0)
    return path, onnx.load(path, load_external_data=False), weights


def test_external_data(outside: tuple[Path, onnx.ModelProto, Array]) -> None:
    path, model, weights = outside
    graph = import_model(path)
    (array,) = graph.constants.values()
    np.testing.assert_array_equal(array, weights)
    base: Any = array
    while base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert base is not None, "the file is not mapped"
    refuses(model, "has no folder")
    refuses(path.read_bytes(), "has no folder")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("location", "../m.data", "outside of the model's folder"),
        ("location", "a/../../m.data", "outside of the model's folder"),
        ("location", "/etc/passwd", "outside of the model's folder"),
        ("location", "", "outside of the model's folder"),
        ("location", ".", "outside of the model's folder"),
        ("location", "a\0b", "outside of the model's folder"),
        ("location", "none.data", "which is no file"),
        ("offset", "4096", "2048 bytes at 4096"),
        ("offset", "-4", "2048 bytes at -4"),
        ("length", "4", "has 4 bytes of data, its shape takes 2048"),
        ("length", "99999999999999999999", "which has 2048"),
        ("offset", "x", "malformed"),
    ],
)
def test_broken_external_data(
    outside: tuple[Path, onnx.ModelProto, Array], key: str, value: str, message: str
) -> None:
    path, model, _ = outside
    facts = {e.key: e.value for e in model.graph.initializer[0].external_data}
    facts[key] = value
    del model.graph.initializer[0].external_data[:]
    for k, v in facts.items():
        model.graph.initializer[0].external_data.add(key=k, value=v)
    path.write_bytes(model.SerializeToString())
    refuses(path, message)


def test_external_data_at_any_offset(tmp_path: Path) -> None:
    weights = f32(3)
    (tmp_path / "w.bin").write_bytes(b"\1\2\3" + weights.tobytes())
    tensor = TensorProto(data_type=FLOAT, dims=[3], name="w", data_location=TensorProto.EXTERNAL)
    for k, v in (("location", "w.bin"), ("offset", "3"), ("length", "12")):
        tensor.external_data.add(key=k, value=v)
    model = graph_model([], [], ["w"], [tensor])
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    np.testing.assert_array_equal(run_reference(import_model(tmp_path / "m.onnx"), {})[0], weights)


# ----------------------------------------------------------------------------------- the graph


def test_an_initialiser_may_be_an_input() -> None:
    inputs = [floats("x", 3), floats("w", 3)]
    tensor = numpy_helper.from_array(f32(3), "w")
    model = graph_model([node("Add", "x w", "y")], inputs, ["y"], [tensor])
    graph = import_model(model)
    assert graph.input_names == ("x", "w") and list(graph.defaults) == ["w"]
    compare(run_reference(graph, {"x": f32(3)}), [f32(3) + f32(3)])
    compare(run_reference(graph, {"x": f32(3), "w": f32(3, low=1)}), [f32(3) + f32(3, low=1)])
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_value = 4
    refuses(model, "its initialiser")
    model.ir_version = 3  # all initialisers had to be inputs then, and were fixed
    graph = import_model(model)
    assert graph.input_names == ("x",) and not graph.defaults


def test_an_output_may_be_an_input_or_a_constant_or_twice_the_same() -> None:
    tensor = numpy_helper.from_array(f32(3), "c")
    nodes = [node("Identity", "x", "a"), node("Identity", "a", "b")]
    graph = import_model(
        graph_model(nodes, [floats("x", 3), floats("u", 2)], ["x", "a", "b", "c"], [tensor])
    )
    assert graph.output_names == ("x", "a", "b", "c") and not graph.nodes
    assert graph.input_names == ("x", "u")
    compare(run_reference(graph, {"x": f32(3, low=0), "u": f32(2)}), [f32(3, low=0)] * 3 + [f32(3)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda g: g.output.add(name="y"), "two outputs are called 'y'"),
        (lambda g: g.output.add(name="z"), "is 'z', which nothing makes"),
        (lambda g: g.input.add(name="x"), "two inputs are called 'x'"),
        (lambda g: g.input.add(name=""), "an input has no name"),
        (lambda g: g.input.add(name="u"), "input 'u' is no tensor"),
        (lambda g: g.initializer.add(), "an initialiser has no name"),
        (lambda g: g.node.add(op_type="Relu", input=["x"], output=["y"]), "'y' is made twice"),
        (lambda g: g.node.add(op_type="Relu", input=["y"], output=["x"]), "'x' is made twice"),
        (lambda g: g.node.add(op_type="Relu", input=["q"], output=["z"]), "input 0 is 'q'"),
        (lambda g: g.node.add(op_type="Relu", input=[""], output=["z"]), "input 0 is missing"),
        (lambda g: g.node.add(op_type="Relu", input=["x"]), "it has 0 outputs, and must have 1"),
        (lambda g: g.ClearField("output"), "has no outputs"),
        (lambda g: g.ClearField("node"), "which nothing makes"),
    ],
)
def test_malformed_graphs(change: Callable[[onnx.GraphProto], Any], message: str) -> None:
    model = relu_of(3)
    change(model.graph)
    refuses(model, message)


SPARSE = onnx.TypeProto(sparse_tensor_type={"elem_type": FLOAT})


def test_inputs_that_are_no_tensors() -> None:
    for info, message in (
        (helper.make_tensor_value_info("r", FLOAT, None), "the rank of input 'r'"),
        (helper.make_value_info("m", SPARSE), "'m' is no tensor .sparse_tensor"),
        (helper.make_tensor_value_info("h", FLOAT, [2**40, 2**40]), "no memory holds"),
    ):
        refuses(graph_model([node("Relu", "x", "y")], [floats("x", 1), info], ["y"]), message)


def test_declared_outputs_must_be_right() -> None:
    model = relu_of(3)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    refuses(model, "declared as i64 but is f32")


def test_names_become_identifiers() -> None:
    nodes = [
        node("Relu", "x:0", "/a/b.c"),
        node("Relu", "/a/b.c", "class"),
        node("Relu", "class", "1"),
    ]
    graph = import_model(graph_model(nodes, [floats("x:0", 2)], ["1"]))
    assert [n.outputs[0].name for n in graph.nodes] == ["a_b_c", "class_", "_1"]
    assert graph.input_names == ("x:0",) and graph.output_names == ("1",)
    assert graph.nodes[0].origin == "/a/b.c"


# ----------------------------------------------------------------------------------- nodes


def test_nodes_out_of_order_are_sorted() -> None:
    nodes = [node("Neg", "b", "c"), node("Relu", "x", "a"), node("Exp", "a", "b")]
    graph = import_model(graph_model(nodes, [floats("x", 2)], ["c"]))
    assert [n.op.name for n in graph.nodes] == ["relu", "exp", "neg"]


def test_a_circle_is_named() -> None:
    nodes = [
        node("Add", "x c", "a", name="first"),
        node("Exp", "a", "b", name="second"),
        node("Neg", "b", "c"),
    ]
    error = refuses(graph_model(nodes, [floats("x", 2)], ["c"]), "in a circle")
    assert error.node is not None
    assert set(re.findall(r"\w+ \(\w+\)", error.node)) == {"first (Add)", "second (Exp)", "c (Neg)"}


def test_nothing_is_skipped() -> None:
    def one(made: onnx.NodeProto, opset: int = 20) -> onnx.ModelProto:
        return graph_model([made], [floats("x", 2)], ["y"], opset=opset)

    made = node("Relu", "x", "y", name="n", slope=2)
    error = refuses(one(made), "attribute slope is not supported")
    assert (error.op, error.node) == ("Relu", "n")
    refuses(one(node("Relu", "x x", "y")), "it has 2 inputs, and must have 1")
    refuses(one(node("Reluu", "x", "y")), "there is no operator Reluu in opset 20")
    refuses(one(node("Relu", "x", "y", domain="my.own")), "which opset of domain 'my.own'")
    refuses(one(node("Gelu", "x", "y"), opset=19), "no operator Gelu in opset 19")
    refuses(one(node("Relu", "x", "y"), opset=99), "opset 99 is not known")
    refuses(one(node("LeakyRelu", "x", "y", alpha="a")), "attribute alpha is no float")
    refuses(one(node("Cast", "x", "y")), "attribute to is missing")


def test_a_version_without_a_handler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    load_handlers()
    monkeypatch.setitem(HANDLERS, ("", "Add"), Entry(HANDLERS["", "Add"].handle, frozenset({14})))
    model = graph_model([node("Add", "x x", "y")], [floats("x", 2)], ["y"], opset=6)
    error = refuses(model, "version 6 of Add .opset 6. is not supported")
    assert error.hint == "known versions: 14"


def test_attributes_given_twice() -> None:
    made = node("LeakyRelu", "x", "y", alpha=0.1)
    made.attribute.add().CopyFrom(made.attribute[0])
    refuses(graph_model([made], [floats("x", 2)], ["y"]), "attribute alpha is given twice")


def test_names_must_be_utf8() -> None:
    for what, old in (("node", b"Relu"), ("input", b"xxxx"), ("output", b"yyyy")):
        model = graph_model([node("Relu", "xxxx", "yyyy")], [floats("xxxx", 2)], ["yyyy"])
        data = model.SerializeToString().replace(old, b"\xff\xfe\xfd\xfc")
        with pytest.raises((ImportModelError, ParseError)):
            import_model(data), what


# ----------------------------------------------------------------------------------- functions


def scaled(name: str = "Scaled", **options: Any) -> onnx.FunctionProto:
    """y = x * LeakyRelu(x, alpha=slope), of which the slope is the call's or 0.5."""
    inner = node("LeakyRelu", "x", "t")
    inner.attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    return helper.make_function(
        "my.own", name, ["x"], ["y"], [inner, node("Mul", "x t", "y")],
        [helper.make_opsetid("", 20)], [], [helper.make_attribute("slope", 0.5)], **options,
    )  # fmt: skip


def with_functions(
    made: list[onnx.NodeProto], functions: list[onnx.FunctionProto]
) -> onnx.ModelProto:
    return model_of(made, {"x": f32(4)}, functions=functions, domains={"my.own": 1}, outputs=["z"])


def test_functions_of_the_model() -> None:
    x = f32(4)
    leaky = lambda slope: x * np.where(x < 0, np.float32(slope) * x, x)  # noqa: E731
    call = node("Scaled", "x", "z", domain="my.own")
    check(with_functions([call], [scaled()]), {"x": x}, want=[leaky(0.5)])
    call = node("Scaled", "x", "z", domain="my.own", slope=0.25)
    check(with_functions([call], [scaled()]), {"x": x}, want=[leaky(0.25)])


def test_functions_within_functions() -> None:
    twice = helper.make_function(
        "my.own", "Twice", ["x"], ["y"],
        [
            node("Scaled", "x", "t", domain="my.own", slope=1.0),
            node("Scaled", "t", "y", domain="my.own"),
        ],
        [helper.make_opsetid("my.own", 1)],
    )  # fmt: skip
    model = with_functions([node("Twice", "x", "z", domain="my.own")], [twice, scaled()])
    x = f32(4)
    graph = check(model, {"x": x}, want=[(x * x) * (x * x)])
    assert [n.op.name for n in graph.nodes] == ["leaky_relu", "mul"] * 2


def test_faults_in_functions() -> None:
    loop = helper.make_function(
        "my.own", "Loop", ["x"], ["y"], [node("Loop", "x", "y", domain="my.own")],
        [helper.make_opsetid("my.own", 1)],
    )  # fmt: skip
    call = node("Loop", "x", "z", domain="my.own")
    refuses(with_functions([call], [loop]), "nested too deeply, or calls itself")
    call = node("Scaled", "x", "z", domain="my.own", other=1)
    refuses(with_functions([call], [scaled()]), "attribute other is not one of function Scaled")
    call = node("Scaled", "x x", "z", domain="my.own")
    refuses(with_functions([call], [scaled()]), "takes 1 inputs")
    refuses(with_functions([call], [scaled(), scaled()]), "is defined twice")


def test_operators_that_onnx_gives_a_body() -> None:
    """CenterCropPad and HannWindow have no handler here; their bodies have."""
    check(node("HannWindow", "n"), {}, constants={"n": np.array(8)}, opset=17)
    x = {"x": f32(7, 4)}
    check(node("CenterCropPad", "x s"), x, constants={"s": i64(4, 9)}, opset=18, symbolic=False)


def test_known_conditions_choose_a_branch() -> None:
    def branch(op: str) -> onnx.GraphProto:
        made = [node("Constant", "", "k", value_float=2.0), node(op, "x k", "r")]
        return helper.make_graph(made, op, [], [onnx.ValueInfoProto(name="r")])

    made = node("If", "c", "z", then_branch=branch("Mul"), else_branch=branch("Add"))
    x = {"x": f32(3)}
    for condition, want in ((True, x["x"] * 2), (False, x["x"] + 2)):
        check(made, x, constants={"c": np.array(condition)}, want=[want])


# ----------------------------------------------------------------------------------- files


def test_files_that_are_no_models(tmp_path: Path) -> None:
    data = relu_of("n", 3).SerializeToString()
    for bad in (b"", b"\xff" * 100, b"hello", data[: len(data) // 2], data[:-1]):
        with pytest.raises((ParseError, ImportModelError)):
            import_model(bad)
    refuses(tmp_path / "none.onnx", "none.onnx cannot be read: No such file", ParseError)
    refuses(tmp_path, "cannot be read", ParseError)
    (tmp_path / "m.npz").write_bytes(b"PK\3\4...")
    refuses(tmp_path / "m.npz", "no ONNX model, but an archive", ParseError)
    (tmp_path / "empty.onnx").write_bytes(b"")
    refuses(tmp_path / "empty.onnx", "empty.onnx is no ONNX model: the graph", ParseError)
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    assert import_model(path).name == import_model(str(path)).name == import_model(data).name


def test_versions_of_the_format() -> None:
    model = relu_of(3)
    model.ir_version = 1000
    refuses(model, "format has version 1000")


def test_huge_results_are_refused() -> None:
    made = node("ConstantOfShape", "s", "y")
    for sizes in (i64(2**40, 8), i64(2**62, 2**62), i64(2**32, 2**32, 0)):
        refuses(
            graph_model([made], [], ["y"], [numpy_helper.from_array(sizes, "s")]),
            "larger than any memory",
        )


def seeds() -> list[onnx.ModelProto]:
    """Small models with much in them, to be damaged."""
    deep = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n", axis=0),
        node("Unsqueeze", "n axis", "n1"),
        node("Concat", "n1 minus", "new", axis=0),
        node("Reshape", "x new", "flat"),
        node("MatMul", "flat w", "m"),
        node("Softmax", "m", "p", axis=-1),
        node("Slice", "p zero1 two1", "q"),
        node("Pad", "q pads", "y", mode="edge"),
    ]
    constants = {
        "zero": np.array(0), "axis": i64(0), "minus": i64(-1), "w": f32(12, 5), "zero1": i64(0),
        "two1": i64(2), "pads": i64(0, 1, 1, 0),
    }  # fmt: skip
    conv = [node("Conv", "x k b", "c", pads=[1, 1, 1, 1], strides=[2, 2]), node("Relu", "c", "y")]
    return [
        model_of(deep, {"x": f32(2, 3, 4)}, constants=constants, symbolic=True),
        model_of(conv, {"x": f32(1, 3, 8, 8)}, constants={"k": f32(4, 3, 3, 3), "b": f32(4)}),
        with_functions([node("Scaled", "x", "z", domain="my.own", slope=0.2)], [scaled()]),
    ]


def damaged(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    at = rng.randrange(len(out))
    match rng.randrange(5):
        case 0:
            return bytes(out[:at])
        case 1:
            out[at] ^= 1 << rng.randrange(8)
        case 2:
            out[at] = rng.randrange(256)
        case 3:
            del out[at : at + rng.randrange(1, 40)]
        case _:
            out[at:at] = out[at : at + rng.randrange(1, 40)]
    return bytes(out)


@pytest.mark.parametrize("seed", range(3))
def test_damaged_files_are_errors_of_ours(seed: int) -> None:
    rng = random.Random(seed)
    models = [m.SerializeToString() for m in seeds()]
    outcomes = {"imported": 0, "refused": 0}
    for _ in range(300):
        data = damaged(rng.choice(models), rng)
        try:
            import_model(data)
            outcomes["imported"] += 1
        except PlanishError as error:
            assert isinstance(error, (ImportModelError, ParseError)), data
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 10


def test_declared_shapes_of_outputs_are_not_believed() -> None:
    """Exporters declare wrong ones; what counts is computed."""
    model = relu_of(2, 3)
    model.graph.output[0].type.tensor_type.elem_type = FLOAT
    for _ in range(3):
        model.graph.output[0].type.tensor_type.shape.dim.add().dim_value = 7
    assert str(import_model(model).outputs[0].type) == "f32[2, 3]"


def test_references_that_fail_name_the_node() -> None:
    """As numpy's of an index that is too large."""
    model = graph_model(
        [node("Gather", "x k", "y")],
        [floats("x", 3), helper.make_tensor_value_info("k", TensorProto.INT64, [1])],
        ["y"],
    )
    with pytest.raises(RuntimeFault, match="gather: the reference fails: index 5") as caught:
        run_reference(import_model(model), {"x": np.zeros(3, np.float32), "k": i64(5)})
    assert "y: f32[1] = gather(x, k)" in str(caught.value)
