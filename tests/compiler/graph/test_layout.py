from __future__ import annotations

import pytest

from planish.compiler.graph.canonicalize import canonicalize
from planish.compiler.graph.dce import eliminate_dead
from planish.compiler.graph.ir import Graph
from planish.compiler.graph.layout import channels_last, cost, sink_transposes, transposes

from .tables import assert_same_values, check, read, unchanged

POOL = "kernel=(3, 3), strides=(1, 1), dilations=(1, 1), pads=(1, 1, 1, 1)"
CONV = "strides=(1, 1), dilations=(1, 1), pads=(0, 0, 0, 0)"


def layout(graph: Graph) -> Graph:
    """Both passes, and what cleans up behind them."""
    return canonicalize(sink_transposes(channels_last(canonicalize(graph))))


TO_LAST = {
    "convolution": (
        f"""
    def f(x: f32[n, 2, h, w]) -> (y,):
        c: f32[3, 2, 3, 1] = constant("c")
        b: f32[3] = constant("b")
        y: f32[n, 3, h - 2, w] = conv(x, c, b, {CONV})
    """,
        f"""
    def f(x: f32[n, 2, h, w]) -> (y,):
        c: f32[3, 1, 2, 3] = constant("c")
        b: f32[3] = constant("b")
        a: f32[n, h, w, 2] = transpose(x, perm=(0, 2, 3, 1))
        d: f32[n, h - 2, w, 3] = conv(a, c, b, {CONV}, channels_last=True)
        y: f32[n, 3, h - 2, w] = transpose(d, perm=(0, 3, 1, 2))
    """,
    ),
    "transposed convolution of one axis": (
        """
    def f(x: f32[n, 2, h]) -> (y,):
        c: f32[2, 3, 4] = constant("c")
        y: f32[n, 3, h * 2 + 2] = conv_transpose(x, c, strides=(2,), dilations=(1,), pads=(0, 0), \
output_padding=(0,))
    """,
        """
    def f(x: f32[n, 2, h]) -> (y,):
        c: f32[4, 2, 3] = constant("c")
        a: f32[n, h, 2] = transpose(x, perm=(0, 2, 1))
        b: f32[n, h * 2 + 2, 3] = conv_transpose(a, c, strides=(2,), dilations=(1,), pads=(0, 0), \
output_padding=(0,), channels_last=True)
        y: f32[n, 3, h * 2 + 2] = transpose(b, perm=(0, 2, 1))
    """,
    ),
    "pool of one channel": (
        f"""
    def f(x: f32[n, 1, h, w]) -> (y,):
        y: f32[n, 1, h, w] = max_pool(x, {POOL})
    """,
        f"""
    def f(x: f32[n, 1, h, w]) -> (y,):
        a: f32[n, h, w, 1] = reshape(x, shape=(n, h, w, 1))
        b: f32[n, h, w, 1] = max_pool(a, {POOL}, channels_last=True)
        y: f32[n, 1, h, w] = reshape(b, shape=(n, 1, h, w))
    """,
    ),
}


@pytest.mark.parametrize("name", TO_LAST)
def test_channels_last(name: str) -> None:
    check(lambda graph: eliminate_dead(channels_last(graph)), *TO_LAST[name])


T = "a: f32[n, 4, h, w] = transpose(x, perm=(0, 3, 1, 2))"
HEAD = f"def f(x: f32[n, h, w, 4]) -> (y,):\n    {T}"

# Lines behind a transpose to channels second, and what becomes of them in front of it.
MOVED = {
    "elementwise": (
        "f32[n, 4, h, w]",
        "y: f32[n, 4, h, w] = relu(a)",
        "b: f32[n, h, w, 4] = relu(x)",
    ),
    "a constant by channel": (
        "f32[n, 4, h, w]",
        "c: f32[4, 1, 1] = constant([1.0, 2.0, 3.0, 4.0])\n    y: f32[n, 4, h, w] = mul(c, a)",
        "c: f32[1, 1, 1, 4] = constant([1.0, 2.0, 3.0, 4.0])\n    b: f32[n, h, w, 4] = mul(c, x)",
    ),
    "a number": (
        "f32[n, 4, h, w]",
        "c: f32[1] = constant([2.0])\n    y: f32[n, 4, h, w] = sub(c, a)",
        "c: f32[1] = constant([2.0])\n    b: f32[n, h, w, 4] = sub(c, x)",
    ),
    "concat": (
        "f32[n, 8, h, w]",
        "y: f32[n, 8, h, w] = concat(a, a, axis=-3)",
        "b: f32[n, h, w, 8] = concat(x, x, axis=3)",
    ),
    "slice": (
        "f32[n, 2, h, w]",
        "y: f32[n, 2, h, w] = "
        "slice(a, starts=(0, 1, 0, 0), steps=(1, 2, 1, 1), shape=(n, 2, h, w))",
        "b: f32[n, h, w, 2] = "
        "slice(x, starts=(0, 0, 0, 1), steps=(1, 1, 1, 2), shape=(n, h, w, 2))",
    ),
    "pad": (
        "f32[n, 4, h + 1, w + 5]",
        "y: f32[n, 4, h + 1, w + 5] = pad(a, before=(0, 0, 1, 2), after=(0, 0, 0, 3))",
        "b: f32[n, h + 1, w + 5, 4] = pad(x, before=(0, 1, 2, 0), after=(0, 0, 3, 0))",
    ),
    "resize": (
        "f32[n, 4, h * 2, w]",
        "y: f32[n, 4, h * 2, w] = resize(a, axes=(2,), sizes=(h * 2,), scales=(2.0,))",
        "b: f32[n, h * 2, w, 4] = resize(x, axes=(1,), sizes=(h * 2,), scales=(2.0,))",
    ),
    "reduction": (
        "f32[n, 4, 1, w]",
        "y: f32[n, 4, 1, w] = reduce_mean(a, axes=(-2,))",
        "b: f32[n, 1, w, 4] = reduce_mean(x, axes=(1,))",
    ),
    "softmax": (
        "f32[n, 4, h, w]",
        "y: f32[n, 4, h, w] = softmax(a, axes=(1,))",
        "b: f32[n, h, w, 4] = softmax(x, axes=(3,))",
    ),
    "quantisation by channel": (
        "u8[n, 4, h, w]",
        "c: f32[4] = constant([1.0, 2.0, 3.0, 4.0])\n"
        "    y: u8[n, 4, h, w] = quantize(a, c, dtype=u8, axis=1)",
        "c: f32[4] = constant([1.0, 2.0, 3.0, 4.0])\n"
        "    b: u8[n, h, w, 4] = quantize(x, c, dtype=u8, axis=3)",
    ),
    "quantisation by a number": (
        "i8[n, 4, h, w]",
        "c: f32[()] = constant(2.0)\n    y: i8[n, 4, h, w] = quantize(a, c, dtype=i8)",
        "c: f32[()] = constant(2.0)\n    b: i8[n, h, w, 4] = quantize(x, c, dtype=i8, axis=3)",
    ),
    "argmax": (
        "i64[n, 1, h, w]",
        "y: i64[n, 1, h, w] = argmax(a, axis=1)",
        "b: i64[n, h, w, 1] = argmax(x, axis=3)",
    ),
    "gather": (
        "f32[n, 4, h, 2]",
        "c: i64[2] = constant([0, 3])\n    y: f32[n, 4, h, 2] = gather(a, c, axis=-1)",
        "c: i64[2] = constant([0, 3])\n    b: f32[n, h, 2, 4] = gather(x, c, axis=2)",
    ),
    "expand": (
        "f32[n, 4, h, w]",
        "y: f32[n, 4, h, w] = expand(a, shape=(n, 1, h, w))",
        "b: f32[n, h, w, 4] = expand(x, shape=(n, h, w, 1))",
    ),
    "batch_norm": (
        "f32[n, 4, h, w]",
        "c: f32[4] = constant([1.0, 2.0, 3.0, 4.0])\n"
        "    y: f32[n, 4, h, w] = batch_norm(a, c, c, c, c)",
        "c: f32[4] = constant([1.0, 2.0, 3.0, 4.0])\n"
        "    b: f32[n, h, w, 4] = batch_norm(x, c, c, c, c, channels_last=True)",
    ),
}


@pytest.mark.parametrize("name", MOVED)
def test_moved_in_front_of_a_transpose(name: str) -> None:
    _, line, moved = MOVED[name]
    # Behind it stands the inverse, so that moving pays.
    type_ = line.rsplit("y: ", 1)[1].split(" = ")[0]
    dims = type_.split("[")[1].rstrip("]").split(", ")
    last = f"{type_.split('[')[0]}[{', '.join(dims[k] for k in (0, 2, 3, 1))}]"
    line = f"{line.replace('y: ', 'z: ')}\n    y: {last} = transpose(z, perm=(0, 2, 3, 1))"
    before = f"{HEAD}\n    {line}"
    after = f"def f(x: f32[n, h, w, 4]) -> (b,):\n    {moved}"
    check(sink_transposes, before, after)


def test_what_is_found_in_all_elements() -> None:
    """In any order."""
    check(
        sink_transposes,
        f"{HEAD.replace('(y,)', '(s, z)')}\n    s, z = quantization_range[f32[()], u8[()]](a)",
        """
    def f(x: f32[n, h, w, 4]) -> (s, z):
        s, z = quantization_range[f32[()], u8[()]](x)
    """,
    )


def test_heads_are_read_in_place() -> None:
    """Reshapes between transposes are seen through."""
    check(
        layout,
        """
    def f(x: f32[2, 5, 12], q: f32[6, 7, 4]) -> (y,):
        a: f32[2, 5, 3, 4] = reshape(x, shape=(2, 5, 3, 4))
        b: f32[2, 3, 5, 4] = transpose(a, perm=(0, 2, 1, 3))
        c: f32[6, 5, 4] = reshape(b, shape=(6, 5, 4))
        d: f32[6, 4, 5] = transpose(c, perm=(0, 2, 1))
        e: f32[2, 3, 4, 5] = reshape(d, shape=(2, 3, 4, 5))
        g: f32[2, 3, 7, 4] = reshape(q, shape=(2, 3, 7, 4))
        y: f32[2, 3, 7, 5] = matmul(g, e)
    """,
        """
    def f(x: f32[2, 5, 12], q: f32[6, 7, 4]) -> (y,):
        a: f32[2, 5, 3, 4] = reshape(x, shape=(2, 5, 3, 4))
        b: f32[2, 3, 4, 5] = transpose(a, perm=(0, 2, 3, 1))
        g: f32[2, 3, 7, 4] = reshape(q, shape=(2, 3, 7, 4))
        y: f32[2, 3, 7, 5] = matmul(g, b)
    """,
    )


def test_spatial_axes_flattened_and_put_last() -> None:
    """As patches become tokens: nothing moves."""
    check(
        sink_transposes,
        """
    def f(x: f32[n, 5, 6, 4], z: f32[n, 30, 4]) -> (y,):
        a: f32[n, 4, 5, 6] = transpose(x, perm=(0, 3, 1, 2))
        b: f32[n, 4, 30] = reshape(a, shape=(n, 4, 30))
        c: f32[n, 30, 4] = transpose(b, perm=(0, 2, 1))
        y: f32[n, 30, 4] = add(c, z)
    """,
        """
    def f(x: f32[n, 5, 6, 4], z: f32[n, 30, 4]) -> (y,):
        a: f32[n, 30, 4] = reshape(x, shape=(n, 30, 4))
        y: f32[n, 30, 4] = add(a, z)
    """,
    )


def test_an_operand_in_the_other_order_is_turned_if_all_readers_want_that() -> None:
    check(
        sink_transposes,
        """
    def f(x: f32[n, h, w, 4], z: f32[n, 4, h, w]) -> (y,):
        a: f32[n, 4, h, w] = transpose(x, perm=(0, 3, 1, 2))
        b: f32[n, 4, h, w] = add(a, z)
        c: f32[n, 4, h, w] = relu(b)
        y: f32[n, h, w, 4] = transpose(c, perm=(0, 2, 3, 1))
    """,
        """
    def f(x: f32[n, h, w, 4], z: f32[n, 4, h, w]) -> (y,):
        a: f32[n, h, w, 4] = transpose(z, perm=(0, 2, 3, 1))
        b: f32[n, h, w, 4] = add(x, a)
        y: f32[n, h, w, 4] = relu(b)
    """,
    )


def test_no_transposes_are_added() -> None:
    unchanged(
        sink_transposes,
        """
    def f(x: f32[n, h, w, 4], z: f32[n, 4, h, w]) -> (y, a):
        a: f32[n, 4, h, w] = transpose(x, perm=(0, 3, 1, 2))
        y: f32[n, 4, h, w] = add(a, z)
    """,
    )


def test_a_value_is_transposed_once_for_all_that_read_it() -> None:
    graph = read(
        f"""
    def f(x: f32[n, 4, h, w]) -> (p, q, r):
        c: f32[4, 4, 1, 1] = constant("c")
        a: f32[n, 4, h, w] = conv(x, c, {CONV})
        p: f32[n, 4, h, w] = conv(a, c, {CONV})
        q: f32[n, 4, h * w] = reshape(a, shape=(n, 4, h * w))
        b: f32[n, 4, h, w] = conv(a, c, {CONV})
        r: f32[n, 4, h, w] = add(a, b)
    """
    )
    new = layout(graph)
    assert_same_values(graph, new)
    assert transposes(new) == 4  # of x, p, a, r


SQUEEZE = f"""
    def f(x: f32[n, 8, h, w]) -> (y,):
        c: f32[4, 8, 1, 1] = constant("c")
        d: f32[8, 4, 1, 1] = constant("d")
        a: f32[n, 8, h, w] = conv(x, e, {CONV})
        b: f32[n, 8, 1, 1] = reduce_mean(a, axes=(2, 3))
        g: f32[n, 4, 1, 1] = conv(b, c, {CONV})
        i: f32[n, 4, 1, 1] = relu(g)
        j: f32[n, 8, 1, 1] = conv(i, d, {CONV})
        k: f32[n, 8, 1, 1] = sigmoid(j)
        y: f32[n, 8, h, w] = mul(a, k)
    """.replace("        a:", '        e: f32[8, 8, 1, 1] = constant("e")\n        a:', 1)


def test_squeeze_and_excite_stays_channels_last() -> None:
    graph = read(SQUEEZE)
    new = layout(graph)
    assert_same_values(graph, new)
    names = [node.op.name for node in new.nodes]
    assert names == [
        "transpose", "conv", "reduce_mean", "conv", "relu", "conv", "sigmoid", "mul", "transpose",
    ]  # fmt: skip


@pytest.mark.parametrize("norm", ["instance_norm(a, s, t)", "group_norm(a, s, t, groups=2)"])
def test_norms_by_channel(norm: str) -> None:
    graph = read(
        f"""
    def f(x: f32[n, 4, h, w]) -> (y,):
        c: f32[4, 4, 1, 1] = constant("c")
        s: f32[4] = constant([1.0, 2.0, 0.5, -1.0])
        t: f32[4] = constant([0.0, 1.0, 0.5, -1.0])
        a: f32[n, 4, h, w] = conv(x, c, {CONV})
        b: f32[n, 4, h, w] = {norm}
        y: f32[n, 4, h, w] = conv(b, c, {CONV})
    """
    )
    new = layout(graph)
    assert_same_values(graph, new)
    assert transposes(new) == 2
    assert not any(node.op.name.endswith("_norm") for node in new.nodes)


def test_a_transpose_of_a_view_goes_to_the_product() -> None:
    """There it is the order in which the result is stored."""
    check(
        sink_transposes,
        """
    def f(p: f32[n, 2, 3, 5, 7], v: f32[n, 2, 1, 7, 4]) -> (y,):
        a: f32[n, 2, 3, 5, 4] = matmul(p, v)
        b: f32[n, 6, 5, 4] = reshape(a, shape=(n, 6, 5, 4))
        c: f32[n, 5, 6, 4] = transpose(b, perm=(0, 2, 1, 3))
        y: f32[n, 5, 24] = reshape(c, shape=(n, 5, 24))
    """,
        """
    def f(p: f32[n, 2, 3, 5, 7], v: f32[n, 2, 1, 7, 4]) -> (y,):
        a: f32[n, 2, 3, 5, 4] = matmul(p, v)
        b: f32[n, 5, 2, 3, 4] = transpose(a, perm=(0, 3, 1, 2, 4))
        c: f32[n, 5, 6, 4] = reshape(b, shape=(n, 5, 6, 4))
        y: f32[n, 5, 24] = reshape(c, shape=(n, 5, 24))
    """,
    )


def test_cost_counts_what_has_to_be_moved() -> None:
    graph = read(
        """
    def f(x: f32[2, 3, 4], w: f32[2, 4, 5]) -> (y, z):
        a: f32[2, 4, 3] = transpose(x, perm=(0, 2, 1))
        y: f32[2, 3, 5] = matmul(a, w, transpose_a=True)
        b: f32[3, 2, 5] = transpose(y, perm=(1, 0, 2))
        z: f32[3, 2, 5] = relu(b)
    """
    )
    assert cost(graph) == 30  # the first is read in place, y is an output and must be there
