"""Measuring on the machines of a Ray cluster: an actor for each, its work redone if it is lost.

Each machine that can measure a target has one unit of a resource that is named after the target
(``device.label_of``); the actor there takes it, and all CPUs that Ray gives out on the machine. So
candidates are measured only on CPUs that they are made for, and one at a time on each.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

from planish.compiler.errors import TuningError
from planish.compiler.machine import Machine
from planish.runtime.pool import available_cpus
from planish.schedules.schedule import LANGUAGE, Trace
from planish.schedules.trace import trace_to_json
from planish.targets.target import Target, parse_target
from planish.version import __version__

from .closing import Closing
from .device import Device, boot, label_of, machine_of, results_of
from .measure import Limits, Result
from .tasks import Task

LOCAL: Final = "local"  # the address of a Ray that is started here, for the job alone
STORE: Final = 80 << 20  # bytes of Ray's memory for objects: what travels is small
ACTOR_SECONDS: Final = 90.0  # that an actor may take to start, and a job waits where all are lost
OTHERS_SECONDS: Final = 10.0  # that a job waits at its beginning, once it has a first one
SILENT_SECONDS: Final = 60.0  # after which an actor that does not answer counts as lost
KNOCK_SECONDS: Final = 10.0  # that a cluster may take to accept a connection
LOOK: Final = 1.0  # seconds between looks at actors
NODES: Final = 3.0  # and between looks at the machines there are
AFTER: Final = 3.0  # seconds that an actor may answer later than it should
LOSSES: Final = 3  # actors that are given the same work


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise TuningError(
            "tuning on a cluster needs Ray (the extra planish[cluster]), which is not installed",
            hint="pip install ray[client]",
        ) from error
    return ray


@dataclass(eq=False)
class _Actor:
    """An actor: the machine it is on, and what it was asked last."""

    node: str
    name: str  # of the machine
    handle: Any
    facts: Any  # the reference to them
    ready: bool = False
    is_here: bool = False  # on the machine that this is
    ping: Any = None
    silent: float = 0.0


class ClusterMeasurer(Closing):
    """Measures on a Ray cluster. ``address`` is as for ``ray.init``, or ``LOCAL``.

    Used with ``with``, or closed. ``devices`` is how many machines there are for the target,
    ``machine`` and ``cpus`` tell what the first of them is: those of one target are taken to be
    alike.

    Errors: TuningError if there is no Ray, or no machine for the target, then or later.
    """

    def __init__(
        self,
        target: Target,
        address: str = LOCAL,
        limits: Limits | None = None,
        processes: int = 2,
    ) -> None:
        self.until = float("inf")
        self.label = label_of(target)
        self.machine: Machine = target.machine
        self.cpus = 0
        self._limits, self._processes = limits or Limits(), max(1, processes)
        self._ray = _ray()
        self._actors: list[_Actor] = []
        self._refused: dict[str, str] = {}  # machines, and what is wrong with them
        self._failed: Counter[str] = Counter()  # starts of actors, by machine
        self._looked = 0.0
        self.lost = 0  # actors that ended while they were to measure
        self._starts = not self._ray.is_initialized()
        if self._starts:
            _connect(self._ray, address)
        try:
            self._look()
            if not self._actors:
                raise self._nobody()
            self._ready(time.monotonic() + ACTOR_SECONDS)
            soon = time.monotonic() + OTHERS_SECONDS
            while self.devices < len(self._actors) and time.monotonic() < soon:
                time.sleep(LOOK / 5)
                self._look()
        except BaseException:
            self.close()
            raise

    @property
    def devices(self) -> int:
        """How many machines measure at the moment."""
        return sum(a.ready for a in self._actors)

    def close(self) -> None:
        """End the actors, and Ray if it was started here."""
        for actor in list(self._actors):
            self._lose(actor)
        if self._starts:
            self._starts = False
            self._ray.shutdown()

    # ------------------------------------------------------------------------------ the work

    def results(
        self,
        task: Task,
        traces: Sequence[Trace],
        incumbent: float,
        built: Callable[[], object] = lambda: None,
    ) -> list[Result | None]:
        """What came of each candidate; see ``Measurer``.

        What the caller does beside may go on, unless one of the machines is the caller's.
        """
        if any(a.is_here for a in self._actors):
            built()
        size = self._processes  # so many are built side by side
        parts = [traces[k : k + size] for k in range(0, len(traces), size)]
        answers = self._all([_command("results", task, p, incumbent=incumbent) for p in parts])
        return [r for p, a in zip(parts, answers, strict=True) for r in self._of(a, len(p))]

    def compare(
        self, task: Task, old: Trace, new: Trace, rounds: int
    ) -> tuple[Result, Result] | None:
        """Times of two candidates, measured in turn on one machine."""
        (found,) = self._all([_command("compare", task, (old, new), rounds=rounds)])
        a, b = self._of(found, 2)
        return None if a is None or b is None else (a, b)

    def _of(self, found: Any, count: int) -> list[Result | None]:
        if isinstance(found, Result):
            return [found] * count
        return results_of(found, count)

    def _all(self, commands: Sequence[str]) -> list[Any]:
        """The answers to commands, each by the first that is free; None where time was over.

        What an actor had to do when it was lost is done by another; where that happens again and
        again, it is the work that does it, and a result says so.
        """
        answers: list[Any] = [None] * len(commands)
        waiting = deque(range(len(commands)))
        losses: Counter[int] = Counter()
        busy: dict[Any, tuple[_Actor, int]] = {}
        try:
            while waiting or busy:
                left = self.until - time.monotonic()
                if left < -AFTER or (left <= 0 and not busy):
                    break
                for actor in self._free([a for a, _ in busy.values()]) if waiting else ():
                    if waiting and left > 0:
                        k = waiting.popleft()
                        work = actor.handle.work.remote(commands[k], min(left, 1e9))
                        busy[work] = actor, k
                for work in self._done(busy):
                    actor, k = busy.pop(work)
                    text = self._answer(actor, work)
                    if text is not None:
                        answers[k] = json.loads(text)
                        continue
                    self.lost += 1
                    losses[k] += 1
                    if losses[k] < LOSSES:
                        waiting.appendleft(k)
                    else:
                        answers[k] = _lost(losses[k])
        except ConnectionError as error:
            raise TuningError(
                f"the connection to the cluster is lost: {error}",
                hint="the same command goes on from the log",
            ) from error
        finally:
            for actor, _ in busy.values():  # their work is not waited for
                self._lose(actor)
        return answers

    def _answer(self, actor: _Actor, work: Any) -> str | None:
        """What came of work that is done; None if its actor was lost."""
        if actor not in self._actors:
            return None
        errors = self._ray.exceptions
        try:
            return str(self._ray.get(work))
        except errors.RayTaskError:  # an exception of the code there
            raise
        except errors.RayError:
            self._lose(actor)
            return None

    def _done(self, busy: Mapping[Any, tuple[_Actor, int]]) -> list[Any]:
        """Work that has ended, or whose actor was lost; after a moment, maybe none."""
        if not busy:
            time.sleep(LOOK / 5)
            return []
        before = time.monotonic()
        done: list[Any] = self._ray.wait(list(busy), timeout=LOOK)[0]
        # All processes may have been stopped for a while: that was nobody's silence.
        passed = min(time.monotonic() - before, 2 * LOOK)
        for work, (actor, _) in busy.items():
            if actor.ping is None:
                actor.ping, actor.silent = actor.handle.alive.remote(), 0.0
            elif self._ray.wait([actor.ping], timeout=0)[0]:
                actor.ping = None
            else:
                actor.silent += passed
                if actor.silent > SILENT_SECONDS:
                    self._lose(actor)
            if actor not in self._actors and work not in done:
                done.append(work)
        return done

    # ------------------------------------------------------------------------------ the actors

    def _free(self, busy: Sequence[_Actor]) -> list[_Actor]:
        """Actors that have nothing to do; if there are none at all, some are waited for.

        Errors: TuningError if none comes.
        """
        self._look()
        if not busy and not self.devices:
            self._ready(min(time.monotonic() + ACTOR_SECONDS, self.until))
        return [a for a in self._actors if a.ready and a not in busy]

    def _ready(self, until: float) -> None:
        """Wait until there is an actor that can measure.

        Errors: TuningError if there is none.
        """
        while not self.devices:
            if time.monotonic() > until:
                if until >= self.until:
                    return
                raise self._nobody()
            if self._actors:
                self._ray.wait([a.facts for a in self._actors], timeout=LOOK)
            else:
                time.sleep(LOOK / 5)
            self._look()
            if not self._actors and self._refused:
                raise self._nobody()

    def _look(self) -> None:
        """See which machines there are and which actors are ready; start those that lack."""
        for actor in [a for a in self._actors if not a.ready]:
            if self._ray.wait([actor.facts], timeout=0)[0]:
                self._take_facts(actor)
        if time.monotonic() < self._looked + NODES and self.devices == len(self._actors) > 0:
            return
        self._looked = time.monotonic()
        there = {n["NodeID"]: n for n in self._ray.nodes() if n["Alive"]}
        for actor in [a for a in self._actors if a.node not in there]:
            self._lose(actor)
        taken = {a.node for a in self._actors} | set(self._refused)
        for id, node in there.items():
            if id not in taken and node["Resources"].get(self.label, 0) >= 1:
                self._start(id, node)

    def _start(self, id: str, node: Mapping[str, Any]) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        actor = self._ray.remote(Device).options(
            num_cpus=int(node["Resources"].get("CPU", 0)),
            resources={self.label: 1},
            scheduling_strategy=NodeAffinitySchedulingStrategy(id, soft=False),
            max_restarts=0,
            max_concurrency=2,
        )
        handle = actor.remote(json.dumps(asdict(self._limits)), self._processes)
        name = str(node.get("NodeManagerHostname") or id)
        self._actors.append(_Actor(id, name, handle, handle.facts.remote()))

    def _take_facts(self, actor: _Actor) -> None:
        try:
            facts = json.loads(self._ray.get(actor.facts))
        except self._ray.exceptions.RayError as error:
            self._failed[actor.node] += 1
            if getattr(error, "actor_init_failed", False) or self._failed[actor.node] >= LOSSES:
                self._refuse(actor, f"it cannot start: {str(error).strip().splitlines()[-1]}")
            else:
                self._lose(actor)
            return
        here = (__version__, LANGUAGE)
        if (facts["planish"], facts["language"]) != here:
            self._refuse(actor, f"it has planish {facts['planish']}, here is {__version__}")
        elif facts["label"] != self.label:
            self._refuse(actor, f"its label is not that of its CPU, which is {facts['label']}")
        else:
            if not self.cpus:
                self.cpus, self.machine = int(facts["cpus"]), machine_of(facts["machine"])
            actor.ready, actor.is_here = True, facts["boot"] == boot()

    def _refuse(self, actor: _Actor, why: str) -> None:
        self._refused[actor.node] = f"{actor.name}: {why}"
        self._lose(actor)

    def _lose(self, actor: _Actor) -> None:
        """Have no more to do with an actor, and end it if it is still there."""
        if actor in self._actors:
            self._actors.remove(actor)
        gone = self._ray.exceptions.RayError, ConnectionError, ValueError, RuntimeError
        with suppress(*gone):  # it has ended, or the cluster has
            self._ray.kill(actor.handle)

    def _nobody(self) -> TuningError:
        labels = sorted({
            name
            for node in self._ray.nodes()
            if node["Alive"]
            for name in node["Resources"]
            if name.startswith("planish:")
        })  # fmt: skip
        known = "\n".join([*(f"the cluster has {x}" for x in labels), *self._refused.values()])
        taken = self.label in labels and not self._refused
        return TuningError(
            f"the cluster has no machine that measures {self.label}"
            if not taken
            else f"all machines that measure {self.label} are taken, or do not answer",
            op="tune",
            node=known or None,
            hint="end what else runs there"
            if taken
            else 'start Ray there with --resources "$(planish target --label)"',
        )


def _connect(ray: Any, address: str) -> None:
    """Become a client of a cluster, or start one here.

    Errors: TuningError if it cannot be reached.
    """
    _knock(address)
    quiet = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": True}
    try:
        if address == LOCAL:
            own = {label_of(parse_target("llvm")): 1}
            ray.init(
                address=LOCAL, num_cpus=available_cpus(), resources=own,
                object_store_memory=STORE, include_dashboard=False, **quiet,
            )  # fmt: skip
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what it warns of is in the errors too
                ray.init(address=address, **quiet)
    except (ConnectionError, ValueError, RuntimeError, ImportError) as error:
        raise _unreachable(address, error) from error


def _knock(address: str) -> None:
    """See whether somebody listens there: Ray itself takes minutes to give up.

    Errors: TuningError.
    """
    if found := re.fullmatch(r"(?:ray://)?\[?([^/\[\]]+)\]?:(\d{1,5})", address):
        try:
            socket.create_connection((found[1], int(found[2])), timeout=KNOCK_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise _unreachable(address, error) from error


def _unreachable(address: str, error: Exception) -> TuningError:
    reason = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
    return TuningError(
        f"the cluster {address} cannot be reached: {str(reason).splitlines()[0]}",
        op="tune",
        hint="its address is HOST:6379, or ray://HOST:10001, where `ray start --head` was called;"
        " if it asks for a token, set RAY_AUTH_MODE=token",
    )


def _command(do: str, task: Task, traces: Sequence[Trace], **more: Any) -> str:
    given = {"do": do, "task": task.to_json(), "traces": [trace_to_json(t) for t in traces]}
    return json.dumps({**given, **more})


def _lost(times: int) -> Result:
    return Result(error="failed", detail=f"the machine that measured it was lost, {times} times")
