"""The documents keep their word: commands and examples run, quotes are true, links lead on."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import onnx
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "docs"))

import generate
import layer  # generate knows where it is

import planish
from planish.cli import OK, build_parser, main

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")])
ERRORS = ROOT / "docs" / "errors.md"
# A block marked `text` is no input for anything: pictures, output, synopses, what is planned.
SHELLS = ("", "sh", "bash", "console")
SUBCOMMANDS = re.findall(r"^planish (\w+)", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)


def blocks(document: Path, languages: tuple[str, ...]) -> Iterator[str]:
    """The fenced blocks of a document in these languages."""
    text = document.read_text("utf-8")
    for language, body in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if language in languages:
            yield body


def calls(document: Path, program: str) -> list[list[str]]:
    """Each call of a program in a document, its words without the program's own name."""
    prefix = re.compile(rf"(?:\$ )?(?:\.venv/bin/)?(?:python -m )?{program}\b")
    out = []
    for block in blocks(document, SHELLS):
        for line in block.replace("\\\n", " ").splitlines():
            if found := prefix.match(line):
                out.append(shlex.split(line[found.end() :], comments=True))
    return out


def commands(program: str) -> list[object]:
    """The calls of a program in all documents."""
    return [
        pytest.param(words, id=f"{document.stem}: {shlex.join([program, *words])}")
        for document in DOCUMENTS
        for words in calls(document, program)
    ]


@pytest.fixture
def model_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder that holds what ``python examples/layer.py`` writes."""
    layer.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ------------------------------------------------------------------------------------ commands


@pytest.mark.parametrize(
    "document", [d for d in DOCUMENTS if calls(d, "planish")], ids=lambda d: d.stem
)
def test_commands_run(document: Path, model_folder: Path) -> None:
    """One after the other, in one folder."""
    for words in calls(document, "planish"):
        if "onnxruntime" in words:
            pytest.importorskip("onnxruntime")
        quick = ["--seconds", "0.02"] if words[0] == "bench" else []
        assert main([*words, *quick]) == OK, shlex.join(words)


@pytest.mark.parametrize(
    "document", [d for d in DOCUMENTS if d.name != "design.md"], ids=lambda d: d.stem
)
def test_commands_in_the_text_parse(document: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", document.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for line in re.findall(r"`planish ((?:\w+) [^`]+)`", text):
        build_parser().parse_args(shlex.split(line))  # exits with a message if they are wrong


@pytest.mark.parametrize("words", commands("make"))
def test_make_targets_exist(words: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    variables = set(re.findall(r"^([A-Z]+) \?=", makefile, re.MULTILINE))
    assert {word for word in words if "=" not in word} <= targets
    assert {word.partition("=")[0] for word in words if "=" in word} <= variables


@pytest.mark.parametrize("words", commands("python"))
def test_scripts_exist_and_have_their_options(words: list[str]) -> None:
    script, options = ROOT / words[0], {w for w in words if w.startswith("--")}
    assert script.exists()
    if options:
        command = [sys.executable, str(script), "--help"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        assert options <= set(re.findall(r"--\w+", done.stdout))


def test_every_command_is_documented() -> None:
    (choices,) = (a.choices for a in build_parser()._actions if a.dest == "command")
    assert set(choices or ()) == set(SUBCOMMANDS)


# ------------------------------------------------------------------------------------ examples


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(block, id=f"{document.stem} {number}")
        for document in DOCUMENTS
        if document not in (ROOT / "docs" / "design.md", ERRORS)
        for number, block in enumerate(blocks(document, ("python",)))
    ],
)
def test_examples_run(example: str, model_folder: Path) -> None:
    exec(compile(example, "example", "exec"), {"__name__": "example"})


def sections() -> list[object]:
    """Each class of errors in the document: programs that raise it, and what it says."""
    out = []
    for section in re.split(r"^## ", ERRORS.read_text("utf-8"), flags=re.MULTILINE)[1:]:
        name, rest = section.split("\n", 1)
        found = re.findall(r"^```python\n(.*?)^```\n+^```text\n(.*?)^```", rest, re.M | re.S)
        assert found, name
        for number, (program, said) in enumerate(found):
            out.append(pytest.param(name, program, said, id=f"{name} {number}"))
    return out


@pytest.mark.parametrize(("name", "program", "said"), sections())
def test_errors_are_as_documented(name: str, program: str, said: str, model_folder: Path) -> None:
    kind = getattr(planish, name)
    with pytest.raises(kind) as caught:
        exec(compile(program, "example", "exec"), {"__name__": "example"})
    assert type(caught.value) is kind
    assert f"{caught.value}\n" == said
    base = kind.__mro__[2].__name__
    assert f"| [`{name}`](#{name.lower()}) | `{base}` |" in ERRORS.read_text("utf-8")


def test_every_class_of_errors_is_documented() -> None:
    names = {name for name in planish.__all__ if name.endswith(("Error", "Fault"))}
    text = ERRORS.read_text("utf-8")
    assert names - {"PlanishError"} == set(re.findall(r"^## (\w+)$", text, re.MULTILINE))


# -------------------------------------------------------------------------------------- quotes


@cache
def parts(document: str) -> dict[str, str]:
    """What stands in a document between marks, by name."""
    text = (ROOT / document).read_text("utf-8")
    return dict(re.findall(r"<!-- table: (.+?) -->\n(.*?)<!-- end -->", text, re.DOTALL))


@pytest.mark.parametrize(("document", "part", "make"), generate.PARTS)
def test_quotes_are_what_the_program_says(document: str, part: str, make: object) -> None:
    if document == "docs/operators.md" and onnx.__version__ not in parts(document)["version"]:
        pytest.skip(f"the list is of another ONNX than {onnx.__version__}")
    assert callable(make)
    assert parts(document)[part].strip() == make().strip(), "`make docs` brings it up to date"


def quoted(part: str) -> str:
    """A program that docs/ir.md shows."""
    found = re.search(r"```text\n(.*?)```", parts("docs/ir.md")[part], re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("part", ["graph", "fused"])
def test_quoted_graphs_parse(part: str) -> None:
    from planish.compiler.graph.text import parse, show

    text = quoted(part)
    w = onnx.numpy_helper.to_array(layer.layer().graph.initializer[0])
    without_comments = re.sub(r"^ +#.*\n", "", text, flags=re.MULTILINE)
    assert show(parse(text, {"w": w})) == without_comments


def test_the_quoted_trace_makes_the_quoted_loops() -> None:
    from planish.compiler.loop.text import parse, show
    from planish.schedules.schedule import parse_trace, replay

    lowered, scheduled = (quoted(part).strip() for part in ("lowered", "loops"))
    trace = "\n".join(re.findall(r"^# {5}(.+)$", scheduled, re.MULTILINE))
    made = replay(parse(lowered), parse_trace(trace))
    assert show(made.func) == scheduled[scheduled.index("def ") :]


# --------------------------------------------------------------------------------------- links


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_links_lead_somewhere(document: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", document.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)]+)\)", text):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        assert target.exists(), link
        if anchor:
            titles = re.findall(r"^#+ (.+)$", target.read_text("utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", t.lower()).replace(" ", "-") for t in titles}


def test_hints_name_packages_of_the_index() -> None:
    """planish itself is installed from its folder, so that ``planish[extra]`` names nothing."""
    wanted = set(re.findall(r'"([\w\[\]-]+)>=', (ROOT / "pyproject.toml").read_text("utf-8")))
    folders = ("compiler", "schedules", "targets", "runtime", "autotune", "src/planish")
    sources = [p for folder in folders for p in (ROOT / folder).rglob("*.py")]
    said = [
        name for p in sources for name in re.findall(r'hint="pip install ([^"]+)"', p.read_text())
    ]
    assert len(said) >= 3
    assert set(said) <= wanted


def test_there_are_documents_and_commands() -> None:
    """A pattern that matches nothing would let all of the above pass."""
    assert len(DOCUMENTS) >= 8
    assert len(calls(ROOT / "README.md", "planish")) >= 8
    assert len(commands("make")) >= 8
    assert len(commands("python")) >= 4
