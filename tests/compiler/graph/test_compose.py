from __future__ import annotations

import pytest

from planish.compiler.graph.compose import compose

from .tables import check, unchanged

HEAD = "def f(x: f32[n, 8]) -> (y,):"

ACTIVATIONS = {
    "swish": ("a: f32[n, 8] = sigmoid(x)", "y: f32[n, 8] = mul(a, x)", "swish(x)"),
    "swish with a factor": (
        "c: f32[1] = constant([1.5])",
        "a: f32[n, 8] = mul(c, x)",
        "b: f32[n, 8] = sigmoid(a)",
        "y: f32[n, 8] = mul(x, b)",
        "swish(x, alpha=1.5)",
    ),
    "mish": (
        "a: f32[n, 8] = softplus(x)",
        "b: f32[n, 8] = tanh(a)",
        "y: f32[n, 8] = mul(x, b)",
        "mish(x)",
    ),
    "hard_swish of hard_sigmoid": (
        "a: f32[n, 8] = hard_sigmoid(x, alpha=0.16666667, beta=0.5)",
        "y: f32[n, 8] = mul(x, a)",
        "hard_swish(x)",
    ),
    "hard_swish of a clip, divided first": (
        "c: f32[()] = constant(3.0)",
        "d: f32[()] = constant(6.0)",
        "a: f32[n, 8] = add(x, c)",
        "b: f32[n, 8] = clip(a, low=0.0, high=6.0)",
        "e: f32[n, 8] = div(b, d)",
        "y: f32[n, 8] = mul(x, e)",
        "hard_swish(x)",
    ),
    "hard_swish of a clip, divided last": (
        "c: f32[()] = constant(3.0)",
        "d: f32[()] = constant(6.0)",
        "a: f32[n, 8] = add(c, x)",
        "b: f32[n, 8] = clip(a, low=0, high=6)",
        "e: f32[n, 8] = mul(b, x)",
        "y: f32[n, 8] = div(e, d)",
        "hard_swish(x)",
    ),
    "hard_swish by slopes": (
        "c: f32[()] = constant(0.16666667)",
        "d: f32[()] = constant(0.5)",
        "a: f32[n, 8] = mul(x, c)",
        "b: f32[n, 8] = add(a, d)",
        "e: f32[n, 8] = clip(b, low=0.0, high=1.0)",
        "y: f32[n, 8] = mul(x, e)",
        "hard_swish(x)",
    ),
    "gelu, as torch exports it": (
        "c: f32[()] = constant(1.4142135)",
        "d: f32[()] = constant(1.0)",
        "h: f32[()] = constant(0.5)",
        "a: f32[n, 8] = div(x, c)",
        "b: f32[n, 8] = erf(a)",
        "e: f32[n, 8] = add(b, d)",
        "g: f32[n, 8] = mul(x, e)",
        "y: f32[n, 8] = mul(g, h)",
        "gelu(x)",
    ),
    "gelu, halved first": (
        "c: f32[()] = constant(0.70710677)",
        "d: f32[()] = constant(1.0)",
        "h: f32[()] = constant(0.5)",
        "a: f32[n, 8] = mul(c, x)",
        "b: f32[n, 8] = erf(a)",
        "e: f32[n, 8] = add(d, b)",
        "g: f32[n, 8] = mul(h, x)",
        "y: f32[n, 8] = mul(g, e)",
        "gelu(x)",
    ),
    "gelu, the gate halved": (
        "c: f32[()] = constant(0.70710677)",
        "h: f32[()] = constant(0.5)",
        "a: f32[n, 8] = mul(c, x)",
        "b: f32[n, 8] = erf(a)",
        "g: f32[n, 8] = mul(b, h)",
        "e: f32[n, 8] = add(g, h)",
        "y: f32[n, 8] = mul(x, e)",
        "gelu(x)",
    ),
    "gelu by tanh, with a power": (
        "c: f32[()] = constant(0.044715)",
        "k: f32[()] = constant(0.7978846)",
        "d: f32[()] = constant(1.0)",
        "h: f32[()] = constant(0.5)",
        "a: f32[n, 8] = pow_scalar(x, exponent=3.0)",
        "b: f32[n, 8] = mul(a, c)",
        "e: f32[n, 8] = add(x, b)",
        "g: f32[n, 8] = mul(e, k)",
        "i: f32[n, 8] = tanh(g)",
        "j: f32[n, 8] = add(i, d)",
        "l: f32[n, 8] = mul(x, h)",
        "y: f32[n, 8] = mul(l, j)",
        "gelu(x, approximate=True)",
    ),
    "gelu by tanh, with products": (
        "c: f32[()] = constant(0.044715)",
        "k: f32[()] = constant(0.7978846)",
        "d: f32[()] = constant(1.0)",
        "h: f32[()] = constant(0.5)",
        "a: f32[n, 8] = mul(c, x)",
        "b: f32[n, 8] = mul(x, a)",
        "e: f32[n, 8] = mul(x, b)",
        "g: f32[n, 8] = add(x, e)",
        "i: f32[n, 8] = mul(k, g)",
        "j: f32[n, 8] = tanh(i)",
        "l: f32[n, 8] = add(d, j)",
        "m: f32[n, 8] = mul(h, l)",
        "y: f32[n, 8] = mul(x, m)",
        "gelu(x, approximate=True)",
    ),
    "gelu by tanh, the square inside": (
        "c: f32[()] = constant(0.044715)",
        "k: f32[()] = constant(0.7978846)",
        "d: f32[()] = constant(1.0)",
        "h: f32[()] = constant(0.5)",
        "a: f32[n, 8] = mul(x, x)",
        "b: f32[n, 8] = mul(a, c)",
        "e: f32[n, 8] = add(b, d)",
        "g: f32[n, 8] = mul(x, e)",
        "i: f32[n, 8] = mul(g, k)",
        "j: f32[n, 8] = tanh(i)",
        "l: f32[n, 8] = add(j, d)",
        "m: f32[n, 8] = mul(x, l)",
        "y: f32[n, 8] = mul(m, h)",
        "gelu(x, approximate=True)",
    ),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(name: str) -> None:
    *lines, composed = ACTIVATIONS[name]
    before = "\n    ".join([HEAD, *lines])
    check(compose, before, f"{HEAD}\n    y: f32[n, 8] = {composed}")


def test_a_gate_of_something_else_stays() -> None:
    unchanged(
        compose,
        """
    def f(x: f32[n, 8], z: f32[n, 8]) -> (y,):
        a: f32[n, 8] = sigmoid(z)
        y: f32[n, 8] = mul(x, a)
    """,
    )


def test_a_gate_that_others_read_stays() -> None:
    unchanged(
        compose,
        """
    def f(x: f32[n, 8]) -> (a, y):
        a: f32[n, 8] = sigmoid(x)
        y: f32[n, 8] = mul(x, a)
    """,
    )


LAYER_NORM = """
    def f(x: f32[n, m, 8]) -> (y,):
        w: f32[8] = constant("w")
        b: f32[8] = constant("b")
        y: f32[n, m, 8] = layer_norm(x, w, b, epsilon=0.0009765625)
    """

NORMS = {
    "layer_norm with a power": (
        """
    def f(x: f32[n, m, 8]) -> (y,):
        w: f32[8] = constant("w")
        b: f32[8] = constant("b")
        e: f32[()] = constant(0.0009765625)
        a: f32[n, m, 1] = reduce_mean(x, axes=(-1,))
        d: f32[n, m, 8] = sub(x, a)
        c: f32[n, m, 8] = pow_scalar(d)
        g: f32[n, m, 1] = reduce_mean(c, axes=(2,))
        h: f32[n, m, 1] = add(g, e)
        i: f32[n, m, 1] = sqrt(h)
        j: f32[n, m, 8] = div(d, i)
        k: f32[n, m, 8] = mul(j, w)
        y: f32[n, m, 8] = add(b, k)
    """,
        LAYER_NORM,
    ),
    "layer_norm by a reciprocal that is scaled": (
        """
    def f(x: f32[n, m, 8]) -> (y,):
        w: f32[8] = constant("w")
        b: f32[8] = constant("b")
        e: f32[()] = constant(0.0009765625)
        a: f32[n, m, 1] = reduce_mean(x, axes=(-1,))
        d: f32[n, m, 8] = sub(x, a)
        c: f32[n, m, 8] = mul(d, d)
        g: f32[n, m, 1] = reduce_mean(c, axes=(2,))
        h: f32[n, m, 1] = add(e, g)
        i: f32[n, m, 1] = sqrt(h)
        r: f32[n, m, 1] = reciprocal(i)
        s: f32[n, m, 8] = mul(r, w)
        k: f32[n, m, 8] = mul(d, s)
        y: f32[n, m, 8] = add(k, b)
    """,
        LAYER_NORM,
    ),
    "layer_norm of sums of squares": (
        """
    def f(x: f32[n, m, 8]) -> (y,):
        w: f32[8] = constant("w")
        b: f32[8] = constant("b")
        e: f32[()] = constant(0.0009765625)
        s: f32[()] = constant(0.125)
        t: f32[n, m, 1] = reduce_sum(x, axes=(-1,))
        a: f32[n, m, 1] = mul(t, s)
        c: f32[n, m, 8] = mul(x, x)
        u: f32[n, m, 1] = reduce_sum(c, axes=(-1,))
        v: f32[n, m, 1] = mul(s, u)
        q: f32[n, m, 1] = mul(a, a)
        p: f32[n, m, 1] = sub(v, q)
        g: f32[n, m, 1] = relu(p)
        h: f32[n, m, 1] = add(g, e)
        i: f32[n, m, 1] = pow_scalar(h, exponent=-0.5)
        d: f32[n, m, 8] = sub(x, a)
        j: f32[n, m, 8] = mul(d, i)
        k: f32[n, m, 8] = mul(w, j)
        y: f32[n, m, 8] = add(b, k)
    """,
        LAYER_NORM,
    ),
    "layer_norm as a scaled and shifted x": (
        """
    def f(x: f32[n, m, 8]) -> (y,):
        w: f32[8] = constant("w")
        b: f32[8] = constant("b")
        e: f32[()] = constant(0.0009765625)
        a: f32[n, m, 1] = reduce_mean(x, axes=(-1,))
        d: f32[n, m, 8] = sub(x, a)
        c: f32[n, m, 8] = mul(d, d)
        g: f32[n, m, 1] = reduce_mean(c, axes=(2,))
        h: f32[n, m, 1] = add(g, e)
        i: f32[n, m, 1] = sqrt(h)
        r: f32[n, m, 1] = reciprocal(i)
        k: f32[n, m, 8] = mul(r, w)
        p: f32[n, m, 8] = mul(x, k)
        q: f32[n, m, 8] = mul(a, k)
        s: f32[n, m, 8] = sub(b, q)
        y: f32[n, m, 8] = add(p, s)
    """,
        LAYER_NORM,
    ),
    "layer_norm of several axes": (
        """
    def f(x: f32[n, 4, 8]) -> (y,):
        w: f32[4, 8] = constant("w")
        e: f32[()] = constant(0.0009765625)
        a: f32[n, 1, 1] = reduce_mean(x, axes=(1, 2))
        d: f32[n, 4, 8] = sub(x, a)
        c: f32[n, 4, 8] = pow_scalar(d)
        g: f32[n, 1, 1] = reduce_mean(c, axes=(1, 2))
        h: f32[n, 1, 1] = add(g, e)
        i: f32[n, 1, 1] = sqrt(h)
        j: f32[n, 4, 8] = div(d, i)
        y: f32[n, 4, 8] = mul(j, w)
    """,
        """
    def f(x: f32[n, 4, 8]) -> (y,):
        w: f32[4, 8] = constant("w")
        y: f32[n, 4, 8] = layer_norm(x, w, axis=-2, epsilon=0.0009765625)
    """,
    ),
    "layer_norm of a convolution's channels": (
        """
    def f(x: f32[n, 2, h, w]) -> (y,):
        c: f32[4, 2, 1, 1] = constant("c")
        e: f32[()] = constant(0.0009765625)
        z: f32[n, 4, h, w] = conv(x, c, strides=(1, 1), dilations=(1, 1), pads=(0, 0, 0, 0))
        a: f32[n, 1, h, w] = reduce_mean(z, axes=(1,))
        d: f32[n, 4, h, w] = sub(z, a)
        q: f32[n, 4, h, w] = pow_scalar(d)
        g: f32[n, 1, h, w] = reduce_mean(q, axes=(1,))
        i: f32[n, 1, h, w] = add(g, e)
        j: f32[n, 1, h, w] = sqrt(i)
        y: f32[n, 4, h, w] = div(d, j)
    """,
        """
    def f(x: f32[n, 2, h, w]) -> (y,):
        c: f32[4, 2, 1, 1] = constant("c")
        z: f32[n, 4, h, w] = conv(x, c, strides=(1, 1), dilations=(1, 1), pads=(0, 0, 0, 0))
        a: f32[n, h, w, 4] = transpose(z, perm=(0, 2, 3, 1))
        b: f32[n, h, w, 4] = layer_norm(a, epsilon=0.0009765625)
        y: f32[n, 4, h, w] = transpose(b, perm=(0, 3, 1, 2))
    """,
    ),
    "rms_norm": (
        """
    def f(x: f32[n, m, 8]) -> (y,):
        w: f32[8] = constant("w")
        e: f32[1] = constant([0.0009765625])
        c: f32[n, m, 8] = pow_scalar(x)
        g: f32[n, m, 1] = reduce_mean(c, axes=(-1,))
        h: f32[n, m, 1] = add(g, e)
        i: f32[n, m, 1] = sqrt(h)
        r: f32[n, m, 1] = reciprocal(i)
        j: f32[n, m, 8] = mul(x, r)
        y: f32[n, m, 8] = mul(w, j)
    """,
        """
    def f(x: f32[n, m, 8]) -> (y,):
        w: f32[8] = constant("w")
        y: f32[n, m, 8] = rms_norm(x, w, epsilon=0.0009765625)
    """,
    ),
    "softmax": (
        """
    def f(x: f32[n, m, 8]) -> (y,):
        a: f32[n, 1, 8] = reduce_max(x, axes=(1,))
        b: f32[n, m, 8] = sub(x, a)
        c: f32[n, m, 8] = exp(b)
        d: f32[n, 1, 8] = reduce_sum(c, axes=(1,))
        y: f32[n, m, 8] = div(c, d)
    """,
        """
    def f(x: f32[n, m, 8]) -> (y,):
        y: f32[n, m, 8] = softmax(x, axes=(1,))
    """,
    ),
}


@pytest.mark.parametrize("name", NORMS)
def test_normalization(name: str) -> None:
    before, after = NORMS[name]
    new = check(compose, before, after)
    assert compose(new) is new


def test_a_norm_over_other_axes_than_its_mean_stays() -> None:
    unchanged(
        compose,
        """
    def f(x: f32[n, m, 8]) -> (y,):
        e: f32[()] = constant(0.0009765625)
        a: f32[n, m, 1] = reduce_mean(x, axes=(2,))
        d: f32[n, m, 8] = sub(x, a)
        c: f32[n, m, 8] = pow_scalar(d)
        g: f32[n, 1, 8] = reduce_mean(c, axes=(1,))
        h: f32[n, 1, 8] = add(g, e)
        i: f32[n, 1, 8] = sqrt(h)
        y: f32[n, m, 8] = div(d, i)
    """,
    )
