"""Moves on buffers: in what form and where they are kept."""

from __future__ import annotations

from planish.compiler.dtypes import I64
from planish.compiler.errors import ScheduleError
from planish.compiler.expr import nodes as n
from planish.compiler.expr.bounds import Domain, extremes
from planish.compiler.expr.linear import factors, linear
from planish.compiler.expr.nodes import Expr, Load, Var, free_vars
from planish.compiler.expr.simplify import prove, simplify
from planish.compiler.expr.text import parse
from planish.compiler.graph.prepack import Relayout
from planish.compiler.loop import ir
from planish.compiler.loop.ir import Block, Buffer, Function, Iter, Loop, Stmt, constant
from planish.compiler.loop.known import Known, anywhere, entered
from planish.compiler.loop.polyhedral import carried, region
from planish.compiler.loop.sites import joined
from planish.schedules.edit import map_loads
from planish.schedules.legality import check_concurrent, check_scope, common, users
from planish.schedules.schedule import Schedule, iterator_ranges, move, ranges, show_loop


@move
def layout(s: Schedule, buffer: str, dims: tuple[str, ...], shape: tuple[object, ...]) -> Schedule:
    """Keep a buffer in another order: element ``d0, d1 ...`` is stored at ``dims`` in ``shape``.

    ``dims`` are expressions over d0, d1 ...; ``shape`` are numbers or expressions over the
    symbols. An input's caller must give it in this form (constants are brought into it when the
    model is compiled); what the old form did not have is zero.

    Legal if: different elements are stored at different places within the shape, and the buffer is
    no result; the shape of a parameter is known.

    Before:
        def f(B: f32[8, 40], *, C: f32[8, 40]):
            for i in serial(8):
                for j in serial(40):
                    with block("C", i0=spatial(8, i), i1=spatial(40, j)):
                        C[i0, i1] = B[i0, i1]
    Move:
        layout("B", ("d1 // 16", "d0", "d1 % 16"), (3, 8, 16))
    After:
        def f(B: f32[3, 8, 16], *, C: f32[8, 40]):
            for i in serial(8):
                for j in serial(40):
                    with block("C", i0=spatial(8, i), i1=spatial(40, j)):
                        C[i0, i1] = B[i1 // 16, i0, i1 % 16]
    """
    old = s.func.buffers.get(buffer)
    if old is None:
        raise ScheduleError(f"there is no buffer {buffer}")
    if old in s.func.results:
        raise ScheduleError(f"{buffer} is a result: its form is given", hint="cache_write")
    axes = tuple(Var(f"d{k}") for k in range(len(old.shape)))
    forms = tuple(parse(d) for d in dims)
    extents = tuple(parse(x) if isinstance(x, str) else _number(x) for x in shape)
    _check_form(s.func, old, axes, forms, extents)

    def place(indices: tuple[Expr, ...], b: Block | None) -> tuple[Expr, ...]:
        known = {} if b is None else iterator_ranges(s.func, b)
        values = dict(zip(axes, indices, strict=True))
        return tuple(simplify(n.substitute(f, values), known) for f in forms)

    def change(load: Load, b: Block | None) -> Expr:
        return Load(buffer, place(load.indices, b), load.type)

    def store(b: Block) -> Block:
        return b.with_(indices=place(b.indices, b)) if b.buffer == buffer else b

    body = ir.map_blocks(map_loads(s.func.body, buffer, change), store)
    func = s.func.with_(body=body)
    out = s.with_func(func.with_buffer(Buffer(buffer, old.dtype, extents, old.scope)))
    if old.scope != "param":
        return out
    return out.with_form(buffer, Relayout(dims, tuple(map(_size, extents))))


def _size(e: Expr) -> int:
    size = constant(e)
    if size is None:
        raise ScheduleError(f"{e} is no constant: a parameter is given in a known form")
    return size


def _number(x: object) -> Expr:
    if not isinstance(x, int) or isinstance(x, bool) or x < 1:
        raise ScheduleError(f"{x!r} is no extent")
    return n.as_expr(x)


def _check_form(
    func: Function,
    old: Buffer,
    axes: tuple[Var, ...],
    forms: tuple[Expr, ...],
    shape: tuple[Expr, ...],
) -> None:
    """Raise unless the form keeps elements apart and within the shape."""
    shown = f"{old.name}[{', '.join(map(str, forms))}] in {list(shape)}"
    if len(forms) != len(shape):
        raise ScheduleError("there are as many indices as extents", node=shown)
    symbols = set(func.symbols)
    if not symbols.isdisjoint(axes):
        raise ScheduleError("a symbol is called like a dimension", node=shown)
    for e in (*forms, *shape):
        known = symbols if e in shape else symbols | set(axes)
        if extra := [v for v in free_vars(e) if v not in known]:
            raise ScheduleError(f"{extra[0]} is no dimension of {old.name}", node=shown)
        if e.dtype is not I64 or n.loads(e):
            raise ScheduleError("an index is an i64 without loads", node=shown)
    inside = entered(anywhere(func), _iterators(old, axes))  # there is an element
    domain: Domain = {v: (n.as_expr(0), d - 1) for v, d in zip(axes, old.shape, strict=True)}
    for form, extent in zip(forms, shape, strict=True):
        ends = extremes(form, domain, inside)
        if ends is None or not (
            prove(n.le(0, ends[0]), inside) and prove(ends[1] < extent, inside)
        ):
            raise ScheduleError(f"{form} is not certainly within {extent}", node=shown)
    if not _injective(func, old, axes, forms):
        raise ScheduleError("two elements may be stored at the same place", node=shown)


def _iterators(old: Buffer, axes: tuple[Var, ...]) -> tuple[Iter, ...]:
    return tuple(Iter(v, d, "spatial", v) for v, d in zip(axes, old.shape, strict=True))


def _injective(func: Function, old: Buffer, axes: tuple[Var, ...], forms: tuple[Expr, ...]) -> bool:
    """Whether a loop over all elements that stores at ``forms`` never stores at a place twice."""
    iters, extents = _iterators(old, axes), dict(zip(axes, old.shape, strict=True))
    inside = entered(anywhere(func), iters)
    told = {v for e in joined(forms).values() for v in _digits(e, extents, inside)}
    if told == set(axes):
        return True
    body: Stmt = Block("layout", iters, "layout", forms, n.const(0, I64))
    loops: list[Loop] = []
    for i in reversed(iters):
        body = Loop(i.var, i.extent, body)
        loops.append(body)
    whole = Function("layout", (), 0, func.symbols, (), body)
    return all(carried(whole, x) is None for x in loops)


def _digits(e: Expr, extents: dict[Var, Expr], known: Known) -> list[Var]:
    """The variables that a number of several digits tells, the most significant first.

    ``x * n + y`` tells x and y if y is in 0 .. n - 1.
    """
    weights: dict[Var, Expr] = {}
    for atom, c in linear(e).terms.items():
        mine = [f for f in factors(atom) if isinstance(f, Var) and f in extents]
        rest = [f for f in factors(atom) if f not in mine]
        if not mine and extents.keys().isdisjoint(free_vars(*rest)):
            continue
        if len(mine) != 1 or mine[0] in weights or not extents.keys().isdisjoint(free_vars(*rest)):
            return []
        weights[mine[0]] = n.product((c, *rest))
    out: list[Var] = []
    while weights:
        tops = {
            v: sum((w * (extents[u] - 1) for u, w in weights.items() if u is not v), n.as_expr(0))
            for v in weights
        }
        found = next((v for v, w in weights.items() if prove(tops[v] < w, known)), None)
        if found is None or not all(prove(w > 0, known) for w in weights.values()):
            return out
        out.append(found)
        del weights[found]
    return out


@move
def pad(s: Schedule, buffer: str, dim: int, multiple: int, more: int = 0) -> Schedule:
    """Make a dimension longer in memory: up to the next multiple, and by ``more`` elements then.

    Rows that are a power of two apart share few sets of a cache; rows of whole vectors need no
    tail.

    Legal if: the buffer is temporary (``layout`` does it for constants).

    Before:
        def f(x: f32[4, 60], *, C: f32[60, 4]):
            T = buffer(f32[4, 60], "global")
            for i in serial(4):
                for j in serial(60):
                    with block("T", i0=spatial(4, i), i1=spatial(60, j)):
                        T[i0, i1] = x[i0, i1]
            for i in serial(60):
                for j in serial(4):
                    with block("C", i0=spatial(60, i), i1=spatial(4, j)):
                        C[i0, i1] = T[i1, i0]
    Move:
        pad("T", 1, 16, 8)
    After:
        def f(x: f32[4, 60], *, C: f32[60, 4]):
            T = buffer(f32[4, 72], "global")
            for i in serial(4):
                for j in serial(60):
                    with block("T", i0=spatial(4, i), i1=spatial(60, j)):
                        T[i0, i1] = x[i0, i1]
            for i in serial(60):
                for j in serial(4):
                    with block("C", i0=spatial(60, i), i1=spatial(4, j)):
                        C[i0, i1] = T[i1, i0]
    """
    old = temporary(s, buffer)
    if not 0 <= dim < len(old.shape) or multiple < 1 or more < 0:
        raise ScheduleError(
            f"there is no padding of dimension {dim} to a multiple of {multiple} and {more}",
            node=f"{buffer}: {old.dtype}{list(old.shape)}",
        )
    extent = (old.shape[dim] + (multiple - 1)) // multiple * multiple + more
    shape = list(old.shape)
    shape[dim] = simplify(extent, ranges(s.func, ()))
    return s.with_func(s.func.with_buffer(Buffer(buffer, old.dtype, tuple(shape), old.scope)))


@move
def set_scope(s: Schedule, buffer: str, scope: str) -> Schedule:
    """Keep a temporary buffer somewhere else: ``global``, ``local`` or ``register``.

    Legal if: the buffer is temporary, parallel loops stay independent, and in registers what is
    used of it at a time has a constant size.

    Before:
        def f(x: f32[8], *, C: f32[8]):
            T = buffer(f32[8], "global")
            for i in serial(8):
                with block("T", i0=spatial(8, i)):
                    T[i0] = x[i0] * f32(2.0)
                with block("C", i0=spatial(8, i)):
                    C[i0] = T[i0] + f32(1.0)
    Move:
        set_scope("T", "register")
    After:
        def f(x: f32[8], *, C: f32[8]):
            T = buffer(f32[8], "register")
            for i in serial(8):
                with block("T", i0=spatial(8, i)):
                    T[i0] = x[i0] * f32(2.0)
                with block("C", i0=spatial(8, i)):
                    C[i0] = T[i0] + f32(1.0)
    """
    old = temporary(s, buffer)
    new = Buffer(buffer, old.dtype, old.shape, check_scope(scope))
    func = s.func.with_buffer(new)
    if scope == "register" and (found := users(func, buffer)):
        depth = common(found)
        where: Stmt = found[0].loops[depth - 1] if depth else func.body
        fixed = tuple(x.var for x in found[0].loops[:depth])
        box = region(where, new, fixed) or ()
        if any(constant(extent) is None for _, extent in box):
            sizes = ", ".join(str(extent) for _, extent in box)
            raise ScheduleError(
                f"{buffer} in registers needs a constant box, not [{sizes}]", node=show_loop(where)
            )
    check_concurrent(func)
    return s.with_func(func)


def temporary(s: Schedule, buffer: str) -> Buffer:
    """The temporary buffer of a name."""
    for b in s.func.temps:
        if b.name == buffer:
            return b
    if buffer in s.func.buffers:
        raise ScheduleError(f"{buffer} is a parameter: it is kept as it is given")
    raise ScheduleError(f"there is no buffer {buffer}")
