"""Kernels beside what the machine can do at most, measured in the same minutes.

``python benchmarks/kernels.py`` builds small ONNX models around one kernel each, compiles them
without tuning and times that kernel alone, in machine code: the call from Python and the steps
around it are no part of a time. Rounds of a kernel take turns with measurements of the machine's
limits on as many threads: multiply-adds in registers, reading, and copying with streaming stores.
A share is that of the best rounds: the least time that the limit allows over the least time taken.
Beside it stands the median of the rounds' own shares; on a quiet machine they agree.

Work is counted from the definition: a multiply-add is two operations, and every element of inputs
and outputs is moved once.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from statistics import median
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import onnx
from harness import RESULTS, ROOT, before_others, brief, machine, merge, publish, table
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(ROOT / "src"))

import planish
from planish.runtime.limits import measure_limits

Array = npt.NDArray[Any]
Shape = Sequence[int]
Limit = Literal["flops", "read", "copy"]
KERNEL: Final = "kernel"  # the name of the nodes that are measured
MEGA: Final = 1 << 20
GROUPS: Final = {
    "matmul": "Matrix products, the right operand constant",
    "product": "Matrix products of two activations",
    "conv": "Convolutions of ResNets",
    "depthwise": "Depthwise convolutions",
    "elementwise": "Elementwise, beyond the caches",
    "norm": "Layer normalisation, beyond the caches",
    "softmax": "Softmax along rows",
}


@dataclass(frozen=True)
class Target:
    """What is asked for with some numbers of threads: a share of the limit, or GB/s a thread."""

    share: float = 0.0
    gbytes: float = 0.0
    threads: tuple[int, ...] = (1, 2)

    def said(self, threads: int) -> str:
        if threads not in self.threads:
            return ""
        return f"{100 * self.share:.0f} %" if self.share else f"{threads * self.gbytes:.0f} GB/s"

    def met(self, threads: int, share: float, gbytes: float) -> bool:
        if threads not in self.threads:
            return True
        return share >= self.share and gbytes >= threads * self.gbytes


NOTHING: Final = Target(threads=())


@dataclass(frozen=True)
class Case:
    """One kernel in a model: its name, its work, and which limit it is up against."""

    group: str
    name: str
    build: Callable[[], onnx.ModelProto]
    flops: float
    bytes: float
    limit: Limit
    target: Target = NOTHING


# ------------------------------------------------------------------------------------- models


@dataclass
class Net:
    """An ONNX model as it is put together; nodes called ``kernel`` are measured."""

    inputs: dict[str, Shape]
    weights: dict[str, Array] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)

    def constant(self, *shape: int) -> str:
        rng = np.random.default_rng(len(self.weights))
        name = f"w{len(self.weights)}"
        self.weights[name] = rng.standard_normal(shape, dtype=np.float32) / np.float32(
            max(1, prod(shape[1:])) ** 0.5
        )
        return name

    def node(self, op: str, *inputs: str, name: str = KERNEL, **attributes: Any) -> str:
        out = f"v{len(self.nodes)}"
        label = f"{name}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [out], name=label, **attributes))
        return out

    def model(self, result: str, shape: Shape) -> onnx.ModelProto:
        """The finished model with one output."""
        kind = TensorProto.FLOAT
        graph = helper.make_graph(
            self.nodes,
            "bench",
            [helper.make_tensor_value_info(n, kind, list(s)) for n, s in self.inputs.items()],
            [helper.make_tensor_value_info(result, kind, list(shape))],
            [numpy_helper.from_array(a, n) for n, a in self.weights.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def matmul(m: int, k: int, n: int, target: Target = NOTHING) -> Case:
    """``x @ w``; with one row it reads the weights once, which is all that matters."""

    def build() -> onnx.ModelProto:
        net = Net({"x": (m, k)})
        return net.model(net.node("MatMul", "x", net.constant(k, n)), (m, n))

    moved = 4.0 * (m * k + k * n + m * n)
    limit: Limit = "flops" if m > 1 else "read"
    return Case("matmul", f"{m} x {k} x {n}", build, 2.0 * m * k * n, moved, limit, target)


def product(m: int, k: int, n: int, batch: int = 1, transposed: bool = False) -> Case:
    """``x @ y``, or ``x @ y.T``, for each of a batch."""

    def build() -> onnx.ModelProto:
        lead = (batch,) if batch > 1 else ()
        net = Net({"x": (*lead, m, k), "y": (*lead, n, k) if transposed else (*lead, k, n)})
        right = "y"
        if transposed:
            order = [*range(len(lead)), len(lead) + 1, len(lead)]
            right = net.node("Transpose", "y", perm=order)
        return net.model(net.node("MatMul", "x", right), (*lead, m, n))

    name = f"{m} x {k} x {n}" + ", transposed" * transposed
    name = f"{batch} of {name}" if batch > 1 else name
    moved = 4.0 * batch * (m * k + k * n + m * n)
    return Case("product", name, build, 2.0 * batch * m * k * n, moved, "flops")


def conv(c: int, n: int, size: int, window: int, stride: int = 1, groups: int = 1) -> Case:
    """A convolution with its activation, between others as in a network: they fix its layout."""
    out = size // stride

    def build() -> onnx.ModelProto:
        net = Net({"x": (1, c, size, size)})
        before = net.node("Conv", "x", net.constant(c, c, 1, 1), name="before")
        pads = [window // 2] * 4
        weights = net.constant(n, c // groups, window, window)
        made = net.node(
            "Conv", before, weights, net.constant(n), group=groups, pads=pads, strides=[stride] * 2
        )
        kernel = net.node("Relu", made)
        after = net.node("Conv", kernel, net.constant(8, n, 1, 1), name="after")
        return net.model(after, (1, 8, out, out))

    flops = 2.0 * n * (c // groups) * window**2 * out**2
    moved = 4.0 * (c * size**2 + n * out**2 + n * (c // groups) * window**2)
    name = f"{window} x {window}, {c} to {n} at {out}" + (
        f", stride {stride}" if stride > 1 else ""
    )
    if groups > 1:
        return Case("depthwise", name, build, flops, moved, "flops")
    target = NOTHING if window == 7 else Target(0.78 if out == 7 else 0.85)
    return Case("conv", name, build, flops, moved, "flops", target)


def chain(name: str, shape: Shape, inputs: int, body: Callable[[Net], str]) -> Case:
    """Elementwise work on arrays of one shape."""

    def build() -> onnx.ModelProto:
        net = Net({f"x{k}": shape for k in range(inputs)})
        return net.model(body(net), shape)

    moved = 4.0 * prod(shape) * (inputs + 1)
    return Case("elementwise", name, build, 0.0, moved, "copy", Target(0.75))


def layer_norm(rows: int, n: int) -> Case:
    """Layer normalisation of rows, with scale and bias."""

    def build() -> onnx.ModelProto:
        net = Net({"x": (rows, n)})
        y = net.node("LayerNormalization", "x", net.constant(n), net.constant(n), axis=-1)
        return net.model(y, (rows, n))

    return Case("norm", f"{rows} x {n}", build, 0.0, 8.0 * rows * n, "copy", Target(0.60))


def softmax(rows: int, n: int) -> Case:
    """Softmax of rows."""

    def build() -> onnx.ModelProto:
        net = Net({"x": (rows, n)})
        return net.model(net.node("Softmax", "x", axis=-1), (rows, n))

    return Case("softmax", f"{rows} x {n}", build, 0.0, 8.0 * rows * n, "copy", Target(gbytes=12.0))


def cases() -> Iterator[Case]:
    """All kernels."""
    for n in (256, 512, 1024, 2048):
        yield matmul(n, n, n, Target(0.90, threads=(1,)) if n == 1024 else NOTHING)
    for m, k, n in (
        (128, 384, 1536), (128, 768, 768), (128, 768, 3072), (128, 3072, 768), (197, 768, 3072),
        (1, 768, 3072), (1, 4096, 4096),
    ):  # fmt: skip
        yield matmul(m, k, n)
    for n in (256, 512, 1024, 2048):
        yield product(n, n, n)
    yield product(128, 64, 128, batch=12, transposed=True)
    yield product(128, 128, 64, batch=12)
    yield conv(3, 64, 224, 7, stride=2)
    for c, size in ((64, 56), (128, 28), (256, 14), (512, 7)):
        yield conv(c, c, size, 3)
    for c, n, size in (
        (64, 64, 56), (64, 256, 56), (256, 64, 56), (512, 128, 28), (128, 512, 28),
        (1024, 256, 14), (256, 1024, 14), (2048, 512, 7), (512, 2048, 7),
    ):  # fmt: skip
        yield conv(c, n, size, 1)
    for c, size, window, stride in (
        (144, 56, 3, 1), (144, 56, 3, 2), (384, 14, 3, 1), (960, 7, 3, 1), (240, 28, 5, 1),
    ):  # fmt: skip
        yield conv(c, c, size, window, stride, groups=c)
    long, wide = (16 * MEGA,), (16 * 1024, 1024)
    yield chain("relu(x)", long, 1, lambda net: net.node("Relu", "x0"))
    yield chain("relu(x * y + z)", long, 3, _multiply_add)
    yield chain("relu(x * scale + bias), along rows", wide, 1, _scaled)
    yield chain("x * hard sigmoid(x)", long, 1, _hard_swish)
    yield chain("relu(x + y)", (1, 64, 512, 512), 2, _residual)
    for n in (768, 1024, 4096):
        yield layer_norm(16 * MEGA // n, n)
    for n in (128, 256, 512, 1024, 2048, 4096):
        yield softmax(16 * MEGA // n, n)
    yield softmax(12 * 128, 128)


def _multiply_add(net: Net) -> str:
    return net.node("Relu", net.node("Add", net.node("Mul", "x0", "x1"), "x2"))


def _scaled(net: Net) -> str:
    scaled = net.node("Mul", "x0", net.constant(1024))
    return net.node("Relu", net.node("Add", scaled, net.constant(1024)))


def _hard_swish(net: Net) -> str:
    return net.node("Mul", "x0", net.node("HardSigmoid", "x0"))


def _residual(net: Net) -> str:
    return net.node("Relu", net.node("Add", "x0", "x1"))


# ---------------------------------------------------------------------------------- measuring


def profile(module: planish.Module, inputs: dict[str, Array], repeat: int) -> Array:
    """The seconds of each step, [steps, repeat]."""
    seconds: Array = 1e-9 * np.array([s.nanoseconds for s in module.profile(inputs, repeat)])
    return seconds


def measure(case: Case, threads: int, rounds: int, seconds: float) -> dict[str, Any]:
    """The kernel's times in each round, beside the limits."""
    module = planish.compile(case.build(), threads=threads, logs=[])
    rng = np.random.default_rng(0)
    inputs = {
        p.name: rng.standard_normal([int(str(d)) for d in p.shape], dtype=np.float32)
        for p in module.inputs
    }
    steps = [
        k
        for k, step in enumerate(module.interface.steps)
        if any(name.startswith(KERNEL) for name in step.origin)
    ]
    if not steps:
        raise SystemExit(f"no step computes {case.group}: {case.name}")
    whole = float(profile(module, inputs, 3).sum(axis=0).min())
    repeat = max(3, min(2000, int(seconds / max(whole, 1e-6))))
    times, limits = [], []
    for _ in range(rounds + 1):
        found = measure_limits(threads, 3)
        limits.append({"flops": found.flops, "read": found.read_bytes, "copy": found.copy_bytes})
        times.append(float(profile(module, inputs, repeat)[steps].sum(axis=0).min()))
    del times[0], limits[0]  # of the machine waking up
    work = case.flops if case.limit == "flops" else case.bytes
    rates = [limit[case.limit] for limit in limits]
    return {
        "group": case.group,
        "name": case.name,
        "threads": threads,
        "seconds": times,
        "limits": limits,
        "limit": case.limit,
        "gflops": case.flops / min(times) / 1e9,
        "gbytes": case.bytes / min(times) / 1e9,
        "share": work / min(times) / max(rates),
        "typical": median(work / t / rate for t, rate in zip(times, rates, strict=True)),
        "functions": [module.interface.steps[k].function for k in steps],
    }


# ---------------------------------------------------------------------------------- reporting


def report(results: dict[str, Any]) -> str:
    """The results as markdown, a table for each group and number of threads."""
    lines = []
    targets = {(c.group, c.name): c.target for c in cases()}
    kept = [r for r in results.values() if (r["group"], r["name"]) in targets]
    place = list(targets)
    kept.sort(key=lambda r: (r["threads"], place.index((r["group"], r["name"]))))
    for threads in dict.fromkeys(r["threads"] for r in kept):
        some = [r for r in kept if r["threads"] == threads]
        flops, read, copy = (
            median(max(limit[name] for limit in r["limits"]) for r in some) / 1e9
            for name in ("flops", "read", "copy")
        )
        lines += [
            f"{threads} thread{'s' * (threads > 1)} of {some[0]['machine']}: {flops:.0f} GFLOP/s, "
            f"reading {read:.0f} GB/s, copying {copy:.0f} GB/s.",
            "",
        ]
        rows = []
        for group, title in GROUPS.items():
            mine = [r for r in some if r["group"] == group]
            if mine:
                rows.append([f"**{title}**", *[""] * 7])
            rows += [_row(r, targets[r["group"], r["name"]]) for r in mine]
        head = ["kernel", "us", "GFLOP/s", "GB/s", "limit", "of it", "median", "target"]
        lines += [table(head, rows), ""]
    lines.append("*of it*: in the best rounds; *median*: of all. Targets that are missed are bold.")
    return "\n".join(lines)


def _row(r: dict[str, Any], target: Target) -> list[str]:
    threads, share = r["threads"], r["share"]
    said = target.said(threads)
    met = target.met(threads, share, r["gbytes"])
    return [
        r["name"],
        brief(1e6 * min(r["seconds"])),
        brief(r["gflops"]) if r["gflops"] else "",
        brief(r["gbytes"]),
        {"flops": "arithmetic", "read": "reading", "copy": "copying"}[r["limit"]],
        f"{100 * share:.0f} %",
        f"{100 * r['typical']:.0f} %",
        said if met else f"**{said}**",
    ]


def main() -> None:
    """Measure all, print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="WORDS", help="kernels whose line matches")
    parser.add_argument("--threads", default="1,2", help="numbers by commas (default: 1,2)")
    parser.add_argument("--rounds", type=int, default=7, help="of each kernel (default: 7)")
    parser.add_argument("--seconds", type=float, default=0.1, help="of a round (default: 0.1)")
    parser.add_argument("--json", type=Path, default=RESULTS / "kernels.json", metavar="FILE")
    parser.add_argument("--update", action="store_true", help="put the tables into the README")
    options = parser.parse_args()
    before_others(os.getpid())
    merged: dict[str, Any] = {}
    for case in cases():
        line = f"{case.group}: {case.name}"
        if not re.search(options.only, line):
            continue
        for threads in map(int, options.threads.split(",")):
            found = measure(case, threads, options.rounds, options.seconds)
            print(
                f"{line:48} {threads} threads {1e6 * min(found['seconds']):10.1f} us "
                f"{found['gflops']:7.1f} GFLOP/s {found['gbytes']:7.1f} GB/s "
                f"{100 * found['share']:5.0f} % of {case.limit}",
                flush=True,
            )
            one = {f"{line}/{threads}": {**found, "machine": machine()}}
            merged = merge(options.json, one)
    if not merged:
        parser.error("no kernel's line matches --only")
    publish("kernels", report(merged), options.update)


if __name__ == "__main__":
    main()
