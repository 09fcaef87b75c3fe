"""What the cost model learns from logs: their trials, replayed and seen as features."""

from __future__ import annotations

from collections.abc import Callable

from planish.compiler.errors import PlanishError
from planish.compiler.loop.ir import Function
from planish.compiler.machine import Machine
from planish.schedules.schedule import LANGUAGE, replay
from planish.targets.target import parse_target

from .cost import Sample
from .features import features, least_cycles
from .records import Contents
from .tasks import parse_text, target_key


def samples_of(
    contents: Contents, say: Callable[[float], None] = lambda _: None
) -> tuple[list[Sample], int]:
    """The samples of all trials, and how many trials could not be replayed.

    A task on other machines, with other sizes or another number of threads is another task.
    """
    functions: dict[str, Function] = {}
    machines: dict[str, Machine] = {}
    for key, text in contents.texts.items():
        functions[key] = parse_text(text)[0]
    for text in set(contents.targets.values()):
        try:
            target = parse_target(text)
        except PlanishError:
            continue
        machines[target_key(target)] = target.machine
    shortest: dict[str, float] = {}
    out: list[Sample] = []
    lost = 0
    trials = [r for r in contents.records if r.kind == "trial"]
    for k, r in enumerate(trials):
        say(k / len(trials))
        func, machine = functions.get(r.task), machines.get(r.target)
        if func is None or machine is None or r.language != LANGUAGE:
            lost += 1
            continue
        try:
            s = replay(func, r.trace)
            sizes = dict(zip((v.name for v in func.symbols), r.sizes, strict=True))
        except (PlanishError, ValueError):
            lost += 1
            continue
        where = f"{r.task} {r.target} {r.threads} {r.sizes}"
        if where not in shortest:
            shortest[where] = least_cycles(func, machine, r.threads, sizes)
        x = features(s.func, machine, r.threads, sizes, shortest[where])
        out.append(Sample(where, x, r.time))
    return out, lost
