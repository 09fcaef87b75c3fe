"""A tuning job: the time there is goes to the task that gains most from it, until it is over.

The state of a job is its log. Whenever it is stopped, it goes on from there: what was tried is not
tried again, and what was best is where the search begins.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from statistics import median
from types import FrameType
from typing import Final, Literal

from planish.compiler.errors import PlanishError, ScheduleError, TuningError
from planish.compiler.remembering import tidy
from planish.schedules.schedule import LANGUAGE, replay
from planish.schedules.space import Point

from .cost import CostModel, Model
from .features import Array
from .measure import BrokenTask, LocalMeasurer, Measurer, Result
from .records import Contents, Log, Record, now, read
from .search import Search
from .tasks import Task
from .transfer import Lending, outline

BATCH: Final = 8  # candidates of a round
FIRST: Final = 4  # candidates of a task's first round, if tasks like it were tuned
CONFIRMED_BY: Final = 9  # times of old and new, measured in turn
BY_FAR: Final = 0.6  # of the incumbent's time: what needs fewer of them
CONFIRMED_BY_FAR: Final = 3
BEYOND_DOUBT: Final = 0.33  # of a time of the same moment: what needs none
PROMISING: Final = 0.98  # of the incumbent's time: what is worth being measured again
LEAST_GAIN: Final = 1.01  # the middle ratio from which a new one replaces an old one
HOPE: Final = 0.3  # the part of a task's time that its first round is expected to save
FORGETS: Final = 0.6  # what is left of that hope after a round that saved nothing
NOTABLE: Final = 0.01  # of all work: what a task must have for candidates before all are measured
REPLAYED: Final = 400  # trials of earlier jobs from which the model learns again
REPLAY_SHARE: Final = 0.05  # of the budget

Start = Literal["default", "plain"]


@dataclass(frozen=True)
class Options:
    """What a job is to do.

    It ends after ``budget`` seconds, after so many ``trials``, or when the tasks together take
    ``enough`` seconds a call of the model; whatever is first. ``start``: the schedules to begin
    with; from plain ones it cannot be told whether a result is better than the default, so that
    compiling does not use it. ``seed`` decides all that is drawn.
    """

    budget: float = 600.0
    trials: int | None = None
    enough: float | None = None
    start: Start = "default"
    seed: int = 0
    batch: int = BATCH
    made: Mapping[str, str] = field(default_factory=dict)  # what records say of their making


@dataclass(eq=False)
class State:
    """A task in a job: its best schedule, the time of a call of it, and what is hoped for."""

    task: Task
    search: Search
    best: Point
    outline: Array
    seconds: float = float("inf")
    first: float = float("inf")  # of the schedule that the job began with
    trials: int = 0
    rounds: int = 0
    hope: float = HOPE
    round_seconds: float = 2.0
    proposed: list[Point] = field(default_factory=list)  # for the next round
    dead: str = ""  # why nothing can be measured

    @property
    def share(self) -> float:
        """Seconds of the model's time that go to the task."""
        return 0.0 if self.dead or self.seconds == float("inf") else self.seconds * self.task.calls

    @property
    def promise(self) -> float:
        """Seconds of the model's time that a second of tuning is expected to save."""
        return 0.0 if self.dead else self.share * self.hope / max(0.1, self.round_seconds)


@dataclass(frozen=True)
class Progress:
    """Where a job stands; times are those of one call of the model, in seconds.

    As long as tasks are ``missing``, nothing of which is measured yet, the times lack theirs.
    """

    spent: float
    trials: int
    seconds: float
    first: float
    expected: float  # if the job went on for ten minutes more
    failures: Mapping[str, int]
    states: Sequence[State]
    label: str = ""  # of the task that was worked on
    interrupted: bool = False
    missing: int = 0
    taken_back: tuple[str, ...] = ()  # functions that are slower in the model than by default


class Job:
    """One tuning job; ``run`` does it, and may be called from one thread only.

    ``measurer`` and ``model`` can be others than ours. What was best in ``logs`` for tasks like
    these is tried early. ``report`` is called after every round.
    """

    def __init__(
        self,
        tasks: Iterable[Task],
        log: str | Path,
        options: Options | None = None,
        *,
        measurer: Measurer | None = None,
        model: Model | None = None,
        logs: Iterable[str | Path] = (),
        report: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        self.options = options or Options()
        self.log = Log(log)
        self.measurer = measurer or LocalMeasurer()
        self.model = CostModel.shipped(self.options.seed) if model is None else model
        self.logs = tuple(logs)
        self.report = report
        self.lending = Lending()
        self._beside = ThreadPoolExecutor(1)
        self._interrupted: Callable[[], bool] = lambda: False
        self.failures: Counter[str] = Counter()
        self.trials = 0
        self._began = time.monotonic()
        self._until = self._began + self.options.budget
        self._last = ""
        pick = Random(self.options.seed)
        self.states = [self._state(task, pick) for task in tasks]
        if not self.states:
            raise TuningError("there is nothing to tune: the model has no function of its own")
        self.measurer.until = self._until + 1.0

    def run(self) -> Progress:
        """Tune until the budget is spent, or someone interrupts it (Ctrl-C).

        Errors: TuningError if the log cannot be written; what it holds by then is kept.
        """
        try:
            with _interrupts() as self._interrupted:
                self._tune()
            return self.progress()
        except KeyboardInterrupt:
            return replace(self.progress(), interrupted=True)
        finally:
            self._beside.shutdown()
            self.measurer.close()
            self.log.close()

    def _tune(self) -> None:
        contents = read([self.log.path])
        self._resume(contents)
        for some in (contents, read(self.logs, ("task", "best"))):
            self.lending.read(some, self.states[0].task)
        self._measure_first()
        while self._goes_on():
            state = max(self.states, key=_promise)
            if state.promise <= 0:
                break
            self._round(state)

    def progress(self) -> Progress:
        """Where the job stands."""
        seconds = sum(s.share for s in self.states)
        saved = sum(s.share * min(0.5, s.hope) for s in self.states)
        reach = min(1.0, 600.0 / max(1.0, sum(s.round_seconds for s in self.states)))
        return Progress(
            time.monotonic() - self._began,
            self.trials,
            seconds,
            sum(s.first * s.task.calls for s in self.states if s.share),
            seconds - saved * reach,
            dict(self.failures),
            self.states,
            self._last,
            missing=sum(not s.share and not s.dead for s in self.states),
        )

    # -------------------------------------------------------------------------------- beginning

    def _state(self, task: Task, pick: Random) -> State:
        space = replace(task.space, estimates=self.options.start == "default")
        search = Search(task, space, Random(pick.random()))
        return State(task, search, search.start, outline(task.func, task, task.sizes))

    def _resume(self, contents: Contents) -> None:
        """Take over what the log holds of these tasks."""
        of = {s.task.key: s for s in self.states}
        until = self._began + REPLAY_SHARE * self.options.budget
        mine = [
            r
            for r in contents.records
            if r.task in of and r.language == LANGUAGE and r.threads == of[r.task].task.threads
            and r.target == of[r.task].task.target_key
        ]  # fmt: skip
        for r in mine:
            state = of[r.task]
            state.search.tried.add(r.trace)
            if r.kind == "best" and self._began_alike(r) and (point := _replayed(state.task, r)):
                state.best = point
        for r in [r for r in mine if r.kind == "trial"][-REPLAYED:]:
            if time.monotonic() > until:
                break
            state = of[r.task]
            if (point := _replayed(state.task, r)) is not None:
                state.search.told(point, r.time)

    def _began_alike(self, r: Record) -> bool:
        return r.made.get("start", "default") == self.options.start

    def _measure_first(self) -> None:
        """Measure what each task begins with; if that is a plain schedule, some others with it.

        Where nothing is known yet, it is not the time of what a task begins with that tells which
        tasks matter, and the first candidates may as well be those of its first round.
        """
        states, heavy = self.states, float("inf")
        if self.options.start == "plain":
            states = sorted(states, key=_work, reverse=True)
            heavy = NOTABLE * sum(map(_work, states))
        new = [s for s in states if _work(s) >= heavy and not s.search.known]
        for state in states:
            if time.monotonic() >= self._until:
                return
            self.log.task(state.task)
            began = time.monotonic()
            points = [state.best, *(self._proposed(state, beside=1) if state in new else ())]
            following = new[new.index(state) + 1 :] if state in new else []
            results = self._results(state, points, following[0] if following else None)
            if not results:
                continue
            if results[0] is None:
                return
            self._take(state, state.best, results[0])
            if results[0].error:
                state.dead = f"{results[0].error}: {results[0].detail}"
                continue
            state.seconds = state.first = min(results[0].seconds)
            state.round_seconds = max(1.0, 2 * (time.monotonic() - began))
            if state in new:
                self._begin(state, results[0], points[1:], results[1:])
                if not self._learn(state, points[1:], results[1:], began):
                    return
            self._tell(state)

    def _begin(
        self,
        state: State,
        first: Result,
        points: Sequence[Point],
        results: Sequence[Result | None],
    ) -> None:
        """Take the best of the first candidates, if it is far better than what was there."""
        found = [(min(r.seconds), k) for k, r in enumerate(results) if r and r.seconds]
        seconds, k = min(found, default=(float("inf"), 0))
        result = results[k] if found else None
        if result is not None and seconds < BEYOND_DOUBT * state.seconds:
            self._replace(state, points[k], result, first)

    # ----------------------------------------------------------------------------------- rounds

    def _goes_on(self) -> bool:
        options = self.options
        if self._interrupted():
            raise KeyboardInterrupt
        if time.monotonic() >= self._until:
            return False
        if options.trials is not None and self.trials >= options.trials:
            return False
        seconds = sum(s.share for s in self.states)
        return options.enough is None or seconds > options.enough

    def _round(self, state: State) -> None:
        """Propose, measure, learn."""
        began = time.monotonic()
        points = self._proposed(state)
        if not points:
            state.hope = 0.0  # there is no other schedule left
            return
        others = [s for s in self.states if s is not state and s.promise > 0]
        results = self._results(state, points, max(others, key=_promise, default=None))
        if results and self._learn(state, points, results, began):
            self._tell(state)
        tidy()

    def _results(
        self, state: State, points: Sequence[Point], following: State | None
    ) -> list[Result | None]:
        """What came of some points of a task; none if the task is broken.

        While they are built, those of the task that is likely to come next are proposed.
        """

        def propose() -> None:
            if following is not None and not following.proposed:
                following.proposed = self._propose(following)

        traces = [p.schedule.trace for p in points]
        proposing = self._beside.submit(propose)
        try:
            return self.measurer.results(state.task, traces, state.seconds, proposing.result)
        except BrokenTask as error:
            state.dead = str(error)
            return []
        finally:
            proposing.result()

    def _learn(
        self,
        state: State,
        points: Sequence[Point],
        results: Sequence[Result | None],
        began: float,
    ) -> bool:
        """Note what came of candidates, and measure again what seems to be better.

        False if the time was over before.
        """
        before = state.seconds
        better: list[tuple[float, int]] = []
        for k, (point, result) in enumerate(zip(points, results, strict=True)):
            if result is None:
                return False
            self._take(state, point, result)
            if result.seconds and min(result.seconds) < PROMISING * state.seconds:
                better.append((min(result.seconds), k))
        for seconds, k in sorted(better)[:2]:
            if self._confirmed(state, points[k], seconds):
                break
        self.model.fit([s for each in self.states for s in each.search.samples])
        state.rounds += 1
        gain = 1 - state.seconds / before
        state.hope = max(FORGETS * state.hope, min(0.5, gain))
        spent = time.monotonic() - began
        state.round_seconds = 0.5 * (state.round_seconds + spent) if state.rounds > 1 else spent
        return True

    def _proposed(self, state: State, beside: int = 0) -> list[Point]:
        """The points of a task that are measured next, as many as trials are left for them.

        ``beside``: trials that are made with them.
        """
        points = state.proposed or self._propose(state)
        state.proposed = []
        if self.options.trials is not None:
            points = points[: max(0, self.options.trials - self.trials - beside)]
        return points

    def _propose(self, state: State) -> list[Point]:
        """New points of a task to measure."""
        count = self.options.batch
        lent = self.lending.to(state.task.key, state.outline)
        if lent and not state.rounds:
            count = min(count, FIRST)  # others know already what is good
        return state.search.propose(count, self.model, lent)

    def _take(self, state: State, point: Point, result: Result) -> None:
        """Note what came of a candidate."""
        self.trials += 1
        state.trials += 1
        if result.error:
            self.failures[result.error] += 1
        seconds = min(result.seconds) if result.seconds else float("inf")
        self.log.add(self._record("trial", state, point, result))
        state.search.told(point, seconds)

    def _confirmed(self, state: State, point: Point, seconds: float) -> bool:
        """Whether a candidate replaces the best one: faster beyond noise, measured in turn."""
        rounds = CONFIRMED_BY_FAR if seconds < BY_FAR * state.seconds else CONFIRMED_BY
        old_trace, new_trace = state.best.schedule.trace, point.schedule.trace
        found = self.measurer.compare(state.task, old_trace, new_trace, rounds)
        if found is None or found[0].error or found[1].error:
            return False
        old, new = found
        ratios = sorted(a / b for a, b in zip(old.seconds, new.seconds, strict=True))
        if median(ratios) < LEAST_GAIN or ratios[1] <= 1.0:
            return False
        self._replace(state, point, new, old)
        return True

    def _replace(self, state: State, point: Point, new: Result, old: Result) -> None:
        """Make a candidate the best one."""
        state.best, state.seconds = point, min(new.seconds)
        self.lending.learn(state.task.key, state.outline, point.decisions)
        self.log.add(self._record("best", state, point, new, old.seconds))

    def _record(
        self,
        kind: Literal["trial", "best"],
        state: State,
        point: Point,
        result: Result,
        before: tuple[float, ...] = (),
    ) -> Record:
        made = {"when": now(), **self.options.made}
        if self.options.start != "default":
            made["start"] = self.options.start
        return Record(
            kind, state.task.key, state.task.target_key, state.task.threads, state.task.sizes,
            point.decisions, point.schedule.trace, result.seconds, result.error, result.detail,
            result.stopped, before, made=made,
        )  # fmt: skip

    def _tell(self, state: State) -> None:
        self._last = state.task.label
        self.report(self.progress())


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Tells whether someone has interrupted, also where Python has lost the exception.

    One that is raised while an expression is forgotten, in a weak reference's callback, is written
    to stderr and gone.
    """
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)
        signal.default_int_handler(number, frame)

    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if ours:
        signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(came)
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _promise(state: State) -> float:
    return state.promise


def _work(state: State) -> float:
    """What there is to do for a task in a call of the model, in cycles."""
    return state.search.least_cycles * state.task.calls


def _replayed(task: Task, record: Record) -> Point | None:
    """The point of a record: what its decisions make now, or its trace alone."""
    try:
        point = task.space.point(record.decisions)
        if point.schedule.trace == record.trace:
            return point
    except ScheduleError:
        pass
    try:
        return Point(replay(task.func, record.trace), record.decisions, {})
    except PlanishError:  # an older rule's, which the moves of today do not allow
        return None
