"""Whole networks, compiled: against ONNX Runtime and the operators' references."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import planish
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.graph.ir import Graph
from planish.compiler.graph.reference import run_reference
from planish.runtime.module import Module

from .networks import NETWORKS, Array, Network, Sizes, session_outputs

NAMES = [make.__name__ for make in NETWORKS]
TOLERANCE = 1e-5  # of the largest value

# The scope has all tests of a network run one after the other, on modules compiled once.
every_network = pytest.mark.parametrize("name", NAMES, scope="module")


@cache
def network(name: str) -> Network:
    return NETWORKS[NAMES.index(name)]()


@cache
def graph(name: str) -> Graph:
    return import_model(network(name).model)


@cache
def module(name: str, optimize: bool = True, threads: int = 2) -> Module:
    return planish.compile(network(name).model, optimize=optimize, threads=threads, logs=[])


@cache
def expected(name: str, seed: int = 0) -> list[tuple[Sizes, dict[str, Array], Sequence[Array]]]:
    """Sizes, inputs, and what ONNX Runtime gives."""
    found = network(name)
    cases = [(sizes, found.inputs(sizes, seed)) for sizes in found.sizes]
    return [(sizes, x, session_outputs(found.model, x)) for sizes, x in cases]


def close(found: Sequence[Array], wanted: Sequence[Array]) -> None:
    """Same types and shapes; integers and bools equal; floats within the tolerance."""
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if a.dtype.kind == "f":
            bound = TOLERANCE * float(np.abs(b).max(initial=0))
            np.testing.assert_allclose(a, b, rtol=0, atol=bound)
        else:
            np.testing.assert_array_equal(a, b)


def same_bits(found: Sequence[Array], wanted: Sequence[Array]) -> None:
    assert [a.tobytes() for a in found] == [b.tobytes() for b in wanted]


@every_network
def test_references_agree_with_onnxruntime(name: str) -> None:
    for _, inputs, wanted in expected(name):
        close(run_reference(graph(name), inputs), wanted)


@every_network
@pytest.mark.parametrize(
    ("optimize", "threads"),
    [(True, 1), (True, 2), (False, 1)],  # plain loops are never shared among threads
    ids=["optimized-1", "optimized-2", "plain"],
)
def test_outputs(name: str, optimize: bool, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At all sizes, of one module: after it is made there is no compiler any more."""
    compiled = module(name, optimize, threads)
    monkeypatch.setattr("planish.targets.llvm.native.object_code", None)
    for _, inputs, wanted in expected(name):
        close(list(compiled.run(inputs).values()), wanted)


@every_network
def test_saved_and_loaded_modules_give_the_same_bits(name: str, tmp_path: Path) -> None:
    module(name).save(tmp_path / "a.planish")
    loaded = planish.load(tmp_path / "a.planish")
    for _, inputs, _ in expected(name):
        same_bits(list(loaded.run(inputs).values()), list(module(name).run(inputs).values()))


@every_network
def test_calls_from_threads_give_the_same_bits(name: str) -> None:
    compiled = module(name)
    cases = [inputs for _, inputs, _ in expected(name)]
    alone = [list(compiled.run(inputs).values()) for inputs in cases]

    def work(start: int) -> None:
        for k in range(start, start + 2 * len(cases)):
            at = k % len(cases)
            same_bits(list(compiled.run(cases[at]).values()), alone[at])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


@every_network
def test_sizes_of_zero(name: str) -> None:
    """No element along some dimension: what the references give, be it nothing."""
    symbols = list(network(name).sizes[0]) if name != "unet" else []
    for empty in symbols:
        sizes = {s: 0 if s == empty else 3 for s in symbols}
        if sizes.get("anchors") == 0:  # then there is nothing to pick
            sizes["picks"] = 0
        inputs = network(name).inputs(sizes)
        found = list(module(name).run(inputs).values())
        close(found, run_reference(graph(name), inputs))


def growing(name: str, rng: np.random.Generator) -> Sizes:
    """Random sizes that the network takes."""
    step = 4 if name == "unet" else 1
    return {symbol: step * int(rng.integers(1, 9)) for symbol in network(name).sizes[0]}


@every_network
def test_memory_stays_bounded(name: str) -> None:
    """200 calls of random sizes leave what the largest of them needed."""
    compiled = module(name)
    compiled.trim()
    rng = np.random.default_rng(1)
    calls, arena, outputs = compiled.stats()["calls"], 0, 0
    for seed in range(200):
        inputs = network(name).inputs(growing(name, rng), seed)
        plan = compiled.plan(inputs)
        arena = max(arena, plan.arena_bytes)
        outputs = max(outputs, sum(size for _, _, size in plan.outputs))
        compiled.run(inputs)
    stats = compiled.stats()
    assert stats["calls"] == calls + 200
    assert stats["frames"] == 1
    assert stats["arena_bytes"] == arena
    assert stats["output_bytes_kept"] <= 2 * outputs


def test_compiling_again_gives_the_same_bytes(tmp_path: Path) -> None:
    for k in (0, 1):
        again = planish.compile(network("resnet").model, threads=2, logs=[])
        again.save(tmp_path / f"{k}.planish")
    assert (tmp_path / "0.planish").read_bytes() == (tmp_path / "1.planish").read_bytes()


def test_sizes_that_do_not_fit_are_an_error() -> None:
    """The skips of the U-Net meet only where halving twice leaves no rest."""
    inputs = network("unet").inputs({"height": 6, "width": 8})
    with pytest.raises(planish.TypeCheckError, match="sizes of the inputs do not fit") as caught:
        module("unet").run(inputs)
    assert str(caught.value.node).endswith("\nheight = 6, width = 8")
    two = network("transformer").inputs({"batch": 2, "sequence": 8})
    two["mask"] = two["mask"][:1]
    with pytest.raises(
        planish.TypeCheckError, match="dimension 0 must be 2, the batch of the input tokens"
    ):
        module("transformer").run(two)
