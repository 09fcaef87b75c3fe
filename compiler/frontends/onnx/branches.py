"""If, and nodes that are one of several: what is done in branches, of which a call runs one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import onnx

from planish.compiler.dtypes import BOOL, I64
from planish.compiler.errors import ImportModelError, PlanishError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.nodes import Const, Expr, Var, any_of, free_vars, not_
from planish.compiler.expr.sizes import same
from planish.compiler.graph.ir import Graph, GraphBuilder, Value, assume
from planish.compiler.graph.subgraphs import bound_in
from planish.compiler.ops.compare import Equal
from planish.compiler.ops.control import If
from planish.compiler.ops.conversion import Cast
from planish.compiler.ops.creation import Where
from planish.compiler.ops.reduction import ReduceMax
from planish.compiler.ops.sizes import Sizes

from .choices import Choice
from .control import CONTROL, only, packer, read_graph, taken_by, unpacked
from .items import Form, Item, form_of
from .protos import attribute_subgraphs
from .reader import Undecided
from .scopes import Frame, Scope, own_label

if TYPE_CHECKING:
    from .control import Rest
    from .importer import Importer

_BRANCHES: Final = ("then_branch", "else_branch")


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
    label = own_label(node)
    found = imp.choices.again(label)
    if found is None:
        found = _fitting(imp, label, branches)

    def run(k: int) -> list[Item | None]:
        return imp.choices.reading(branches[k], found.within[k])[0]

    if len(found.within) == 2:
        return _either(imp, condition, lambda: run(0), lambda: run(1), node)
    (chosen,) = found.within
    holds = _as_expression(imp, condition, node)
    with imp.builder.assuming(label):
        assume(not_(holds) if chosen else holds)
    return run(chosen)


def _fitting(
    imp: Importer, label: str, branches: Sequence[Callable[[], list[Item | None]]]
) -> Choice:
    """The branches of an If in which all that follows can be made: each is tried.

    Errors: that of the first branch, if none will do.
    """
    found = Choice(label)
    refused: PlanishError | None = None
    around = imp.frame
    for k, run in enumerate(branches):
        imp.frame = Frame(GraphBuilder("attempt"), around)
        try:
            _, found.within[k] = imp.choices.reading(run)
        except Parted:
            raise
        except PlanishError as error:
            refused = refused or error
        finally:
            imp.frame = around
    if not found.within:
        assert refused is not None
        raise refused
    imp.choices.add(found)
    return found


def _as_expression(imp: Importer, condition: Value, node: onnx.NodeProto) -> Expr:
    """A condition as an expression of sizes, of one that only data tells if it must be."""
    if condition.content:
        return condition.content[0]
    label = node.name or next(filter(None, node.output), node.op_type)
    number = imp.builder.one(Cast(I64), condition, name="chosen", origin=node.name)
    symbol = Var(imp.fresh_symbol(f"{label}_runs"))
    sizes = Sizes((symbol,), f"which branch of {label} runs", of=condition.name)
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
    given, possible = inputs[several.index], [several.choices[k].tolist() for k in choices]
    wanted = f"input {several.index} of {own_label(node)}, {given!r}, must be "
    sizes = Sizes((symbol,), error=wanted + " or ".join(map(str, possible)))
    among = _one_of(around, several.number, choices)
    number = around.one(sizes, among, name=str(symbol), origin=node.name)

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


def _one_of(b: GraphBuilder, number: Value, choices: list[int]) -> Value:
    """The number, or -1 if it is none of these."""
    row = b.constant(np.array(choices, np.int64))
    among = b.one(ReduceMax((0,), False), b.one(Equal(), number, row))
    return b.one(Where(), among, number, b.constant(np.array(-1, np.int64)))


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
        results.append([v for m, i, f in pairs for v in packer(imp, frame, m).as_form(i, f)])
    taken = taken_by(imp, frames)
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


CONTROL["If"] = branch
