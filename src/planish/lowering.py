"""From a graph to a program: groups, their loops, their schedules, and where everything lives."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from planish.compiler.dtypes import STRING
from planish.compiler.errors import InternalError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr
from planish.compiler.expr.sizes import normal
from planish.compiler.graph.fuse import Group, Kinds
from planish.compiler.graph.ir import Array, Value
from planish.compiler.graph.prepack import Form, formed
from planish.compiler.loop import te
from planish.compiler.loop.canonical import canonical
from planish.compiler.loop.ir import Function
from planish.compiler.loop.lower import lower
from planish.compiler.loop.slots import with_slots
from planish.compiler.loop.text import show
from planish.compiler.machine import Machine
from planish.compiler.program import How, Place, Scheduled
from planish.compiler.texts import Texts
from planish.runtime.memory import aligned_copy
from planish.schedules.moves.winograd import is_inexact
from planish.schedules.rules import default_schedule
from planish.schedules.schedule import Schedule

Arrays: TypeAlias = Mapping[Value, Array]

_HEAVY: Final = ("contraction", "reduction")
_PROBE: Final = 64  # bytes of two arrays that are compared before all are


# ------------------------------------------------------------------------------------- functions


def lower_group(group: Group, known: Arrays, name: str = "f") -> Function:
    """The loops of a group; known values of one element become part of them."""
    (first, *others) = group.nodes
    if not first.op.is_expression:
        if others:
            raise InternalError("an opaque node is fused", op="lower", node=repr(first))
        types = [
            None if v is None else v.type.with_dtype(v.type.dtype.storage) for v in first.inputs
        ]
        return first.op.build(*types).with_(name=name)
    parameters = set(group_inputs(group, known))
    tensors: dict[Value, te.Tensor] = {}
    for v in group.inputs:
        if v in parameters:
            tensors[v] = te.placeholder(v.type.shape, v.type.dtype.storage, _identifier(v.name))
        else:
            number = n.const(known[v].reshape(-1)[0].item(), v.type.dtype.storage)
            tensors[v] = te.compute(v.type.shape, lambda *_, c=number: c, "c")
    for node in group.nodes:
        found = node.op.compute(*(None if v is None else tensors[v] for v in node.inputs))
        outs = found if isinstance(found, tuple) else (found,)
        tensors.update(zip(node.outputs, outs, strict=True))
    inputs = [tensors[v] for v in group.inputs if v in parameters]
    return lower(name, inputs, [tensors[v] for v in group.outputs])


def group_inputs(group: Group, known: Arrays) -> tuple[Value, ...]:
    """The values that the group's function takes, in order."""
    if not group.nodes[0].op.is_expression:
        return group.nodes[0].operands
    return tuple(v for v in group.inputs if v not in known or not _is_number(known[v]))


def _is_number(array: Array) -> bool:
    """Whether a known array can be a constant of an expression."""
    return array.size == 1 and array.dtype.kind != "c"


def extent_conditions(func: Function) -> Iterator[Expr]:
    """The conditions on symbols under which no extent of a function's buffers is negative.

    Two negative ones would make loops over both run, and would be room for no element.
    """
    for d in dict.fromkeys(d for b in func.buffers.values() for d in b.shape):
        condition = normal(n.le(0, d))
        if isinstance(condition, Const) and not condition.value:
            raise InternalError(f"an extent is {d}", op="lower", node=func.name)
        if condition is not n.TRUE:
            yield condition


def group_label(group: Group, kinds: Kinds) -> str:
    """What the group's function is called: as its contraction or reduction, or its first node."""
    first, *others = group.nodes
    heavy = [x for x in group.nodes if kinds(x) == group.kind] if others else []
    return (heavy[0] if heavy and group.kind in _HEAVY else first).op.name


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)[-40:] or "x"


@dataclass(frozen=True, eq=False)
class Kernel:
    """A scheduled function; ``forms`` are those in which it wants constant parameters.

    ``plain`` is the function as it was, with the names of parameters that are ``constants``.
    """

    func: Function
    schedule: Scheduled
    forms: Mapping[int, tuple[Form, ...]]
    plain: Function
    constants: frozenset[str]


# How a function gets its schedule: from it and the names of known parameters.
Chooser: TypeAlias = Callable[[Function, frozenset[str]], Schedule | None]


class Kernels:
    """Makes the kernels of a program; functions that are equal up to names share one.

    ``tuned`` gives the schedule of a function that was tuned, None for others; one whose
    sums are not plain sums does not count if all is ``strict``.
    """

    def __init__(
        self,
        machine: Machine,
        threads: int,
        optimize: bool,
        scheduled: bool,
        tuned: Chooser = lambda *_: None,
        strict: bool = False,
    ) -> None:
        self.machine, self.threads, self.optimize = machine, threads, optimize
        self.strict = strict
        self.scheduled = scheduled and optimize
        self._tuned = tuned
        self._made: dict[tuple[str, frozenset[str]], Kernel] = {}

    def __iter__(self) -> Iterator[Kernel]:
        return iter(self._made.values())

    def kernel(self, func: Function, constant: Sequence[bool], label: str) -> Kernel:
        """The kernel of a function; ``constant`` says which of its inputs are known."""
        func = canonical(func)
        constants = frozenset(p.name for p, c in zip(func.inputs, constant, strict=True) if c)
        key = show(func), constants
        found = self._made.get(key)
        if found is None:
            s, how = self._scheduled(func, constants)
            forms = s.forms()
            if free := [func.inputs[k].name for k in forms if not constant[k]]:
                raise InternalError(f"{free} are given forms, and no constants", op="lower")
            scheduled = with_slots(s.func, self.threads)
            named = scheduled.with_(name=f"{_identifier(label)}_{len(self._made)}")
            scheduled_as = Scheduled(how, s.text())
            found = self._made[key] = Kernel(named, scheduled_as, forms, func, constants)
        return found

    def _scheduled(self, func: Function, constants: frozenset[str]) -> tuple[Schedule, How]:
        if not self.scheduled:
            return Schedule(func), "plain"
        s = self._tuned(func, constants)
        if s is not None and not (self.strict and is_inexact(s.trace)):
            return s, "tuned"
        return default_schedule(func, self.machine, self.threads, constants, self.strict), "default"


# ------------------------------------------------------------------------------------- constants


class Constants:
    """The constants of a program: each form of an array once, however many values have it.

    ``texts`` are the strings among them; what code sees of those is their numbers.
    """

    def __init__(self) -> None:
        self.arrays: list[Array] = []
        self.texts = Texts()
        self._places: dict[tuple[Any, ...], list[tuple[Array, Place]]] = {}

    def stored(self, array: Array) -> Array:
        """An array as code sees it."""
        return self.texts.numbers(array) if array.dtype == STRING.numpy else array

    def place(self, array: Array, forms: tuple[Form, ...]) -> Place:
        """Where an array is, brought into one form after the other."""
        key = (array.dtype, array.shape, forms)
        alike = self._places.setdefault(key, [])
        for other, place in alike:
            if _same_bits(array, other):
                return place
        place = Place("constant", len(self.arrays))
        self.arrays.append(aligned_copy(formed(array, forms)))
        alike.append((array, place))
        return place


def _same_bits(a: Array, b: Array) -> bool:
    """Whether two arrays of one dtype and shape hold the same bytes."""
    if a is b:
        return True
    x, y = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (a, b))
    return bool((x[:_PROBE] == y[:_PROBE]).all() and (x == y).all())
