"""The documents keep their word: commands parse, examples run, links lead somewhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")],
)
# A block marked `text` is no input for anything: pictures, output, synopses.
SHELLS = ("", "sh", "bash", "console")
MODEL_FILES = ("model.onnx", "model.planish", "in.npz")

with_program = pytest.mark.skipif(
    not (ROOT / "src" / "planish" / "cli.py").exists(), reason="there is no program yet"
)


def blocks(document: Path, languages: tuple[str, ...]) -> Iterator[str]:
    """The fenced blocks of a document in these languages."""
    text = document.read_text("utf-8")
    for language, body in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if language in languages:
            yield body


def commands(program: str) -> list[object]:
    """Each documented call of a program, its words without the program's own name."""
    prefix = re.compile(rf"(?:\$ )?(?:\.venv/bin/)?(?:python -m )?{program}\b")
    out: list[object] = []
    for document in DOCUMENTS:
        for block in blocks(document, SHELLS):
            for line in block.replace("\\\n", " ").splitlines():
                if found := prefix.match(line):
                    words = shlex.split(line[found.end() :], comments=True)
                    name = f"{document.stem}: {shlex.join([program, *words])}"
                    out.append(pytest.param(words, id=name))
    return out


@pytest.fixture
def model_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder that holds a small model, y = relu(x @ w + b), under the documents' name."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((16, 8), dtype=np.float32),
        "b": rng.standard_normal(8, dtype=np.float32),
    }
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["product"]),
            helper.make_node("Add", ["product", "b"], ["sum"]),
            helper.make_node("Relu", ["sum"], ["y"]),
        ],
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 8])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    for name in MODEL_FILES:
        (tmp_path / name).touch()  # commands are only parsed; the examples write what they load
    onnx.save(model, tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@with_program
@pytest.mark.parametrize("words", commands("planish"))
def test_commands_parse(words: list[str], model_folder: Path) -> None:
    from planish.cli import build_parser

    build_parser().parse_args(words)  # exits with a message if they are wrong


@pytest.mark.parametrize("words", commands("make"))
def test_make_targets_exist(words: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    assert {word for word in words if "=" not in word} <= targets


@with_program
@pytest.mark.parametrize(
    "example",
    [
        pytest.param(block, id=f"{document.stem} {number}")
        for document in DOCUMENTS
        if document.name != "design.md"  # shows what is planned, too
        for number, block in enumerate(blocks(document, ("python",)))
    ],
)
def test_examples_run(example: str, model_folder: Path) -> None:
    exec(compile(example, "example", "exec"), {"__name__": "example"})


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_links_lead_somewhere(document: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", document.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text)
    local = [link for link in links if not link.startswith(("http://", "https://", "mailto:"))]
    assert [link for link in local if not (document.parent / link).exists()] == []


def test_there_are_documents_and_commands() -> None:
    """A pattern that matches nothing would let all of the above pass."""
    assert len(DOCUMENTS) >= 6
    assert len(commands("planish")) >= 8
    assert len(commands("make")) >= 8
