"""ONNX's operators on strings against other runtimes, and strings where any dtype may be."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_harness import by_reference, check, model_of, node

from planish.compiler.dtypes import STRING
from planish.compiler.errors import PlanishError
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.graph.ir import Array

WORDS = ["", "a", "Äpfel", "a b  c", "\U0001f600,é", " x ", "e\u0301", "1,5"]


def strings(*texts: str) -> Array:
    return np.array(texts, object)


X = strings(*WORDS).reshape(2, 4)


def test_concatenation() -> None:
    check(node("StringConcat", "x y"), {"x": X, "y": X[::-1]})
    check(node("StringConcat", "x y"), {"x": X, "y": strings("-").reshape(())}, symbolic=False)
    column = strings("-", "").reshape(2, 1)
    check(node("StringConcat", "x y"), {"x": X[:, None], "y": column}, symbolic=False)


@pytest.mark.parametrize("delimiter", [None, "", ",", " ", "  ", "é"])
@pytest.mark.parametrize("most", [None, 0, 1, -3])
def test_splits(delimiter: str | None, most: int | None) -> None:
    given = {"delimiter": delimiter, "maxsplit": most}
    attributes = {k: v for k, v in given.items() if v is not None}
    made = node("StringSplit", "x", "y n", **attributes)
    inputs = {"x": X}
    # ONNX Runtime has no substring in an empty string, and knows fewer kinds of white space.
    oracle = {**attributes, "maxsplit": -1 if most is None else most}
    if delimiter is None:
        oracle["delimiter"] = ""
    want = by_reference(model_of(node("StringSplit", "x", "y n", **oracle), inputs), inputs)
    if want[0].ndim == 2:  # of lists of one length numpy makes no axis where there is none
        want[0] = want[0].reshape(*X.shape, -1)
    want[0] = want[0].astype(object)
    check(made, inputs, want=want)


def test_splits_of_nothing() -> None:
    empty = [np.zeros((2, 0, 0), object), np.zeros((2, 0), np.int64)]
    check(node("StringSplit", "x", "y n"), {"x": np.zeros((2, 0), object)}, want=empty)
    one = [strings("a", "b"), np.array(2)]
    check(node("StringSplit", "x", "y n"), {"x": np.array(" a b", object)}, want=one)
    counts = model_of(node("StringSplit", "x", "- n"), {"x": X})
    check(counts, {"x": X}, want=[np.array([[0, 1, 1, 3], [1, 1, 1, 1]])])


@pytest.mark.parametrize("pattern", ["a.*", r"\w+", r"[^,]*", ".", "", r"\p{Lu}.*"])
def test_matches(pattern: str) -> None:
    pytest.importorskip("onnxruntime")
    if "\\p" in pattern or pattern == r"\w+":  # RE2's own: letters of ASCII, classes of Unicode
        import_model(model_of(node("RegexFullMatch", "x", pattern=pattern), {"x": X}))
        return
    check(node("RegexFullMatch", "x", pattern=pattern), {"x": X})


@pytest.mark.parametrize("action", ["NONE", "LOWER", "UPPER"])
@pytest.mark.parametrize("exact", [0, 1])
def test_normalizer(action: str, exact: int) -> None:
    words = strings("Mon", "tue", "", "WED", "monday", "mon", "ß", "Tue")
    stop = ["mon", "Tue", ""]
    kept = [
        w
        for w in words
        if (w if exact else w.lower()) not in [s if exact else s.lower() for s in stop]
    ]
    change = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}[action]
    made = node("StringNormalizer", "x", case_change_action=action, is_case_sensitive=exact,
                stopwords=stop, locale="en_US")  # fmt: skip
    want = strings(*map(change, kept))
    check(made, {"x": words}, want=[want])
    one = model_of(made, {"x": words[None]})
    check(one, {"x": words[None]}, want=[want[None]])


def test_normalizer_of_nothing() -> None:
    made = node("StringNormalizer", "x", stopwords=["a"], is_case_sensitive=1)
    for x in (strings("a", "a"), np.zeros(0, object)):
        check(made, {"x": x}, want=[strings("")])
    check(model_of(made, {"x": strings("a")[None]}), {"x": strings("a")[None]},
          want=[strings("")[None]])  # fmt: skip
    plain = node("StringNormalizer", "x")
    check(plain, {"x": strings("", "a")}, want=[strings("", "a")])
    check(plain, {"x": np.zeros(0, object)}, want=[strings("")])


NUMBERS = strings("1", "-2.5", "1e3", " 7 ", "+INF", "-inf", "NaN", "0.1")


@pytest.mark.parametrize("code", [1, 10, 11, 16])
def test_floats_from_strings(code: int) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(code)
    want = np.array([float(x) for x in NUMBERS]).astype(dtype)
    check(node("Cast", "x", to=code), {"x": NUMBERS}, want=[want])
    like = node("CastLike", "x y")
    check(like, {"x": NUMBERS, "y": np.zeros(8, dtype)}, want=[want])


@pytest.mark.parametrize("code", [2, 3, 4, 5, 6, 7, 12, 13, 21, 22])
def test_integers_from_strings(code: int) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(code)
    want = np.array([1, 2, 7]).astype(dtype)
    check(node("Cast", "x", to=code), {"x": strings("1", "2.9", " 7")}, opset=21, want=[want])


def test_floats_of_8_bits_from_strings() -> None:
    to = TensorProto.FLOAT8E4M3FN
    want = np.array([1, 448], np.float32).astype(helper.tensor_dtype_to_np_dtype(to))
    check(node("Cast", "x", to=to), {"x": strings("1", "1e9")}, want=[want])


def test_bools_and_strings() -> None:
    flags = np.array([True, False])
    check(node("Cast", "x", to=9), {"x": strings("1", "0")})
    check(node("Cast", "x", to=9), {"x": strings("true", "FALSE")}, want=[flags])
    check(node("Cast", "x", to=8), {"x": flags}, want=[strings("True", "False")])


def test_strings_from_numbers() -> None:
    x = np.array([0.1, -2.0, 1e20, np.inf, -np.inf, np.nan], np.float32)
    want = strings("0.1", "-2.0", "1e+20", "INF", "-INF", "NaN")
    check(node("Cast", "x", to=8), {"x": x}, want=[want])
    whole = np.array([[-(2**63), 2**63 - 1]])
    check(node("Cast", "x", to=8), {"x": whole})
    check(node("Cast", "x", to=8), {"x": X}, want=[X])


def test_different_strings() -> None:
    x = strings("b", "a", "b", "é", "Z", "", "\U0001f600", "\uffff", "a")
    for order in (0, 1):
        check(node("Unique", "x", "y i j c", sorted=order), {"x": x})
    # Rows by their first different string.
    rows = strings("é", "b", "a", "z", "é", "a", "a", "z").reshape(4, 2)
    want = [rows[[1, 2, 0]], np.array([1, 2, 0]), np.array([2, 0, 1, 0]), np.array([2, 1, 1])]
    check(node("Unique", "x", "y i j c", axis=0), {"x": rows}, want=want)


PLACES = np.array([1, 0, -1])
MOVES: list[tuple[Any, dict[str, Array], dict[str, Array]]] = [
    (node("Reshape", "x s"), {"x": X}, {"s": np.array([4, 2])}),
    (node("Transpose", "x"), {"x": X}, {}),
    (node("Concat", "x x", axis=1), {"x": X}, {}),
    (node("Gather", "x i", axis=1), {"x": X}, {"i": PLACES}),
    (node("GatherElements", "x i", axis=1), {"x": X}, {"i": np.array([[1, 0], [-1, 1]])}),
    (node("GatherND", "x i"), {"x": X}, {"i": np.array([[0, 1], [1, 3]])}),
    (node("Slice", "x s e"), {"x": X}, {"s": np.array([0, 1]), "e": np.array([2, 3])}),
    (node("Split", "x", "a b", axis=1, num_outputs=2), {"x": X}, {}),
    (node("Expand", "x s"), {"x": X[:, :1]}, {"s": np.array([2, 2, 3])}),
    (node("Tile", "x r"), {"x": X}, {"r": np.array([2, 1])}),
    (node("Squeeze", "x"), {"x": X[:1]}, {}),
    (node("Unsqueeze", "x a"), {"x": X}, {"a": np.array([0])}),
    (node("Flatten", "x"), {"x": X}, {}),
    (node("Pad", "x p"), {"x": X}, {"p": np.array([0, 1, 1, 0])}),
    (node("Pad", "x p v"), {"x": X}, {"p": np.array([0, 1, 1, 0]), "v": np.array("é", object)}),
    (node("Where", "c x y"), {"x": X, "y": X[::-1], "c": X == "a"}, {}),
    (node("ScatterElements", "x i u"), {"x": X, "u": X[:1, :3]}, {"i": PLACES[None] % 2}),
    (node("ScatterND", "x i u"), {"x": X, "u": X[:1]}, {"i": np.array([[1]])}),
    (node("OneHot", "i d v"), {"v": strings("off", "on")}, {"i": PLACES, "d": np.array(3)}),
    (node("Compress", "x c", axis=1), {"x": X, "c": np.array([True, False, True])}, {}),
    (node("ReverseSequence", "x n"), {"x": X}, {"n": np.array([1, 2, 1, 2])}),
    (node("DepthToSpace", "x", blocksize=2), {"x": X.reshape(1, 8, 1, 1)}, {}),
    (node("Shape", "x"), {"x": X}, {}),
    (node("Size", "x"), {"x": X}, {}),
    (node("Identity", "x"), {"x": X}, {}),
    (node("Equal", "x y"), {"x": X, "y": X[::-1]}, {}),
    (node("Equal", "x c"), {"x": X}, {"c": strings("a")}),
]


@pytest.mark.parametrize("case", MOVES, ids=lambda c: c[0].op_type)
def test_moves(case: tuple[Any, dict[str, Array], dict[str, Array]]) -> None:
    """What is done with strings is what is done with numbers for them; the empty one is 0."""
    made, inputs, constants = case
    known = ["", *sorted({*WORDS, "off", "on", "é"} - {""})]

    def numbers(arrays: dict[str, Array]) -> dict[str, Array]:
        def number(a: Array) -> Array:
            if a.dtype != object:
                return a
            return np.array([known.index(t) for t in a.ravel()], np.int64).reshape(a.shape)

        return {name: number(a) for name, a in arrays.items()}

    plain, own = numbers(inputs), numbers(constants)
    want = by_reference(model_of(made, plain, opset=19, constants=own), plain)
    graph = import_model(model_of(made, inputs, opset=19, constants=constants))
    texts = np.array(known, object)
    want = [
        texts[a] if v.type.dtype is STRING else a for v, a in zip(graph.outputs, want, strict=True)
    ]
    check(made, inputs, constants=constants, opset=19, want=want, symbolic=False)


def test_constants() -> None:
    tensor = TensorProto(data_type=TensorProto.STRING, dims=[1, 2])
    tensor.string_data.extend([b"a", "é\0".encode()])  # helper.make_tensor cuts the end off
    for attribute, want in (
        ({"value_string": "é"}, np.array("é", object)),
        ({"value_strings": ["a", "", "b"]}, strings("a", "", "b")),
        ({"value": tensor}, strings("a", "é\0")[None]),
    ):
        nodes = [node("Constant", "", "c", **attribute), node("Identity", "c", "y")]
        check(model_of(nodes, {}, outputs=["y"]), {}, want=[want])


REFUSED: list[tuple[Any, dict[str, Array], str]] = [
    (node("Add", "x x"), {"x": X}, r"Add: input 0 is string\[2, 4\], which"),
    (node("Relu", "x"), {"x": X}, r"Relu: input 0 is string\[2, 4\], which"),
    (node("ReduceMax", "x"), {"x": X}, r"ReduceMax: input 0 is string"),
    (node("Less", "x x"), {"x": X}, "Less: input 0 is string"),
    (node("TopK", "x k", "y i"), {"x": X, "k": np.array([1])}, "TopK: input 0 is string"),
    (node("Equal", "x y"), {"x": X, "y": PLACES}, "and must be string like input 0"),
    (node("Gather", "x x"), {"x": X}, "Gather: input 1 is string"),
    (node("ScatterElements", "x i x", reduction="add"), {"x": X, "i": np.zeros((2, 4), np.int64)},
     "the reduction add is not defined for strings"),
    (node("StringConcat", "x x"), {"x": PLACES}, "StringConcat: input 0 is i64"),
    (node("StringNormalizer", "x"), {"x": X[None]}, "is no row of strings"),
    (node("StringNormalizer", "x", case_change_action="TITLE"), {"x": X[0]}, "TITLE"),
    (node("StringNormalizer", "x", locale="tr_TR.UTF-8"), {"x": X[0]}, "locale 'tr'"),
    (node("ImageDecoder", "x"), {"x": PLACES}, "it may be u8"),
    (node("ImageDecoder", "x", pixel_format="HSV"), {"x": np.zeros(9, np.uint8)}, "format HSV"),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=lambda c: c[0].op_type)
def test_refused(case: tuple[Any, dict[str, Array], str]) -> None:
    made, inputs, message = case
    with pytest.raises(PlanishError, match=message):
        import_model(model_of(made, inputs))


def test_tensors_of_strings_that_are_broken() -> None:
    def broken(**changes: Any) -> onnx.ModelProto:
        model = model_of(node("Equal", "x c"), {"x": X}, constants={"c": strings("a", "b")})
        (tensor,) = model.graph.initializer
        for name, value in changes.items():
            if name == "string_data":
                del tensor.string_data[:]
                tensor.string_data.extend(value)
            else:
                setattr(tensor, name, value)
        return model

    for changes, message in (
        ({"string_data": [b"a"]}, r"has 1 strings, \[2\] takes 2"),
        ({"string_data": [b"a", b"\xff"]}, "is not UTF-8"),
        ({"raw_data": b"ab"}, "do not lie in string_data"),
    ):
        with pytest.raises(PlanishError, match=message):
            import_model(broken(**changes))
