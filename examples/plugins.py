"""A rule and a cost model of one's own: ``python examples/plugins.py`` tunes a small model by them.

A package brings such things by entry points, and every tuning job finds them where it is installed:

    [project.entry-points."planish.rules"]
    blocks = "my_package:blocks"

    [project.entry-points."planish.cost_models"]
    nearest = "my_package:Nearest"

The rule is then tried in every job, the model used by ``planish tune --model nearest``.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

import planish
from planish.autotune.cost import Sample
from planish.compiler.errors import ScheduleError
from planish.compiler.loop import ir
from planish.compiler.loop.ir import Function
from planish.schedules.choices import Setting
from planish.schedules.moves import loops, stages
from planish.schedules.schedule import Schedule

ROWS, COLUMNS = 256, 512


def blocks(func: Function, setting: Setting) -> Schedule:
    """Two loops of a function without reductions, in square blocks instead of rows.

    A rule makes a schedule of moves. What is to be searched it asks ``setting`` for: by a name,
    with the options there are and its own estimate. Where it does not fit, it raises ScheduleError.
    """
    s = setting.begin(func)
    *before, block = ir.blocks(func.body)
    for b in before:
        s = stages.inline(s, b.name)
    nest = [loop.var.name for loop in s.loops(block.name)]
    if block.combiner is not None or len(nest) != 2:
        raise ScheduleError("only for elementwise functions of two loops", op="blocks")
    side = setting.pick("side", (8, 16, 32, 64), 32)
    for name in nest:
        s = loops.split(s, f"{block.name}.{name}", side)
    i, j = nest
    s = loops.reorder(s, block.name, (f"{i}_0", f"{j}_0", f"{i}_1", f"{j}_1"))
    lanes = setting.machine.lanes(4)
    if side > lanes:
        s = loops.split(s, f"{block.name}.{j}_1", lanes)
        return loops.vectorize(s, f"{block.name}.{j}_1_1")
    return loops.vectorize(s, f"{block.name}.{j}_1")


class Nearest:
    """A cost model: a candidate is as good as the one measured whose features are most like its."""

    def __init__(self) -> None:
        self.known = np.zeros((0, 0))
        self.speeds = np.zeros(0)

    def fit(self, samples: Sequence[Sample]) -> None:
        """Learn from all samples there are so far; the time of one that failed is infinite."""
        best: dict[str, float] = {}
        for s in samples:
            best[s.task] = min(s.time, best.get(s.task, float("inf")))
        self.known = np.stack([s.features for s in samples])
        self.speeds = np.array([best[s.task] / s.time if s.time < 1e9 else 0.0 for s in samples])

    def predict(self, features: np.ndarray) -> np.ndarray:
        """How good candidates are, a row of features for each; more is better."""
        if not len(self.known):
            return np.zeros(len(features))
        far = np.abs(features[:, None, :] - self.known[None]).sum(axis=2)
        found: np.ndarray = self.speeds[far.argmin(axis=1)]
        return found


def model() -> onnx.ModelProto:
    """y = relu(x) + 1."""
    graph = helper.make_graph(
        [
            helper.make_node("Relu", ["x"], ["positive"]),
            helper.make_node("Add", ["positive", "one"], ["y"]),
        ],
        "plugins",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [ROWS, COLUMNS])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [ROWS, COLUMNS])],
        [helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main(folder: Path, trials: int = 24) -> None:
    """Tune the model, and compile it with what was found."""
    from planish.autotune.records import read

    log = folder / "plugins.jsonl"
    planish.tune(
        model(), "60s", log, threads=1, trials=trials, rules=[blocks], cost_model=Nearest()
    )
    tried = read([log]).records
    own = [r for r in tried if r.decisions["rule"] == "blocks"]
    print(f"{len(own)} of {len(tried)} records are of the rule blocks")
    module = planish.compile(model(), threads=1, logs=[log])
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), np.float32)
    print("right:", np.array_equal(module(x)[0], np.maximum(x, 0) + 1))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(name))
