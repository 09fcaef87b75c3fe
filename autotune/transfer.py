"""What tasks lend each other: decisions that were good for one are tried for others like it.

Two tasks are alike if they have the same features before anything is scheduled. What is taken over
is measured like everything else, never applied as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from planish.compiler.errors import PlanishError
from planish.compiler.loop.ir import Function
from planish.schedules.choices import Decisions
from planish.schedules.schedule import LANGUAGE

from .features import Array, features, least_cycles
from .records import Contents, Record
from .tasks import Task, parse_text

MOST: Final = 300  # tasks of a log that lend: each costs some milliseconds to read


def outline(func: Function, task: Task, sizes: tuple[int, ...]) -> Array:
    """The features of a function before it is scheduled, for the machine of a task."""
    at: Mapping[str, int] = dict(zip((v.name for v in func.symbols), sizes, strict=True))
    shortest = least_cycles(func, task.machine, task.threads, at)
    return features(func, task.machine, task.threads, at, shortest)


@dataclass
class Lending:
    """What is known to be good for tasks, by task."""

    known: dict[str, tuple[Array, Decisions]] = field(default_factory=dict)

    def learn(self, key: str, outline: Array, decisions: Decisions) -> None:
        """Take note of the best decisions for a task."""
        self.known[key] = outline, decisions

    def read(self, contents: Contents, task: Task) -> None:
        """Take note of what logs found best for tasks on the machine of this one."""
        best: dict[str, Record] = {}
        for r in contents.records:
            if r.kind == "best" and r.language == LANGUAGE and r.target == task.target_key:
                best[r.task] = r
        for key, r in list(best.items())[-MOST:]:
            if key not in contents.texts:
                continue
            try:
                func, _ = parse_text(contents.texts[key])
                self.known.setdefault(key, (outline(func, task, r.sizes), r.decisions))
            except (PlanishError, ValueError):
                continue

    def to(self, key: str, outline: Array) -> list[Decisions]:
        """Decisions for a task, those of the most similar one first."""
        found = [
            (float(np.linalg.norm(other - outline)), decisions)
            for k, (other, decisions) in self.known.items()
            if k != key
        ]
        return [decisions for _, decisions in sorted(found, key=lambda x: x[0])]
