"""The benchmarks run, on a small model and for a moment; their numbers are put together rightly."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

import cost_model
import harness
import kernels
import layer
import networks
import pretrained
import start

from planish.autotune.cost import Sample


def run(script: str, *words: object) -> str:
    command = [sys.executable, str(harness.ROOT / "benchmarks" / script), *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=harness.environment()
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a model and its inputs beside it."""
    layer.write(tmp_path)
    (tmp_path / "in.npz").rename(tmp_path / "model.npz")
    return tmp_path


def test_models(folder: Path) -> None:
    pytest.importorskip("onnxruntime")
    words = ("--threads", 1, "--rounds", 7, "--seconds", 0.01, "--json", folder / "out.json")
    text = run("networks.py", folder, *words)
    assert "| **geometric mean of 1** |" in text
    result = json.loads((folder / "out.json").read_text())["model/1"]
    assert result["error"] < 1e-5
    assert len(result["peers"]["planish"]["rounds"]) == 7
    assert result["noise"]["low"] <= result["noise"]["median"] <= result["noise"]["high"]


RECIPES = """
import numpy as np
from layer import write

class Store:
    def __init__(self, cache, offline): assert offline

class Sample:
    def __init__(self, *all): self.path, self.inputs, self.right = all
    def answer(self, run): return self.right and bool(run(self.inputs)), "so many words"

def load(name, folder, store):
    write(folder)
    with np.load(folder / "in.npz") as file:
        return Sample(folder / "model.onnx", dict(file), name == "good")

RECIPES = {"good": None, "bad": None}
"""


def test_pretrained(tmp_path: Path) -> None:
    """A network that is right and one that is not, in one table."""
    pytest.importorskip("onnxruntime")
    recipes = tmp_path / "recipes.py"
    examples = str(harness.ROOT / "examples")
    recipes.write_text(f"import sys\nsys.path.insert(0, {examples!r})\n{RECIPES}")
    command = [sys.executable, str(harness.ROOT / "benchmarks" / "pretrained.py"), str(recipes)]
    command += ["--offline", "--threads", "1", "--rounds", "2", "--seconds", "0.01"]
    command += ["--json", str(tmp_path / "out.json")]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=harness.environment()
    )
    assert done.returncode == 1, done.stderr
    assert "| good | yes |" in done.stdout
    assert "| bad | **no** |" in done.stdout
    results = json.loads((tmp_path / "out.json").read_text())
    assert results["good"]["said"] == "so many words"
    assert results["good"]["peak_mb"] > 10
    assert pretrained.report({"bad": {"machine": "m", "failed": "it did"}}).count("it did") == 1


def test_kernels(tmp_path: Path) -> None:
    words = ("--threads", 1, "--rounds", 1, "--seconds", 0.001, "--json", tmp_path / "out.json")
    text = run("kernels.py", "--only", "matmul: 256|softmax: 1536", *words)
    assert "| 256 x 256 x 256 |" in text
    results = json.loads((tmp_path / "out.json").read_text())
    assert [r["limit"] for r in results.values()] == ["flops", "copy"]
    assert all(0.01 < r["share"] < 10 for r in results.values())


def test_start(folder: Path) -> None:
    words = ("--compiles", 1, "--loads", 1, "--json", folder / "out.json")
    assert "| model |" in run("start.py", folder / "model.onnx", *words)
    (result,) = json.loads((folder / "out.json").read_text()).values()
    assert set(result["compile"][0]) == {*start.STAGES, "process"}
    assert result["start"][0]["wall"] > 0


def test_tuning(folder: Path) -> None:
    """A run goes on where it was, and its logs are what the cost model is judged by."""
    words = ["--budget", "8s", "--folder", folder / "runs", "--json", folder / "out.json"]
    words += ["--rounds", 2, "--seconds", 0.01, "--threads", 1]
    assert "From plain schedules, from no log" in run("tuning.py", folder / "model.onnx", *words)
    log = (folder / "runs" / "model-plain" / "log.jsonl").read_bytes()
    words[1] = "12s"
    run("tuning.py", folder / "model.onnx", *words)
    assert (folder / "runs" / "model-plain" / "log.jsonl").read_bytes().startswith(log)
    (result,) = json.loads((folder / "out.json").read_text()).values()
    assert 11 < result["spent"] < 16
    assert result["trials"] > 8
    assert set(result["ms"]) == {"default", "default again", "tuned"}


def test_cost_model_scores() -> None:
    times = np.array([4.0, 1.0, 2.0, 3.0])
    assert cost_model.correlation(-times, -times) == pytest.approx(1.0)
    assert cost_model.correlation(times, -times) == pytest.approx(-1.0)
    assert cost_model.top(-times, times, 1) == 1.0
    assert cost_model.top(times, times, 2) == pytest.approx(1 / 3)
    assert list(cost_model.ranks(np.array([3.0, 1.0, 3.0]))) == [1.5, 0.0, 1.5]
    features = np.random.default_rng(0).random((40, len(cost_model.COLUMNS))).astype(np.float32)
    samples = {
        f"net{n}": [Sample(f"{n}-{k // 20}", x, float(x[:9].sum())) for k, x in enumerate(features)]
        for n in range(2)
    }
    rows = cost_model.held_out(samples)
    assert set(rows) == {"net0", "net1", "functions"}
    assert rows["net0"]["model"][0] > 0.3 > abs(rows["net0"]["random"][0])
    assert "| **mean of networks** | 2 |" in cost_model.report(rows, None)


@pytest.mark.parametrize("group", kernels.GROUPS)
def test_kernels_are_models(group: str) -> None:
    """The smallest of each kind is valid."""
    case = min((c for c in kernels.cases() if c.group == group), key=lambda c: c.bytes)
    onnx.checker.check_model(case.build())


def test_kernels_have_names_of_their_own() -> None:
    names = [(c.group, c.name) for c in kernels.cases()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("count", "low"), [(1, 0), (7, 0), (9, 1), (15, 3), (20, 5)])
def test_the_low_end_of_a_median(count: int, low: int) -> None:
    """The values that tables of the sign test give for 95 %."""
    assert harness.low_end([float(k) for k in reversed(range(count))]) == low


def test_numbers_in_brief() -> None:
    assert [harness.brief(x) for x in (0, 0.01234, 1.5, 12.34, 123.4, 12345.6)] == [
        "0",
        "0.0123",
        "1.50",
        "12.3",
        "123",
        "12346",
    ]


def test_tables_go_into_documents() -> None:
    before = "a\n<!-- table: x -->\nold\n<!-- end -->\nb\n<!-- table: y -->\n<!-- end -->\n"
    after = harness.insert(before, "x", harness.table(("k", "v"), [("one", r"\1")]))
    table = "| k | v |\n| --- | ---: |\n| one | \\1 |"
    assert after == before.replace("old", f"\n{table}\n")
    assert harness.insert(after, "x", "old") == before.replace("old", "\nold\n")
    with pytest.raises(LookupError, match="table: z"):
        harness.insert(before, "z", "")


@pytest.mark.parametrize(
    ("ours", "error", "what"),
    [
        ([1.0, -4.0], 0.0, ""),
        ([1.0, -3.0], 0.25, ""),
        ([1.0, np.nan], np.inf, "NaN or infinite in other places"),
        ([1.0], np.inf, "float32[1], not float32[2]"),
    ],
)
def test_the_difference_of_outputs(
    ours: list[float], error: float, what: str, tmp_path: Path
) -> None:
    arrays: dict[str, Any] = {
        "ours": np.array(ours, np.float32),
        "other": np.array([1.0, -4.0], np.float32),
    }
    for name, array in arrays.items():
        np.savez(tmp_path / f"{name}.npz", o=array)
    found = networks.difference(tmp_path / "ours.npz", tmp_path / "other.npz")
    assert found == (error, what)
