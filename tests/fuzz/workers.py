"""Cases are judged in a process of their own, which may crash, hang, or take all memory."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from .case import Case
from .judge import Finding, judge

MOST_SECONDS: Final = 40  # of a processor's time, for one thing that is done with a case
_WAIT: Final = 600  # seconds of no news, on a machine that does other things too
_MEMORY: Final = 5 << 30  # bytes of a worker's address space beyond what it begins with
_LIFE: Final = 150  # cases: a process that compiles hundreds of models grows


class Worker:
    """Judges cases, one after the other, in a process that is begun anew where that is needed."""

    def __init__(self, seconds: int = MOST_SECONDS) -> None:
        self.seconds = seconds
        self.process: Any = None
        self.done = 0

    def judge(self, case: Case | int, with_suite: bool = True) -> list[Finding]:
        """What is wrong with a case, or with the one of a seed."""
        if self.process is None or self.done >= _LIFE:
            self._begin()
        self.done += 1
        stage = "generation"
        try:
            self.pipe.send((case, with_suite))
            while self.pipe.poll(_WAIT):
                event = self.pipe.recv()
                if isinstance(event, list):
                    return event
                stage = event
        except (EOFError, OSError):
            pass
        return self._ended(stage)

    def _begin(self) -> None:
        self.close()
        context = multiprocessing.get_context("fork")
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=_work, args=(theirs, self.seconds, self.errors.fileno()), daemon=True
        )
        self.process.start()
        theirs.close()
        self.done = 0

    def _ended(self, stage: str) -> list[Finding]:
        """The finding of a worker that is no more."""
        self.process.join(5)
        code = self.process.exitcode
        self.errors.seek(0)
        text = " ".join(self.errors.read()[-1500:].split())
        self.close()
        if stage.startswith("outside") or (stage == "run, reference" and code != -signal.SIGSEGV):
            return []  # others may
        if code is None or code in (-signal.SIGPROF, -signal.SIGVTALRM):
            slow = stage.startswith(("run, interpreter", "generation"))
            return [] if slow else [Finding("hang", stage, text)]
        return [Finding("crash", stage, f"exit code {code}: {text}")]

    def close(self) -> None:
        if self.process is not None:
            self.pipe.close()
            self.errors.close()
            self.process.kill()
            self.process.join()
            self.process = None


def _work(pipe: Any, seconds: int, errors: int) -> None:
    from .generate import case_of

    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + _MEMORY, size + _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(errors, 2)
    faulthandler.enable(all_threads=False)
    faulthandler.register(signal.SIGPROF, chain=True, all_threads=False)

    def say(stage: str) -> None:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        pipe.send(stage)

    while True:
        try:
            given, with_suite = pipe.recv()
        except (EOFError, OSError):
            return
        say("generation")
        case = given
        if isinstance(given, int):
            if given % 3 == 0:
                os.environ["PLANISH_CHECK"] = "1"
            else:
                os.environ.pop("PLANISH_CHECK", None)
            case = case_of(random.Random(given).randint, with_suite)
        found = judge(case, say)
        signal.setitimer(signal.ITIMER_PROF, 0)
        pipe.send(found)
        sys.stdout.flush()


def keys(found: Sequence[Finding]) -> list[str]:
    return [f.key for f in found]
