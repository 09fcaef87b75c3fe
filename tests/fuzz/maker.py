"""A graph in the making: nodes on arrays whose values are known, since each node runs at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
import onnx.defs
from onnx import helper

from planish.compiler.errors import PlanishError
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.graph.reference import run_reference

from .case import Array, Case, model_of
from .values import MOST, Draw, dtypes_of, is_float

NEWEST: Final = onnx.defs.onnx_opset_version()
F32: Final = np.dtype(np.float32)


class Impossible(Exception):
    """What was drawn is no node."""


class Broken(Exception):
    """A node that ends in no error of ours: the case as it is now shows it."""


@dataclass(frozen=True, eq=False)
class Known:
    """A value of the graph, and what it is for the inputs that were drawn."""

    name: str
    array: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def rank(self) -> int:
        return self.array.ndim

    @property
    def dtype(self) -> Any:
        return self.array.dtype


class Maker:
    """Adds nodes; what a builder draws and cannot be is left out again."""

    def __init__(self, draw: Draw, opset: int, domains: dict[str, int] | None = None) -> None:
        self.draw, self.opset = draw, opset
        self.opsets = {"": opset, **(domains or {})}
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: dict[str, Array] = {}
        self.constants: dict[str, Array] = {}
        self.values: list[Known] = []

    # ------------------------------------------------------------------------------- leaves

    def input(self, array: Array) -> Known:
        value = Known(f"x{len(self.inputs)}", array)
        self.inputs[value.name] = array
        return value

    def constant(self, array: Array) -> Known:
        value = Known(f"c{len(self.constants)}", array)
        self.constants[value.name] = array
        return value

    def given(self, array: Array, inputs: int = 4) -> Known:
        """A constant, or one time in ``inputs`` an input."""
        return self.input(array) if self.draw.one_in(inputs) else self.constant(array)

    def ints(self, numbers: Sequence[int], dtype: Any = np.int64) -> Known:
        """A shape, axes and the like: mostly constant."""
        return self.given(np.array(numbers, dtype).reshape(-1), 7)

    def weights(self, *shape: int, kind: str = "plain", dtype: Any = F32) -> Known:
        return self.given(self.draw.array(dtype, shape, kind), 6)

    # ------------------------------------------------------------------------------- nodes

    def add(
        self,
        op_type: str,
        inputs: Sequence[Known | None],
        outputs: int = 1,
        domain: str = "",
        **attributes: Any,
    ) -> Known:
        """The first output of a node.

        Errors: Impossible if the node is refused, Broken if it fails otherwise.
        """
        names = ["" if v is None else v.name for v in inputs]
        while names and not names[-1]:
            names.pop()
        results = [f"v{len(self.values) + k}" for k in range(outputs)]
        kept = {k: v for k, v in attributes.items() if v is not None}
        try:
            node = helper.make_node(op_type, names, results, domain=domain, **kept)
        except ValueError as error:  # a list without elements has no type
            raise Impossible(str(error)) from error
        return self.append(node, [v for v in inputs if v is not None])

    def append(self, node: onnx.NodeProto, read: Sequence[Known]) -> Known:
        arrays = {v.name: v.array for v in read}
        known = {n: a for n, a in arrays.items() if n in self.constants}
        free = {n: a for n, a in arrays.items() if n not in known}
        model = model_of([node], free, known, [o for o in node.output if o], self.opsets)
        try:
            found = run_reference(import_model(model), free)
        except PlanishError as error:
            raise Impossible(str(error)) from error
        except Exception as error:
            self.nodes.append(node)
            self.values += [Known(o, np.zeros(1, np.float32)) for o in node.output if o]
            raise Broken from error
        if any(a.size > 4 * MOST for a in found):
            raise Impossible("too large")
        self.nodes.append(node)
        fresh = [Known(o, a) for o, a in zip((o for o in node.output if o), found, strict=True)]
        self.values += fresh
        return fresh[0]

    # ------------------------------------------------------------------------------- choosing

    def supports(self, op_type: str, dtype: Any, position: int = 0) -> bool:
        """Whether an operator takes a dtype as one of its inputs, in this opset."""
        try:
            schema: Any = onnx.defs.get_schema(op_type, self.opset, "")
        except onnx.defs.SchemaError:
            return False
        port = schema.inputs[min(position, len(schema.inputs) - 1)]
        return np.dtype(dtype) in dtypes_of(sorted(port.types))

    def since(self, op_type: str) -> int:
        """The version of an operator in this opset; 0 if there is none."""
        try:
            schema: Any = onnx.defs.get_schema(op_type, self.opset, "")
        except onnx.defs.SchemaError:
            return 0
        return 0 if schema.deprecated else int(schema.since_version)

    def some(self, least: int = 0, most: int = 5, floats: bool = False) -> Known:
        """A value of a rank, rather one of the last."""
        fits = [
            v
            for v in self.values
            if least <= v.rank <= most
            and v.dtype != object
            and v.array.size <= MOST
            and (not floats or is_float(v.dtype))
        ]
        if not fits:
            raise Impossible("no such value")
        return fits[max(0, len(fits) - 1 - self.draw.number(0, min(3, len(fits) - 1)))]

    def axis(self, x: Known) -> int:
        if not x.rank:
            raise Impossible("no axis")
        return self.draw.number(-x.rank, x.rank - 1)

    # ------------------------------------------------------------------------------- the end

    def case(self, outputs: Sequence[str] | None = None) -> Case:
        read = {i for n in self.nodes for i in n.input}
        made = [o for n in self.nodes for o in n.output if o]
        if outputs is None:
            ends = [o for o in made if o not in read]
            extra = [o for o in made if o in read and self.draw.one_in(8)]
            outputs = [*ends, *extra]
        model = model_of(self.nodes, self.inputs, self.constants, outputs, self.opsets)
        return Case(model, (dict(self.inputs),))
