"""Nodes that hold graphs, and Loop; ``branches`` has If, ``scan`` Scan.

A graph that is read for one of these takes what it reads from around it as inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import onnx

from planish.compiler.dtypes import BOOL, I64
from planish.compiler.errors import ImportModelError
from planish.compiler.expr.nodes import Expr, Var, free_vars
from planish.compiler.expr.sizes import same
from planish.compiler.graph.ir import (
    Graph,
    GraphBuilder,
    TensorType,
    Value,
    tensor,
)
from planish.compiler.graph.subgraphs import bound_in
from planish.compiler.ops.control import Loop
from planish.compiler.ops.elementwise import Max, Min
from planish.compiler.ops.shape import Reshape
from planish.compiler.ops.sizes import Sizes

from .items import Form, Item, form_of, of_form
from .packing import Packer
from .protos import attribute_subgraphs
from .scopes import MAX_DEPTH, Frame, Scope, label_of
from .tensors import text

if TYPE_CHECKING:
    from .importer import Importer

    Handler: TypeAlias = Callable[
        [Importer, onnx.NodeProto, list[Item | None], Scope], list[Item | None]
    ]
    # The body of a loop, once what it carries has types: its number, the condition and the carried
    # values give the next condition, the next values, and values that are kept.
    Body: TypeAlias = Callable[
        [Value, Value, Sequence[Value]], tuple[Value, Sequence[Value], Sequence[Value]]
    ]
    # The same with carried values of any kind.
    AnyBody: TypeAlias = Callable[
        [Value, Value, Sequence[Item]], tuple[Value, Sequence[Item], Sequence[Value]]
    ]
    # What is done with the results of nodes, and what that gives.
    Rest: TypeAlias = Callable[[list[Item | None]], list[Item | None]]

_MOST_TIMES: Final = 1 << 45  # that a loop is run, if only data tells how often
_ATTEMPTS: Final = 64  # to find out which dimensions change in a loop


# ------------------------------------------------------------------------------------------ graphs


def read_graph(
    imp: Importer, name: str, graph: onnx.GraphProto, node: onnx.NodeProto, scope: Scope,
    given: Mapping[str, Item | None], after: Rest = list,
) -> list[Item | None]:  # fmt: skip
    """What ``after`` makes of the results of a graph whose nodes are put into the present frame."""
    inner = Scope(
        dict(given), scope.opsets, imp.frame, scope, depth=scope.depth + 1,
        label=label_of(node, scope),
    )  # fmt: skip
    if inner.depth >= MAX_DEPTH:
        raise ImportModelError("the model is nested too deeply")
    imp.collect_tensors(graph, inner)
    wanted = [text(out.name, "an output") for out in graph.output]
    return imp.run_nodes(graph.node, inner, wanted, f"an output of {name}", after)


def only(node: onnx.NodeProto, *names: str) -> None:
    """Check that a node has no other attributes."""
    for a in node.attribute:
        if a.name not in names:
            raise ImportModelError(f"attribute {a.name} is not supported")


def packer(imp: Importer, frame: Frame, label: str) -> Packer:
    """What makes tensors of items in a graph."""
    return Packer(frame.builder, imp.fresh_symbol, label or "item")


def unpacked(forms: Sequence[Form], values: Sequence[Value]) -> list[Item]:
    """The items of which these are the tensors."""
    rest = iter(values)
    return [of_form(f, tuple(next(rest) for _ in range(f.parts))) for f in forms]


def taken_by(imp: Importer, frames: Sequence[Frame]) -> list[Value]:
    """What graphs take from around them: what is constant there is one in them too."""
    constants = imp.builder.constants
    return [v for v in dict.fromkeys(v for f in frames for v in f.taken) if v not in constants]


# -------------------------------------------------------------------------------------------- loops


def loop(
    imp: Importer, node: onnx.NodeProto, inputs: list[Item | None], scope: Scope
) -> list[Item | None]:
    """Loop: a body that carries values, until a number of times or a condition is met."""
    only(node, "body")
    graph = attribute_subgraphs(node).get("body")
    if graph is None:
        raise ImportModelError("attribute body is missing")
    given = [*inputs, *[None] * (2 - len(inputs))]
    times, condition, initial = given[0], given[1], given[2:]
    if not isinstance(times, Value | None) or not isinstance(condition, Value | None):
        raise ImportModelError("the number of times or the condition is no tensor")
    values = [item for item in initial if item is not None]
    if len(values) < len(initial):
        raise ImportModelError("a value that is carried is missing")
    carried = len(values)
    if len(graph.input) != carried + 2 or len(graph.output) < carried + 1:
        raise ImportModelError(
            f"the body takes {len(graph.input)} inputs and gives {len(graph.output)} outputs: to "
            f"carry {carried}, it must take {carried + 2} and give at least {carried + 1}"
        )
    names = [text(i.name, "an input of the body") for i in graph.input]

    def body(
        number: Value, asked: Value, now: Sequence[Item]
    ) -> tuple[Value, Sequence[Item], Sequence[Value]]:
        own = dict(zip(names, (number, asked, *now), strict=True))
        found = read_graph(imp, "body", graph, node, scope, own)
        then = [item for item in found[1 : 1 + carried] if item is not None]
        if len(then) < carried:
            raise ImportModelError("a result of the body is missing")
        again, *kept = tensors_of([found[0], *found[1 + carried :]], "a result of the body")
        return again, then, kept

    return repeat_any(imp, node, _times(imp, times), condition, values, body)


def tensors_of(items: Sequence[Item | None], what: str) -> list[Value]:
    """The items, all of which must be tensors."""
    for item in items:
        if item is None:
            raise ImportModelError(f"{what} is missing")
        if not isinstance(item, Value):
            raise ImportModelError(f"{what} is {item!r}, not a tensor")
    return [item for item in items if isinstance(item, Value)]


def _times(imp: Importer, times: Value | None) -> Expr | None:
    """How often a loop runs at most."""
    if times is None:
        return None
    if times.type.size != 1:
        raise ImportModelError(f"how often it runs is {times!r}, not one integer")
    if times.content is not None:
        return times.content[0]
    b = imp.builder
    for op, bound in ((Max(), 0), (Min(), _MOST_TIMES)):
        times = b.one(op, times, b.constant(np.array(bound, np.int64)), name="times")
    symbol = Var(imp.fresh_symbol("times"))
    b.one(Sizes((symbol,), "how often a loop runs"), times, name="times")
    return symbol


class _Widened(Exception):
    """A body gives values of other forms than it was given."""


def repeat_any(
    imp: Importer,
    node: onnx.NodeProto,
    trip: Expr | None,
    condition: Value | None,
    initial: Sequence[Item],
    body: AnyBody,
) -> list[Item | None]:
    """As ``repeat``, with carried values that may be sequences or optionals.

    Such a one is carried in the form that what it is at first and what it becomes have in common.
    """
    around = imp.frame
    before = frozenset(imp.taken_symbols)
    forms = [form_of(item) for item in initial]
    firm = [False] * len(forms)  # whether the body gives what is no optional
    names = [*node.output, *[""] * len(forms)][: len(forms)]

    def flat(
        number: Value, asked: Value, now: Sequence[Value]
    ) -> tuple[Value, Sequence[Value], Sequence[Value]]:
        again, found, kept = body(number, asked, unpacked(forms, now))
        widened = False
        for k, (name, item) in enumerate(zip(names, found, strict=True)):
            if forms[k].kind == "tensor" and isinstance(item, Value):
                continue
            own = form_of(item).without(before)
            firm[k] = "optional" not in own.kind
            joined = _carried_form(name, forms[k], own)
            widened, forms[k] = widened or joined != forms[k], joined
        if widened:
            raise _Widened
        pairs = zip(names, found, forms, strict=True)
        then = [v for m, i, f in pairs for v in packer(imp, imp.frame, m).as_form(i, f)]
        return again, then, kept

    for _ in range(_ATTEMPTS):
        given = zip(names, initial, forms, strict=True)
        values = [v for m, i, f in given for v in packer(imp, around, m).as_form(i, f)]
        parts = [name for name, form in zip(names, forms, strict=True) for _ in range(form.parts)]
        parts += node.output[len(forms) :]
        try:
            made = repeat(imp, node, trip, condition, values, flat, parts)
            break
        except _Widened:
            continue
    else:
        raise ImportModelError("what sequences become in the loop does not settle")
    rest = made[sum(f.parts for f in forms) :]
    items = unpacked(forms, made[: len(made) - len(rest)])
    for k, (name, form) in enumerate(zip(names, forms, strict=True)):
        if "optional" in form.kind and firm[k]:
            items[k] = packer(imp, around, name).element(items[k], None)
    return [*items, *rest]


def _carried_form(name: str, now: Form, then: Form) -> Form:
    try:
        return now.joined(then)
    except ImportModelError as error:
        raise ImportModelError(f"{name!r} is carried: {error.message}") from None


def repeat(
    imp: Importer,
    node: onnx.NodeProto,
    trip: Expr | None,
    condition: Value | None,
    initial: Sequence[Value],
    body: Body,
    names: Sequence[str] | None = None,
) -> tuple[Value, ...]:
    """A loop around a body: the last carried values, and the kept ones stacked.

    ``names`` are those of the results, if not the node's outputs.
    """
    around = imp.frame
    label = next(filter(None, node.output), node.op_type)
    if condition is not None and condition.type.rank:
        condition = imp.builder.one(Reshape(()), condition, name="condition")
    count = Var(imp.fresh_symbol(f"{label}_count"))
    varying: dict[tuple[int, int], Var] = {}
    for _ in range(_ATTEMPTS):
        kinds = [
            v.type.with_shape(varying.get((j, k), d) for k, d in enumerate(v.type.shape))
            for j, v in enumerate(initial)
        ]
        frame = imp.frame = Frame(GraphBuilder("body"), around)
        try:
            graph = _body(imp, body, count, kinds)
        finally:
            imp.frame = around
        new = {
            (j, k): Var(imp.fresh_symbol(f"{label}_{v.name}_{k}"))
            for j, v in enumerate(initial)
            for k in _changes(kinds[j], graph.outputs[1 + j], v.name)
            if (j, k) not in varying
        }
        if not new:
            break
        varying |= new
    taken = taken_by(imp, [frame])
    graph = graph.with_(
        inputs=(*graph.inputs, *(frame.taken[v] for v in taken)),
        input_names=(*graph.input_names, *(frame.taken[v].name for v in taken)),
    )
    inside = frozenset((count, *varying.values(), *bound_in(graph)))
    kept = tuple(
        Var(imp.fresh_symbol(f"{label}_{v.name}_{k}"))
        for v in graph.outputs[1 + len(initial) :]
        for k, d in enumerate(v.type.shape)
        if not inside.isdisjoint(free_vars(d))
    )
    op = Loop(graph, len(initial), count, trip, tuple(varying.values()), kept)
    origin = node.name or label
    named = [name or node.op_type for name in (node.output if names is None else names)]
    return imp.builder.apply(op, condition, *initial, *taken, names=named, origin=origin)


def _body(imp: Importer, body: Body, count: Var, kinds: Sequence[TensorType]) -> Graph:
    """The graph of a body for carried values of these types."""
    b = imp.builder
    number = Value(b.fresh("number"), tensor(I64), (count,))
    asked = Value(b.fresh("asked"), tensor(BOOL))
    now = [Value(b.fresh("carried"), kind) for kind in kinds]
    b.inputs = [number, asked, *now]
    with b.assuming(""):
        again, then, kept = body(number, asked, now)
    if again.type.dtype is not BOOL or again.type.size != 1:
        raise ImportModelError(f"the condition that the body gives is {again!r}, not one bool")
    if again.type.rank:
        again = b.one(Reshape(()), again, name="again")
    return b.finish([again, *then, *kept])


def _changes(kind: TensorType, given: Value, name: str) -> list[int]:
    """The dimensions in which a carried value changes."""
    found = given.type
    if found.dtype is not kind.dtype or found.rank != kind.rank:
        raise ImportModelError(f"{name} is carried as {kind}, and becomes {found}")
    return [
        k for k, (x, y) in enumerate(zip(kind.shape, found.shape, strict=True)) if not same(x, y)
    ]


CONTROL: Final[dict[str, Handler]] = {"Loop": loop}
