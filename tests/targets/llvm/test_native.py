from __future__ import annotations

import ctypes
import gc

import pytest

from planish.compiler.errors import CodegenError, RuntimeFault
from planish.targets.llvm.native import PIPELINES, assembly, load_object, object_code
from planish.targets.llvm.target import host
from planish.targets.target import parse_target

ADD = """
@table = private constant [4 x i64] [i64 10, i64 20, i64 30, i64 40]

define i64 @pick(i64 %k) {
  %p = getelementptr [4 x i64], ptr @table, i64 0, i64 %k
  %v = load i64, ptr %p
  ret i64 %v
}
"""
CALLS = """
declare i64 @pick(i64)
define i64 @entry(i64 %k) {
  %v = call i64 @pick(i64 %k)
  %r = add i64 %v, 1
  ret i64 %r
}
"""
NUMBER = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_from_text_to_a_call(pipeline: str) -> None:
    code = load_object(object_code(ADD, host(), pipeline), ["pick"])
    assert NUMBER(code.address("pick"))(2) == 30


def test_modules_are_linked() -> None:
    code = load_object(object_code([CALLS, ADD], host()), ["entry"])
    assert NUMBER(code.address("entry"))(0) == 11


def test_objects_are_linked() -> None:
    objects = (object_code(ADD, host()), object_code(CALLS, host(), level=0))
    assert NUMBER(load_object(objects, ["entry"]).address("entry"))(3) == 41


def test_internal_functions_can_be_exported() -> None:
    hidden = ADD.replace("define i64", "define internal i64")
    with pytest.raises(RuntimeFault, match="pick"):
        load_object(object_code(hidden, host()), ["pick"])
    code = load_object(object_code(hidden, host(), exports=["pick"]), ["pick"])
    assert NUMBER(code.address("pick"))(1) == 20
    with pytest.raises(CodegenError, match="no function other"):
        object_code(hidden, host(), exports=["other"])


def test_many_may_be_loaded_and_go_again() -> None:
    data = object_code(ADD, host())
    loaded = [load_object(data, ["pick"]) for _ in range(50)]
    assert len({code.address("pick") for code in loaded}) == 50
    del loaded[::2]
    gc.collect()
    assert all(NUMBER(code.address("pick"))(0) == 10 for code in loaded)


def test_the_same_text_gives_the_same_bytes() -> None:
    assert object_code([CALLS, ADD], host()) == object_code([CALLS, ADD], host())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("define void @f( {", "expected type"),
        ("define i64 @f() {\n  ret i32 0\n}", "value doesn't match"),
        ("define void @f() {\n  %a = add i64 %b, 1\n  ret void\n}", "undefined value"),
        ("define void @f() {\n  br label %x\n}", "undefined value"),
        ("\0", "LLVM rejects"),
        ("declare i64 @pick(i32)\n" + ADD, "redefinition"),
    ],
)
def test_wrong_text(text: str, message: str) -> None:
    with pytest.raises(CodegenError, match=message):
        object_code(text, host())


def test_the_error_shows_the_line() -> None:
    with pytest.raises(CodegenError) as error:
        object_code("define void @f() {\n  %a = fad float 1.0, 2.0\n  ret void\n}", host())
    assert error.value.node is not None
    assert "fad float" in error.value.node


def test_clashing_modules() -> None:
    with pytest.raises(CodegenError, match="do not fit together"):
        object_code([ADD, ADD], host())
    with pytest.raises(CodegenError, match="no program"):
        object_code([], host())
    with pytest.raises(CodegenError, match="no pipeline"):
        object_code(ADD, host(), "O7")


def test_wrong_object_code() -> None:
    good = object_code(ADD, host())
    for data in (b"", b"\x7fELF", good[:100], good[: len(good) // 2], b"text" * 100):
        with pytest.raises(RuntimeFault, match="cannot be loaded"):
            load_object(data, ["pick"])
    with pytest.raises(RuntimeFault, match="other"):
        load_object(good, ["other"])
    with pytest.raises(RuntimeFault, match="no function other"):
        load_object(good, ["pick"]).address("other")


def test_what_the_process_lacks() -> None:
    with pytest.raises(RuntimeFault, match="cannot be loaded: Failed to materialize"):
        load_object(object_code(CALLS, host()), ["entry"])


@pytest.mark.parametrize(
    ("target", "instruction"),
    [
        ("llvm -mcpu=znver4", "%zmm0"),
        ("llvm -mcpu=haswell", "%ymm0"),
        ("llvm -mcpu=x86-64", "%xmm0"),
        ("llvm -mcpu=cortex-a76 -mtriple=aarch64-linux-gnu", "v0.4s"),
    ],
)
def test_each_target_has_its_vectors(target: str, instruction: str) -> None:
    double = """
    define void @double(ptr %p) {
      %v = load <16 x float>, ptr %p, align 4
      %w = fadd <16 x float> %v, %v
      store <16 x float> %w, ptr %p, align 4
      ret void
    }
    """
    named = parse_target(target if "-mtriple" in target else f"{target} -mtriple=x86_64-linux-gnu")
    assert instruction in assembly(double, named)  # type: ignore[arg-type]
