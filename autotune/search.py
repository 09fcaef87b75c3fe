"""The search for a task's best schedule: evolution of points under the cost model.

Each round proposes a few points to measure: most are the best by the model's score among children
of good points, points drawn at random, and what was good for tasks like this one; some are taken
whatever the model says.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import median
from typing import Final

import numpy as np

from planish.compiler.errors import ScheduleError
from planish.schedules.choices import Decisions
from planish.schedules.space import Point, Space
from planish.schedules.trace import Trace

from .cost import Model, Sample
from .features import Array, features, least_cycles
from .tasks import Task

ELITES: Final = 8  # measured points that have children
POOL: Final = 6  # new points for each one to measure, among which the model chooses
POOL_AT_FIRST: Final = 40  # at least, where nothing better than a plain schedule is known
GENERATIONS: Final = 8
PARENTS: Final = 4  # of a generation's points that have children in the next one
EPSILON: Final = 0.2  # the part of a batch that the model has no say in
CURIOSITY: Final = 0.3  # how much of what the model is unsure of counts for a point
POOL_SECONDS: Final = 10.0  # beyond which a round makes do with what it has
RANDOM: Final = 0.15  # the part of new points that are drawn
RANDOM_AT_FIRST: Final = 0.4  # the same where nothing better than a plain schedule is known
LENT: Final = 3  # tasks from which points are taken over in a round
PER_RULE: Final = 4  # points of a rule that are drawn, to choose the first one to measure from
COMPARABLE: Final = 8.0  # times the best time: up to which a point tells about others
NEAR: Final = 2.5  # times the best time: up to which the best points of other rules have children


def rule_of(point: Point) -> str:
    """The rule that made a point."""
    return str(point.decisions["rule"])


@dataclass(eq=False)
class Known:
    """A point that was measured; infinite time: it failed. ``score``: what the model thought."""

    point: Point
    time: float
    score: float | None = None


@dataclass(eq=False)
class Search:
    """The state of a task's search in a space of its schedules."""

    task: Task
    space: Space
    pick: Random
    known: list[Known] = field(default_factory=list)
    tried: set[Trace] = field(default_factory=set)
    samples: list[Sample] = field(default_factory=list)
    _rules: set[str] = field(default_factory=set)  # of which something was proposed
    # Of the points last proposed.
    _scores: dict[Trace, float] = field(default_factory=dict)
    _features: dict[Trace, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.start = self.space.start()
        self.tried.add(self.start.schedule.trace)
        task = self.task
        self._sizes = dict(zip((v.name for v in task.func.symbols), task.sizes, strict=True))
        self.least_cycles = least_cycles(task.func, task.machine, task.threads, self._sizes)

    def propose(self, count: int, model: Model, lent: Sequence[Decisions] = ()) -> list[Point]:
        """So many new points to measure; fewer if no more are found.

        ``lent`` are decisions that were good for other tasks, those of the most similar one first.
        Up to half of the points follow them.
        """
        seeds = self._seeds(lent)
        new = [] if seeds else self._new_rules()  # these tell already which rule is good
        drawn = [self.space.random(self.pick, rule) for rule in new for _ in range(PER_RULE)]
        pool = {p.schedule.trace: p for p in (*seeds, *drawn)}
        pool = {t: p for t, p in pool.items() if t not in self.tried}
        parents = [*self._elites(), *seeds]
        until = time.monotonic() + POOL_SECONDS
        most = max(POOL * count, POOL_AT_FIRST if self._knows_nothing() else 0)
        for generation in range(GENERATIONS):
            goal = most * (generation + 1) // GENERATIONS
            attempts = 0
            while len(pool) < goal and attempts < 3 * most and time.monotonic() < until:
                attempts += 1
                child = self._child(parents)
                if child is not None and child.schedule.trace not in self.tried:
                    pool.setdefault(child.schedule.trace, child)
            if generation + 1 < GENERATIONS and pool:
                ranked = self._ranked(list(pool.values()), model)
                parents = ranked[:PARENTS]
        # Once something is known of the task itself, what is good for others has to be likely, too.
        chosen = seeds[: 1 if len(self.known) > 1 else count // 2]
        ranked = self._ranked([p for p in pool.values() if p not in chosen], model)
        for rule in new[: count - len(chosen)]:
            chosen += [p for p in ranked if rule_of(p) == rule][:1]
            self._rules.add(rule)
        ranked = [p for p in ranked if p not in chosen]
        free = sum(self.pick.random() < EPSILON for _ in range(count - len(chosen)))
        sure = count - len(chosen) - free
        rest = ranked[sure:]
        self.pick.shuffle(rest)
        chosen += [*ranked[:sure], *rest[:free]]
        self.tried.update(p.schedule.trace for p in chosen)
        if chosen:
            score, _ = model.score(np.stack([self.features(p) for p in chosen]))
            traces = [p.schedule.trace for p in chosen]
            self._scores = dict(zip(traces, map(float, score), strict=True))
        self._features = {t: x for t, x in self._features.items() if t in self._scores}
        self.space.forget()
        return chosen

    def told(self, point: Point, seconds: float) -> None:
        """What came of a point: its time, infinite if it failed."""
        self.tried.add(point.schedule.trace)
        self.known.append(Known(point, seconds, self._scores.pop(point.schedule.trace, None)))
        self.samples.append(Sample(self.task.key, self.features(point), seconds))
        del self._features[point.schedule.trace]

    def features(self, point: Point) -> Array:
        """The features of a point; those of one that is proposed are worked out once."""
        found = self._features.get(point.schedule.trace)
        if found is None:
            task = self.task
            found = features(
                point.schedule.func, task.machine, task.threads, self._sizes, self.least_cycles
            )
            self._features[point.schedule.trace] = found
        return found

    def _seeds(self, lent: Sequence[Decisions]) -> list[Point]:
        """New points of other tasks' decisions."""
        found: dict[Trace, Point] = {}
        for decisions in lent:
            if len(found) == LENT:
                break
            try:
                point = self.space.point(decisions)
            except ScheduleError:
                continue
            if point.schedule.trace not in self.tried:
                found.setdefault(point.schedule.trace, point)
        return list(found.values())

    def _elites(self) -> list[Point]:
        """The best points so far, the one that it began with among them."""
        good = sorted((k for k in self.known if k.time < float("inf")), key=lambda k: k.time)
        found = [k.point for k in good[:ELITES]]
        if len(good) < ELITES:
            return [*found, self.start]
        rules = set(map(rule_of, found))
        for k in good[ELITES:]:
            if k.time <= NEAR * good[0].time and rule_of(k.point) not in rules:
                rules.add(rule_of(k.point))
                found.append(k.point)
        return found

    def _new_rules(self) -> list[str]:
        """The rules of which nothing was proposed yet.

        Of each, one point is measured whatever the model says: which rule it is matters more than
        all else that is decided, and is the hardest to tell.
        """
        self._rules.update(rule_of(k.point) for k in self.known)
        return [rule for rule in self.space.rules() if rule not in self._rules]

    def _knows_nothing(self) -> bool:
        """Whether nothing better than a plain schedule can be known."""
        return not self.space.estimates and len(self.known) <= 1

    def _child(self, parents: Sequence[Point]) -> Point | None:
        space, pick = self.space, self.pick
        drawn = RANDOM_AT_FIRST if self._knows_nothing() else RANDOM
        if pick.random() < drawn:
            return space.random(pick)
        parent = pick.choice(parents)
        if pick.random() < 0.3 and len(parents) > 1:
            crossed = space.crossed(parent, pick.choice(parents), pick)
            return crossed and (space.mutated(crossed, pick) if pick.random() < 0.5 else crossed)
        child = space.mutated(parent, pick)
        while child is not None and pick.random() < 0.35:
            child = space.mutated(child, pick)
        return child

    def _ranked(self, points: list[Point], model: Model) -> list[Point]:
        """Points by score, the best first; in random order where the model knows nothing."""
        if not points:
            return []
        self.pick.shuffle(points)
        times = [known.time for known in self.known]
        best = min((t for t in times if t < float("inf")), default=0.0)
        measured = [k for k, t in enumerate(times) if t <= COMPARABLE * best]
        rows = [*map(self.features, points), *(self.samples[k].features for k in measured)]
        score, unsure = model.score(np.stack(rows))
        count = len(points)
        lacks = self._lacks(measured, score[count:])
        value = score[:count] + CURIOSITY * unsure[:count]
        value += [lacks.get(rule_of(p), 0.0) for p in points]
        return [points[k] for k in np.argsort(-value, kind="stable")]

    def _lacks(self, measured: Sequence[int], scores: Array) -> dict[str, float]:
        """What the scores of each rule's points lack, as points that were measured tell.

        The model has seen few points of this task, and is wrong about a rule's all alike.
        """
        if not measured:
            return {}
        by_rule: dict[str, list[float]] = {}
        speed = np.log2([1 / self.known[k].time for k in measured])
        scale = float(scores.std() / speed.std()) if speed.std() > 0 else 0.0
        for k, lack in zip(measured, scale * speed - scores, strict=True):
            by_rule.setdefault(rule_of(self.known[k].point), []).append(float(lack))
        if len(by_rule) < 2:
            return {}
        overall = median(lack for some in by_rule.values() for lack in some)
        return {
            rule: (median(some) - overall) * len(some) / (len(some) + 1)
            for rule, some in by_rule.items()
        }
