"""What the recorder of races sees; and that it sees what the checks of moves let through."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from planish.compiler import remembering
from planish.compiler.errors import ScheduleError
from planish.compiler.loop import polyhedral
from planish.compiler.loop.interpret import interpret
from planish.compiler.loop.ir import Function
from planish.compiler.loop.text import parse
from planish.compiler.loop.verify import verify
from planish.schedules import legality
from planish.schedules.moves import loops
from planish.schedules.schedule import parse_trace, replay

from .races import Race, is_concurrent, points, watched

X = np.arange(32, dtype=np.float32).reshape(4, 8)
ROWS = """\
def f(x: f32[4, 8], *, y: f32[4]):
    t = buffer(f32[8], "SCOPE")
    for i in KIND:
        for j in serial(8):
            with block("t", i=spatial(4, i), j=spatial(8, j)):
                t[j] = x[i, j] * f32(2.0)
        for j in serial(8):
            with block("y", i=spatial(4, i), j=reduce(8, j), init=f32(0.0)):
                y[i] += t[j]"""
SUM = """\
def f(x: f32[4, 8], *, y: f32[4]):
    for i in serial(4):
        for j in KIND:
            with block("y", i=spatial(4, i), j=reduce(8, j), init=f32(0.0)):
                y[i] += x[i, j]"""
SHIFT = """\
def f(x: f32[4, 8], *, y: f32[4, 9]):
    for i in serial(4):
        with block("y0", i=spatial(4, i)):
            y[i, 8] = x[i, 0]
    for i in serial(4):
        for j in KIND:
            with block("y", i=spatial(4, i), j=spatial(8, j)):
                y[i, j] = x[i, j] + f32(1.0)
        for j in KIND:
            with block("z", i=spatial(4, i), j=spatial(8, j)):
                y[i, j] = y[i, j + 1] * f32(2.0)"""
CONDITION = """\
def f(x: f32[4, 8], *, y: f32[4]):
    for i in serial(4):
        with block("y0", i=spatial(4, i)):
            y[i] = x[i, 1]
    for i in KIND:
        with block("y", i=spatial(4, i), where=y[3 - i] > f32(10.0)):
            y[i] = f32(-1.0)"""


@pytest.mark.parametrize(
    ("text", "kind", "race"),
    [
        (ROWS.replace("SCOPE", "global"), "parallel(4)", "t[0] is touched by i = 1 and 0 of a"),
        (ROWS.replace("SCOPE", "local"), "parallel(4)", ""),
        (ROWS.replace("SCOPE", "register"), 'bind(4, "thread.x")', ""),
        (SUM, "parallel(8)", "y[0] is touched by j = 1 and 0 of a parallel loop, and written"),
        (SUM, "vector(8)", ""),
        (SUM, "serial(8)", ""),
        (SHIFT, "vector(8)", "y[0, 1] is touched by j = 1 and 0 of a vector loop, and written"),
        (SHIFT, "unrolled(8)", ""),
        (CONDITION, "parallel(4)", "y[1] is touched by i = 2 and 1 of a parallel loop"),
    ],
)
def test_races(text: str, kind: str, race: str):
    func = verify(parse(text.replace("KIND", kind)))
    assert is_concurrent(func.body) is ("serial" not in kind and "unrolled" not in kind)
    if race:
        with pytest.raises(Race) as error:
            watched(func, [X])
        assert str(error.value).startswith(race)
    else:
        np.testing.assert_allclose(watched(func, [X])[0], interpret(func, [X])[0], rtol=1e-6)


def test_points():
    assert points(parse(SUM.replace("KIND", "serial(8)"))) == 64


@pytest.fixture
def forgetful() -> Iterator[None]:
    """What was found out is not kept from mutants, nor by them."""
    remembering.forget()
    yield
    remembering.forget()


def scratch(func: Function, _: object) -> set[str]:
    return {b.name for b in func.temps}


SHARED, WINDOWS = (
    ROWS.replace("SCOPE", "global"),
    """\
def f(x: f32[4, 8], *, y: f32[4, 8]):
    t = buffer(f32[4, 8], "global")
    for i in KIND:
        for j in serial(8):
            with block("t", i=spatial(4, i), j=spatial(8, j)):
                t[i, j] = x[i, j] * f32(2.0)
        for j in serial(8):
            with block("y", i=spatial(4, i), j=spatial(8, j)):
                y[i, j] = t[max(i - 1, 0), j]""",
)


@pytest.mark.parametrize(
    ("text", "trace", "module", "name", "mutant"),
    [
        (SHARED, 'parallel("y.i")', polyhedral, "_private", scratch),
        (SHARED, 'bind("y.i", "block.x")', polyhedral, "_private", scratch),
        (WINDOWS, 'parallel("y.i")', polyhedral, "meet", lambda *_: False),
        (WINDOWS, 'parallel("y.i")', polyhedral, "apart", lambda *_: True),
        (WINDOWS, 'parallel("y.i")', polyhedral, "conflicting", lambda *_: ()),
        (SUM, 'parallel("y.j")', legality, "reduces", lambda _: None),
        (SHIFT, 'vectorize("z.j")', loops, "check_distinct", lambda *_: None),
        (CONDITION, 'parallel("y.i")', loops, "check_independent", lambda *_: None),
    ],
)
def test_what_a_broken_check_lets_through_is_seen(
    text: str,
    trace: str,
    module: object,
    name: str,
    mutant: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
    forgetful: None,
):
    kind = next(k for k in ("serial(4)", "serial(8)") if _runs(text, k))
    func, moves = parse(text.replace("KIND", kind)), parse_trace(trace)
    with pytest.raises(ScheduleError):
        replay(func, moves)
    remembering.forget()
    monkeypatch.setattr(module, name, mutant)
    if module is legality:  # the stores at the same time are seen by another check as well
        monkeypatch.setattr(legality, "check_distinct", lambda *_: None)
    broken = replay(func, moves).func
    with pytest.raises(Race):
        watched(broken, [X])


def _runs(text: str, kind: str) -> bool:
    return ("for j in KIND" in text) is (kind == "serial(8)")
