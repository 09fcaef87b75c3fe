"""Attention of ONNX Runtime's own domain: by numpy, and by ONNX Runtime where it has a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_harness import check, compare, expected, model_of

from planish.compiler.errors import PlanishError
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.graph.attention import compose_attention
from planish.compiler.graph.canonicalize import canonicalize
from planish.compiler.graph.ir import Array
from planish.compiler.graph.reference import run_reference
from planish.compiler.ops.sampling import f32, ints

DOMAIN = "com.microsoft"


def model(
    op_type: str, inputs: str, given: Mapping[str, Array], outputs: str = "y",
    symbolic: bool = False, **attributes: Any,
) -> onnx.ModelProto:  # fmt: skip
    """A node; ``-`` stands for an input or output that is left out."""
    names, wanted = (["" if n == "-" else n for n in s.split()] for s in (inputs, outputs))
    node = helper.make_node(op_type, names, wanted, domain=DOMAIN, **attributes)
    return model_of(node, given, domains={DOMAIN: 1}, symbolic=symbolic)


def judged(
    op_type: str, inputs: str, given: Mapping[str, Array], want: list[Array | None],
    outputs: str = "y", runtime: bool = True, symbolic: bool = True, **attributes: Any,
) -> None:  # fmt: skip
    """Against numpy's results, and against ONNX Runtime's (None: whatever that gives)."""
    given = {n: given[n] for n in inputs.split() if n != "-"}
    made = model(op_type, inputs, given, outputs, **attributes)
    theirs = expected(made, given) if runtime else want
    right = [b if a is None else a for a, b in zip(want, theirs, strict=True)]
    for a, b in zip(right, theirs, strict=True):
        compare([np.asarray(b)], [np.asarray(a, np.float32)], 2e-5)
    check(made, given, want=theirs, tolerance=2e-5)
    if symbolic:
        check(model(op_type, inputs, given, outputs, True, **attributes), given, want=theirs,
              tolerance=2e-5)  # fmt: skip


def softmax(s: Array) -> Array:
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def split_heads(x: Array, count: int) -> Array:
    batch, rows, width = x.shape
    return x.reshape(batch, rows, count, width // count).transpose(0, 2, 1, 3)


def join_heads(x: Array) -> Array:
    batch, _, rows, _ = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, rows, -1)


def plain(
    q: Array, k: Array, v: Array, scale: float | None = None, mask: Array | float = 0.0,
    causal: bool = False,
) -> Array:  # fmt: skip
    """Of [batch, heads, rows, size], joined."""
    s = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale) + mask
    if causal:
        rows, keys = s.shape[-2:]
        s = np.where(np.arange(keys) <= keys - rows + np.arange(rows)[:, None], s, -np.inf)
    return join_heads(softmax(s) @ v)


N, D, B, S, L = 2, 4, 2, 3, 5
GIVEN = {
    "q": f32(B, S, N * D), "k": f32(B, L, N * D), "v": f32(2, B, L, N * D)[1],
    "wide": f32(B, L, N * 6), "b": f32(3 * N * D), "bw": f32(2 * N * D + N * 6),
    "self": f32(B, S, N * D), "bias": f32(1, N, S, L), "each": f32(B, 1, S, L),
    "pk": f32(B, N, 2, D), "pv": f32(2, B, N, 2, D)[1],
    "k4": f32(B, N, L, D), "v4": f32(2, B, N, L, D)[1],
    "keep": np.array([[1, 1, 0, 0, 1], [1, 0, 1, 1, 1]], np.int32),
    "some": ints(B, S, L, low=0, high=2, dtype="int32"),
    "count": np.array([3, 5], np.int32),
    "packed": np.array([3, 5, 0, 3, 6, 0, 5, 10], np.int32),
}  # fmt: skip
Q, K, V = (split_heads(GIVEN[n], N) for n in ("q", "k", "v"))


def test_multi_head_attention() -> None:
    want: list[Array | None] = [plain(Q, K, V)]
    judged("MultiHeadAttention", "q k v", GIVEN, want, num_heads=N)
    want = [plain(Q, K, V, 0.25)]
    judged("MultiHeadAttention", "q k v", GIVEN, want, num_heads=N, scale=0.25)
    want = [plain(Q, K, split_heads(GIVEN["wide"], N))]
    judged("MultiHeadAttention", "q k wide", GIVEN, want, num_heads=N)
    parts = np.split(GIVEN["bw"], [8, 16])
    moved = (split_heads(GIVEN[n] + b, N) for n, b in zip(("q", "k", "wide"), parts, strict=True))
    judged("MultiHeadAttention", "q k wide bw", GIVEN, [plain(*moved)], num_heads=N)


@pytest.mark.parametrize("number", [-10000.0, -3.0])
def test_masks_of_keys(number: float) -> None:
    def of(kept: Array) -> list[Array | None]:
        return [plain(Q, K, V, mask=np.where(kept, 0, number).astype(np.float32))]

    attributes: dict[str, Any] = {"num_heads": N, "mask_filter_value": number}
    keep, some = GIVEN["keep"] > 0, GIVEN["some"] > 0
    judged("MultiHeadAttention", "q k v - keep", GIVEN, of(keep[:, None, None]), **attributes)
    judged("MultiHeadAttention", "q k v - some", GIVEN, of(some[:, None]), **attributes)
    right = np.arange(L) < GIVEN["count"][:, None, None, None]
    judged("MultiHeadAttention", "q k v - count", GIVEN, of(right), **attributes)
    judged("MultiHeadAttention", "q k v - packed", GIVEN, of(right), symbolic=False, **attributes)


def test_what_is_added_to_scores() -> None:
    for name in ("bias", "each"):
        want: list[Array | None] = [plain(Q, K, V, mask=GIVEN[name])]
        judged("MultiHeadAttention", f"q k v - - {name}", GIVEN, want, symbolic=False, num_heads=N)


def test_past_keys() -> None:
    k, v = (np.concatenate([GIVEN[p], x], 2) for p, x in (("pk", K), ("pv", V)))
    want: list[Array | None] = [plain(Q, k, v), k, v, None]
    judged("MultiHeadAttention", "q k v - - - pk pv", GIVEN, want, "y k2 v2 s", num_heads=N)
    own = split_heads(GIVEN["self"], N)
    k, v = (np.concatenate([GIVEN[p], own], 2) for p in ("pk", "pv"))
    given = {**GIVEN, "k": GIVEN["self"], "v": GIVEN["self"]}
    want = [plain(Q, k, v, causal=True), k, v]
    judged("MultiHeadAttention", "q k v - - - pk pv", given, want, "y k2 v2", num_heads=N,
           unidirectional=1)  # fmt: skip


def test_keys_with_heads() -> None:
    k, v = GIVEN["k4"], GIVEN["v4"]
    judged("MultiHeadAttention", "q k4 v4", GIVEN, [plain(Q, k, v)], num_heads=N)
    bias = np.concatenate([GIVEN["b"][:8], np.zeros(16, np.float32)])
    want: list[Array | None] = [plain(split_heads(GIVEN["q"] + bias[:8], N), k, v)]
    judged("MultiHeadAttention", "q k4 v4 b", {**GIVEN, "b": bias}, want, num_heads=N)


def test_packed_inputs() -> None:
    """Which ONNX Runtime has for GPUs only."""
    whole, pair = f32(B, S, N, 3, D), f32(B, L, N, 2, D)
    parts = [whole[:, :, :, k].transpose(0, 2, 1, 3) for k in range(3)]
    judged("MultiHeadAttention", "x", {"x": whole}, [plain(*parts)], runtime=False, num_heads=N)
    keys = [pair[:, :, :, k].transpose(0, 2, 1, 3) for k in range(2)]
    judged("MultiHeadAttention", "q x", {"x": pair, **GIVEN}, [plain(Q, *keys)], runtime=False,
           num_heads=N)  # fmt: skip


def test_decoder_masked_multi_head_attention() -> None:
    """Which ONNX Runtime's kernel for CPUs has with a shared buffer only."""
    given = dict(zip("qkv", f32(3, B, 1, N * D), strict=True))
    given |= {"pk": GIVEN["pk"], "pv": GIVEN["pv"], "m": np.array([[1, 1, 0], [0, 1, 1]], np.int32)}
    given["b"] = GIVEN["b"]
    q, k, v = (
        split_heads(given[n] + b, N) for n, b in zip("qkv", np.split(given["b"], 3), strict=True)
    )
    k, v = (np.concatenate([given[p], x], 2) for p, x in (("pk", k), ("pv", v)))
    mask = np.where(given["m"] > 0, 0, -10000.0)[:, None, None].astype(np.float32)
    want: list[Array | None] = [plain(q, k, v, mask=mask), k, v]
    judged("DecoderMaskedMultiHeadAttention", "q k v m - pk pv - - - b", given, want, "y k2 v2",
           runtime=False, num_heads=N)  # fmt: skip


PROJECTION = {
    "x": f32(B, S, 6), "w": f32(6, 24), "b": f32(24), "past": f32(2, B, N, 2, D),
    "keep": np.array([[1, 1, 0], [1, 0, 1]], np.int32),
    "later": np.array([[0, 1, 1, 1, 1], [1, 1, 1, 1, 0]], np.int32),
    "count": np.array([2, 3], np.int32), "both": np.array([3, 3, 1, 0], np.int32),
    "add": f32(B, N, S, S),
}  # fmt: skip


def projected(y: Array, mask: Array | float = 0.0, past: Array | None = None,
              causal: bool = False) -> list[Array | None]:  # fmt: skip
    q, k, v = (split_heads(p, N) for p in np.split(y, 3, -1))
    if past is not None:
        k, v = (np.concatenate([p, x], 2) for p, x in zip(past, (k, v), strict=True))
    return [plain(q, k, v, mask=mask, causal=causal), np.stack([k, v])]


def test_attention() -> None:
    y = PROJECTION["x"] @ PROJECTION["w"] + PROJECTION["b"]

    def masked(kept: Array) -> Array:
        return np.where(kept, 0, -10000.0).astype(np.float32)

    judged("Attention", "x w b", PROJECTION, projected(y), "y p", num_heads=N)
    judged("Attention", "x w", PROJECTION, projected(y - PROJECTION["b"])[:1], num_heads=N)
    want = projected(y, masked(PROJECTION["keep"][:, None, None] > 0), causal=True)[:1]
    judged("Attention", "x w b keep", PROJECTION, want, num_heads=N, unidirectional=1)
    at = np.arange(S)
    want = projected(y, masked(at < PROJECTION["count"][:, None, None, None]))[:1]
    judged("Attention", "x w b count", PROJECTION, want, num_heads=N)
    ends, starts = PROJECTION["both"].reshape(2, B, 1, 1, 1)
    want = projected(y, masked((at < ends) & (at >= starts)))[:1]
    judged("Attention", "x w b both", PROJECTION, want, symbolic=False, num_heads=N)
    want = projected(y, PROJECTION["add"])[:1]
    judged("Attention", "x w b - - add", PROJECTION, want, num_heads=N)
    mask = masked(PROJECTION["later"][:, None, None] > 0)
    want = projected(y, mask, PROJECTION["past"], True)
    judged("Attention", "x w b later past", PROJECTION, want, "y p", num_heads=N, unidirectional=1)


def test_values_of_another_size() -> None:
    given = {"x": PROJECTION["x"], "w": f32(6, 20), "b": f32(20)}
    q, k, v = np.split(given["x"] @ given["w"] + given["b"], [8, 16], -1)
    want: list[Array | None] = [plain(*(split_heads(x, N) for x in (q, k, v)))]
    judged("Attention", "x w b", given, want, num_heads=N, qkv_hidden_sizes=[8, 8, 4])


@pytest.mark.parametrize("columns", [False, True])
def test_quantized_attention(columns: bool) -> None:
    shape = (24,) if columns else ()
    given = {
        **PROJECTION, "x": ints(B, S, 6, low=0, high=255, dtype="uint8"),
        "w": ints(6, 24, low=-128, high=127, dtype="int8"), "sx": np.array(0.02, np.float32),
        "sw": np.full(shape, 0.01, np.float32), "zx": np.array(120, np.uint8),
        "zw": np.full(shape, 3, np.int8),
    }  # fmt: skip
    x = (given["x"].astype(np.float32) - 120) * given["sx"]
    y = x @ ((given["w"].astype(np.float32) - 3) * given["sw"]) + given["b"]
    mask = np.where(given["later"][:, None, None] > 0, 0, -10000.0).astype(np.float32)
    want = projected(y, mask, given["past"], True)
    judged("QAttention", "x w b sx sw later zx zw past", given, want, "y p", num_heads=N,
           unidirectional=1)  # fmt: skip
    q, k, v = (split_heads(p, N) for p in np.split(y, 3, -1))
    want = [plain(q, k, v, 0.125)]
    judged("QAttention", "x w b sx sw - zx zw", given, want, num_heads=N, scale=0.125)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "message"),
    [
        ("MultiHeadAttention", "q", {"num_heads": N}, "the keys are missing"),
        ("MultiHeadAttention", "q k v", {"num_heads": 3}, "8 is not a multiple of 3"),
        ("MultiHeadAttention", "q k v", {"num_heads": 0}, "num_heads is 0"),
        ("MultiHeadAttention", "q k v - - - pk", {"num_heads": N}, "belong together"),
        ("MultiHeadAttention", "q k v - - - - - count", {"num_heads": N}, "shared buffer"),
        ("MultiHeadAttention", "q k v - k", {"num_heads": N}, "the mask"),
        ("Attention", "q b8", {"num_heads": N, "do_rotary": 1}, "do_rotary is 1"),
    ],
)  # fmt: skip
def test_what_is_refused(
    op_type: str, inputs: str, attributes: dict[str, Any], message: str
) -> None:
    given = {n: {**GIVEN, "b8": f32(8, 24)}[n] for n in inputs.split() if n != "-"}
    with pytest.raises(PlanishError, match=message):
        import_model(model(op_type, inputs, given, **attributes))


def test_half_floats_are_wide_within() -> None:
    given = dict(zip("qkv", (f32(3, B, S, N * D) * 30).astype(np.float16), strict=True))
    graph = import_model(model("MultiHeadAttention", "q k v", given, num_heads=N))
    want = plain(*(split_heads(given[n].astype(np.float32), N) for n in "qkv"))
    compare(run_reference(graph, given), [want.astype(np.float16)])


@pytest.mark.parametrize("symbolic", [False, True])
def test_it_becomes_one_operator(symbolic: bool) -> None:
    """Masks and causality are within it."""
    given = dict(zip("qkv", f32(3, B, 16, N * D), strict=True))
    given["m"] = np.ones((B, 16), np.int32)
    made = model("MultiHeadAttention", "q k v - m", given, symbolic=symbolic, num_heads=N,
                 unidirectional=1, scale=0.5)  # fmt: skip
    graph = compose_attention(canonicalize(import_model(made)))
    names = [node.op.name for node in graph.nodes]
    assert "attention" in names and "softmax" not in names
    q, k, v = (split_heads(given[n], N) for n in "qkv")
    compare(run_reference(graph, given), [plain(q, k, v, 0.5, causal=True)], 2e-5)
