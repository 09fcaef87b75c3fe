from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import planish
from planish.cli import FAILED, FAULT, OK, STAGES, UNUSABLE, build_parser, main

# A subprocess finds planish where this process did, installed or not.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(planish.__file__).parent.parent)}
RNG = np.random.default_rng(0)
WEIGHTS = {
    "w": RNG.standard_normal((16, 8), dtype=np.float32),
    "b": RNG.standard_normal(8, dtype=np.float32),
}


def write_model(path: Path, rows: int | str = "batch") -> Path:
    """y = relu(x @ w + b), also as ``z`` its sum over columns."""
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["product"]),
            helper.make_node("Add", ["product", "b"], ["sum"]),
            helper.make_node("Relu", ["sum"], ["y"]),
        ],
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 8])],
        [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("cli") / "layer.onnx")


@pytest.fixture(scope="module")
def compiled(model: Path) -> Path:
    out = model.with_suffix(".planish")
    planish.compile(model).save(out)
    return out


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    np.savez(tmp_path / "in.npz", x=np.random.default_rng(1).standard_normal((3, 16), np.float32))
    return tmp_path / "in.npz"


def wanted(inputs: Path) -> np.ndarray:
    out: np.ndarray = np.maximum(np.load(inputs)["x"] @ WEIGHTS["w"] + WEIGHTS["b"], 0)
    return out


def run(*words: object) -> int:
    return main([str(w) for w in words])


def said(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_compile_then_run(
    model: Path, inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module, out = tmp_path / "m.planish", tmp_path / "out.npz"
    assert run("compile", model, "-o", module, "--threads", 1, "--no-logs", "--report") == OK
    text = capsys.readouterr().out
    assert "in   x: f32[batch, 16]" in text
    assert "default schedule" in text
    assert run("run", module, "--inputs", inputs, "-o", out) == OK
    assert "y: float32[3, 8]" in capsys.readouterr().out
    np.testing.assert_allclose(np.load(out)["y"], wanted(inputs), rtol=1e-5, atol=1e-5)


def test_run_a_model(model: Path, inputs: Path, tmp_path: Path) -> None:
    for option in ([], ["--no-optimize"]):
        assert run("run", model, "--inputs", inputs, "-o", tmp_path / "out.npz", *option) == OK
        found = np.load(tmp_path / "out.npz")["y"]
        np.testing.assert_allclose(found, wanted(inputs), rtol=1e-5, atol=1e-5)


def test_compile_as_json(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("compile", model, "-o", tmp_path / "m.planish", "--dim", "batch=2", "--json") == OK
    facts = said(capsys)
    assert facts["inputs"] == ["x: f32[2, 16]"]
    assert facts["bytes"] == (tmp_path / "m.planish").stat().st_size
    assert facts["functions"] >= 1


def test_rebuilding_gives_the_same_bytes(model: Path, tmp_path: Path) -> None:
    """Whatever the order of sets in a process."""
    for seed in ("1", "2"):
        out = str(tmp_path / f"{seed}.planish")
        command = [sys.executable, "-m", "planish", "compile", str(model), "-o", out]
        subprocess.run(command, check=True, env={**ENVIRONMENT, "PYTHONHASHSEED": seed})
    assert (tmp_path / "1.planish").read_bytes() == (tmp_path / "2.planish").read_bytes()


def test_compile_for_another_machine(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "arm.planish"
    target = "llvm -mcpu=cortex-a76 -mtriple=aarch64-linux-gnu"
    assert run("compile", model, "-o", out, "--target", target) == OK
    if "aarch64" not in str(planish.compile(model).target):
        with pytest.raises(planish.ParseError, match="for another machine"):
            planish.load(out)


def test_bench(model: Path, compiled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("bench", compiled, "--seconds", 0.05, "--dim", "batch=4") == OK
    assert "planish" in capsys.readouterr().out
    assert run("bench", model, "--seconds", 0.05, "--threads", 1) == OK
    captured = capsys.readouterr()
    assert "1 thread, microseconds of a call" in captured.out
    assert "sizes made up: batch=21 " in captured.err


def test_bench_beside_another_runtime(
    model: Path, inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    words = ("bench", model, "--inputs", inputs, "--seconds", 0.05, "--against", "onnxruntime")
    assert run(*words) == OK
    assert "onnxruntime" in capsys.readouterr().out
    assert run(*words, "--json") == OK
    facts = said(capsys)
    assert set(facts["seconds"]) == {"planish", "onnxruntime"}
    assert facts["seconds"]["planish"]["median"] > 0


def test_bench_profile(model: Path, inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("bench", model, "--inputs", inputs, "--seconds", 0.05, "--profile", "--threads", 1)
    assert run(*words) == OK
    assert "GFLOP/s" in capsys.readouterr().out
    assert run(*words, "--json") == OK
    facts = said(capsys)
    assert facts["limits"]["threads"] == 1
    assert all(facts["limits"][rate] > 1e8 for rate in ("flops", "read_bytes", "copy_bytes"))
    assert sum(step["share"] for step in facts["profile"]) == pytest.approx(1)
    assert max(step["gflops"] for step in facts["profile"]) > 0


def test_tables_of_a_profile(capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each step, the slowest first, and one for all; a busy machine is told."""
    from planish.bench import StepTime
    from planish.bench_tables import write_profile
    from planish.runtime.limits import Limits

    steps = [
        StepTime("fast", ("a",), 1e-6, 0.25, 4.0, 8.0, 0.5),
        StepTime("slow", ("b", "c"), 3e-6, 0.75, 8.0, 4.0, 0.1),
    ]
    write_profile(steps, Limits(1, 10e9, 8e9, 6e9, apart=0.01))
    text = capsys.readouterr().out
    assert [line.split() for line in text.splitlines()[3:6]] == [
        ["slow", "3.0", "75.0%", "8.0", "4.0", "10%", "b,", "c"],
        ["fast", "1.0", "25.0%", "4.0", "8.0", "50%", "a"],
        ["all", "4.0", "100.0%", "7.0", "5.0", "20%"],
    ]
    assert "us: the best of 20 runs; share: of the sum of these times" in text
    assert "the machine was busy: its" not in text
    write_profile([*steps] * 20, Limits(1, 10e9, 8e9, 6e9, apart=0.5))
    text = capsys.readouterr().out
    assert "10 others" in text
    assert "the machine was busy: its limits were measured 50% apart" in text


@pytest.mark.parametrize("oracle", ["reference", "onnxruntime"])
def test_verify(model: Path, oracle: str, capsys: pytest.CaptureFixture[str]) -> None:
    if oracle == "onnxruntime":
        pytest.importorskip("onnxruntime")
    assert run("verify", model, "--against", oracle, "--dim", "batch=5") == OK
    assert "right  y" in capsys.readouterr().out


def test_verify_finds_the_first_node_that_is_off(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler that computes relu(x) + 0.1 for relu(x)."""
    from planish.compiler.ops.base import Op

    relu = Op.registry["relu"]
    honest = relu.element
    monkeypatch.setattr(relu, "element", lambda self, x: honest(self, x) + 0.1)
    assert run("verify", model, "--dim", "batch=5") == FAILED
    text = capsys.readouterr().out
    assert "WRONG  y" in text
    assert "relu" in text
    assert "first value that is off: y" in text
    assert "cause: an operator's expression" in text


@pytest.mark.parametrize("stage", STAGES)
def test_show(model: Path, stage: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", model, "--stage", stage) == OK
    assert len(capsys.readouterr().out) > 100
    assert run("show", model, "--stage", stage, "--json") == OK
    assert said(capsys)["stage"] == stage


def test_the_stages_are_those_of_show() -> None:
    from planish import show

    assert show.STAGES == STAGES


def test_the_graph_by_kernels_parses(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from planish.compiler.graph.text import parse

    assert run("show", model, "--stage", "fused") == OK
    text = capsys.readouterr().out
    assert "# kernel 0: contraction" in text
    assert len(parse(text, WEIGHTS).nodes) == 3


def test_equal_kernels_are_lowered_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """y = softmax(softmax(x)): two kernels, one function."""
    nodes = [helper.make_node("Softmax", [a], [b]) for a, b in (("x", "t"), ("t", "y"))]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3, 5]) for n in "xy"]
    graph = helper.make_graph(nodes, "twice", ports[:1], ports[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m")
    assert run("show", tmp_path / "m", "--stage", "lowered") == OK
    text = capsys.readouterr().out
    assert text.startswith("# kernels 0, 1\ndef softmax_0(b0: f32[3, 5], *, b1: f32[3, 5]):")
    assert text.count("def ") == 1


def test_ops(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ops") == OK
    text = capsys.readouterr().out
    assert re.search(r"^MatMul +\d+/\d+  own kernel: 1 9 13$", text, re.MULTILINE)
    assert re.search(r"^ai.onnx.preview.FlexAttention +.*REFUSED: 1 \(", text, re.MULTILINE)
    assert "global_average_pool" in text
    assert run("ops", "--json") == OK
    facts = said(capsys)
    by_name = {o["name"]: o for o in facts["onnx"]}
    softmax = by_name["Softmax"]
    assert (softmax["handled"], softmax["expanded"], softmax["missing"]) == ([1, 11, 13], [], [])
    assert softmax["passed"] == {target: softmax["cases"] for target in ("llvm", "interpreter")}
    assert softmax["why"] == ""
    assert by_name["CenterCropPad"]["expanded"] == [18]
    assert by_name["ai.onnx.preview.FlexAttention"]["missing"] == [1]
    assert {
        "name": "relu",
        "summary": "max(x, 0); NaN and zeros stay.",
        "source": "ONNX Relu-14",
    } in (facts["planish"])


def test_ops_of_a_model(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ops", model) == OK
    text = capsys.readouterr().out
    assert re.search(r"^MatMul +13 +1 +\d+/\d+  yes$", text, re.MULTILINE)
    assert "all of it is supported" in text


PREVIEW = "ai.onnx.preview"


def test_ops_that_are_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a branch, in a function of the model, of a domain without an opset."""
    branch = helper.make_graph(
        [helper.make_node("FlexAttention", ["x"] * 3, ["t"], domain=PREVIEW)], "then", [], []
    )
    body = [helper.make_node("FlexAttention", ["a"] * 3, ["b"], domain=PREVIEW)]
    opsets = [
        helper.make_opsetid(name, version) for name, version in ((PREVIEW, 1), ("", 21), ("own", 1))
    ]
    function = helper.make_function("own", "Parts", ["a"], ["b"], body, opsets)
    nodes = [
        helper.make_node("If", ["c"], ["t"], then_branch=branch, else_branch=branch),
        helper.make_node("Parts", ["x"], ["y"], domain="own"),
        helper.make_node("Thing", ["x"], ["z"], domain="elsewhere"),
        helper.make_node("Nothing", ["x"], ["n"]),
    ]
    ports = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])]
    graph = helper.make_graph(nodes, "g", [], ports)
    proto = helper.make_model(graph, opset_imports=opsets, functions=[function])
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    assert run("ops", tmp_path / "m.onnx") == FAILED
    text = capsys.readouterr().out
    for name, what in (
        ("ai.onnx.preview.FlexAttention", "NO: not supported"),
        ("own.Parts", "in the model"),
        ("elsewhere.Thing", "NO: the model does not say which opset it uses"),
        ("Nothing", "NO: opset 21 has no such operator"),
        ("If", "yes"),
    ):
        assert re.search(rf"^{re.escape(name)} .*  {what}$", text, re.MULTILINE), name
    assert "not supported" in text
    assert run("ops", tmp_path / "m.onnx", "--json") == FAILED
    assert said(capsys)["supported"] is False


def test_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("target") == OK
    assert "vector bytes" in capsys.readouterr().out
    target = "llvm -mcpu=haswell -mtriple=x86_64-linux-gnu"
    assert run("target", "--target", target, "--json") == OK
    assert said(capsys)["isa"] == "avx2"


def test_env(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANISH_THREADS", "3")
    assert run("env") == OK
    assert "is 3" in capsys.readouterr().out
    assert run("env", "--json") == OK
    assert said(capsys)["PLANISH_THREADS"]["value"] == "3"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run none.onnx --inputs in.npz -o out.npz", "none.onnx cannot be read: No such file"),
        ("run text.onnx --inputs in.npz -o out.npz", "text.onnx"),
        ("run cut.planish --inputs in.npz -o out.npz", "cut.planish: the module file is damaged"),
        ("run layer.planish --inputs none.npz -o out.npz", "none.npz cannot be read"),
        ("run layer.planish --inputs text.onnx -o out.npz", "text.onnx is no .npz file"),
        ("run layer.planish --inputs one.npy -o out.npz", "holds one array without a name"),
        ("run layer.planish --inputs other.npz -o out.npz", "there is no input other"),
        ("run layer.planish --inputs wide.npz -o out.npz", "dimension 1 must be 16"),
        ("run layer.planish --inputs double.npz -o out.npz", "must be of f32"),
        ("run layer.planish --inputs in.npz -o no/out.npz", "no/out.npz cannot be written"),
        ("run layer.planish --inputs in.npz -o out.npz --target llvm", "is already compiled"),
        ("run layer.planish --inputs in.npz -o out.npz --dim batch=2", "is already compiled"),
        ("run layer.planish --inputs in.npz -o out.npz --threads 0", "threads is 0"),
        ("compile layer.planish -o out.planish", "is already compiled"),
        ("compile layer.onnx -o .", ". cannot be written: Is a directory"),
        ("compile layer.onnx -o no/out.planish", "cannot be written"),
        ("compile layer.onnx -o out.planish --target cuda", "cuda target is not built yet"),
        ("compile layer.onnx -o out.planish --target interpreter", "cannot be saved"),
        ("compile layer.onnx -o out.planish --dim rows=2", "rows"),
        ("compile layer.onnx -o out.planish --threads 0", "threads is 0"),
        ("compile layer.onnx -o out.planish --log none.jsonl", "no tuning log none.jsonl"),
        ("bench layer.planish --against onnxruntime", "no model that other runtimes can read"),
        ("bench layer.onnx --against abacus", "no comparison with abacus"),
        ("bench layer.onnx --seconds 0", "must be a time of more than 0"),
        ("bench layer.planish --dim rows=2", "have no dimension 'rows'"),
        ("verify layer.planish", "holds no graph"),
        ("verify layer.onnx --tolerance -1", "must not be negative"),
        ("ops text.onnx", "is no ONNX model"),
        ("ops layer.planish", "is already compiled"),
        ("show layer.planish", "is already compiled"),
        ("target --target tpu", "there is no target 'tpu'"),
    ],
)
def test_wrong_input(
    words: str,
    message: str,
    model: Path,
    compiled: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("layer.onnx").write_bytes(model.read_bytes())
    Path("layer.planish").write_bytes(compiled.read_bytes())
    Path("cut.planish").write_bytes(compiled.read_bytes()[:-100])
    Path("text.onnx").write_text("hello")
    x = np.zeros((2, 16), np.float32)
    np.save("one.npy", x)
    np.savez("in.npz", x=x)
    np.savez("other.npz", x=x, other=x)
    np.savez("wide.npz", x=np.zeros((2, 17), np.float32))
    np.savez("double.npz", x=x.astype(np.float64))
    assert main(words.split()) == UNUSABLE
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_traceback_shows_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And changes nothing else, as the exit code."""
    assert run("show", tmp_path / "none.onnx", "--traceback") == UNUSABLE
    text = capsys.readouterr().err
    assert text.startswith("Traceback")
    assert text.endswith("none.onnx cannot be read: No such file or directory\n")


def test_what_is_read_is_not_overwritten(
    model: Path, compiled: Path, inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    link = inputs.parent / "link.npz"
    link.symlink_to(inputs)
    for words, read in (
        (("compile", model, "-o", model), model),
        (("tune", model, "--log", model), model),
        (("tune", model, "--log", inputs, "--html", model), model),
        (("run", compiled, "--inputs", inputs, "-o", inputs), inputs),
        (("run", compiled, "--inputs", inputs, "-o", link), inputs),
        (("run", compiled, "--inputs", inputs, "-o", compiled), compiled),
    ):
        before = read.read_bytes()
        assert run(*words) == UNUSABLE
        assert "it is what is read" in capsys.readouterr().err
        assert read.read_bytes() == before


def write_pooling(path: Path) -> Path:
    """A window of 3 by 3 over a picture, then half of its rows: sizes of 1 do not fit."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["t"], kernel_shape=[3, 3]),
        helper.make_node("Reshape", ["t", "shape"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "pooling",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, "p.H", "p.W"])],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(np.array([0, -1, 4], np.int64), "shape")],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def test_sizes_made_up_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write_pooling(tmp_path / "m.onnx")
    assert run("verify", model) == OK
    captured = capsys.readouterr()
    assert "right  y" in captured.out
    sizes = dict(re.findall(r"(\w+)=(\d+)", captured.err))
    n, height, width = (int(sizes[name]) for name in ("n", "p_H", "p_W"))
    assert (height - 2) * (width - 2) % 4 == 0
    assert min(n, height, width) >= 12
    # By either name, of a model and of a module.
    planish.compile(model).save(tmp_path / "m.planish")
    for file in ("m.onnx", "m.planish"):
        for names in ("p.H", "p.W"), ("p_H", "p_W"):
            dims = [word for name in names for word in ("--dim", f"{name}=6")]
            assert run("bench", tmp_path / file, "--seconds", 0.01, *dims) == OK
            assert "made up: n=21 " in capsys.readouterr().err
    assert run("bench", model, "--dim", "n=1", "--dim", "n=2") == UNUSABLE
    assert "--dim gives 'n' two sizes: 1 and 2" in capsys.readouterr().err


def test_other_runtimes_read_weights_from_other_files(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    proto = onnx.load(write_model(tmp_path / "whole.onnx"))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0)
    words = (tmp_path / "m.onnx", "--against", "onnxruntime")
    assert run("bench", *words, "--seconds", 0.01) == OK
    assert run("verify", *words) == OK


def test_other_runtimes_that_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: Path
) -> None:
    """An index that is too large is held inside by compiled code; others may refuse it."""
    pytest.importorskip("onnxruntime")
    ports = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [3]),
        helper.make_tensor_value_info("k", TensorProto.INT64, [1]),
    ]
    graph = helper.make_graph(
        [helper.make_node("Gather", ["x", "k"], ["y"])],
        "g",
        ports,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    np.savez(tmp_path / "in.npz", x=np.ones(3, np.float32), k=np.array([7], np.int64))
    words = (tmp_path / "m.onnx", "--inputs", tmp_path / "in.npz", "--against")
    for command, other in (
        ("bench", "onnxruntime"),
        ("verify", "onnxruntime"),
        ("verify", "reference"),
    ):
        assert run(command, *words, other) == UNUSABLE
        text = capsys.readouterr().err
        assert "onnxruntime cannot run the model" in text or "gather: the reference fails" in text


def test_json_has_no_infinity(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from planish.console import write_json

    write_json({"a": [float("inf"), np.float32("nan"), 1.5], "b": {"c": float("-inf")}})
    assert said(capsys) == {"a": [None, None, 1.5], "b": {"c": None}}


def test_passes_that_do_not_exist(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PLANISH_DUMP", "fold,nosuch")
    assert run("show", model, "--stage", "loops") == UNUSABLE
    assert "PLANISH_DUMP names 'nosuch', which is no pass" in capsys.readouterr().err
    monkeypatch.setenv("PLANISH_DUMP", "fold,tidy")
    assert run("show", model, "--stage", "llvm") == OK
    text = capsys.readouterr().err
    assert "# after fold\n" in text
    assert "# after tidy\n" in text


def test_zips_that_are_no_modules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "m.npz", x=np.zeros(3))
    assert run("show", tmp_path / "m.npz") == UNUSABLE
    assert "m.npz is no ONNX model, but an archive" in capsys.readouterr().err


def test_kernels_are_named_after_their_heaviest_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["t"]),
        helper.make_node("Softmax", ["t"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3, 5]) for n in "xy"]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m")
    assert run("show", tmp_path / "m", "--stage", "loops") == OK
    text = capsys.readouterr().out
    assert re.findall(r"^def (\w+)", text, re.MULTILINE) == ["softmax_0"]


def test_names_of_the_package() -> None:
    assert dir(planish) == sorted(planish.__all__)


def test_a_fault_of_ours(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from planish import commands

    def fail(*_: object) -> int:
        raise KeyError("nothing")

    monkeypatch.setattr(commands, "show", fail)
    assert run("show", model) == FAULT
    assert "a fault of planish: KeyError: 'nothing'" in capsys.readouterr().err


def test_more_sizes_after_one_dim(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["show", "m.onnx", "--dim", "N=2", "H=3"])
    assert "hint: repeat --dim before each size" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", ["", "dance", "compile m.onnx", "run", "show m --stage soup", "run m --dim batch=x"]
)
def test_wrong_usage(words: str) -> None:
    with pytest.raises(SystemExit) as exit:
        build_parser().parse_args(words.split())
    assert exit.value.code == UNUSABLE


def test_the_program_itself(model: Path) -> None:
    command = [sys.executable, "-m", "planish", "show", str(model)]
    for words, text in ((command, "matmul"), ([*command[:3], "--help"], "compile")):
        done = subprocess.run(words, capture_output=True, text=True, check=True, env=ENVIRONMENT)
        assert text in done.stdout


def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a share is known, as when something is measured, no thread draws."""
    from planish.cli import progress

    def threads() -> int:
        for other in threading.enumerate():
            if other not in before:
                other.join(0.5)  # one that has been told to end does
        return threading.active_count() - len(before)

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    before = threading.enumerate()
    with progress() as say:
        say("reading")
        assert threads() == 1
        say("measuring", 0.5)
        assert threads() == 0
        say("writing")
        assert threads() == 1
    assert threads() == 0


def test_verify_blames_a_pass(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from planish.compiler import pipeline
    from planish.compiler.graph.ir import Graph

    def spoil(graph: Graph) -> Graph:
        constants = {v: a if a.ndim < 2 else 2 * a for v, a in graph.constants.items()}
        return graph.with_(constants=constants)

    bad = pipeline.Pass("spoil", spoil, lambda _: None)
    monkeypatch.setattr(pipeline, "GRAPH_PASSES", (*pipeline.GRAPH_PASSES, bad))
    assert run("verify", model, "--dim", "batch=5", "--json") == FAILED
    facts = said(capsys)
    assert facts["right"] is False
    assert facts["blame"] == "the graph pass spoil"
    assert facts["value"]["name"] == "product"
