"""A process that measures, in which some candidates are poison. See ``test_measure``."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from typing import Any

from planish.autotune.worker import Failure, Worker, main

KINDS = ("crash", "hang", "allocate", "wrong", "illegal", "exit", "nonsense")


def kind_of(trace: Any) -> str:
    """What a candidate does: decided by a digest of its trace, so that it is the same each time."""
    number = int(hashlib.sha256(json.dumps(trace).encode()).hexdigest(), 16)
    every = int(os.environ.get("POISONED_EVERY", "2"))
    return KINDS[number // every % len(KINDS)] if number % every == 0 else ""


class Poisoned(Worker):
    """Builds some candidates as they are; others end, block or fill the process."""

    def build(self, id: int, trace: Any) -> dict[str, Any]:
        match kind_of(trace):
            case "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "hang":
                while True:
                    pass
            case "allocate":
                bytearray(100 << 30)
            case "wrong":
                assert self.bench is not None
                changed = [x + 1 for x in self.bench.answer]
                raise Failure("wrong", self.bench.check(changed))
            case "illegal":
                os.kill(os.getpid(), signal.SIGILL)
            case "exit":
                os._exit(3)
            case "nonsense":
                os.write(self.answers, b"what?\n")
        return super().build(id, trace)

    answers = os.dup(1)  # before it goes nowhere


if __name__ == "__main__":
    main(Poisoned(), sys.argv[1:])
