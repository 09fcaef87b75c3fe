"""Moves on what is known when a model is compiled."""

from __future__ import annotations

from planish.compiler.errors import ScheduleError
from planish.compiler.expr.nodes import Expr, Load
from planish.compiler.graph.prepack import Computed
from planish.compiler.loop import ir
from planish.compiler.loop.canonical import canonical
from planish.compiler.loop.evaluate import is_evaluable
from planish.compiler.loop.ir import Buffer, Function
from planish.schedules.edit import map_loads, replace, without
from planish.schedules.legality import check_stage, readers, root_of
from planish.schedules.schedule import Schedule, move, show_loop


@move
def precompute(s: Schedule, name: str) -> Schedule:
    """Be given what a stage computes, in place of the input that it computes it from.

    The input keeps its name. The caller must give it so: of constants it is worked out when the
    model is compiled.

    Legal if: the block is spatial, computes all of a temporary buffer of known size at its
    iterators, and reads one input, which nothing else reads.

    Before:
        def f(x: f32[4], w: f32[4], *, C: f32[4]):
            W = buffer(f32[4], "global")
            for i in serial(4):
                with block("W", i0=spatial(4, i)):
                    W[i0] = w[i0] * f32(2.0)
            for i in serial(4):
                with block("C", i0=spatial(4, i)):
                    C[i0] = x[i0] * W[i0]
    Move:
        precompute("W")
    After:
        def f(x: f32[4], w: f32[4], *, C: f32[4]):
            for i in serial(4):
                with block("C", i0=spatial(4, i)):
                    C[i0] = x[i0] * w[i0]
    """
    root, source = root_of(s, name)
    block = source.block
    check_stage(s, source)
    buffer = s.func.buffers[block.buffer]
    if buffer.scope == "param":
        raise ScheduleError(f"{buffer.name} is a parameter already", node=show_loop(root))
    used = [x for x in dict.fromkeys(x.buffer for x in ir.reads(block))]
    inputs = {p.name for p in s.func.inputs}
    if len(used) != 1 or used[0] not in inputs:
        raise ScheduleError(f"{name} does not read one input alone", node=show_loop(root))
    (old,) = used
    if others := [x.block.name for x in readers(s.func, old) if x.block.name != name]:
        raise ScheduleError(f"{', '.join(others)} reads {old} as well", node=show_loop(root))
    result = Buffer(buffer.name, buffer.dtype, buffer.shape, "param")
    work = Function("form", (s.func.buffers[old], result), 1, (), (), root)
    if source.loops != tuple(x for x in ir.walk(root) if isinstance(x, ir.Loop)) or not (
        is_evaluable(work)
    ):
        raise ScheduleError(
            f"{name} is no plain stage of known size in loops of its own", node=show_loop(root)
        )

    def read(load: Load, _: ir.Block | None) -> Expr:
        return Load(old, load.indices, buffer.dtype)

    body = map_loads(replace(s.func.body, root, None), buffer.name, read)
    func = without(s.func.with_(body=body), buffer.name)
    func = func.with_buffer(Buffer(old, buffer.dtype, buffer.shape, "param"))
    return s.with_func(func).with_form(old, Computed(canonical(work)))
