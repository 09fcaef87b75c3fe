"""Memory stays bounded: of a module called with ever other sizes, of a process that compiles.

Both run in a process of their own, which prints how much memory it has. To see it:
``python tests/test_memory.py calls 10000 1`` (how many calls, on how many threads), or
``python tests/test_memory.py models 1000``.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import planish
from planish.compiler.expr.interned import Interned
from planish.compiler.remembering import forget

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
MIB: Final = 1 << 20


def resident() -> int:
    """The bytes of memory that the process has."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def sizes_of(kind: str, count: int, threads: int = 1) -> list[int]:
    """How much memory a child had after each tenth of its work."""
    place = str(Path(planish.__file__).parent.parent)
    out = subprocess.run(
        [sys.executable, __file__, kind, str(count), str(threads)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": place},
        check=False,
    )
    assert out.returncode == 0, out.stderr[-3000:]
    return [int(line) for line in out.stdout.split()]


needs_proc = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="there is no /proc")


@needs_proc
@pytest.mark.parametrize("threads", [1, 4])
def test_some_calls(threads: int) -> None:
    sizes = sizes_of("calls", 400, threads)
    assert max(sizes[5:]) < sizes[4] + 24 * MIB, sizes


@needs_proc
@pytest.mark.long
@pytest.mark.parametrize("threads", [1, 4])
def test_many_calls(threads: int) -> None:
    sizes = sizes_of("calls", 10_000, threads)
    assert max(sizes[2:]) < sizes[1] + 24 * MIB, sizes


@needs_proc
@pytest.mark.long
def test_many_models() -> None:
    sizes = sizes_of("models", 1000)
    assert max(sizes[5:]) < sizes[4] + 48 * MIB, sizes


def test_nothing_of_a_model_stays() -> None:
    def use(k: int) -> int:
        x = np.ones((2, small(k)[1]), np.float32)
        planish.compile(small(k)[0], threads=1)(x)
        forget()
        gc.collect()
        return Interned.alive()

    use(0)
    before = use(1)
    after = max(use(k) for k in range(2, 5))
    assert after < before + 200


# ---------------------------------------------------------------------------------------- models


def port(name: str, kind: int, dims: list[Any] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, dims)


def of_data() -> onnx.ModelProto:
    """A model with several symbols, and results whose sizes only the data tells."""
    node = helper.make_node
    constants = {
        "most": np.array(10), "half": np.array(0.5, np.float32), "one": np.array([1]),
        "two": np.array(2), "zero": np.array(0),
    }  # fmt: skip
    add_row = helper.make_graph(
        [
            node("Add", ["total", "sum"], ["total_2"]),
            node("Concat", ["grown", "sums"], ["grown_2"], axis=0),
            node("Identity", ["total_2"], ["row"]),
            node("Identity", ["on"], ["on_2"]),
        ],
        "add_row",
        [port("k", INT64, []), port("on", BOOL, []), port("total", FLOAT, []),
         port("grown", FLOAT, ["g"])],
        [port("on_2", BOOL, []), port("total_2", FLOAT, []), port("grown_2", FLOAT, ["g_2"]),
         port("row", FLOAT, [])],
    )  # fmt: skip
    nodes = [
        node("NonZero", ["x"], ["places"]),
        node("NonMaxSuppression", ["boxes", "scores", "most", "half"], ["selected"]),
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Reshape", ["sum", "one"], ["sums"]),
        node("Loop", ["trip", "", "sum", "sums"], ["last", "grown_last", "rows"], body=add_row),
        node("Unique", ["k"], ["found", "", "", "counts"]),
        node("SplitToSequence", ["x", "two"], ["parts"], axis=0),
        node("SequenceInsert", ["parts", "x", "zero"], ["sequence"]),
        node("Compress", ["x", "mask"], ["kept"], axis=0),
        node("Expand", ["sum", "shape"], ["filled"]),
        node("TopK", ["x", "count"], ["top", "top_places"], axis=1),
    ]
    outputs = "places selected last grown_last rows found counts sequence kept filled top"
    graph = helper.make_graph(
        nodes,
        "of_data",
        [port("x", FLOAT, ["n", "m"]), port("boxes", FLOAT, [1, "b", 4]),
         port("scores", FLOAT, [1, 1, "b"]), port("trip", INT64, []), port("k", INT64, ["p"]),
         port("mask", BOOL, ["n"]), port("shape", INT64, [2]), port("count", INT64, [1])],
        [onnx.ValueInfoProto(name=name) for name in outputs.split()],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def arguments(rng: np.random.Generator) -> dict[str, Any]:
    """Inputs of random sizes; some do not fit, and end the call in an error."""
    n, m, b, p = (int(k) for k in rng.integers([0, 1, 0, 0], [60, 80, 50, 300]))
    if rng.random() < 0.05:
        n, m = n + 100, 10 * m
    corners = rng.random((1, b, 2), np.float32)
    given = {
        "x": rng.random((n, m), np.float32) - np.float32(0.5),
        "boxes": np.concatenate([corners, corners + np.float32(0.2)], -1),
        "scores": rng.random((1, 1, b), np.float32),
        "trip": np.array(rng.integers(0, 9)),
        "k": rng.integers(0, 50, p),
        "mask": rng.random(n) < 0.5,
        "shape": rng.integers(0, 200, 2),
        "count": rng.integers(0, m + 1, 1),
    }
    wrong: dict[int, dict[str, Any]] = {
        0: {"count": np.array([10**6])},
        1: {"shape": np.array([-3, 2])},
        2: {"mask": np.ones(n + 1, bool)},
    }
    return {**given, **wrong.get(int(rng.integers(40)), {})}


def small(seed: int) -> tuple[onnx.ModelProto, int]:
    """One of many small models, and the size of its input's rows."""
    rng = random.Random(seed)
    rows, columns = rng.randrange(4, 200), rng.randrange(4, 200)
    weight = np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)
    middle = rng.choice(["Relu", "Tanh", "Sigmoid", "Exp", "Softmax"])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node(middle, ["p"], [f"t_{seed}"]),
        helper.make_node("Transpose", [f"t_{seed}"], ["u"]),
        helper.make_node("ReduceSum", ["u"], ["y"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        f"net_{seed}",
        [port("x", FLOAT, [f"n_{seed % 7}", rows])],
        [onnx.ValueInfoProto(name="y"), onnx.ValueInfoProto(name="u")],
        [numpy_helper.from_array(weight, "w")],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), rows


# ---------------------------------------------------------------------------------- in the child


def calls(count: int, threads: int) -> Iterator[None]:
    """Call one module, of which each thread does its part."""
    module = planish.compile(of_data(), threads=2)
    each = count // threads // 10

    def work(seed: int) -> int:
        """How many calls went well."""
        rng, done = np.random.default_rng(seed), 0
        for _ in range(each):
            with contextlib.suppress(planish.PlanishError):
                module.run(arguments(rng))
                done += 1
        return done

    with ThreadPoolExecutor(threads) as several:
        for part in range(10):
            done = list(several.map(work, range(threads * part, threads * (part + 1))))
            assert sum(done) > each * threads // 2
            yield


def models(count: int, _: int) -> Iterator[None]:
    """Compile one model after the other, and call each once."""
    for part in range(10):
        for k in range(count // 10):
            model, rows = small(part * (count // 10) + k)
            planish.compile(model, threads=1)(np.ones((3, rows), np.float32))
        yield


def main(kind: str, count: str, threads: str = "1") -> None:
    work: dict[str, Callable[[int, int], Iterator[None]]] = {"calls": calls, "models": models}
    for _ in work[kind](int(count), int(threads)):
        gc.collect()
        sys.stdout.write(f"{resident()}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
