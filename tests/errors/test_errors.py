"""What a user sees for bad inputs: the whole text of each error, as ``messages.txt`` has it.

For uses of the program that is its exit code, and what it prints.

``python tests/errors/test_errors.py`` writes that file again; read the difference.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

from errors import (
    bad_calls,
    bad_files,
    bad_graphs,
    bad_models,
    bad_operators,
    bad_options,
    bad_usage,
    wrong_kinds,
)
from errors.cases import CASES
from planish.compiler.errors import InternalError, PlanishError

# Imported for their cases.
assert all((bad_models, bad_operators, bad_graphs, bad_options, bad_calls, bad_files, bad_usage))
assert wrong_kinds

TABLE = Path(__file__).parent / "messages.txt"
HEAD = """\
# What a user sees for each bad input of tests/errors: the error's class, and its text.
# Written by `python tests/errors/test_errors.py`.
"""


def outcome(case: Callable[[Path], object]) -> str:
    """The error that a case ends in, without what is different on another machine."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = case(Path(folder))
        except PlanishError as error:
            assert not isinstance(error, InternalError), error
            return f"{type(error).__name__}\n{neutral(str(error), folder)}"
        except bad_usage.Said as said:
            return neutral(str(said), folder)
    raise AssertionError(f"there was no error, but {found!r}")


def neutral(text: str, folder: str) -> str:
    text = text.replace(folder, "FOLDER")
    text = re.sub(r"(invalid choice: '\w+') \(choose from .*", r"\1 (choose from ...)", text)
    text = re.sub(r"(duplicate definition of symbol) '\w+'", r"\1 (one of them)", text)
    text = re.sub(r"(only a part of one): .*", r"\1: (what protobuf says)", text)
    return re.sub(r"(this one lacks) .*", r"\1 (what this machine lacks)", text)


def table() -> dict[str, str]:
    """The texts that are expected, by the cases' names."""
    parts = re.split(r"^== (\w+)$\n", TABLE.read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], (p.strip() for p in parts[2::2]), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_message(name: str) -> None:
    assert outcome(CASES[name]) == table()[name]


def test_every_text_has_a_case() -> None:
    assert list(table()) == list(CASES)


def test_errors_survive_pickling() -> None:
    import pickle

    for name in ("cycle", "argument_of_another_shape", "module_file_of_a_newer_planish"):
        with tempfile.TemporaryDirectory() as folder, pytest.raises(PlanishError) as caught:
            CASES[name](Path(folder))
        again = pickle.loads(pickle.dumps(caught.value))
        assert type(again) is type(caught.value)
        assert str(again) == str(caught.value)


def write() -> None:
    parts = [f"== {name}\n{outcome(case)}\n" for name, case in CASES.items()]
    TABLE.write_text("\n".join([HEAD, *parts]), "utf-8")


if __name__ == "__main__":
    write()
