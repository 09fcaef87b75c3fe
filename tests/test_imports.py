"""Imports go down: the packages' picture in docs/design.md, held to by reading every import."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FACE = ROOT / "src" / "planish"

# What each package may import besides itself. Only the modules directly in src/planish may
# import all of them.
BELOW: dict[str, set[str]] = {
    "compiler": set(),
    "schedules": {"compiler"},
    "targets": {"compiler"},
    "runtime": {"compiler", "targets"},
    "autotune": {"compiler", "schedules", "targets", "runtime"},
    "serving": {"runtime"},
}


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of planish, as its dotted name and its file."""
    for file in sorted(FACE.glob("*.py")):
        yield dotted(file.relative_to(FACE)), file
    for package in BELOW:
        # The link itself is named here: a walk from above would not follow it.
        for file in sorted((FACE / package).rglob("*.py")):
            yield dotted(file.relative_to(FACE)), file


def dotted(file: Path) -> str:
    return ".".join(("planish", *file.with_suffix("").parts))


def imports(name: str, tree: ast.AST) -> Iterator[tuple[int, int, str, list[str]]]:
    """Each import of module ``name``: line, relative level, absolute module, names from it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, 0, alias.name, []
        elif isinstance(node, ast.ImportFrom):
            base = name.split(".")[: -node.level] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield node.lineno, node.level, module, [alias.name for alias in node.names]


def faults(name: str, source: str) -> list[str]:
    """What module ``name`` imports against the rules, each as ``line: what``."""
    out = []
    parts = name.split(".")
    own = parts[1] if len(parts) > 2 else None  # None: a module of the public face
    for line, level, module, names in imports(name, ast.parse(source)):
        if level > 1:
            out.append(f"{line}: a relative import that goes up")
        if module.split(".")[0] != "planish":
            continue
        # `from planish import runtime` is an import of planish.runtime.
        whole = [f"planish.{n}" for n in names] if module == "planish" and names else [module]
        for imported in whole:
            target = [*imported.split("."), ""][1]
            if own is not None and target not in {own, "version", *BELOW[own]}:
                out.append(f"{line}: {own} may not import {imported}")
        path = [*module.split("."), *names]
        package = module if (FACE / Path(*module.split(".")[1:])).is_dir() else parent(module)
        if any(private(part) for part in path) and not name.startswith(package + "."):
            out.append(f"{line}: {module} keeps {[p for p in path if private(p)]} to itself")
    return out


def parent(module: str) -> str:
    return module.rpartition(".")[0]


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@pytest.mark.parametrize(("name", "file"), [pytest.param(n, f, id=n) for n, f in modules()])
def test_imports_go_down(name: str, file: Path) -> None:
    assert faults(name, file.read_text("utf-8")) == []


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("planish.cli", "from planish.autotune.search import tune"),
        ("planish.compiler.graph.fold", "from .ir import Graph, _walk"),
        ("planish.compiler.graph.fold", "from planish.compiler.loop import ir"),
        ("planish.compiler.graph.fold", "from planish.version import __version__"),
        ("planish.targets.llvm.emit", "from planish.compiler.loop.ir import Func"),
        ("planish.runtime.executor", "import planish.targets.llvm"),
        ("planish.serving.server", "from planish import runtime"),
        ("planish.compiler.loop.ir", "import islpy as isl, numpy as np"),
    ],
)
def test_what_may_be_imported(name: str, line: str) -> None:
    assert faults(name, line) == []


@pytest.mark.parametrize(
    ("name", "line", "fault"),
    [
        ("planish.compiler.graph.fold", "from ..loop import ir", "1: a relative import"),
        ("planish.compiler.pipeline", "import planish.targets.llvm", "1: compiler may not import"),
        ("planish.compiler.pipeline", "from planish import runtime", "1: compiler may not import"),
        ("planish.compiler.pipeline", "from planish import compile", "1: compiler may not import"),
        ("planish.compiler.pipeline", "import planish", "1: compiler may not import planish"),
        ("planish.targets.llvm.emit", "from planish.schedules import split", "1: targets may not"),
        ("planish.serving.server", "from planish.compiler import errors", "1: serving may not"),
        ("planish.runtime.executor", "def f():\n    import planish.cli", "2: runtime may not"),
        ("planish.targets.base", "from planish.compiler.loop import _x", "1: planish.compiler.lo"),
        ("planish.compiler.graph.ir", "from planish.compiler.loop._x import y", "1: planish.comp"),
    ],
)
def test_what_may_not_be_imported(name: str, line: str, fault: str) -> None:
    (found,) = faults(name, line)
    assert found.startswith(fault)


def core_packages() -> set[str]:
    """The import names of what a plain `pip install planish` brings along."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return {re.split(r"[^\w-]", wanted)[0] for wanted in project["dependencies"]}


@pytest.mark.parametrize(("name", "file"), [pytest.param(n, f, id=n) for n, f in modules()])
def test_optional_imports_are_lazy(name: str, file: Path) -> None:
    """At a module's top level: the standard library, planish, and the core dependencies."""
    known = {"planish", *core_packages(), *sys.stdlib_module_names}
    tree = ast.parse(file.read_text("utf-8"))
    top = ast.Module([node for node in tree.body if not isinstance(node, ast.If)], [])
    for node in ast.walk(top):  # what a function imports, it imports when it is called
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = []
    assert {m.split(".")[0] for _, level, m, _ in imports(name, top) if not level} <= known


def test_each_package_is_linked_by_a_relative_link() -> None:
    if not (ROOT / "compiler").is_dir():
        pytest.skip("an unpacked sdist has the packages themselves under src/planish")
    for package in BELOW:
        link = FACE / package
        assert link.is_symlink()
        assert link.readlink() == Path("..", "..", package)


def test_every_folder_of_modules_is_a_package() -> None:
    folders = {file.parent for _, file in modules()}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_onnx_neither_checks_nor_infers() -> None:
    """A file can crash ONNX's checker and its inference of shapes."""
    for name, file in modules():
        tree = ast.parse(file.read_text("utf-8"))
        said = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        said |= {n for _, _, module, names in imports(name, tree) for n in (module, *names)}
        assert not {"check_model", "checker", "infer_shapes", "onnx.checker"} & said, name
