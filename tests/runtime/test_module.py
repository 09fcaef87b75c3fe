from __future__ import annotations

import copy
import gc
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from planish.compiler.errors import CodegenError, PlanishError, RuntimeFault, TypeCheckError
from planish.runtime.module import Module

from .twice import expected


def rows(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, 4), dtype=np.float32)


def test_positional_arguments_are_the_inputs_without_default(module: Module) -> None:
    x = rows(8)
    (y,) = module(x)
    np.testing.assert_allclose(y, expected(x), rtol=1e-6, atol=1e-6)
    assert y.dtype == np.float32


def test_named_arguments_may_override_defaults(module: Module) -> None:
    x = rows(3)
    named = module.run({"x": x, "shift": np.float32([5, 7])})
    assert list(named) == ["y"]
    np.testing.assert_allclose(named["y"], expected(x, (5, 7)), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(module.run({"x": x})["y"], expected(x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 17, 1000, 50_000])
def test_one_module_serves_all_sizes(module: Module, n: int) -> None:
    x = rows(n, n)
    np.testing.assert_allclose(module(x)[0], expected(x), rtol=1e-6, atol=1e-6)


def test_fixed_sizes(build: Callable[..., Module]) -> None:
    fixed = build(6)
    x = rows(6)
    np.testing.assert_allclose(fixed(x)[0], expected(x), rtol=1e-6, atol=1e-6)
    with pytest.raises(TypeCheckError, match="dimension 0 must be 6"):
        fixed(rows(5))


def test_zero_rows_give_zero_rows(module: Module) -> None:
    (y,) = module(rows(0))
    assert y.shape == (0, 4)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[::2],
        lambda x: x[::-1],
        lambda x: np.asfortranarray(x),
        lambda x: np.ascontiguousarray(x.T).T,
        lambda x: np.frombuffer(b"\0" + x.tobytes(), np.float32, offset=1).reshape(x.shape),
        lambda x: np.broadcast_to(x[:1], x.shape),
    ],
    ids=["strided", "reversed", "fortran", "transposed", "unaligned", "broadcast"],
)
def test_any_layout_is_read_right(module: Module, view: Callable[[Any], Any]) -> None:
    x = view(rows(8))
    np.testing.assert_allclose(module(x)[0], expected(np.asarray(x)), rtol=1e-6, atol=1e-6)


def test_pickling_says_what_to_do_instead(module: Module) -> None:
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeCheckError, match="cannot be pickled") as caught:
            attempt(module)
        assert "module.save" in str(caught.value)


def test_ports_print_as_they_are_declared(module: Module) -> None:
    assert repr(module.inputs[0]) == f"<{module.inputs[0]}>"
    assert repr(module.inputs[1]).endswith(", has a default>")


def test_read_only_inputs_do(module: Module) -> None:
    x = rows(8)
    x.flags.writeable = False
    np.testing.assert_allclose(module(x)[0], expected(x), rtol=1e-6, atol=1e-6)


class ByDlpack:
    """What has DLPack and nothing else."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_dlpack_inputs(module: Module) -> None:
    x = rows(8)
    np.testing.assert_allclose(module(ByDlpack(x))[0], expected(x), rtol=1e-6, atol=1e-6)
    with pytest.raises(TypeCheckError, match=r"the input x is f64\[8, 4\]"):
        module(ByDlpack(x.astype(np.float64)))


class Elsewhere(ByDlpack):
    """An array on a device."""

    def __dlpack_device__(self) -> Any:
        return (2, 0)

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("on a GPU")


X = rows(8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "1 input is wanted, 0 given"),
        ((X, X), "1 input is wanted, 2 given"),
        ((X.astype(np.float64),), r"the input x is f64\[8, 4\], and must be of f32"),
        ((X.astype(np.int32),), r"the input x is i32\[8, 4\]"),
        ((X.astype(">f4"),), r"the input x is >f4\[8, 4\]"),
        ((np.array("text"),), "the input x is <U4"),
        ((np.array([None]),), r"the input x is object\[1\]"),
        ((X[0],), "2 dimensions are wanted"),
        ((X[None],), "2 dimensions are wanted"),
        ((np.float32(1),), "2 dimensions are wanted"),
        ((X[:, :3],), "dimension 1 must be 4"),
        ((X.tolist(),), "the input x is a list, not an array"),
        ((None,), "the input x is a NoneType, not an array"),
        ((Elsewhere(X),), "cannot be read as an array here: on a GPU"),
        ((np.zeros((100_001, 4), np.float32),), "n <= 100000 does not hold"),
    ],
)
def test_wrong_inputs(module: Module, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(TypeCheckError, match=message):
        module(*arguments)
    np.testing.assert_allclose(module(X)[0], expected(X), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "the input x is missing"),
        ({"x": X, "z": X}, "there is no input z"),
        ({"x": X, "shift": X}, "the input shift is .*1 dimension"),
        ({"x": X, "shift": np.zeros(3, np.float32)}, "the input shift .*dimension 0 must be 2"),
    ],
)
def test_wrong_names(module: Module, inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeCheckError, match=message):
        module.run(inputs)


def test_too_large_an_arena_is_an_error(build: Callable[..., Module]) -> None:
    with pytest.raises(RuntimeFault, match="memory"):
        build(2, arena=1 << 45)(rows(2))
    with pytest.raises(RuntimeFault, match="would take"):
        build(2, arena=1 << 60)(rows(2))


def test_a_symbol_that_no_input_has_is_an_error(build: Callable[..., Module]) -> None:
    from planish.runtime.interface import interface_of

    from .twice import N, twice

    program = twice(6)
    object.__setattr__(program, "symbols", (N,))
    with pytest.raises(CodegenError, match="no input has the size n"):
        interface_of(program)


def test_out_is_written(module: Module) -> None:
    x = rows(8)
    y = np.empty((8, 4), np.float32)
    (given,) = module(x, out=[y])
    assert given is y
    np.testing.assert_allclose(y, expected(x), rtol=1e-6, atol=1e-6)
    wide = np.zeros((8, 8), np.float32)
    module.run({"x": x}, out={"y": wide[:, ::2]})
    np.testing.assert_array_equal(wide[:, ::2], y)
    assert not wide[:, 1::2].any()


def test_out_may_be_the_input(module: Module) -> None:
    x = rows(8)
    wanted = expected(x)
    module(x, out=[x])
    np.testing.assert_allclose(x, wanted, rtol=1e-6, atol=1e-6)


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "out",
    [
        [],
        [np.empty((8, 3), np.float32)],
        [np.empty((8, 4), np.float64)],
        [read_only(np.empty((8, 4), np.float32))],
        [[0.0]],
    ],
)
def test_wrong_out(module: Module, out: Any) -> None:
    with pytest.raises(TypeCheckError, match="out"):
        module(X, out=out)


def test_outputs_belong_to_the_caller(module: Module) -> None:
    """A result stays what it is while it or a view of it lives, whatever is called then."""
    inputs = [rows(10_000, seed) for seed in range(6)]
    kept = []
    for x in inputs:
        (y,) = module(x)
        kept.append(y[5:])
        del y
        module(inputs[0])
    for x, y in zip(inputs, kept, strict=True):
        np.testing.assert_allclose(y, expected(x)[5:], rtol=1e-6, atol=1e-6)


def test_the_memory_of_dropped_outputs_is_used_again(build: Callable[..., Module]) -> None:
    module = build()
    x = rows(50_000)
    places = set()
    for _ in range(10):
        (y,) = module(x)
        places.add(y.ctypes.data)
        del y
    assert len(places) <= 2
    kept = module.stats()["output_bytes_kept"]
    assert 0 < kept <= 2 * 50_000 * 16
    results = [module(x) for _ in range(10)]
    del results
    gc.collect()
    assert module.stats()["output_bytes_kept"] <= 2 * 50_000 * 16
    module.trim()
    assert module.stats()["output_bytes_kept"] == 0


def test_calls_from_many_threads(build: Callable[..., Module]) -> None:
    module = build()
    wrong: list[str] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(100):
            x = rows(int(rng.integers(0, 3000)), int(rng.integers(1 << 30)))
            if not np.allclose(module(x)[0], expected(x), rtol=1e-5, atol=1e-5):
                wrong.append(f"{x.shape}")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []
    stats = module.stats()
    assert stats["calls"] == 800
    assert 1 <= stats["frames"] <= 8
    assert stats["arena_bytes"] <= stats["frames"] * (3000 * 16 + 64)
    module.trim()
    assert module.stats()["arena_bytes"] == 0
    assert module.stats()["calls"] == 800


def test_threads_of_a_call(build: Callable[..., Module]) -> None:
    x = rows(5000)
    for threads in (1, 2, None):
        module = build(threads=threads)
        assert module.threads <= (threads or 1 << 20)
        np.testing.assert_allclose(module(x)[0], expected(x), rtol=1e-6, atol=1e-6)


def test_profile(module: Module) -> None:
    first, second = module.profile({"x": rows(1000)}, repeat=5)
    assert first.nanoseconds.shape == second.nanoseconds.shape == (5,)
    assert first.nanoseconds.min() > 0
    assert first.best_seconds == first.nanoseconds.min() * 1e-9
    step = module.interface.steps[1]
    assert (second.function, second.origin) == (step.function, step.origin)
    assert repr(second).startswith(f"<{step.function} (")
    assert len(module.profile([rows(10)])) == 2
    with pytest.raises(TypeCheckError):
        module.profile([])


def test_stats_and_text(build: Callable[..., Module]) -> None:
    module = build()
    module(rows(10))
    stats = module.stats()
    assert stats["calls"] == 1
    assert stats["arena_bytes"] == stats["arena_bytes_peak"] == 10 * 16 + 64
    assert stats["steps"] == 2
    assert stats["functions"] == 1
    assert stats["code_bytes"] > 0
    assert str(module.inputs[0]) == "x: f32[n, 4]"
    assert repr(module) == "<planish module twice(x: f32[n, 4], shift: f32[2]) -> y: f32[n, 4]>"


def test_errors_are_of_the_family(module: Module) -> None:
    with pytest.raises(PlanishError):
        module(1)
    with pytest.raises(TypeError):
        module(1)
