"""Instruction sets: what is written out for those that lack it, and that nothing is called."""

from __future__ import annotations

import struct
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from planish.compiler.graph.ir import Array
from planish.compiler.loop.text import parse
from planish.compiler.ops.base import Op
from planish.compiler.ops.registry import load_operators
from planish.schedules.rules import default_schedule
from planish.targets.llvm.native import object_code
from planish.targets.llvm.target import Llvm
from planish.targets.target import parse_target

from .more_programs import PROGRAMS
from .running import Batch, function_of, has_loops, lowered, module_text, types_of
from .test_codegen import TARGETS, runnable

load_operators()

CROSS = (
    "llvm -mcpu=haswell -mtriple=x86_64-linux-gnu",
    "llvm -mcpu=znver4 -mtriple=x86_64-linux-gnu",
    "llvm -mcpu=x86-64 -mtriple=x86_64-linux-gnu",
    "llvm -mcpu=cortex-a76 -mtriple=aarch64-linux-gnu",
)


def undefined(code: bytes) -> set[str]:
    """The symbols that ELF object code wants from elsewhere."""
    table, size, count = (
        *struct.unpack_from("<Q", code, 40),
        *struct.unpack_from("<HH", code, 58),
    )
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, table + k * size) for k in range(count)]
    out = set()
    for section in sections:
        if section[1] != 2:  # the symbol table
            continue
        names = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], 24):
            name, _, _, where = struct.unpack_from("<IBBH", code, at)
            if where == 0 and name:
                end = code.index(b"\0", names + name)
                out.add(code[names + name : end].decode())
    return out


@pytest.mark.parametrize("text", CROSS)
def test_code_calls_nothing(text: str) -> None:
    """No function of the C library or of a compiler's runtime is needed by any kernel."""
    target = parse_target(text)
    assert isinstance(target, Llvm)
    functions = [lowered(p.function.with_(name=f"p_{k}")) for k, p in PROGRAMS.items()]
    for name, cls in Op.registry.items():
        op, arrays = next(iter(cls.samples()))
        if not has_loops(op):
            continue
        s = default_schedule(function_of(op, types_of(arrays)), target.machine, 2)
        functions.append(lowered(s.func.with_(name=f"o_{name}")))
    assert undefined(object_code(module_text(functions, target), target)) == set()


CONVERSIONS = {
    "half_to_float": "def f(x: f16[65536], *, y: f32[65536])",
    "bfloat_to_float": "def f(x: bf16[65536], *, y: f32[65536])",
    "float_to_half": "def f(x: f32[n], *, y: f16[n])",
    "float_to_bfloat": "def f(x: f32[n], *, y: bf16[n])",
}


def conversion(head: str) -> str:
    n, dtype = ("65536" if "65536" in head else "n"), head.split("y: ")[1].split("[")[0]
    return f"""
{head}:
    for i in serial({n} // 16):
        for j in vector(16):
            with block("y", i0=spatial({n}, i * 16 + j)):
                y[i0] = cast(x[i0], {dtype})
"""


def floats() -> Array:
    """Every float32 that is exactly a float16, its neighbours and those in the middle; and more."""
    halves = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32).view(np.uint32)
    middle = halves + 0x1000
    rng = np.random.default_rng(0)
    random = rng.integers(0, 1 << 32, 1 << 16, np.uint32)
    return np.concatenate(
        [halves, halves + 1, halves - 1, middle, middle + 1, middle - 1, random]
    ).view(np.float32)


@pytest.mark.parametrize("target", TARGETS)
def test_conversions_of_narrow_floats(target: str) -> None:
    batch = Batch.of({k: parse(conversion(v)) for k, v in CONVERSIONS.items()}, runnable(target))
    every = np.arange(65536, dtype=np.uint16)
    for name, dtype in (("half_to_float", np.float16), ("bfloat_to_float", ml_dtypes.bfloat16)):
        (found,) = batch.run(name, [every.view(dtype)])
        same(found, every.view(dtype).astype(np.float32))
    x = floats()
    for name, dtype in (("float_to_half", np.float16), ("float_to_bfloat", ml_dtypes.bfloat16)):
        (found,) = batch.run(name, [x], {"n": len(x)})
        with np.errstate(all="ignore"):
            same(found, x.astype(dtype))


def same(found: Array, wanted: Array) -> None:
    """Bit for bit, whatever NaN."""
    nan = np.isnan(wanted.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(found.astype(np.float32)), nan)
    bits = np.dtype(f"u{wanted.dtype.itemsize}")
    np.testing.assert_array_equal(found.view(bits)[~nan], wanted.view(bits)[~nan])


FUSED = """
def f(x: {t}[n], y: {t}[n], z: {t}[n], *, w: {t}[n]):
    for i in serial(n // 8):
        for j in vector(8):
            with block("w", i0=spatial(n, i * 8 + j)):
                w[i0] = fma(x[i0], y[i0], z[i0])
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("name", "dtype"), [("f32", np.float32), ("f64", np.float64)])
def test_multiply_add_rounds_once(target: str, name: str, dtype: type) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-2, 2, (2, 4000)).astype(dtype)
    near = np.where(rng.random(4000) < 0.5, -x * y, rng.uniform(-2, 2, 4000)).astype(dtype)
    batch = Batch.of({"f": parse(FUSED.format(t=name))}, runnable(target))
    (found,) = batch.run("f", [x, y, near], {"n": 4000})
    exact = [
        Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        for a, b, c in zip(x, y, near, strict=True)
    ]
    wanted = np.array([float(e) for e in exact])
    if dtype is np.float64:
        np.testing.assert_array_equal(found, wanted)
    else:
        np.testing.assert_allclose(found, wanted.astype(dtype), rtol=1.2e-7, atol=1e-40)
    special = np.array([np.inf, np.nan, 1e300 if dtype is np.float64 else 1e38, -0.0] * 2, dtype)
    (found,) = batch.run("f", [special, special, np.zeros(8, dtype)], {"n": 8})
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, special * special)


ROUNDED = """
def f(x: {t}[n], *, a: {t}[n], b: {t}[n], c: {t}[n], d: {t}[n]):
    for i in serial(n // 8):
""" + "".join(
    f"""        for j in vector(8):
            with block("{r}", i0=spatial(n, i * 8 + j)):
                {r}[i0] = {name}(x[i0])
"""
    for r, name in zip("abcd", ("floor", "ceil", "trunc", "round_even"), strict=True)
)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("name", "dtype"), [("f32", np.float32), ("f64", np.float64)])
def test_rounding_is_exact(target: str, name: str, dtype: type) -> None:
    rng = np.random.default_rng(0)
    special = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, -0.3, 0.3, np.inf, -np.inf, np.nan]
    whole = [2.0**k + d for k in (22, 23, 24, 51, 52, 53) for d in (-0.5, 0.0, 0.5, 1.0)]
    values = [*special, *whole, *(-v for v in whole), *rng.uniform(-9, 9, 400)]
    x = np.array(values[: len(values) // 8 * 8], dtype)
    batch = Batch.of({"f": parse(ROUNDED.format(t=name))}, runnable(target))
    found = batch.run("f", [x], {"n": len(x)})
    for y, function in zip(found, (np.floor, np.ceil, np.trunc, np.rint), strict=True):
        same(y, function(x))
