"""Modules of models with strings: what they take and give, on every way to run them."""

from __future__ import annotations

import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import planish
from planish.arrays import by_names, inputs_from, made_up, write_npz
from planish.compiler.errors import (
    ImportModelError,
    ParseError,
    PlanishError,
    RuntimeFault,
    TypeCheckError,
)
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.graph.ir import Array
from planish.compiler.graph.reference import run_reference
from planish.compiler.graph.text import large_constants, parse, show

WAYS = [("llvm", True), ("llvm", False), ("interpreter", True)]
# Beyond the first 65536 characters, combining marks, nothing, zero characters, long ones.
ODD = ["", "a", "\U0001f600", "e\u0301", "é", "a\0b", "\0", "a\0", "x" * 10_000, " \t", "ﬁ"]

MODELS: dict[str, str] = {}


def model(name: str) -> onnx.ModelProto:
    domains = '["": 20, "ai.onnx.ml": 4]'
    return onnx.parser.parse_model(f"<ir_version: 8, opset_import: {domains}>" + MODELS[name])


def strings(*texts: str) -> Array:
    return np.array(texts, object)


MODELS["join"] = """
g (string[n] x, string[n] y) => (string[n] z, bool[n] same, string[m] both) {
  z = StringConcat(x, y)
  same = Equal(x, y)
  both = Concat<axis = 0>(y, x, z)
}"""
MODELS["tokens"] = """
g (string[n] x) => (int64[n, w] ids, int64[n] counts) {
  words, counts = StringSplit(x)
  ids = ai.onnx.ml.LabelEncoder<
    keys_strings = ["the", "é", "cat"], values_int64s = [1, 2, 3]
  >(words)
}"""
MODELS["choice"] = """
g (string[n] x, bool c) => (string[m] y) {
  y = If (c) <
    then_branch = t () => (string[n] a) { a = Identity(x) },
    else_branch = e () => (string[k] b) {
      one = Constant<value_strings = ["none", "of", "them"]>()
      b = Concat<axis = 0>(one, x)
    }
  >
}"""
MODELS["grow"] = """
g (string[n] x, string s, int64 times) => (string[m] y, string[times, n] all) {
  yes = Constant<value = bool {1}>()
  y, all = Loop (times, yes, x) <
    body = b (int64 i, bool c, string[k] now) => (bool again, string[l] then, string[n] kept) {
      again = Identity(c)
      longer = StringConcat(now, s)
      digits = Cast<to = 8>(i)
      zero = Constant<value_ints = [0]>()
      one = Unsqueeze(digits, zero)
      then = Concat<axis = 0>(longer, one)
      kept = StringConcat(x, digits)
    }
  >
}"""
MODELS["list"] = """
g (seq(string[]) s, string[k] x) => (seq(string[]) t, string[m] y, string[a] z, int64 n) {
  t = SequenceInsert(s, x)
  one = Constant<value_int = -1>()
  y = SequenceAt(t, one)
  z = ConcatFromSequence<axis = 0>(t)
  n = SequenceLength(t)
}"""
MODELS["numbers"] = """
g (string[n] x) => (float[n] y, int64[n] k, string[n] z) {
  y = Cast<to = 1>(x)
  k = Cast<to = 7>(x)
  z = Cast<to = 8>(y)
}"""
MODELS["constant"] = """
g () => (string[b] y, string[c] z) {
  x = Constant<value_strings = ["a b", "", "c"]>()
  l = StringNormalizer<case_change_action = "UPPER", stopwords = ["c"]>(x)
  y = StringConcat(l, l)
  w, n = StringSplit(x)
  s = Constant<value_ints = [-1]>()
  z = Reshape(w, s)
}"""
MODELS["words"] = """
g (string[n] x) => (bool[n] y) {
  y = RegexFullMatch<pattern = "[a-z]+">(x)
}"""
INPUTS: dict[str, list[Any]] = {
    "join": [strings(*ODD), strings(*ODD[::-1])],
    "tokens": [strings("the cat", "", "é  é the dog")],
    "choice": [strings("x", ""), np.array(False)],
    "grow": [strings("a", "é"), np.array("!", object), np.array(3)],
    "list": [[strings("a"), strings("b", ""), strings()], strings("é", "z")],
    "numbers": [strings("1", "-2.75", " 1e3 ", "16777217", "0.1")],
    "constant": [],
}


def same(found: Any, wanted: Any) -> None:
    if isinstance(wanted, list):
        assert isinstance(found, list)
        assert len(found) == len(wanted)
        for x, y in zip(found, wanted, strict=True):
            same(x, y)
        return
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    if found.dtype == object:
        assert all(type(text) is str for text in found.flat)
    np.testing.assert_array_equal(found, wanted)


def oracle(name: str) -> tuple[Any, ...]:
    """What the operators' references give, of lists what their tensors are."""
    graph = import_model(model(name))
    return run_reference(graph, dict(zip(graph.input_names, INPUTS[name], strict=True)))


WANTED: dict[str, tuple[Any, ...]] = {
    "list": (
        [strings("a"), strings("b", ""), strings(), strings("é", "z")],
        strings("é", "z"),
        strings("a", "b", "", "é", "z"),
        np.array(4),
    ),
    "choice": (strings("none", "of", "them", "x", ""),),
    "grow": (
        strings("a!!!", "é!!!", "0!!", "1!", "2"),
        strings("a0", "é0", "a1", "é1", "a2", "é2").reshape(3, 2),
    ),
    "constant": (strings("A BA B", ""), strings("a", "b", "", "", "c", "")),
    "tokens": (np.array([[1, 3, -1, -1], [-1, -1, -1, -1], [2, 2, 1, -1]]), np.array([2, 0, 4])),
}


@pytest.mark.parametrize("target", WAYS, ids=str)
@pytest.mark.parametrize("name", INPUTS)
def test_every_way(name: str, target: tuple[str, bool]) -> None:
    module = planish.compile(model(name), target=target[0], optimize=target[1])
    wanted = WANTED[name] if name in WANTED else oracle(name)
    for _ in range(2):
        found = module(*INPUTS[name])
        for x, y in zip(found, wanted, strict=True):
            same(x, y)


@pytest.mark.parametrize("name", INPUTS)
def test_graphs_as_text(name: str) -> None:
    graph = import_model(model(name))
    text = show(graph)
    assert show(parse(text, large_constants(graph))) == text


def test_constants_as_text() -> None:
    text = """\
def g(x: string[3]) -> (y, z):
    default('x', ['a', "it's", '\\x00\\n'])
    one: string[()] = constant(['é'])
    few: string[2, 1] = constant(['', '\\\\'])
    many: string[17] = constant('many')
    y: string[2, 3] = where(c, x, one)
    z: bool[17] = equal(many, one)
"""
    text = text.replace("y: string[2, 3] = where(c, x, one)", "y: bool[2, 3] = equal(few, x)")
    arrays = {"many": strings(*map(str, range(17)))}
    graph = parse(text, arrays)
    assert show(graph) == text
    same(graph.defaults["x"], strings("a", "it's", "\0\n"))
    with pytest.raises(ParseError, match=r"element \[0\] is 1 .int., not a string"):
        parse("def g() -> (y,):\n    y: string[1] = constant([1])\n")
    with pytest.raises(ParseError, match="not defined for strings"):
        parse("def g(x: string[1]) -> (y,):\n    y: string[1] = add(x, x)\n")


@pytest.mark.parametrize("target", WAYS, ids=str)
def test_nothing_and_scalars(target: tuple[str, bool]) -> None:
    def run(name: str, *arrays: Any) -> tuple[Any, ...]:
        module = planish.compile(model(name), target=target[0], optimize=target[1])
        return module(*arrays)

    for x, y in zip(run("join", strings(), strings()), ((0,), (0,), (0,)), strict=True):
        assert x.shape == y
    ids, counts = run("tokens", strings())
    assert ids.shape == (0, 0)
    assert counts.shape == (0,)
    same(run("tokens", strings("", " "))[0], np.zeros((2, 0), np.int64))
    y, kept = run("grow", strings(), np.array("", object), np.array(2))
    same(y, strings("0", "1"))
    assert kept.shape == (2, 0)


def test_what_strings_may_come_as() -> None:
    module = planish.compile(model("join"))
    plain = np.array(["a", "é"])
    for x in (plain, plain.astype(object), np.array([b"a", "é".encode()]),
              np.array(["a", b"\xc3\xa9"], object), np.array([np.str_("a"), "é"], object),
              plain.astype(np.dtypes.StringDType()), np.array(["a", "-", "é"])[::2]):  # fmt: skip
        z, equal, _ = module(x, plain)
        same(z, strings("aa", "éé"))
        assert equal.all()


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.array(["a", None], object), r"the input x: element \[1\] is None .NoneType."),
        (np.array(["a", 1.5], object), r"the input x: element \[1\] is 1.5 .float., not a string"),
        (np.array([b"a", b"\xff"], object), r"element \[1\] is b'\\xff', which is not UTF-8"),
        (np.array(["\ud800", "a"], object), r"element \[0\] is '\\ud800', which is no text"),
        (np.array([1, 2]), r"the input x is i64\[2\], and must be of string"),
        (["a", "b"], "the input x is a list, not an array"),
        (np.array([["a"]]), "1 dimensions are wanted"),
    ],
)
def test_what_is_no_string(x: Any, message: str) -> None:
    module = planish.compile(model("join"))
    with pytest.raises(TypeCheckError, match=message):
        module(x, strings("a", "b"))


def test_lists_of_what_is_no_string() -> None:
    module = planish.compile(model("list"))
    with pytest.raises(TypeCheckError, match=r"the input s\[1\]: element \[0\] is 3 .int."):
        module([strings("a"), np.array([3], object)], strings())


def test_places_for_results() -> None:
    module = planish.compile(model("join"))
    x, y = strings("a", "é"), strings("a", "b")
    out = [np.empty(2, object), np.empty(2, bool), np.empty(6, object)]
    found = module(x, y, out=out)
    assert all(a is b for a, b in zip(found, out, strict=True))
    same(out[0], strings("aa", "éb"))
    with pytest.raises(TypeCheckError, match=r"out for z is i64\[2\], and must be"):
        module(x, y, out=[np.empty(2, np.int64), *out[1:]])
    out[2] = np.empty((6, 2), object)[:, 0]
    out[0] = x  # it is an input, too
    module(x, y, out=out)
    same(x, strings("aa", "éb"))
    same(out[2], strings("a", "b", "a", "é", "aa", "éb"))


def with_default() -> onnx.ModelProto:
    made = model("join")
    tensor = onnx.TensorProto(name="y", data_type=onnx.TensorProto.STRING, dims=[2])
    tensor.string_data.extend([b"1", "é\0".encode()])
    made.graph.initializer.append(tensor)
    return made


RUN = """
import sys
import numpy as np
import planish

module = planish.load(sys.argv[1])
assert not any(name.startswith("planish.compiler.frontends") for name in sys.modules)
x = np.array(["a", "b"], object)
z, equal, both = module(x)
assert z.tolist() == ["a1", "b\u00e9\\0"], z
assert module.run({"x": x, "y": x})["same"].all()
tokens = planish.load(sys.argv[2])
assert tokens(np.array(["cat the \u00e9"]))[0].tolist() == [[3, 1, 2]]
"""


def test_in_a_fresh_process(tmp_path: Path) -> None:
    module, tokens = planish.compile(with_default()), planish.compile(model("tokens"))
    module.save(tmp_path / "join.planish")
    tokens.save(tmp_path / "tokens.planish")
    planish.compile(with_default()).save(tmp_path / "again.planish")
    again = (tmp_path / "again.planish").read_bytes()
    assert again == (tmp_path / "join.planish").read_bytes()
    paths = [str(tmp_path / f"{name}.planish") for name in ("join", "tokens")]
    done = subprocess.run(
        [sys.executable, "-c", RUN, *paths], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_many_threads() -> None:
    module = planish.compile(model("grow"))
    wrong: list[str] = []

    def work(k: int) -> None:
        for i in range(40):
            x = strings(f"{k}", f"{i}.{k}")
            y, _ = module(x, np.array(f"-{k}", object), np.array(2))
            wanted = [f"{t}-{k}-{k}" for t in x] + [f"0-{k}", "1"]
            if y.tolist() != wanted:
                wrong.append(f"{y.tolist()} is not {wanted}")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong, wrong[0]


def test_memory_is_bounded() -> None:
    module = planish.compile(model("join"))

    def calls(count: int) -> None:
        for k in range(count):
            x = strings(f"first {k}", f"{k}")
            module(x, x)

    calls(100)
    tracemalloc.start()
    try:
        calls(1000)
        before, _ = tracemalloc.get_traced_memory()
        calls(9000)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 50_000


@pytest.mark.parametrize("target", WAYS, ids=str)
def test_text_that_is_no_number(target: tuple[str, bool]) -> None:
    module = planish.compile(model("numbers"), target=target[0], optimize=target[1])
    for text, message in (
        ("x" * 100, "'xxx.*' is no number of "),
        ("", "'' is no number"),
        ("1_0", "'1_0' is no number"),
        ("٣", "'٣' is no number"),
        ("0x10", "'0x10' is no number"),
        ("1e400", "1e400 is out of the range of i64"),
        ("9223372036854775808", "is out of the range of i64"),
        ("nan", "'nan' is no number of i64"),
        ("1e999999999", "out of the range"),
        ("9" * 4000, "out of the range"),
        ("9" * 5000, "is no number"),
    ):
        with pytest.raises(RuntimeFault, match=message):
            module(strings("1", text))
        same(module(strings("1"))[1], np.array([1]))
    same(module(strings("1e-999999999"))[1], np.array([0]))


def test_constants_that_are_no_numbers() -> None:
    """A branch that is never taken does no harm."""
    MODELS["careful"] = """
    g (bool c) => (float[n] y) {
      y = If (c) <
        then_branch = t () => (float[1] a) {
          s = Constant<value_strings = ["none"]>()
          a = Cast<to = 1>(s)
        },
        else_branch = e () => (float[2] b) { b = Constant<value_floats = [1.0, 2.0]>() }
      >
    }"""
    for target, optimize in WAYS:
        module = planish.compile(model("careful"), target=target, optimize=optimize)
        same(module(np.array(False))[0], np.array([1, 2], np.float32))
        with pytest.raises(RuntimeFault, match="'none' is no number of f32"):
            module(np.array(True))


def test_an_interruption_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    module = planish.compile(model("join"))
    x = strings("a")

    def stop(*_: Any) -> Any:
        raise KeyboardInterrupt

    plain = module._functions[0]
    module._functions[0] = stop
    with pytest.raises(KeyboardInterrupt):
        module(x, x)
    module._functions[0] = lambda *_: (np.zeros(3),)
    with pytest.raises(RuntimeFault, match=r"float64\[3\] is given, wanted string\[1\]"):
        module(x, x)
    module._functions[0] = lambda *_: 1 / 0
    with pytest.raises(RuntimeFault, match="string_concat fails: division by zero"):
        module(x, x)
    module._functions[0] = plain
    same(module(x, x)[0], strings("aa"))


def test_profiles() -> None:
    module = planish.compile(model("tokens"))
    times = module.profile([strings("a b")], 3)
    assert [t.nanoseconds.shape for t in times] == [(3,)] * len(module.interface.steps)
    assert "string_split" in [s.function for s in module.interface.steps]


# ------------------------------------------------------------------------------- other packages


def test_patterns() -> None:
    pytest.importorskip("re2")
    for target in ("llvm", "interpreter"):
        module = planish.compile(model("words"), target=target)
        found = module(strings("abc", "", "aB", "abc\n", "a" * 100_000))[0]
        same(found, np.array([True, False, False, False, True]))
    MODELS["slow"] = MODELS["words"].replace("[a-z]+", "(a*)*b")
    same(planish.compile(model("slow"))(strings("a" * 5000))[0], np.array([False]))
    for pattern, message in (
        ("(a", r"'\(a' is no pattern of RE2: missing \)"),
        ("(?=a)", "no pat"),
    ):
        MODELS["bad"] = MODELS["words"].replace("[a-z]+", pattern)
        with pytest.raises(RuntimeFault, match=message):
            planish.compile(model("bad"))


def test_without_the_package_for_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(RuntimeFault, match="need the package google-re2") as caught:
        planish.compile(model("words"))
    assert caught.value.hint == "pip install google-re2"


def picture(kind: str = "PNG", mode: str = "RGB", **options: Any) -> tuple[Array, Any]:
    """A file, and the picture that it is of."""
    image = pytest.importorskip("PIL.Image")
    import io

    pixels = np.random.default_rng(0).integers(0, 256, (9, 7, 3), np.uint8)
    whole = image.fromarray(pixels).convert(mode)
    data = io.BytesIO()
    whole.save(data, kind, **options)
    return np.frombuffer(data.getvalue(), np.uint8), whole


def decoder(pixel_format: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 20]>
        g (uint8[n] x) => (uint8[h, w, c] y) {{
          y = ImageDecoder<pixel_format = "{pixel_format}">(x)
        }}""")


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P", "1", "CMYK", "LA"])
def test_pictures(mode: str) -> None:
    file, whole = picture("TIFF" if mode == "CMYK" else "PNG", mode)
    rgb = np.asarray(whole.convert("RGB"))
    grey = np.asarray(whole.convert("L"))[:, :, None]
    for name, wanted in (("RGB", rgb), ("BGR", rgb[:, :, ::-1]), ("Grayscale", grey)):
        for target in ("llvm", "interpreter"):
            same(planish.compile(decoder(name), target=target)(file)[0], wanted)


def test_pictures_that_cannot_be_read() -> None:
    module = planish.compile(decoder("RGB"))
    for kind in ("PNG", "JPEG", "BMP", "TIFF"):
        file, _ = picture(kind)
        for length in (len(file) // 2, len(file) // 4, 20, 0):
            with pytest.raises(RuntimeFault, match="the picture cannot be read"):
                module(file[:length])
        found = module(file)[0]
        assert found.shape == (9, 7, 3)
    rng = np.random.default_rng(0)
    file, _ = picture("PNG")
    for _ in range(200):
        damaged = file.copy()
        damaged[rng.integers(0, len(file), 3)] = rng.integers(0, 256, 3)
        try:
            (found,) = module(damaged)
        except RuntimeFault as error:
            assert "the picture cannot be read" in str(error)
        else:
            assert found.ndim == 3


def test_without_the_package_for_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(RuntimeFault, match="read by the package pillow") as caught:
        planish.compile(decoder("RGB"))
    assert caught.value.hint == "pip install pillow"


# ---------------------------------------------------------------------------------------- files


def test_npz_files(tmp_path: Path) -> None:
    module = planish.compile(model("join"))
    x = strings("é", "", "a\0b")
    path = tmp_path / "x.npz"
    write_npz(path, {"x": x, "y": x})
    given = inputs_from(path, module.inputs)
    same(given["x"], x)
    same(module.run(given)["z"], strings("éé", "", "a\0ba\0b"))
    with pytest.raises(ParseError, match="a string ends with a zero character"):
        write_npz(path, {"x": strings("a\0")})
    listed = planish.compile(model("list"))
    write_npz(path, by_names({"s": [x, x[:1]], "x": x}))
    same(listed.run(inputs_from(path, listed.inputs))["t"], [x, x[:1], x])


def test_made_up_inputs() -> None:
    MODELS["first"] = "g (seq(string[2]) s, int64 k) => (string[n] y) { y = SequenceAt(s, k) }"
    for name in ("numbers", "first"):
        module = planish.compile(model(name))
        given = made_up(module.inputs, dict.fromkeys(module.interface.symbols, 2))
        assert len(module.run(given)) == len(module.outputs)


def test_verification(tmp_path: Path) -> None:
    from planish.verify import reference_oracle, verify

    for name in ("join", "numbers", "tokens"):
        graph = import_model(model(name))
        given = dict(zip(graph.input_names, INPUTS[name], strict=True))
        report = verify(
            graph,
            reference_oracle(graph, given),
            given,
            lambda g, optimize: planish.build.compile_imported(
                g, planish.build.resolve_target(None), optimize=optimize
            ),
        )
        assert report.right


def damaged(tmp_path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    hosts = [
        {"name": "string_concat", "attributes": {}, "inputs": [["string", 1]] * 2,
         "outputs": [["string", 1]], "origin": "z"},
    ]  # fmt: skip
    yield {"hosts": [{**hosts[0], "name": "system"}]}, "there is no function system"
    yield {"hosts": [{**hosts[0], "attributes": {"x": 1}}]}, "string_concat cannot be made"
    yield {"hosts": [{**hosts[0], "attributes": {"x": [1]}}]}, "an attribute of a function"
    yield {"hosts": [{**hosts[0], "inputs": [["i64", -1]]}]}, "takes or gives is not understood"
    yield {"hosts": [{**hosts[0], "inputs": [["i65", 1]]}]}, "there is no dtype i65"
    yield {"hosts": 3}, "no proper hosts"
    yield {"texts": ["", 3]}, "no proper texts"


def test_damaged_files(tmp_path: Path) -> None:
    import json

    from planish.runtime.manifest import Manifest
    from planish.runtime.module import Module

    module = planish.compile(model("join"))
    module.save(tmp_path / "join.planish")
    data = (tmp_path / "join.planish").read_bytes()
    start = data.index(b'{\n "format"')
    contents, _ = json.JSONDecoder().raw_decode(data[start:].decode("latin-1"))
    assert contents["schema"] == 5
    for changes, message in damaged(tmp_path):
        made = {**contents, "interface": {**contents["interface"], **changes}}
        with pytest.raises(PlanishError, match=message):
            Module(Manifest(json.dumps(made).encode()).interface(), module.code, [])


def test_operators_that_no_strings_have() -> None:
    MODELS["sum"] = "g (string[n] x) => (string[n] y) { y = Add(x, x) }"
    with pytest.raises(
        ImportModelError, match=r"input 0 is string\[n\], which opset 20 does not allow"
    ):
        planish.compile(model("sum"))
