"""A case made smaller while it still shows the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import onnx
from onnx import helper

from planish.compiler.errors import PlanishError
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.graph.reference import run_reference

from .case import Array, Case, initializers, walk, with_constants


def minimised(case: Case, shows: Callable[[Case], bool], seconds: float = 120) -> Case:
    """The least case found that still ``shows`` it; each change is tried until none helps."""
    until = time.monotonic() + seconds
    changed = True
    while changed:
        changed = False
        for step in STEPS:
            again = True
            while again:
                again = False
                for candidate in step(case):
                    if time.monotonic() > until:
                        return case
                    if shows(candidate):
                        case, changed, again = candidate, True, True
                        break
    return case


def _copy(case: Case) -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    return model


def _calls(case: Case) -> Iterator[Case]:
    if len(case.calls) > 1:
        for call in case.calls:
            yield replace(case, calls=(call,))
        for k in range(len(case.calls)):
            yield replace(case, calls=case.calls[:k] + case.calls[k + 1 :])


def _outputs(case: Case) -> Iterator[Case]:
    """One output alone, or what a node in the middle makes."""
    names = [o.name for o in case.model.graph.output]
    made = [o for n in case.model.graph.node for o in n.output if o]
    for name in [*names, *made]:
        if names != [name]:
            model = _copy(case)
            del model.graph.output[:]
            model.graph.output.add().name = name
            if (found := _pruned(case, model)) is not None and len(found.model.graph.node) <= len(
                case.model.graph.node
            ):
                yield found


def _pruned(case: Case, model: onnx.ModelProto) -> Case | None:
    """Without nodes, inputs and constants that nothing reads."""
    needed = {o.name for o in model.graph.output}
    kept = []
    for node in reversed(model.graph.node):
        if needed & set(node.output):
            kept.append(node)
            needed |= {i for n in walk([node]) for i in n.input}
    if not kept:
        return None
    nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in reversed(kept)]
    ports = [i for i in model.graph.input if i.name in needed]
    ports = [onnx.ValueInfoProto.FromString(i.SerializeToString()) for i in ports]
    del model.graph.node[:], model.graph.input[:]
    model.graph.node.extend(nodes)
    model.graph.input.extend(ports)
    known = {n: a for n, a in initializers(case.model).items() if n in needed}
    names = {i.name for i in ports}
    calls = tuple({n: a for n, a in call.items() if n in names} for call in case.calls)
    return Case(with_constants(model, known), calls, case.note)


def _cuts(case: Case) -> Iterator[Case]:
    """A node away, what it makes given as an input."""
    if len(case.model.graph.node) < 2:
        return
    for k, node in enumerate(case.model.graph.node):
        made = _made(case, node)
        if made is None:
            continue
        model = _copy(case)
        del model.graph.node[k]
        model.graph.output.extend([])
        left = [o for o in model.graph.output if o.name not in made[0]]
        if not left:
            continue
        left = [onnx.ValueInfoProto.FromString(o.SerializeToString()) for o in left]
        del model.graph.output[:]
        model.graph.output.extend(left)
        for n, a in made[0].items():
            model.graph.input.append(
                helper.make_tensor_value_info(
                    n,
                    helper.np_dtype_to_tensor_dtype(a.dtype),
                    [f"{n}_{j}" for j in range(a.ndim)] if len(made) > 1 else a.shape,
                )
            )
        calls = tuple({**call, **m} for call, m in zip(case.calls, made, strict=True))
        found = _pruned(replace(case, calls=calls), model)
        if found is not None:
            yield found


def _made(case: Case, node: onnx.NodeProto) -> list[dict[str, Array]] | None:
    """What a node makes in each call, by numpy."""
    model = _copy(case)
    del model.graph.output[:]
    names = [o for o in node.output if o]
    for name in names:
        model.graph.output.add().name = name
    out = []
    try:
        pruned = _pruned(case, model)
        if pruned is None:
            return None
        graph = import_model(pruned.model)
        for call in pruned.calls:
            out.append(dict(zip(names, run_reference(graph, call), strict=True)))
    except (PlanishError, ValueError, KeyError, TypeError, AssertionError):
        return None
    return out


def _fixed(case: Case) -> Iterator[Case]:
    """Sizes instead of symbols."""
    if len(case.calls) != 1:
        return
    model = _copy(case)
    symbols = False
    for info in model.graph.input:
        if info.name in case.calls[0]:
            dims = info.type.tensor_type.shape.dim
            for dim, size in zip(dims, case.calls[0][info.name].shape, strict=False):
                symbols |= bool(dim.dim_param)
                dim.dim_value = size
    if symbols:
        yield case.with_model(model)


def _attributes(case: Case) -> Iterator[Case]:
    for k, node in enumerate(case.model.graph.node):
        for j in range(len(node.attribute)):
            model = _copy(case)
            del model.graph.node[k].attribute[j]
            yield case.with_model(model)


def _sizes(case: Case) -> Iterator[Case]:
    """A size smaller wherever it is."""
    known = initializers(case.model)
    arrays = [*known.values(), *(a for call in case.calls for a in call.values())]
    for d in sorted({d for a in arrays for d in a.shape if d > 1}, reverse=True):
        for smaller in dict.fromkeys((1, 2, d // 2, d - 1)):
            if not 0 < smaller < d:
                continue

            def cut(a: Array, d: int = d, smaller: int = smaller) -> Array:
                return a[tuple(slice(smaller) if e == d else slice(None) for e in a.shape)]

            model = with_constants(case.model, {n: cut(a) for n, a in known.items()})
            for info in model.graph.input:
                for dim in info.type.tensor_type.shape.dim:
                    if dim.dim_value == d:
                        dim.dim_value = smaller
            calls = tuple({n: cut(a) for n, a in call.items()} for call in case.calls)
            yield replace(case, model=model, calls=calls)


def _values(case: Case) -> Iterator[Case]:
    """Simpler numbers."""
    known = initializers(case.model)
    for n, a in known.items():
        for simple in _simpler(a):
            yield case.with_model(with_constants(case.model, {**known, n: simple}))
    for k, call in enumerate(case.calls):
        for n, a in call.items():
            for simple in _simpler(a):
                calls = [*case.calls[:k], {**call, n: simple}, *case.calls[k + 1 :]]
                yield replace(case, calls=tuple(calls))


def _simpler(a: Array) -> Iterator[Array]:
    if a.dtype == object or not a.size:
        return
    with np.errstate(all="ignore"):
        found = [np.zeros_like(a), np.ones_like(a)]
        if a.dtype.kind in "f" and a.size > 1:
            finite = np.where(np.isfinite(a), np.round(np.clip(a, -9, 9)), a).astype(a.dtype)
            found.append(finite)
            half = a.reshape(-1).copy()
            half[: a.size // 2] = 0
            found.append(half.reshape(a.shape))
    for simple in found:
        if _variety(simple) < _variety(a) or (_variety(a) == 1 and a.reshape(-1)[0] not in (0, 1)):
            yield simple


def _variety(a: Array) -> int:
    """How many different elements there are."""
    return len(set(map(str, a.reshape(-1).tolist())))


STEPS = (_calls, _outputs, _cuts, _fixed, _sizes, _attributes, _values)
