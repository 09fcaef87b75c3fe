"""Maps of ai.onnx.ml: dictionaries that modules take, and give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import planish
from planish.arrays import by_names, inputs_from, made_up, write_npz
from planish.compiler.errors import ImportModelError, TypeCheckError
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.graph.ir import Array
from planish.compiler.graph.text import large_constants, parse, show


def model(text: str) -> onnx.ModelProto:
    domains = '["": 15, "ai.onnx.ml": 3]'
    return onnx.parser.parse_model(f"<ir_version: 8, opset_import: {domains}>" + text)


ZIPPED = """
g (float[n, 2] x) => (int64[n] label, seq(map(string, float)) scores) {
  label, s = ai.onnx.ml.LinearClassifier<coefficients = [1.0, 2.0, -1.0, 0.5],
    intercepts = [0.5, 0.0], classlabels_ints = [3, 4], post_transform = "SOFTMAX">(x)
  scores = ai.onnx.ml.ZipMap<classlabels_strings = ["no", "é"]>(s)
}"""
NUMBERED = """
g (float[n, 3] x) => (seq(map(int64, float)) y) {
  y = ai.onnx.ml.ZipMap<classlabels_int64s = [7, -1, 3]>(x)
}"""


def vectorizer(key: str, value: str, attribute: str) -> onnx.ModelProto:
    return model(f"""
    g (map({key}, {value}) x) => (int64 n, {value}[m] y) {{
      y = ai.onnx.ml.DictVectorizer<{attribute}>(x)
      n = Size(y)
    }}""")


def caster(value: str, **attributes: Any) -> onnx.ModelProto:
    out = {"TO_STRING": "string", "TO_INT64": "int64"}.get(attributes.get("cast_to", ""), "float")
    attributes.setdefault("cast_to", "TO_FLOAT")
    given = ", ".join(
        f'{k} = "{v}"' if isinstance(v, str) else f"{k} = {v}" for k, v in attributes.items()
    )
    return model(f"""
    g (map(int64, {value}) x) => ({out}[one, m] y) {{
      y = ai.onnx.ml.CastMap<{given}>(x)
    }}""")


def peer(made: onnx.ModelProto, *inputs: Any) -> list[Any]:
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(made.SerializeToString(), None, ["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    found: list[Any] = session.run(None, dict(zip(names, inputs, strict=True)))
    return found


@pytest.mark.parametrize("target", ["llvm", "interpreter"])
def test_scores_by_class(target: str) -> None:
    x = np.random.default_rng(0).standard_normal((5, 2)).astype(np.float32)
    made = model(ZIPPED)
    label, scores = planish.compile(made, target=target)(x)
    wanted_label, wanted = peer(made, x)
    np.testing.assert_array_equal(label, wanted_label)
    assert [list(m) for m in scores] == [["no", "é"]] * 5
    for found, row in zip(scores, wanted, strict=True):
        assert all(type(v) is float for v in found.values())
        np.testing.assert_allclose([*found.values()], [*row.values()], rtol=1e-6)
    _, scores = planish.compile(made, target=target)(x[:0])
    assert scores == []


def test_scores_by_number(tmp_path: Path) -> None:
    module = planish.compile(model(NUMBERED))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    wanted = [{7: 0.0, -1: 1.0, 3: 2.0}, {7: 3.0, -1: 4.0, 3: 5.0}]
    assert module(x) == (wanted,)
    module.save(tmp_path / "m.planish")
    again = planish.load(tmp_path / "m.planish")
    assert again.run({"x": x}) == {"y": wanted}
    assert str(again.outputs[0]) == "y: maps from i64 to f32"
    one = model(NUMBERED.replace("float[n, 3]", "float[3]"))
    assert planish.compile(one)(x[1]) == ([wanted[1]],)
    write_npz(tmp_path / "y.npz", by_names(module.run({"x": x})))
    with np.load(tmp_path / "y.npz") as found:
        np.testing.assert_array_equal(found["y.keys"], [7, -1, 3])
        np.testing.assert_array_equal(found["y.values"], x)


def test_graphs_with_maps_as_text() -> None:
    for made in (model(ZIPPED), vectorizer("string", "float", 'string_vocabulary = ["a"]')):
        text = show(graph := import_model(made))
        assert show(parse(text, large_constants(graph))) == text


CASES: list[tuple[Callable[[], onnx.ModelProto], dict[Any, Any], Array]] = [
    (lambda: vectorizer("string", "float", 'string_vocabulary = ["a", "c", "b", "z"]'),
     {"c": 8, "a": 4.5, "other": 1.0}, np.array([4.5, 8, 0, 0], np.float32)),
    (lambda: vectorizer("string", "int64", 'string_vocabulary = ["b", ""]'),
     {"": -(2**63), "a": 1}, np.array([0, -(2**63)])),
    (lambda: vectorizer("int64", "double", "int64_vocabulary = [5, 4, 3]"),
     {3: 0.1, np.int64(5): np.float32(2)}, np.array([2, 0, 0.1])),
    (lambda: vectorizer("int64", "string", "int64_vocabulary = [5, 4]"),
     {4: "é"}, np.array(["", "é"], object)),
    (lambda: vectorizer("int64", "string", "int64_vocabulary = [5, 4]"),
     {}, np.array(["", ""], object)),
    (lambda: caster("float"), {3: 1.5, -1: 2}, np.array([[2, 1.5]], np.float32)),
    (lambda: caster("float"), {}, np.zeros((1, 0), np.float32)),
    (lambda: caster("float", cast_to="TO_INT64"), {3: 1.5, 1: -2.7}, np.array([[-2, 1]])),
    (lambda: caster("float", cast_to="TO_STRING"), {1: 0.1}, np.array([["0.1"]], object)),
    (lambda: caster("string", cast_to="TO_FLOAT"), {2: "1e3", 1: "inf"},
     np.array([[np.inf, 1000]], np.float32)),
    (lambda: caster("string", cast_to="TO_STRING", map_form="SPARSE", max_map=3), {1: "a", 7: "b"},
     np.array([["", "a", ""]], object)),
    (lambda: caster("float", map_form="SPARSE", max_map=4), {3: 1.5, 9: 2.0, -1: 1},
     np.array([[0, 0, 0, 1.5]], np.float32)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: str(c[1]))
@pytest.mark.parametrize("target", ["llvm", "interpreter"])
def test_maps_that_are_given(case: Any, target: str) -> None:
    make, given, wanted = case
    module = planish.compile(make(), target=target)
    for _ in range(2):
        found = module(given)[-1]
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([1], "the input x is a list, not a dictionary"),
        ({1: 2.0}, "the input x has the key '1', which is not of string"),
        ({"a": "b"}, "the input x has the value 'b', which is not of f32"),
        ({"a": True}, "the value 'True', which is not of f32"),
        ({"a": None}, "the value 'None'"),
    ],
)
def test_what_is_no_map(given: Any, message: str) -> None:
    module = planish.compile(vectorizer("string", "float", 'string_vocabulary = ["a"]'))
    with pytest.raises(TypeCheckError, match=message):
        module(given)
    whole = planish.compile(vectorizer("int64", "int64", "int64_vocabulary = [1]"))
    for wrong in ({1: 2**63}, {2**64: 1}, {1: 1.0}):
        with pytest.raises(TypeCheckError, match="which is not of i64"):
            whole(wrong)


def test_maps_in_files(tmp_path: Path) -> None:
    module = planish.compile(vectorizer("string", "float", 'string_vocabulary = ["a", "b"]'))
    write_npz(tmp_path / "x.npz", by_names({"x": {"b": np.float32(2), "é": np.float32(1)}}))
    given = inputs_from(tmp_path / "x.npz", module.inputs)
    np.testing.assert_array_equal(module.run(given)["y"], [0, 2])
    assert len(module.run(made_up(module.inputs, {}))["y"]) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ZIPPED.replace('"no", ', ""), "there must be a score for each class"),
        (ZIPPED.replace('"é"]', '"é"], classlabels_int64s = [1, 2]'), "either classlabels_strings"),
        (NUMBERED.replace("float[n, 3]", "int64[n, 3]"), "input 0 is i64.n, 3., which"),
        ("""g (map(string, float) x) => (float[n] y) {
          y = ai.onnx.ml.DictVectorizer<int64_vocabulary = [1]>(x) }""", "the keys are string"),
        ("g (float[n] x) => (float[n] y) { y = ai.onnx.ml.CastMap(x) }", "it must not be a tensor"),
        ("g (map(int64, float) x) => (float[n] y) { y = Relu(x) }", "not a tensor"),
        ("g (map(int32, float) x) => (float[n] y) { y = ai.onnx.ml.CastMap(x) }", "another kind"),
        ("""g (float[n, 1] x, bool c) => (seq(map(int64, float)) y) {
          y = If (c) <
            then_branch = t () => (seq(map(int64, float)) a) {
              a = ai.onnx.ml.ZipMap<classlabels_int64s = [1]>(x) },
            else_branch = e () => (seq(map(int64, float)) b) {
              b = ai.onnx.ml.ZipMap<classlabels_int64s = [2]>(x) }
          > }""", "stays where it is made"),
    ],
)  # fmt: skip
def test_refused(text: str, message: str) -> None:
    with pytest.raises(ImportModelError, match=message):
        import_model(model(text))
