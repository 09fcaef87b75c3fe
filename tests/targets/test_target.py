from __future__ import annotations

import pytest

from planish.compiler.errors import ParseError
from planish.targets.target import Interpreter, parse_target


def test_the_interpreter() -> None:
    target = parse_target(" interpreter ")
    assert target == Interpreter()
    assert str(target) == "interpreter"
    assert target.machine.isa == "generic"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cuda", "the cuda target is not built yet"),
        ("cuda -arch=sm_90a", "the cuda target is not built yet"),
        ("", "there is no target ''"),
        ("tpu", "there is no target 'tpu'"),
        ("interpreter -x", "there is no target"),
        ("llvm '", "No closing quotation"),
    ],
)
def test_what_is_no_target(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_target(text)
