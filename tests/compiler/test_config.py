from __future__ import annotations

import os
from pathlib import Path

import pytest

from planish.compiler.config import CONFIG, Config
from planish.compiler.errors import ParseError


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in CONFIG:
        monkeypatch.delenv(variable.name, raising=False)


def test_defaults() -> None:
    assert CONFIG.dump == ()
    assert CONFIG.check is False
    assert CONFIG.threads is None
    assert CONFIG.target == "llvm"
    assert CONFIG.logs == ()
    assert CONFIG.cache is None
    assert CONFIG.cache_folder.name == "planish"


@pytest.mark.parametrize(
    ("name", "text", "attribute", "value"),
    [
        ("PLANISH_DUMP", "flatten, narrow", "dump", ("flatten", "narrow")),
        ("PLANISH_CHECK", "1", "check", True),
        ("PLANISH_CHECK", "off", "check", False),
        ("PLANISH_TIME", "yes", "time", True),
        ("PLANISH_THREADS", "3", "threads", 3),
        ("PLANISH_THREADS", "", "threads", None),
        ("PLANISH_TARGET", "interpreter", "target", "interpreter"),
        ("PLANISH_LOGS", f"a{os.pathsep}b", "logs", (Path("a"), Path("b"))),
        ("PLANISH_CACHE", "/x", "cache_folder", Path("/x")),
    ],
)
def test_values_are_read_when_asked_for(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, attribute: str, value: object
) -> None:
    monkeypatch.setenv(name, text)
    assert getattr(CONFIG, attribute) == value


def test_the_cache_lies_in_that_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/y")
    assert CONFIG.cache_folder == Path("/y/planish")


@pytest.mark.parametrize(
    ("name", "text", "attribute"),
    [("PLANISH_THREADS", "many", "threads"), ("PLANISH_THREADS", "0", "threads"),
     ("PLANISH_CHECK", "perhaps", "check")],
)  # fmt: skip
def test_wrong_values_name_the_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, attribute: str
) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(ParseError, match=f"{name} is '{text}'") as caught:
        getattr(CONFIG, attribute)
    assert str(caught.value.hint).startswith("unset it, or correct it: ")


def test_every_variable_has_help() -> None:
    names = [variable.name for variable in CONFIG]
    assert len(names) == len(set(names)) == 7
    assert all(variable.help for variable in CONFIG)
    assert Config.dump.name == "PLANISH_DUMP"
