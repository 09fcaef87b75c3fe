from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from planish.compiler.dtypes import BF16, F32
from planish.compiler.errors import CodegenError
from planish.compiler.expr.nodes import Var
from planish.compiler.program import slot_layout
from planish.runtime.interface import Interface, Port, describe, interface_of

from .twice import twice

N = Var("n")


def test_the_interface_of_a_program() -> None:
    program = twice()
    found = interface_of(program)
    assert [str(p) for p in found.inputs] == ["x: f32[n, 4]", "shift: f32[2]"]
    assert [p.default for p in found.inputs] == [False, True]
    assert [str(p) for p in found.outputs] == ["y: f32[n, 4]"]
    assert found.symbols == ("n",)
    assert found.inputs[1].shape == (2,)
    assert isinstance(found.inputs[1].shape[0], int)
    assert found.constants == 3
    assert [s.origin for s in found.steps] == [("first",), ("second", "third")]
    assert found.layout == slot_layout(program)


def test_fixed_sizes_are_numbers() -> None:
    found = interface_of(twice(6))
    assert found.symbols == ()
    assert found.arena_bytes == 160
    assert isinstance(found.arena_bytes, int)
    assert found.outputs[0].shape == (6, 4)


def test_every_symbol_is_a_size_of_an_input() -> None:
    port = Port("x", F32, (N * 2,))
    with pytest.raises(CodegenError, match="no input has the size n"):
        Interface("f", (port,), (), ("n",), (), 0, 0, ())


@pytest.mark.parametrize(
    ("array", "wanted"),
    [
        (np.zeros((2, 3), np.float32), "f32[2, 3]"),
        (np.zeros((), np.int64), "i64[]"),
        (np.zeros(2, bool), "bool[2]"),
        (np.zeros(2, ml_dtypes.bfloat16), f"{BF16}[2]"),
        (np.zeros(2, ">f4"), ">f4[2]"),
        (np.zeros(2, np.complex64), "c64[2]"),
        (np.array(["ab"]), "<U2[1]"),
    ],
)
def test_describe(array: np.ndarray, wanted: str) -> None:
    assert describe(array) == wanted
