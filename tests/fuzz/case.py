"""A case: a model, inputs for a few calls of it, and the right outputs where they are known.

Its file is ONNX's text form of the model. The arrays stand in comments above it, as JSON, which
keeps every bit of them: `# constant`s are the model's initialisers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper, parser, printer

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]

_LINE: Final = re.compile(r"# (\w+)(?:\[(\d+)\])? (\S+) (\w+)\[([\d, ]*)\] = (.*)")


@dataclass(frozen=True, eq=False)
class Case:
    """``calls`` are inputs by name, one mapping a call; ``wanted`` the outputs of the first."""

    model: onnx.ModelProto
    calls: tuple[Arrays, ...]
    note: str = ""
    wanted: Arrays = field(default_factory=dict)

    def with_model(self, model: onnx.ModelProto) -> Case:
        return replace(self, model=model)

    @property
    def operators(self) -> list[str]:
        return [f"{node.domain}.{node.op_type}".lstrip(".") for node in self.model.graph.node]


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Arrays,
    constants: Arrays,
    outputs: Sequence[str],
    opsets: Mapping[str, int],
) -> onnx.ModelProto:
    """A model of fixed sizes; its outputs are declared by name only."""
    graph = helper.make_graph(
        list(nodes),
        "fuzz",
        [helper.make_tensor_value_info(n, code_of(a), a.shape) for n, a in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [tensor_of(a, n) for n, a in constants.items()],
    )
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    model = helper.make_model(graph, opset_imports=imports)
    model.ir_version = min(model.ir_version, 10)
    return model


def code_of(array: Array) -> int:
    return 8 if array.dtype == object else helper.np_dtype_to_tensor_dtype(array.dtype)


def tensor_of(array: Array, name: str) -> onnx.TensorProto:
    if array.dtype == object:
        flat = [str(s).encode() for s in array.reshape(-1)]
        return helper.make_tensor(name, 8, array.shape, flat)
    return numpy_helper.from_array(array, name)


def initializers(model: onnx.ModelProto) -> dict[str, Array]:
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}


def with_constants(model: onnx.ModelProto, constants: Arrays) -> onnx.ModelProto:
    out = onnx.ModelProto()
    out.CopyFrom(model)
    del out.graph.initializer[:]
    out.graph.initializer.extend(tensor_of(a, n) for n, a in constants.items())
    return out


# ------------------------------------------------------------------------------------------ text


def dtype_named(name: str) -> np.dtype[Any]:
    if name == "string":
        return np.dtype(object)
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def _line(kind: str, name: str, array: Array) -> str:
    dtype = "string" if array.dtype == object else array.dtype.name
    flat: Any = array.reshape(-1)
    if array.dtype.kind == "c":
        flat = [[float(v.real), float(v.imag)] for v in flat]
    elif array.dtype == object:
        flat = [v.decode() if isinstance(v, bytes) else str(v) for v in flat]
    elif dtype.startswith(("int", "uint")):
        flat = [int(v) for v in flat]
    elif dtype == "bool":
        flat = [bool(v) for v in flat]
    else:
        flat = [float(v) for v in flat]
    shape = ", ".join(map(str, array.shape))
    return f"# {kind} {name} {dtype}[{shape}] = {json.dumps(flat)}"


def to_text(case: Case) -> str:
    """The text of a case's file."""
    lines = [f"# {line}" for line in case.note.splitlines()]
    lines += [_line("constant", n, a) for n, a in initializers(case.model).items()]
    for k, call in enumerate(case.calls):
        lines += [_line(f"input[{k}]", n, a) for n, a in call.items()]
    lines += [_line("wanted", n, a) for n, a in case.wanted.items()]
    body: str = printer.to_text(with_constants(case.model, {}))
    return "\n".join((*lines, body.strip(), ""))


def from_text(text: str) -> Case:
    """The case of a file's text."""
    notes: list[str] = []
    constants: dict[str, Array] = {}
    wanted: dict[str, Array] = {}
    calls: dict[int, dict[str, Array]] = {0: {}}
    lines = text.splitlines()
    body = [line for line in lines if not line.startswith("#")]
    for line in lines:
        if (found := _LINE.fullmatch(line)) is None:
            notes += [line[2:]] if line.startswith("# ") else []
            continue
        kind, call, name, dtype, dims, data = found.groups()
        places = {"constant": constants, "wanted": wanted}
        place = calls.setdefault(int(call), {}) if kind == "input" else places[kind]
        shape = tuple(int(d) for d in dims.split(",") if d.strip())
        place[name] = _array(json.loads(data), dtype_named(dtype), shape)
    model = with_constants(parser.parse_model("\n".join(body)), constants)
    return Case(model, tuple(calls.values()), "\n".join(notes), wanted)


def _array(flat: list[Any], dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    if dtype.kind == "c":
        flat = [complex(*pair) for pair in flat]
    with np.errstate(all="ignore"):
        return np.array(flat, dtype).reshape(shape)


def read(path: Path) -> Case:
    return from_text(path.read_text("utf-8"))


def walk(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes and those inside of them."""
    for node in nodes:
        yield node
        for a in node.attribute:
            if a.HasField("g"):
                yield from walk(a.g.node)
