"""The cases of ONNX's own backend tests, and of folders of the same form."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
from onnx import numpy_helper

from planish.compiler.errors import PlanishError

SUITES: Final = ("node", "simple", "pytorch-converted", "pytorch-operator")
OWN: Final = "cases"  # small graphs that compilers get wrong: the folder beside this file
PEER: Final = "onnxruntime"
Run: TypeAlias = Callable[[list[Any]], Any]
_MOST: Final = 160  # characters of a reason


@dataclass(frozen=True, eq=False)
class Case:
    """A model with inputs and the outputs it must give; ``load`` reads them."""

    suite: str
    name: str
    operator: str  # that it is a case of; "" for whole models
    load: Callable[[], tuple[onnx.ModelProto | Path, list[tuple[list[Any], list[Any]]]]]
    rtol: float
    atol: float


def cases(suite: str) -> list[Case]:
    """The cases of a suite, of the installed ONNX or our own, by name."""
    if suite == OWN:
        return list(folders(Path(__file__).parent / OWN))
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they divide by zero and overflow on purpose
        found = load_model_tests(kind=suite)
    operators = {t.name: _operator(t.model) for t in found if t.model is not None}
    return sorted((_case(suite, t, operators) for t in found), key=lambda c: c.name)


def _case(suite: str, test: Any, operators: dict[str, str]) -> Case:
    if test.model is None:
        return Case(suite, test.name, "", lambda: read(Path(test.model_dir)), test.rtol, test.atol)
    # The same case with the operator's definition in its place, for one of its versions.
    whole = re.sub(r"_expanded(_ver\d+)?$", "", test.name)
    operator = operators.get(whole, operators[test.name])
    sets = [([*map(_array, a)], [*map(_array, b)]) for a, b in test.data_sets]
    return Case(suite, test.name, operator, lambda: (test.model, sets), test.rtol, test.atol)


def _operator(model: onnx.ModelProto) -> str:
    """The operator that a model is about: its only one that makes no constant, or its last."""
    names = [node.op_type for node in model.graph.node]
    others = [name for name in dict.fromkeys(names) if name != "Constant"]
    domains = {node.domain for node in model.graph.node} - {"", "ai.onnx"}
    name = others[-1] if others else (names or [""])[-1]
    return f"{min(domains)}.{name}" if domains else name


def _array(item: Any) -> Any:
    return numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else item


def folders(root: Path) -> Iterator[Case]:
    """Each folder with a ``model.onnx`` and ``test_data_set_*`` as a case."""
    for model in sorted(root.glob("*/model.onnx")):
        folder = model.parent
        yield Case(root.name, folder.name, "", lambda f=folder: read(f), 1e-3, 1e-5)


def read(folder: Path) -> tuple[Path, list[tuple[list[Any], list[Any]]]]:
    """The model of a folder, and its inputs and outputs."""
    path = folder / "model.onnx"
    graph = onnx.load(path, load_external_data=False).graph
    known = {t.name for t in graph.initializer}
    ports = [i for i in graph.input if i.name not in known]
    sets = []
    for data in sorted(folder.glob("test_data_set_*")):
        # Of old models, whose inputs all have a place in the list, those of initialisers are given.
        given = len(list(data.glob("input_*.pb")))
        inputs = ports if given == len(ports) else list(graph.input)[:given]
        sets.append((_values(data, "input", inputs), _values(data, "output", list(graph.output))))
    return path, sets


def _values(folder: Path, kind: str, infos: list[onnx.ValueInfoProto]) -> list[Any]:
    return [_value(folder / f"{kind}_{k}.pb", info) for k, info in enumerate(infos)]


def _value(path: Path, info: onnx.ValueInfoProto) -> Any:
    data = path.read_bytes()
    match info.type.WhichOneof("value"):
        case "sequence_type":
            return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
        case "optional_type":
            return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
        case _:
            return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def outcome(case: Case, target: str, optimize: bool = True) -> str:
    """What comes of a case: "pass", or why not."""
    try:
        model, sets = case.load()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = _by_peer(model) if target == PEER else _by_planish(model, target, optimize)
            for inputs, expected in sets:
                compare(run(inputs), expected, case)
    except AssertionError as error:
        return short(f"wrong: {error}")
    except PlanishError as error:
        op = f"{error.op}: " if error.op else ""
        return short(f"{type(error).__name__}: {op}{error.message}")
    except Exception as error:  # noqa: BLE001  # the user would see it: a fault of its own
        return short(f"not an error of ours: {type(error).__name__}: {error}")
    return "pass"


def _by_planish(model: onnx.ModelProto | Path, target: str, optimize: bool) -> Run:
    from planish import onnx_backend

    return onnx_backend.prepare(model, target=target, optimize=optimize).run


def _by_peer(model: onnx.ModelProto | Path) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    given = str(model) if isinstance(model, Path) else model.SerializeToString()
    session = onnxruntime.InferenceSession(given, options, ["CPUExecutionProvider"])
    names = [port.name for port in session.get_inputs()]

    def run(inputs: list[Any]) -> Any:
        arrays = (np.asarray(x) if isinstance(x, np.generic) else x for x in inputs)
        return session.run(None, dict(zip(names, arrays, strict=False)))

    return run


def compare(outputs: Any, expected: list[Any], case: Case) -> None:
    """As ONNX's own runner compares; in our own cases, what is no float must be the same.

    Errors: AssertionError saying what differs.
    """
    from onnx.backend.test.runner import Runner

    with np.errstate(all="ignore"):
        Runner.assert_similar_outputs(expected, list(outputs), case.rtol, case.atol)
    if case.suite not in SUITES:
        for got, wanted in zip(outputs, expected, strict=True):
            if isinstance(got, np.ndarray) and got.dtype.kind in "biuO":
                np.testing.assert_array_equal(got, wanted)


def short(text: str) -> str:
    """A reason as one line, the same on every machine."""
    line = " ".join(text.split())
    line = re.sub(r"/\S*/", "", line)
    return line if len(line) <= _MOST else line[: _MOST - 3] + "..."
