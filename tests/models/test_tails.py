"""Rows whose lengths are no multiple of a vector, of numbers far from zero.

Lanes behind the end of a row must not count: neither as 0 in a maximum or a product, nor with
their distance from the mean in a variance.
"""

from __future__ import annotations

import numpy as np
import pytest

import planish

from .networks import Array, Net, Network, session_outputs


def rows(length: int | str) -> Network:
    net = Net("rows")
    x = net.input("x", 3, length)
    last = net.ints(-1)
    deviation = net("Sub", x, net("ReduceMean", x, last))
    near_one = net("Add", net("Mul", x, net.float(1e-3)), net.float(1.0))
    outputs = [
        net("ReduceMax", x, last),
        net("ReduceMin", x, last),
        net("ReduceProd", near_one, last),
        net("ReduceLogSumExp", x, last),
        net("ReduceMean", net("Mul", deviation, deviation), last),
        net("Softmax", x, axis=-1),
        net("ArgMax", x, axis=-1),
        net("ReduceMax", x, net.ints(0)),
    ]
    return net.finish(*outputs, sizes=tuple({"n": n} for n in (1, 7, 16, 31, 64, 65, 100)))


def check(network: Network, module: planish.Module, sizes: dict[str, int]) -> None:
    for mean in (-200.0, 0.0, 200.0):
        inputs = {"x": network.inputs(sizes)["x"] + np.float32(mean)}
        wanted = session_outputs(network.model, inputs)
        for a, b in zip(module.run(inputs).values(), wanted, strict=True):
            close(a, b, scale=max(1.0, abs(mean)))


def close(found: Array, wanted: Array, scale: float) -> None:
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    if found.dtype.kind != "f":
        np.testing.assert_array_equal(found, wanted)
        return
    # The softmax of numbers near 200 has their rounding in it, 1e-5.
    bound = 1e-6 * max(scale, float(np.abs(wanted).max()))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=bound)


@pytest.mark.parametrize("length", [1, 7, 37, 65])
@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "plain"])
def test_known_lengths(length: int, optimize: bool) -> None:
    network = rows(length)
    check(network, planish.compile(network.model, optimize=optimize, logs=[]), {})


def test_any_length() -> None:
    network = rows("n")
    module = planish.compile(network.model, logs=[])
    for sizes in network.sizes:
        check(network, module, sizes)
