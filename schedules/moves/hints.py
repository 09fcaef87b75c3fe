"""Moves that mark loops for what a target may do with them; what the loops mean stays.

A target need not do it: ``llvm`` compiles marked loops like others. But what a loop is marked as is
true as long as it is, so that targets need not ask again: a later move after which it would not be
is refused.
"""

from __future__ import annotations

from planish.compiler.errors import ScheduleError
from planish.compiler.loop.hints import fault
from planish.compiler.loop.intrinsics import INTRINSICS
from planish.schedules.edit import replace
from planish.schedules.legality import plain
from planish.schedules.schedule import Schedule, move, show_loop


@move
def pipeline(s: Schedule, path: str, stages: int) -> Schedule:
    """Let a loop fill the buffers of its next iterations while it computes this one's.

    A target may keep ``stages`` copies of the buffers that the first statements of the body
    write, and do those statements ``stages - 1`` iterations ahead.

    Legal if: there are at least two stages, the loop is serial, its body begins with statements
    that only write ``local`` or ``register`` buffers that are not used outside of it, more
    follows, and nothing in the loop writes what those statements read.

    Before:
        def f(x: f32[4, 8], *, C: f32[4]):
            T = buffer(f32[4, 8], "local")
            for i in serial(4):
                for j in serial(8):
                    with block("T", i0=spatial(4, i), i1=spatial(8, j)):
                        T[i0, i1] = x[i0, i1]
                for k in serial(8):
                    with block("C", i0=spatial(4, i), r0=reduce(8, k), init=f32(0.0)):
                        C[i0] += T[i0, r0]
    Move:
        pipeline("C.i", 2)
    After:
        def f(x: f32[4, 8], *, C: f32[4]):
            T = buffer(f32[4, 8], "local")
            for i in serial(4, hint="pipeline(2)"):
                for j in serial(8):
                    with block("T", i0=spatial(4, i), i1=spatial(8, j)):
                        T[i0, i1] = x[i0, i1]
                for k in serial(8):
                    with block("C", i0=spatial(4, i), r0=reduce(8, k), init=f32(0.0)):
                        C[i0] += T[i0, r0]
    """
    return _marked(s, path, f"pipeline({stages})")


@move
def tensorize(s: Schedule, path: str, intrinsic: str) -> Schedule:
    """Mark a nest around one block as an instruction that does the same.

    Legal if: the nest is the meaning of the intrinsic, up to names and to where its tiles lie, each
    row of which is in one piece. (The starting value of a reduction may be stored in front of a
    loop further out.)

    Before:
        def f(x: u8[16], w: i8[8, 16], *, y: i32[8]):
            for k_0 in serial(4):
                for i in serial(8):
                    for k_1 in serial(4):
                        with block("y", i0=spatial(8, i), r0=reduce(16, k_0 * 4 + k_1),
                                   init=i32(0)):
                            y[i0] += cast(x[r0], i32) * cast(w[i0, r0], i32)
    Move:
        tensorize("y.i", "vpdpbusd_256")
    After:
        def f(x: u8[16], w: i8[8, 16], *, y: i32[8]):
            for k_0 in serial(4):
                for i in serial(8, hint="vpdpbusd_256"):
                    for k_1 in serial(4):
                        with block("y", i0=spatial(8, i), r0=reduce(16, k_0 * 4 + k_1),
                                   init=i32(0)):
                            y[i0] += cast(x[r0], i32) * cast(w[i0, r0], i32)
    """
    if intrinsic not in INTRINSICS:
        raise ScheduleError(
            f"there is no intrinsic {intrinsic}", hint=f"one of {', '.join(INTRINSICS)}"
        )
    meaning = str(INTRINSICS[intrinsic].meaning).replace("\n", "\n    ")
    return _marked(s, path, intrinsic, meaning)


def _marked(s: Schedule, path: str, hint: str, meaning: str | None = None) -> Schedule:
    """The schedule with a loop marked, if that is true."""
    loop = plain(s, s.loop(path))
    loops = s.loops(path.partition(".")[0])
    if reason := fault(s.func, loops[: loops.index(loop)], loop, hint):
        raise ScheduleError(reason, node=show_loop(loop), hint=meaning)
    return s.with_body(replace(s.func.body, loop, loop.with_(hint=hint)))
