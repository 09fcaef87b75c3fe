from __future__ import annotations

import pytest

from planish.compiler.graph.dce import eliminate_dead
from planish.compiler.graph.ir import Graph
from planish.compiler.graph.phases import even_phases

from .tables import assert_same_values, read, unchanged

UP = "strides=(2,), dilations=(1,), output_padding=(0,)"


def up(kernel: int, pads: str, out: int) -> str:
    return f"""
    def f(x: f32[1, 2, 5]) -> (y,):
        c: f32[2, 3, {kernel}] = constant("c")
        y: f32[1, 3, {out}] = conv_transpose(x, c, pads={pads}, {UP})
    """


def kernel(graph: Graph) -> int:
    """The extent of the only constant's last axis."""
    (array,) = graph.constants.values()
    return int(array.shape[-1])


@pytest.mark.parametrize(
    "size, pads, out", [(3, "(0, 0)", 11), (3, "(1, 1)", 9), (5, "(2, 0)", 11)]
)
def test_padded_to_the_stride(size: int, pads: str, out: int) -> None:
    graph = read(up(size, pads, out))
    new = even_phases(graph)
    assert kernel(eliminate_dead(new)) == size + 1
    assert_same_values(graph, new)


def test_even_kernels_are_kept() -> None:
    unchanged(even_phases, up(4, "(0, 0)", 12))
