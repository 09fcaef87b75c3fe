"""Models whose weights lie in files beside them, small ones and one beyond 2 GiB, end to end."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import planish
from planish.compiler.graph.ir import Array

RNG = np.random.default_rng(0)


def chain(folder: Path, n: int, count: int, files: int = 1) -> Path:
    """A model of products with weights [n, n], one after the other in so many files."""
    weights = []
    open_files = [(folder / f"weights{k}.bin").open("wb") for k in range(files)]
    base = (RNG.standard_normal((n, n)) / np.sqrt(n)).astype(np.float32)
    for k in range(count):
        file = open_files[k % files]
        weight = TensorProto(name=f"w{k}", data_type=TensorProto.FLOAT, dims=(n, n))
        weight.data_location = TensorProto.EXTERNAL
        facts = {"location": Path(file.name).name, "offset": file.tell(), "length": 4 * n * n}
        for key, value in facts.items():
            weight.external_data.add(key=key, value=str(value))
        file.write(np.roll(base, k, 1).tobytes())
        weights.append(weight)
    for file in open_files:
        file.close()
    nodes = [helper.make_node("MatMul", [f"x{k}", f"w{k}"], [f"x{k + 1}"]) for k in range(count)]
    first, last = (
        helper.make_tensor_value_info(f"x{k}", TensorProto.FLOAT, ["m", n]) for k in (0, count)
    )
    graph = helper.make_graph(nodes, "chain", [first], [last], weights)
    path = folder / "model.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    path.write_bytes(model.SerializeToString())
    return path


def wanted(path: Path, x: Array) -> Array:
    """What the model gives, by numpy, from the weights' files."""
    for weight in onnx.load(path, load_external_data=False).graph.initializer:
        facts = {e.key: e.value for e in weight.external_data}
        place = path.parent / facts["location"]
        w = np.memmap(place, np.float32, "r", int(facts["offset"]), tuple(weight.dims))
        x = x @ w
    return x


@pytest.mark.parametrize("files", [1, 3])
def test_weights_beside_the_model(tmp_path: Path, files: int) -> None:
    path = chain(tmp_path, 32, 5, files)
    x = RNG.standard_normal((3, 32)).astype(np.float32)
    module = planish.compile(path)
    np.testing.assert_allclose(module(x)[0], wanted(path, x), rtol=1e-4, atol=1e-4)
    module.save(tmp_path / "model.planish")
    (again,) = planish.load(tmp_path / "model.planish")(x)
    np.testing.assert_array_equal(again, module(x)[0])


def test_weights_that_are_not_there(tmp_path: Path) -> None:
    """A file that is missing or too short is an error that names it and the weight."""
    path = chain(tmp_path, 16, 4)
    weights = tmp_path / "weights0.bin"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    with pytest.raises(planish.ImportModelError, match=r"'w3'.*'weights0.bin', which has 4095"):
        planish.compile(path)
    weights.unlink()
    with pytest.raises(planish.ImportModelError, match=r"'w0'.*'weights0.bin', which is no file"):
        planish.compile(path)


def test_a_file_that_is_too_large_for_protobuf(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with path.open("wb") as file:
        file.truncate(1 << 31)  # without a byte on the disk
    with pytest.raises(planish.ParseError, match="has 2147483648 bytes") as caught:
        planish.compile(path)
    assert "save_as_external_data" in str(caught.value)


# What a process of its own does with the model; it says how much memory it had at most.
STEPS = {
    "compile": """
        module = planish.compile(folder / "model.onnx", threads=2)
        module.save(folder / "model.planish")
    """,
    "run": """
        module = planish.load(folder / "model.planish", threads=2)
        (y,) = module(np.load(folder / "x.npy"))
        np.save(folder / "y.npy", y)
    """,
}
PEAK = """
import json, sys
from pathlib import Path
import numpy as np
import planish
folder = Path(sys.argv[1])
{step}
status = dict(line.split(":", 1) for line in open("/proc/self/status") if line.startswith("Vm"))
anonymous = [line.split()[1] for line in open("/proc/self/status") if line.startswith("RssAnon")]
print(json.dumps({{"peak": int(status["VmHWM"].split()[0]), "own": int(anonymous[0])}}))
"""


def kilobytes(step: str, folder: Path) -> dict[str, Any]:
    """The memory that a step takes: all of it at most, and its own at the end."""
    code = PEAK.format(step=textwrap.dedent(STEPS[step]))
    command = [sys.executable, "-W", "error", "-c", code, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_more_than_two_gibibytes(tmp_path: Path) -> None:
    """2.7 GB of weights, offsets beyond 2^31 in both files; no more than one copy in memory."""
    path = chain(tmp_path, 8192, 10)
    weights = (tmp_path / "weights0.bin").stat().st_size
    assert weights > 1 << 31
    x = RNG.standard_normal((4, 8192)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    compiled = kilobytes("compile", tmp_path)
    assert (tmp_path / "model.planish").stat().st_size > 1 << 31
    ran = kilobytes("run", tmp_path)
    # Compiled, there is one copy, in the form that the kernels want, beside the mapped files;
    # loaded, nothing but what is mapped.
    assert compiled["own"] < 1.25 * weights / 1024
    assert compiled["peak"] < 2.5 * weights / 1024
    assert ran["own"] < 0.1 * weights / 1024
    y, want = np.load(tmp_path / "y.npy"), wanted(path, x)
    assert np.abs(y - want).max() < 1e-4 * np.abs(want).max()
