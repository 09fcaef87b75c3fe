"""Attention as exporters write it out: one kernel, with the values of the parts it is made of.

The lengths are symbols: one module serves them all, with no queries, keys or heads too. Of rows
that are masked altogether the formula that the model has decides: NaN, zeros, or the mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pytest

import planish
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.pipeline import GRAPH_PASSES, run

from .networks import Array, Net, Network

HEADS, GROUPS, WIDTH = 6, 2, 8
LENGTHS: Final = tuple(
    {"b": b, "m": m, "n": n}
    for b, m, n in [
        (2, 1, 1), (1, 1, 70), (2, 3, 5), (1, 7, 130), (2, 16, 16), (1, 49, 64), (1, 100, 33),
        (0, 3, 4), (1, 0, 4), (1, 3, 0), (1, 1, 0), (3, 0, 0),
    ]
)  # fmt: skip


@dataclass
class Parts:
    """What a variant is written with."""

    net: Net

    def queries(self, heads: int = HEADS) -> str:
        return self.net.input("q", "b", heads, "m", WIDTH)

    def keys(self, name: str, heads: int = HEADS) -> str:
        return self.net.input(name, "b", heads, "n", WIDTH)

    def turned(self, k: str, rank: int = 4) -> str:
        return self.net("Transpose", k, perm=[*range(rank - 2), rank - 1, rank - 2])

    def size(self, x: str, axis: int) -> str:
        return self.net("Shape", x, start=axis, end=axis + 1)

    def chosen(self) -> str:
        """A bool mask from numbers, with rows that hide all keys and rows that hide none."""
        mask = self.net.input("mask", "b", 1, "m", "n")
        return self.net("Greater", mask, self.net.float(0.0))

    def causal(self, q: str, k: str) -> str:
        """Whether a key is no later than the query, counted from the end."""
        net, zero = self.net, self.net.constant(0, np.int64)
        m, n = (net("Squeeze", self.size(x, 2)) for x in (q, k))
        one = net.constant(1, np.int64)
        rows, columns = (net("Range", zero, x, one) for x in (m, n))
        last = net("Add", rows, net("Sub", n, m))
        return net("LessOrEqual", columns, net("Unsqueeze", last, net.ints(1)))


def scaled_before(p: Parts) -> tuple[str, str]:
    """Queries and keys are scaled both, as torch does; rows of NaN are zeros."""
    net, root = p.net, p.net.float(WIDTH**-0.25)
    q = net("Mul", p.queries(), root)
    k = net("Mul", p.turned(p.keys("k")), root)
    hidden = net("Where", p.chosen(), net.float(0.0), net.float(-np.inf))
    weights = net("Softmax", net("Add", net("MatMul", q, k), hidden), axis=-1)
    weights = net("Where", net("IsNaN", weights), net.float(0.0), weights)
    return net("MatMul", weights, p.keys("v")), "NaN is 0"


def added_mask(p: Parts) -> tuple[str, str]:
    net = p.net
    scores = net("Div", net("MatMul", p.queries(), p.turned(p.keys("k"))), net.float(WIDTH**0.5))
    hidden = net("Where", p.chosen(), net.float(0.0), net.float(-np.inf))
    weights = net("Softmax", net("Add", hidden, scores), axis=-1)
    return net("MatMul", weights, p.keys("v")), "NaN"


def finite_mask(p: Parts) -> tuple[str, str]:
    net = p.net
    scores = net("MatMul", p.queries(), p.turned(p.keys("k")))
    low = net.float(float(np.finfo(np.float32).min))
    hidden = net("Where", p.chosen(), net.float(0.0), low)
    weights = net("Softmax", net("Add", scores, hidden), axis=-1)
    return net("MatMul", weights, p.keys("v")), "mean"


def choosing_mask(p: Parts) -> tuple[str, str]:
    net = p.net
    scores = net("MatMul", p.queries(), p.turned(p.keys("k")))
    scores = net("Mul", net.float(WIDTH**-0.5), scores)
    scores = net("Where", p.chosen(), scores, net.float(-np.inf))
    return net("MatMul", net("Softmax", scores, axis=-1), p.keys("v")), "NaN"


def hiding_mask(p: Parts) -> tuple[str, str]:
    """Chooses the scores where it is false, before a bias for each head is added."""
    net = p.net
    scores = net("MatMul", p.queries(), p.turned(p.keys("k")))
    scores = net("Where", net("Not", p.chosen()), net.float(-1e4), scores)
    bias = net.input("bias", HEADS, "m", "n")
    weights = net("Softmax", net("Add", scores, bias), axis=-1)
    return net("MatMul", weights, p.keys("v")), ""


def causal(p: Parts) -> tuple[str, str]:
    net, q, k = p.net, p.queries(), p.keys("k")
    scores = net("Where", p.causal(q, k), net("MatMul", q, p.turned(k)), net.float(-np.inf))
    weights = net("Softmax", scores, axis=-1)
    weights = net("Where", net("IsNaN", weights), net.float(0.0), weights)
    return net("MatMul", weights, p.keys("v")), ""


def lower_triangle(p: Parts) -> tuple[str, str]:
    net, q, k = p.net, p.queries(), p.keys("k")
    square = net("Concat", p.size(q, 2), p.size(k, 2), axis=0)
    low = net("ConstantOfShape", square, value=np_tensor(-1e9))
    hidden = net("Trilu", low, net.constant(1, np.int64), upper=1)
    scores = net("Add", net("MatMul", q, p.turned(k)), hidden)
    return net("MatMul", net("Softmax", scores, axis=-1), p.keys("v")), ""


def repeated_keys(p: Parts) -> tuple[str, str]:
    net = p.net
    q, k, v = p.queries(), p.keys("k", GROUPS), p.keys("v", GROUPS)

    def repeat(x: str) -> str:
        whole = net("Concat", p.size(x, 0), net.ints(GROUPS, HEADS // GROUPS), p.size(x, 2),
                    net.ints(WIDTH), axis=0)  # fmt: skip
        more = net("Expand", net("Unsqueeze", x, net.ints(2)), whole)
        flat = net("Concat", p.size(x, 0), net.ints(HEADS), p.size(x, 2), net.ints(WIDTH), axis=0)
        return net("Reshape", more, flat)

    scores = net("MatMul", q, p.turned(repeat(k)))
    scores = net("Mul", scores, net.float(WIDTH**-0.5))
    hidden = net("Where", p.chosen(), net.float(0.0), net.float(-1e9))
    weights = net("Softmax", net("Add", scores, hidden), axis=-1)
    return net("MatMul", weights, repeat(v)), "mean"


def joined_heads(p: Parts) -> tuple[str, str]:
    """Heads of all batches are one axis, but for the mask."""
    net = p.net
    q, k, v = p.queries(), p.keys("k"), p.keys("v")

    def join(x: str) -> str:
        shape = net("Concat", net("Mul", p.size(x, 0), net.ints(HEADS)), p.size(x, 2),
                    net.ints(WIDTH), axis=0)  # fmt: skip
        return net("Reshape", x, shape)

    scores = net("MatMul", join(q), p.turned(join(k), 3))
    flat, whole = net("Shape", scores), net("Concat", p.size(q, 0), net.ints(HEADS), p.size(q, 2),
                                            p.size(k, 2), axis=0)  # fmt: skip
    hidden = net("Where", p.chosen(), net.float(0.0), net.float(-1e9))
    masked = net("Add", net("Reshape", scores, whole, allowzero=1), hidden)
    weights = net("Softmax", net("Reshape", masked, flat, allowzero=1), axis=-1)
    return net("MatMul", weights, join(v)), ""


def np_tensor(value: float) -> object:
    from onnx import numpy_helper

    return numpy_helper.from_array(np.array([value], np.float32))


VARIANTS: Final[dict[str, Callable[[Parts], tuple[str, str]]]] = {
    f.__name__: f
    for f in (
        scaled_before, added_mask, finite_mask, choosing_mask, hiding_mask, causal,
        lower_triangle, repeated_keys, joined_heads,
    )
}  # fmt: skip


def network(name: str) -> tuple[Network, str]:
    net = Net(name)
    out, empty = VARIANTS[name](Parts(net))
    return net.finish(out, sizes=LENGTHS), empty


def inputs_of(made: Network, sizes: dict[str, int]) -> dict[str, Array]:
    """Normal numbers; the first row of the mask hides every key, the last one none."""
    out = made.inputs(sizes)
    if "mask" in out:
        out["mask"][..., :1, :] = -1.0
        out["mask"][..., 1:, :][..., -1:, :] = 1.0
    return out


def is_composed(made: Network) -> bool:
    graph = run(import_model(made.model), GRAPH_PASSES)
    names = [node.op.name for node in graph.nodes]
    return "attention" in names and "softmax" not in names


@pytest.mark.parametrize("name", VARIANTS)
def test_variant(name: str) -> None:
    made, empty = network(name)
    module = planish.compile(made.model, threads=2, logs=[])
    plain = planish.compile(made.model, threads=1, logs=[], optimize=False)
    assert is_composed(made)
    for sizes in made.sizes:
        inputs = inputs_of(made, sizes)
        (found,), (wanted,) = module.run(inputs).values(), plain.run(inputs).values()
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5, err_msg=str(sizes))
        if empty and "mask" in inputs and 0 not in sizes.values():
            check_first_row(found, inputs, empty)


def check_first_row(found: Array, inputs: dict[str, Array], empty: str) -> None:
    """What the row that hides all keys is."""
    v = inputs["v"]
    match empty:
        case "NaN":
            assert np.isnan(found[..., 0, :]).all()
        case "NaN is 0":
            assert (found[..., 0, :] == 0).all()
        case "mean":
            mean = np.repeat(v.mean(axis=2), HEADS // v.shape[1], axis=1)
            np.testing.assert_allclose(found[..., 0, :], mean, rtol=0, atol=1e-5)


def test_numbers_that_are_none() -> None:
    """NaN and infinities among scores and values go where the formula puts them."""
    made, _ = network("added_mask")
    module = planish.compile(made.model, threads=1, logs=[])
    plain = planish.compile(made.model, threads=1, logs=[], optimize=False)
    inputs = inputs_of(made, {"b": 1, "m": 20, "n": 40})
    for name, index, value in (
        ("q", (0, 1, 3, 2), np.nan),
        ("k", (0, 2, 5, 1), np.inf),
        ("v", (0, 3, 6, 4), np.inf),
        ("v", (0, 3, 7, 4), np.nan),
        ("q", (0, 4, 9, 0), 1e30),
    ):
        inputs[name][index] = value
    (found,), (wanted,) = module.run(inputs).values(), plain.run(inputs).values()
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["added_mask", "repeated_keys"])
@pytest.mark.parametrize("m", [1, 8, 40])
def test_known_lengths(name: str, m: int) -> None:
    made, _ = network(name)
    sizes = {"b": 2, "m": m, "n": 37}
    module = planish.compile(made.model, dims=sizes, threads=2, logs=[])
    plain = planish.compile(made.model, dims=sizes, threads=1, logs=[], optimize=False)
    inputs = inputs_of(made, sizes)
    (found,), (wanted,) = module.run(inputs).values(), plain.run(inputs).values()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
