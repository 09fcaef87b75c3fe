"""Features: what they say of schedules that are known."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from planish.autotune.features import NAMES, features, least_cycles
from planish.autotune.tasks import Task
from planish.compiler.loop.text import parse
from planish.compiler.machine import Machine

from .some import matmul_task, rows_task

MACHINE = Machine("avx2", 32, 16, True, 32 << 10, 512 << 10, 8 << 20, 2)


def of(text: str, threads: int = 2) -> dict[str, float]:
    func = parse(text)
    found = features(func, MACHINE, threads, {}, least_cycles(func, MACHINE, threads, {}))
    return dict(zip(NAMES, map(float, found), strict=True))


PRODUCT = """
def f(x: f32[64, 256], w: f32[4, 256, 16], *, y: f32[64, 64]):
    s = buffer(f32[64, 64], "register")
    for c in parallel(4):
        for r in serial(16):
            for k in serial(256):
                for a in unrolled(4):
                    for v in unrolled(2):
                        for l in vector(8):
                            with block("mul", i=spatial(64, r * 4 + a), j=spatial(64, c * 16 + v * 8 + l), k=reduce(256, k), init=f32(0.0)):
                                s[i, j] += x[i, k] * w[j // 16, k, j % 16]
            for a in unrolled(4):
                for v in unrolled(2):
                    for l in vector(8):
                        with block("store", i=spatial(64, r * 4 + a), j=spatial(64, c * 16 + v * 8 + l)):
                            y[i, j] = s[i, j]
"""  # noqa: E501


def test_a_product_in_registers() -> None:
    f = of(PRODUCT)
    assert f["points"] == pytest.approx(np.log2(1 + 64 * 64 * 256))
    assert f["waste"] == 1.0
    assert (f["lanes"], f["vector_fill"]) == (8.0, 1.0)
    assert f["sums"] == 8.0  # four rows of two vectors
    assert f["sums_share"] == 0.5
    assert f["loads"] == 2.0 + 4.0  # vectors of w, elements of x
    assert f["broadcasts"] == 4.0
    assert f["strided"] == 0.0
    assert f["parallel_trips"] == pytest.approx(np.log2(5))
    assert f["balance"] == 1.0
    assert f["inner_trips"] == pytest.approx(np.log2(257))
    assert f["blocks"] == 2.0
    assert f["other_vector"] == f["other_parallel"] == 1.0
    # A panel of w (16 kB) and four rows of x (4 kB) fit into the nearest cache, all of x does not.
    assert f["l1_fitting_bytes"] == pytest.approx(np.log2(1 + 16 * 256 * 4 + 4 * 256 * 4))
    # All of x and w fit into the second one.
    assert f["l2_traffic"] == pytest.approx(np.log2(1 + 2 * 64 * 256 * 4))


def test_what_makes_a_schedule_bad_is_seen() -> None:
    good = of(PRODUCT)
    serial = of(PRODUCT.replace("parallel(4)", "serial(4)"))
    assert serial["parallel_trips"] == 0.0
    assert serial["balance"] == 2.0
    uneven = of(PRODUCT.replace("parallel(4)", "parallel(3)"))
    assert uneven["balance"] == pytest.approx(4 / 3)
    scalar = of(PRODUCT.replace("vector(8)", "serial(8)"))
    assert scalar["lanes"] == 1.0
    assert scalar["unrolled"] < good["unrolled"]
    strided = of(PRODUCT.replace("w[j // 16, k, j % 16]", "w[j // 16, j % 16, k]")
                 .replace("f32[4, 256, 16]", "f32[4, 16, 256]"))  # fmt: skip
    assert strided["strided"] == 1.0


def test_the_estimate_knows_what_makes_a_schedule_bad() -> None:
    good = of(PRODUCT)
    assert good["arithmetic"] == pytest.approx(0.0, abs=0.01)
    assert good["arithmetic"] < good["main_time"] < good["time"]
    assert of(PRODUCT.replace("parallel(4)", "serial(4)"))["main_time"] == pytest.approx(
        good["main_time"] + 1, abs=0.01
    )
    assert of(PRODUCT.replace("vector(8)", "serial(8)"))["time"] > good["time"] + 1
    one_sum = PRODUCT.replace("unrolled(4)", "serial(4)").replace("unrolled(2)", "serial(2)")
    assert of(one_sum)["latency"] == pytest.approx(good["latency"] + 3)  # one sum instead of eight
    assert of(PRODUCT.replace("parallel(4)", "serial(4)"))["starting"] < good["starting"]


def test_functions_without_loops_have_features() -> None:
    f = of('def f(x: f32[1], *, y: f32[1]):\n    with block("b"):\n        y[0] = x[0]')
    assert f["points"] == 1.0
    assert of("def f(x: f32[1], *, y: f32[0]):\n    pass")["points"] == 0.0


@pytest.mark.parametrize("task", [matmul_task(threads=2), rows_task(2)], ids=lambda t: t.label)
def test_every_point_has_features_of_its_own(task: Task) -> None:
    pick, seen = Random(0), {}
    sizes = dict(zip((v.name for v in task.func.symbols), task.sizes, strict=True))
    shortest = least_cycles(task.func, task.target.machine, 2, sizes)
    for _ in range(25):
        point = task.space.random(pick)
        found = features(point.schedule.func, task.target.machine, 2, sizes, shortest)
        assert found.shape == (len(NAMES),)
        assert np.isfinite(found).all()
        seen[point.schedule.trace] = found.tobytes()
    # Points that differ look different, but for a few that differ in what does not show.
    assert len(set(seen.values())) >= 0.7 * len(seen)
