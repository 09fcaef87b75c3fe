"""A node of an ONNX model, read through an object that records what was read.

A handler turns one kind of node into operators. What a node carries and its handler does not read
(an attribute, an input, a version of the operator it does not know) is an error that names it:
nothing is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
from onnx import helper

from planish.compiler.dtypes import I32, I64
from planish.compiler.errors import ImportModelError
from planish.compiler.expr.nodes import Const, Expr, Var, free_vars
from planish.compiler.graph.ir import MAX_CONTENT, Array, Content, GraphBuilder, Value
from planish.compiler.ops.base import Op
from planish.compiler.ops.sizes import Sizes

from .items import Item, PackedSequence, ValueSequence
from .packing import Packer
from .tensors import decode, decoded

Handler: TypeAlias = "Callable[[NodeReader], Item | Sequence[Item | None]]"  # None: not there


@dataclass(frozen=True)
class Entry:
    """A handler and the versions of the operator (first opset of each) that it understands."""

    handle: Handler
    versions: frozenset[int]


HANDLERS: Final[dict[tuple[str, str], Entry]] = {}

# What opset_import may leave out: the one version of a domain, for which ONNX Runtime doesn't ask.
UNDECLARED: Final = {"com.microsoft": 1}


def handles(op_type: str, *versions: int, domain: str = "") -> Callable[[Handler], Handler]:
    """Register a handler for an operator's versions."""

    def register(handler: Handler) -> Handler:
        HANDLERS[domain, op_type] = Entry(handler, frozenset(versions))
        return handler

    return register


class Undecided(Exception):
    """A node is one of several, which only the data tells: an integer says which.

    ``choices`` are what input ``index`` is for each value of that integer.
    """

    def __init__(self, index: int, number: Value, choices: Mapping[int, Array]) -> None:
        super().__init__(index)
        self.index, self.number, self.choices = index, number, choices


def known_number(value: Value) -> str:
    """What to do where it is not known how many integers a tensor has."""
    names = dict.fromkeys(v.name for v in free_vars(*value.type.shape))
    fixed = " ".join(f"--dim {name}=2" for name in names)
    return (
        f"only a known number of integers may: compile with, say, {fixed}"
        if fixed
        else ("only a known number of integers may")
    )


class NodeReader:
    """One node; every access is recorded."""

    def __init__(
        self,
        proto: onnx.NodeProto,
        version: int,
        inputs: Sequence[Item | None],
        builder: GraphBuilder,
        folder: Path | None = None,
        fresh: Callable[[str], str] = str,
        declared: Callable[[str], int | None] = lambda _: None,
    ) -> None:
        self.op_type: str = proto.op_type
        self.folder = folder  # where tensors of the model that lie in files are
        self.version = version  # the operator's own: the opset in which this form of it began
        self.builder = builder
        self.output_names: list[str] = list(proto.output)  # "" for one that is not wanted
        self.label = proto.name or (self.output_names[0] if self.output_names else proto.op_type)
        self._fresh = fresh  # makes names of symbols
        self.declared_rank = declared  # of what a name stands for, as the model declares it
        self._inputs = list(inputs)
        self._attributes = {a.name: a for a in proto.attribute}
        self._read_inputs: set[int] = set()
        self._read_attributes: set[str] = set()

    # ------------------------------------------------------------------------------- reading

    @property
    def input_count(self) -> int:
        return len(self._inputs)

    def optional(self, index: int) -> Value | None:
        """Input ``index``, or None if it is left out."""
        found = self._item(index)
        if found is not None and not isinstance(found, Value):
            raise self.fail(f"input {index} is {found!r}, not a tensor")
        return found

    def _item(self, index: int) -> Item | None:
        self._read_inputs.add(index)
        return self._inputs[index] if index < len(self._inputs) else None

    def item(self, index: int) -> Item:
        """Input ``index``, a tensor or anything else."""
        if (found := self._item(index)) is None:
            raise self.fail(f"input {index} is missing")
        return found

    def any(self, index: int) -> Item | None:
        """Input ``index``, a tensor or anything else, or None if it is left out."""
        return self._item(index)

    def sequence(self, index: int) -> ValueSequence | PackedSequence:
        """Input ``index``, which must be a sequence."""
        found = self.item(index)
        if not isinstance(found, ValueSequence | PackedSequence):
            raise self.fail(f"input {index} ({found!r}) is no sequence")
        return found

    def packer(self) -> Packer:
        """Makes the nodes of packed sequences."""
        name = self.output_names[0] if self.output_names else self.label
        return Packer(self.builder, self._fresh, name, self.label)

    def input(self, index: int) -> Value:
        """Input ``index``, which must be there."""
        value = self.optional(index)
        if value is None:
            raise self.fail(f"input {index} is missing")
        return value

    def inputs(self) -> list[Value]:
        """All inputs, none of which may be left out."""
        return [self.input(k) for k in range(len(self._inputs))]

    def content(self, index: int, what: str, signed: bool = False) -> Content:
        """The content of an integer input (a shape, pads ...): as far as it is known, or symbols.

        Those stand for what the data tells in a call, which must not be negative unless ``signed``.
        """
        value = self.input(index)
        if value.content is None:
            return self.symbols(value, f"{what} (input {index})", signed)
        return value.content

    def number(self, index: int, what: str) -> Expr:
        """The only element of an integer input: a number, or a symbol for it."""
        content = self.content(index, what)
        if len(content) != 1:
            raise self.fail(f"{what} (input {index}, {self.input(index)!r}) is not one number")
        return content[0]

    def symbols(self, value: Value, what: str, signed: bool = False) -> Content:
        """Symbols for the elements of a tensor of integers that only the data tells.

        With ``signed`` an element is a difference of two.
        """
        count = value.type.size
        if count is None or count > MAX_CONTENT or value.type.dtype not in (I32, I64):
            raise self.fail(
                f"{what} is {value!r}: it depends on the data",
                hint=known_number(value),
            )
        known = self.builder.sized.get((value, signed))
        if known is None:
            name = next(filter(None, self.output_names), self.op_type)
            fresh = [Var(self._fresh(f"{name}_{k}")) for k in range(2 * count if signed else count)]
            of = value.name if value in self._inputs else what.removeprefix("the ")
            op = Sizes(tuple(fresh), f"{what} of {self.label}", signed, of=of)
            known = self.builder.one(op, value, name=f"{name}_sizes", origin=self.label)
            self.builder.sized[value, signed] = known
        assert known.content is not None
        return known.content

    def symbol(self, value: Value, what: str) -> Expr:
        """A symbol for the one integer of a tensor, which must not be negative."""
        if value.content is not None and len(value.content) == 1:
            return value.content[0]
        if value.type.size != 1:
            raise self.fail(f"{what} is {value!r}, not one integer")
        return self.symbols(value, what)[0]

    def ints(self, index: int, what: str) -> tuple[int, ...]:
        """The content of an integer input as numbers."""
        value = self.input(index)
        content = value.content
        if content is None:
            raise self.fail(
                f"{what} (input {index}, {value!r}) depends on the data",
                hint="only what follows from shapes and constants is supported here",
            )
        if not all(isinstance(e, Const) for e in content):
            raise self.fail(f"{what} (input {index}) must be constant, not {content}")
        return tuple(int(e.value) for e in content if isinstance(e, Const))

    def array(self, index: int) -> Array | None:
        """Input ``index`` if its elements are known numbers."""
        return self.array_of(self.input(index))

    def array_of(self, value: Value) -> Array | None:
        """A value's elements, if they are known numbers."""
        found = self.builder.constants.get(value)
        if found is None and value.content is not None and value.type.dtype.is_discrete:
            numbers = [e.value for e in value.content if isinstance(e, Const)]
            shape = [int(d.value) for d in value.type.shape if isinstance(d, Const)]
            if len(numbers) == len(value.content) and len(shape) == value.type.rank:
                return np.array(numbers, value.type.dtype.numpy).reshape(shape)
        return found

    def has(self, name: str) -> bool:
        """Whether the attribute is given (asking does not count as reading)."""
        return name in self._attributes

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute (strings decoded, tensors as TensorProto), or the default."""
        self._read_attributes.add(name)
        if name not in self._attributes:
            return default
        value = helper.get_attribute_value(self._attributes[name])
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if isinstance(value, list) and value and isinstance(value[0], bytes):
            return [v.decode("utf-8", "replace") for v in value]
        return value

    def strings(self, name: str) -> list[str]:
        """An attribute of strings, which must be UTF-8; none if it is not given."""
        self._read_attributes.add(name)
        if name not in self._attributes:
            return []
        found = helper.get_attribute_value(self._attributes[name])
        return [
            decoded(s, f"attribute {name} of {self.label}")
            for s in (found if isinstance(found, list) else [found])
        ]

    def tensor(self, name: str) -> Array | None:
        """A tensor attribute as an array, or None if it is not given."""
        proto = self.attribute(name)
        if proto is None:
            return None
        if not isinstance(proto, onnx.TensorProto):
            raise self.fail(f"attribute {name} is no tensor")
        return decode(proto, f"attribute {name} of {self.label}", self.folder)

    def required(self, name: str) -> Any:
        """An attribute that must be given."""
        if name not in self._attributes:
            raise self.fail(f"attribute {name} is missing")
        return self.attribute(name)

    # ------------------------------------------------------------------------------- making

    def one(self, op: Op, *inputs: Value | None) -> Value:
        """Apply an operator of one output, named after the node's output."""
        name = self.output_names[0] if self.output_names else ""
        return self.builder.one(op, *inputs, name=name, origin=self.label)

    def apply(self, op: Op, *inputs: Value | None) -> tuple[Value, ...]:
        """Apply an operator of several outputs."""
        return self.builder.apply(op, *inputs, names=self.output_names, origin=self.label)

    def constant(self, array: Any, name: str = "") -> Value:
        return self.builder.constant(array, name or f"{self.label}_c")

    def fail(self, message: str, hint: str | None = None) -> ImportModelError:
        """The error to raise, with the node named."""
        return ImportModelError(message, op=self.op_type, node=self.label, hint=hint)

    def finish(self) -> None:
        """Check that all was read.

        Errors: ImportModelError naming what was not.
        """
        for name in self._attributes:
            if name not in self._read_attributes:
                raise self.fail(f"attribute {name} is not supported")
        for k, value in enumerate(self._inputs):
            if value is not None and k not in self._read_inputs:
                raise self.fail(f"input {k} ({value!r}) is not supported")


def is_const(e: Expr) -> bool:
    """Whether this is a number."""
    return isinstance(e, Const)
