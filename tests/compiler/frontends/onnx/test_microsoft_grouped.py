"""Grouped attention and rotary positions of ONNX Runtime's domain: by numpy, and by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_harness import check, compare, expected, model_of

from planish import compile as compiled
from planish.compiler.errors import PlanishError
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.graph.attention import compose_attention
from planish.compiler.graph.canonicalize import canonicalize
from planish.compiler.graph.ir import Array
from planish.compiler.graph.reference import run_reference
from planish.compiler.ops.sampling import f32

DOMAIN = "com.microsoft"
B, S, N, M, D = 2, 3, 4, 2, 16
COS, SIN = f32(20, D // 2), f32(2, 20, D // 2)[1]


def model(
    op_type: str, inputs: str, given: Mapping[str, Array], outputs: str = "y",
    symbolic: bool = False, constants: str = "", **attributes: Any,
) -> onnx.ModelProto:  # fmt: skip
    """A node; ``-`` stands for an input or output that is left out."""
    names, wanted = (["" if n == "-" else n for n in s.split()] for s in (inputs, outputs))
    node = helper.make_node(op_type, names, wanted, domain=DOMAIN, **attributes)
    known = {n: given[n] for n in constants.split()}
    free = {n: a for n, a in given.items() if n not in known}
    return model_of(node, free, constants=known, domains={DOMAIN: 1}, symbolic=symbolic)


def turned(x: Array, at: Array, cos: Array, sin: Array, interleaved: bool = False) -> Array:
    """[batch, rows, heads, size] by positions [batch, rows]."""
    pairs = cos.shape[1]
    c, s = cos[at][:, :, None], sin[at][:, :, None]
    out = x.copy()
    a = slice(0, 2 * pairs, 2) if interleaved else slice(0, pairs)
    b = slice(1, 2 * pairs, 2) if interleaved else slice(pairs, 2 * pairs)
    out[..., a] = x[..., a] * c - x[..., b] * s
    out[..., b] = x[..., b] * c + x[..., a] * s
    return out


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_embedding(interleaved: bool) -> None:
    x, at = f32(B, S, N * D), np.array([[0, 1, 2], [5, 7, 3]])
    want = turned(x.reshape(B, S, N, D), at, COS, SIN, interleaved)
    given = {"x": x, "at": at, "c": COS, "s": SIN}
    for made, right in (
        ({}, want.reshape(x.shape)),
        ({"x": x.reshape(B, S, N, D).transpose(0, 2, 1, 3).copy()}, want.transpose(0, 2, 1, 3)),
    ):
        rotated({**given, **made}, right, interleaved=int(interleaved))
    positions = np.array([4])
    want = turned(x.reshape(B, S, N, D), np.array([[4, 5, 6]] * B), COS, SIN, interleaved)
    rotated({**given, "at": positions}, want.reshape(x.shape), interleaved=int(interleaved))
    cos, sin = f32(2, 20, 4)
    want = turned(x.reshape(B, S, N, D), at, cos, sin, interleaved)
    rotated({**given, "c": cos, "s": sin}, want.reshape(x.shape), interleaved=int(interleaved),
            num_heads=N, rotary_embedding_dim=8)  # fmt: skip


def rotated(given: dict[str, Array], want: Array, **attributes: Any) -> None:
    made = model("RotaryEmbedding", "x at c s", given, **attributes)
    (theirs,) = expected(made, given)
    compare([theirs], [want], 2e-5)
    check(made, given, want=[theirs], tolerance=2e-5)
    if given["at"].shape != (1,):
        made = model("RotaryEmbedding", "x at c s", given, symbolic=True, **attributes)
        check(made, given, want=[theirs], tolerance=2e-5)


def test_positions_out_of_the_tables() -> None:
    """They read the nearest row, or count from the end."""
    given = {"x": f32(1, 3, D), "at": np.array([[25, -1, -40]]), "c": COS, "s": SIN}
    want = turned(given["x"][:, :, None], np.array([[19, 19, 0]]), COS, SIN)[:, :, 0]
    made = model("RotaryEmbedding", "x at c s", given)
    compare(compiled(made, target="interpreter")(*given.values()), [want], 2e-5)


def grouped(given: Mapping[str, Array], total: int, how: Mapping[str, Any]) -> list[Array]:
    """Output, keys and values by the definition, one query at a time."""
    q, k, v, lengths = (given[n] for n in ("q", "k", "v", "n"))
    batch, rows = q.shape[:2]
    queries = q.reshape(batch, rows, N, D)
    fresh = [k.reshape(batch, rows, M, D), v.reshape(batch, rows, M, D)]
    first = np.zeros(batch, int) if rows == total else lengths + 1 - rows
    if how.get("do_rotary"):
        at = first[:, None] + np.arange(rows)
        if "at" in given:
            at = given["at"] if rows < total else given["at"][0, 0] + np.arange(rows)[None]
            at = np.broadcast_to(at, (batch, rows))
        turn = bool(how.get("rotary_interleaved"))
        queries, fresh[0] = (turned(x, at, COS, SIN, turn) for x in (queries, fresh[0]))
    held = given["pk"].shape[2] if "pk" in given else 0
    kept = [np.zeros((batch, M, max(held, total), D), np.float32) for _ in range(2)]
    for x, name, new in zip(kept, ("pk", "pv"), fresh, strict=True):
        if held:
            x[:, :, :held] = given[name]
        for b in range(batch):
            x[b, :, first[b] : first[b] + rows] = new[b].transpose(1, 0, 2)
    out = np.zeros((batch, rows, N, D), np.float32)
    window, cap = how.get("local_window_size", -1), how.get("softcap", 0)
    for b in range(batch):
        for h in range(N):
            for row in range(rows):
                at = first[b] + row
                end = at + 1 if how.get("causal", 1) else int(lengths[b]) + 1
                seen = slice(max(0, end - window) if window > 0 else 0, end)
                keys, values = (x[b, h // (N // M), seen] for x in kept)
                s = keys @ queries[b, row, h] * how.get("scale", D**-0.5)
                s = cap * np.tanh(s / cap) if cap else s
                if "add" in given:
                    whole = np.broadcast_to(given["add"], (batch, N, rows, total))
                    s = s + whole[b, h, row, seen]
                e = np.exp(s)
                if how.get("smooth_softmax") or "sink" in given:
                    sink = given["sink"][h] if "sink" in given else 0.0
                    out[b, row, h] = e @ values / (e.sum() + np.exp(sink))
                else:
                    out[b, row, h] = e @ values / e.sum()
    return [out.reshape(batch, rows, N * D), *kept]


Q, (K, V) = f32(B, S, N * D), f32(2, B, S, M * D)
PAST = f32(2, B, M, 6, D)
PROMPT = {"q": Q, "k": K, "v": V, "n": np.array([2, 2], np.int32)}
EMPTY = {**PROMPT, "pk": PAST[0][:, :, :0], "pv": PAST[1][:, :, :0]}
TOKEN = {
    "q": Q[:, :1], "k": K[:, :1], "v": V[:, :1], "pk": PAST[0], "pv": PAST[1],
    "n": np.array([6, 4], np.int32),
}  # fmt: skip
ORDER = ("q", "k", "v", "pk", "pv", "n", "t", "c", "s", "at", "add", "sink")


def judged(given: Mapping[str, Array], total: int, **how: Any) -> None:
    """As far as anything is said of the results: of rows of which there is a key."""
    given = {**given, "t": np.array(total, np.int32)}
    if how.get("do_rotary"):
        given |= {"c": COS, "s": SIN}
    given = {n: np.ascontiguousarray(given[n]) for n in ORDER if n in given}
    inputs = " ".join(n if n in given else "-" for n in ORDER)
    attributes: dict[str, Any] = {"num_heads": N, "kv_num_heads": M, **how}
    made = model("GroupQueryAttention", inputs, given, "y k2 v2", **attributes)
    want = grouped(given, total, how)
    close(given, want, expected(made, given))
    for constants, symbolic in (("", False), ("t", False), ("", True)):
        if symbolic and "add" in given and 1 in given["add"].shape:
            continue  # a symbol is taken not to be 1
        made = model("GroupQueryAttention", inputs, given, "y k2 v2", symbolic, constants,
                     **attributes)  # fmt: skip
        free = {n: a for n, a in given.items() if n not in constants.split()}
        close(given, want, run_reference(import_model(made), free))


def close(given: Mapping[str, Array], want: list[Array], got: Any) -> None:
    rows = given["q"].shape[1]
    for b, length in enumerate(given["n"]):
        there = rows if "pk" in given and given["pk"].shape[2] else min(rows, length + 1)
        compare([got[0][b, :there]], [want[0][b, :there]], 2e-5)
        for x, y in zip(got[1:], want[1:], strict=True):
            assert x.shape == y.shape
            compare([x[b, :, : length + 1]], [y[b, :, : length + 1]], 2e-5)


def test_a_prompt() -> None:
    judged(PROMPT, 3)
    judged(EMPTY, 3)
    judged({**EMPTY, "n": np.array([2, 1], np.int32)}, 3)
    buffer = dict(zip(("pk", "pv"), f32(2, B, M, 8, D), strict=True))
    judged({**PROMPT, **buffer}, 3)


def test_a_token() -> None:
    judged(TOKEN, 7)
    judged({**TOKEN, "n": np.array([6, 6], np.int32)}, 7)
    judged({**TOKEN, "n": np.array([4, 2], np.int32)}, 5)


def test_a_chunk() -> None:
    chunk = {"q": Q[:1], "k": K[:1], "v": V[:1], "pk": PAST[0][:1], "pv": PAST[1][:1]}
    judged({**chunk, "n": np.array([8], np.int32)}, 9, do_rotary=1)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_with_positions(interleaved: int) -> None:
    how = {"do_rotary": 1, "rotary_interleaved": interleaved}
    judged(PROMPT, 3, **how)
    judged(TOKEN, 7, **how)
    judged({**TOKEN, "at": np.array([[2], [9]])}, 7, **how)
    judged({**PROMPT, "at": np.array([[4, 1, 2], [5, 7, 9]])}, 3, **how)


@pytest.mark.parametrize(
    "how",
    [
        {"local_window_size": 2},
        {"softcap": 1.5},
        {"scale": 0.125},
        {"smooth_softmax": 1},
        {"causal": 0},
    ],
)
def test_scores(how: dict[str, Any]) -> None:
    judged(PROMPT, 3, **how)
    judged(TOKEN, 7, **how)


def test_what_is_added() -> None:
    judged({**TOKEN, "add": f32(B, N, 1, 7)}, 7, softcap=1.5)
    judged({**TOKEN, "add": f32(1, 1, 1, 7)}, 7)
    judged({**PROMPT, "add": f32(1, N, 3, 3)}, 3)
    judged({**TOKEN, "sink": f32(N)}, 7)


def test_packed() -> None:
    """Queries, keys and values in one, as ONNX Runtime's builder makes them."""
    packed = {"x": np.concatenate([Q, K, V], -1), "n": PROMPT["n"], "t": np.array(3, np.int32)}
    attributes = {"num_heads": N, "kv_num_heads": M}
    want = expected(model("GroupQueryAttention", "x - - - - n t", packed, **attributes), packed)
    compare(want, grouped(PROMPT, 3, {})[:1], 2e-5)
    for symbolic in (False, True):
        made = model("GroupQueryAttention", "x - - - - n t", packed, symbolic=symbolic,
                     **attributes)  # fmt: skip
        check(made, packed, want=want, tolerance=2e-5)


def test_normalised_heads() -> None:
    """Which ONNX Runtime has for GPUs only."""
    given = {**PROMPT, "t": np.array(3, np.int32), "qn": f32(D), "kn": f32(D)}
    inputs = "q k v - - n t " + "- " * 7 + "qn kn"
    made = model("GroupQueryAttention", inputs, given, num_heads=N, kv_num_heads=M,
                 qk_norm_epsilon=1e-5)  # fmt: skip

    def normal(x: Array, heads: int, weight: Array) -> Array:
        x = x.reshape(B, S, heads, D)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight
        return x.reshape(B, S, heads * D)

    plain = {**PROMPT, "q": normal(Q, N, given["qn"]), "k": normal(K, M, given["kn"])}
    check(made, given, want=grouped(plain, 3, {})[:1], tolerance=2e-5)


@pytest.mark.parametrize(
    ("inputs", "attributes", "message"),
    [
        ("q k v - - n t", {"kv_num_heads": 3}, "4 heads cannot share 3"),
        ("q k - - - n t", {}, "belong together"),
        ("q k v pk - n t", {}, "belong together"),
        ("q k v - - n t", {"qk_output": 1}, "qk_output is 1"),
        ("q k v - - n t", {"k_quant_type": "PER_TENSOR"}, "k_quant_type is PER_TENSOR"),
        ("q k v - - n t", {"causal": 0, "local_window_size": 2}, "local_window_size is 2"),
        ("q k v - - n t - - - - - - - - - n", {}, "query_seqlens"),
        ("q k v - - n t", {"do_rotary": 1}, "input 7 is missing"),
    ],
)
def test_what_is_refused(inputs: str, attributes: dict[str, Any], message: str) -> None:
    given = {**TOKEN, **PROMPT, "t": np.array(3, np.int32)}
    given = {n: given[n] for n in dict.fromkeys(inputs.split()) if n != "-"}
    attributes = {"num_heads": N, "kv_num_heads": M, **attributes}
    with pytest.raises(PlanishError, match=message):
        import_model(model("GroupQueryAttention", inputs, given, **attributes))


@pytest.mark.parametrize("symbolic", [False, True])
def test_it_becomes_one_operator(symbolic: bool) -> None:
    """Keys are not repeated for the heads that share them."""
    given = {**TOKEN, "q": f32(B, 9, N * D), "k": f32(B, 9, M * D), "v": f32(B, 9, M * D)}
    given |= {"n": np.array([8, 8], np.int32), "t": np.array(9, np.int32)}
    made = model("GroupQueryAttention", "q k v pk pv n t", given, symbolic=symbolic, num_heads=N,
                 kv_num_heads=M, scale=0.5)  # fmt: skip
    graph = compose_attention(canonicalize(import_model(made)))
    names = [node.op.name for node in graph.nodes]
    assert "attention" in names and "softmax" not in names
    want = grouped(given, 9, {"scale": 0.5})[:1]
    compare(run_reference(graph, given), want, 2e-5)


@pytest.mark.parametrize("lengths", [(-5, 1 << 30), (-(1 << 31), (1 << 31) - 1)])
@pytest.mark.parametrize("total", [0, 1, 7, 12])
def test_lengths_that_nothing_has(lengths: tuple[int, int], total: int) -> None:
    """They read and write nothing outside of the cache."""
    given = {**TOKEN, "n": np.array(lengths, np.int32), "t": np.array(total, np.int32)}
    given |= {"c": COS, "s": SIN}
    given = {n: np.ascontiguousarray(given[n]).reshape(given[n].shape) for n in ORDER if n in given}
    made = model("GroupQueryAttention", "q k v pk pv n t c s", given, "y k2 v2", num_heads=N,
                 kv_num_heads=M, do_rotary=1)  # fmt: skip
    y, keys, _ = compiled(made, target="interpreter")(*given.values())
    assert np.isfinite(y).all()
    assert keys.shape == (B, M, max(6, total), D)
