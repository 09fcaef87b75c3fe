"""Nodes that hold graphs: If, Loop and Scan; and nodes that are one of several.

A graph that is read for one of these takes what it reads from around it as inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import onnx

from planish.compiler.dtypes import BOOL, I64
from planish.compiler.errors import ImportModelError, PlanishError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, Var, any_of, free_vars, not_
from planish.compiler.expr.sizes import same
from planish.compiler.graph.ir import (
    Graph,
    GraphBuilder,
    TensorType,
    Value,
    assume,
    tensor,
)
from planish.compiler.graph.subgraphs import bound_in
from planish.compiler.ops.compare import Equal
from planish.compiler.ops.control import If, Loop
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.elementwise import Max, Min
from planish.compiler.ops.shape import Reshape
from planish.compiler.ops.sizes import Sizes

from .items import Form, Item, form_of, of_form
from .packing import Packer
from .protos import attribute_subgraphs
from .reader import Undecided
from .scopes import MAX_DEPTH, Frame, Scope, label_of, own_label
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

_BRANCHES: Final = ("then_branch", "else_branch")
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


# ------------------------------------------------------------------------------------- alternatives


class Parted(ImportModelError):
    """Branches give a value of different ranks: all that follows has to be in the branches too."""


def settled(error: Parted) -> ImportModelError:
    """The same as an error: nothing follows that could be in the branches."""
    hint = "results of a model, and what loops carry, have one rank whatever branch runs"
    return ImportModelError(error.message, op=error.op, node=error.node, hint=hint)


def branch(
    imp: Importer, node: onnx.NodeProto, inputs: list[Item | None], scope: Scope
) -> list[Item | None]:
    """If: the branch that a known condition chooses, or a node with both."""
    condition, then, other = _alternatives(imp, node, inputs, scope, list)
    match condition.content:
        case (Const(chosen),):
            return then() if chosen else other()
        case _:
            return _either(imp, condition, then, other, node)


def part(
    imp: Importer, node: onnx.NodeProto, inputs: list[Item | None], scope: Scope, rest: Rest
) -> list[Item | None]:
    """What ``rest`` makes of an If whose branches give different ranks: made in both of them.

    Often it can be made of one of these ranks only, as exporters write out what code does for any.
    Then the condition has to choose that branch, which each call checks.
    """
    condition, *branches = _alternatives(imp, node, inputs, scope, rest)
    fits: list[Callable[[], list[Item | None]]] = []
    refused: PlanishError | None = None
    around = imp.frame
    for k, run in enumerate(branches):
        imp.frame = Frame(GraphBuilder("attempt"), around)
        try:
            run()
        except Parted:
            raise
        except PlanishError as error:
            refused = refused or error
        else:
            chosen = k == 0
            fits.append(run)
        finally:
            imp.frame = around
    if not fits:
        assert refused is not None
        raise refused
    if len(fits) == 2:
        return _either(imp, condition, fits[0], fits[1], node)
    holds = _as_expression(imp, condition, node)
    with imp.builder.assuming(own_label(node)):
        assume(holds if chosen else not_(holds))
    return fits[0]()


def _as_expression(imp: Importer, condition: Value, node: onnx.NodeProto) -> Expr:
    """A condition as an expression of sizes, of one that only data tells if it must be."""
    if condition.content:
        return condition.content[0]
    label = node.name or next(filter(None, node.output), node.op_type)
    number = imp.builder.one(Cast(I64), condition, name="chosen", origin=node.name)
    symbol = Var(imp.fresh_symbol(f"{label}_runs"))
    sizes = Sizes((symbol,), f"which branch of {label} runs")
    imp.builder.one(sizes, number, name=str(symbol), origin=node.name)
    return n.eq(symbol, 1)


def _alternatives(
    imp: Importer, node: onnx.NodeProto, inputs: list[Item | None], scope: Scope, after: Rest
) -> tuple[Value, Callable[[], list[Item | None]], Callable[[], list[Item | None]]]:
    """The condition of an If, and what each branch gives."""
    condition = inputs[0] if len(inputs) == 1 else None
    if not isinstance(condition, Value):
        raise ImportModelError("the condition is missing")
    if condition.type.dtype is not BOOL:
        raise ImportModelError(f"the condition {condition!r} is no bool")
    graphs = attribute_subgraphs(node)
    only(node, *_BRANCHES)
    for name in _BRANCHES:
        if name not in graphs:
            raise ImportModelError(f"attribute {name} is missing")
        if graphs[name].input:
            raise ImportModelError(f"{name} has inputs")

    def run(name: str) -> Callable[[], list[Item | None]]:
        return lambda: read_graph(imp, name, graphs[name], node, scope, {}, after)

    then, other = map(run, _BRANCHES)
    return condition, then, other


def decide(
    imp: Importer,
    several: Undecided,
    node: onnx.NodeProto,
    domain: str,
    inputs: list[Item | None],
    scope: Scope,
) -> list[Item | None]:
    """A node that is one of several: each of them that can be in a branch."""
    home, around = imp.frame, imp.builder

    def run(k: int) -> list[Item | None]:
        given = [None if i is None else imp.frame.take(i, home) for i in inputs]
        given[several.index] = imp.builder.constant(several.choices[k])
        return imp.apply(node, domain, given, scope)

    choices: list[int] = []
    refused: PlanishError | None = None
    for k in several.choices:
        imp.frame = Frame(GraphBuilder("attempt"), home)
        try:
            run(k)
        except PlanishError as error:
            refused = refused or error
        else:
            choices.append(k)
        finally:
            imp.frame = home
    if not choices:
        assert refused is not None
        raise refused
    symbol = Var(imp.fresh_symbol(f"{next(filter(None, node.output), node.op_type)}_is"))
    what = f"what input {several.index} says"
    number = around.one(Sizes((symbol,), what), several.number, name=str(symbol), origin=node.name)
    possible = " or ".join(str(several.choices[k].tolist()) for k in choices)
    label = node.name or next(filter(None, node.output), node.op_type)
    with around.assuming(f"{label}: input {several.index} must be {possible}"):
        assume(any_of(*(n.eq(symbol, k) for k in choices)))

    def rest(at: int) -> list[Item | None]:
        frame = imp.frame
        if at == len(choices) - 1:
            return run(choices[at])
        asked = frame.take(number, home)
        assert isinstance(asked, Value)
        wanted = imp.builder.constant(np.array(choices[at], np.int64))
        condition = imp.builder.one(Equal(), asked, wanted, origin=node.name)
        return _either(imp, condition, lambda: run(choices[at]), lambda: rest(at + 1), node)

    return rest(0)


def _either(
    imp: Importer,
    condition: Value,
    then: Callable[[], list[Item | None]],
    other: Callable[[], list[Item | None]],
    node: onnx.NodeProto,
) -> list[Item | None]:
    """A node that runs one of two branches."""
    around = imp.frame
    before = frozenset(imp.taken_symbols)
    frames: list[Frame] = []
    found: list[list[Item]] = []
    for name, run in zip(("then", "other"), (then, other), strict=True):
        imp.frame = Frame(GraphBuilder(name), around)
        try:
            items = run()
        finally:
            frame, imp.frame = imp.frame, around
        if not items or any(item is None for item in items):
            raise ImportModelError(f"the branch {name} gives nothing")
        frames.append(frame)
        found.append([item for item in items if item is not None])
    first_count, second_count = map(len, found)
    if first_count != second_count:
        raise ImportModelError(f"branches give {first_count} and {second_count} values")
    names = [*node.output, *[""] * first_count][:first_count]
    for a, b in zip(*found, strict=True):
        if isinstance(a, Value) and isinstance(b, Value) and a.type.rank != b.type.rank:
            raise Parted(f"branches give {a.type} and {b.type}")
    forms = [
        _common_form(name, form_of(a).without(before), form_of(b).without(before))
        for name, a, b in zip(names, *found, strict=True)
    ]
    results = []
    for frame, given in zip(frames, found, strict=True):
        pairs = zip(names, given, forms, strict=True)
        results.append([v for m, i, f in pairs for v in _packer(imp, frame, m).as_form(i, f)])
    taken = _taken(imp, frames)
    for k, frame in enumerate(frames):
        own = frame.builder
        own.inputs = [frame.taken.get(v) or Value(own.fresh(v.name), v.type) for v in taken]
        _assume_in_branch(imp, own, condition, k == 0, node)
    first, second = (f.builder.finish(r) for f, r in zip(frames, results, strict=True))
    parts = [name for name, form in zip(names, forms, strict=True) for _ in range(form.parts)]
    op = If(first, second, _differing(imp, first, second, parts))
    origin = node.name or next(iter(node.output), node.op_type)
    return [*unpacked(forms, imp.builder.apply(op, condition, *taken, names=parts, origin=origin))]


def _common_form(name: str, a: Form, b: Form) -> Form:
    """The form of a result of two branches."""
    if a.kind == b.kind == "tensor":
        return a  # the node says what does not fit
    try:
        return a.joined(b)
    except ImportModelError:
        raise ImportModelError(f"{name!r} is {a} from one branch and {b} from the other") from None


def _packer(imp: Importer, frame: Frame, label: str) -> Packer:
    return Packer(frame.builder, imp.fresh_symbol, label or "item")


def unpacked(forms: Sequence[Form], values: Sequence[Value]) -> list[Item]:
    """The items of which these are the tensors."""
    rest = iter(values)
    return [of_form(f, tuple(next(rest) for _ in range(f.parts))) for f in forms]


def _taken(imp: Importer, frames: Sequence[Frame]) -> list[Value]:
    """What graphs take from around them: what is constant there is one in them too."""
    constants = imp.builder.constants
    return [v for v in dict.fromkeys(v for f in frames for v in f.taken) if v not in constants]


def _differing(
    imp: Importer, first: Graph, second: Graph, names: Sequence[str]
) -> tuple[Expr, ...]:
    """Symbols for the dimensions in which the results of two branches differ."""
    hidden = frozenset((*bound_in(first), *bound_in(second)))
    out: list[Expr] = []
    for name, a, b in zip(names, first.outputs, second.outputs, strict=False):
        for k, (x, y) in enumerate(zip(a.type.shape, b.type.shape, strict=False)):
            if not same(x, y) or not hidden.isdisjoint(free_vars(x)):
                out.append(Var(imp.fresh_symbol(f"{name}_{k}")))
    return tuple(out)


def _assume_in_branch(
    imp: Importer, branch: GraphBuilder, condition: Value, wanted: bool, node: onnx.NodeProto
) -> None:
    """Conditions on sizes that a branch relies on: of the calls in which it runs.

    Those on what it finds in data itself stay with it.
    """
    own = frozenset(v for node in branch.nodes for v in node.op.binds)
    stay = [c for c in branch.constraints if not own.isdisjoint(free_vars(c))]
    outside = [c for c in branch.constraints if c not in stay]
    branch.constraints[:] = stay
    known = imp.builder.constraints
    if all(c in known for c in outside):
        return
    runs = _as_expression(imp, condition, node)
    with imp.builder.assuming(""):
        for needed in outside:
            if needed not in known:
                skipped = not_(runs) if wanted else runs
                assume(any_of(skipped, needed), branch.reasons.get(needed, ""))


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
        then = [v for m, i, f in pairs for v in _packer(imp, imp.frame, m).as_form(i, f)]
        return again, then, kept

    for _ in range(_ATTEMPTS):
        given = zip(names, initial, forms, strict=True)
        values = [v for m, i, f in given for v in _packer(imp, around, m).as_form(i, f)]
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
            items[k] = _packer(imp, around, name).element(items[k], None)
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
    taken = _taken(imp, [frame])
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


CONTROL: Final[dict[str, Handler]] = {"If": branch, "Loop": loop}
