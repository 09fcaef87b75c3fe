"""Looks for faults: makes cases, runs each in every mode, and writes what is wrong to files.

``python tests/fuzz/run.py --seconds 3600`` looks; ``python tests/fuzz/run.py FILE ...`` judges
files again, and ``--seed N`` the case of a seed. What is found is made smaller and written to
``--out``, one file for each kind. The exit code is 1 if anything was found that is no refusal.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    sys.path.insert(0, str(Path(__file__).parents[2] / "src"))

from fuzz.case import Case, read, to_text
from fuzz.generate import case_of, suite
from fuzz.judge import Finding
from fuzz.minimise import minimised
from fuzz.workers import Worker

# What is not a fault by itself: another runtime takes or says something else.
MILD = ("refusal", "outside")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def write(folder: Path, name: str, case: Case, finding: Finding, seed: int | None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    note = f"{finding.kind}: {finding.where}\n{finding.text[:600]}"
    note += "" if seed is None else f"\nseed {seed}"
    path = folder / f"{name}.onnxtxt"
    path.write_text(to_text(replace(case, note=note)), "utf-8")
    return path


def smaller(case: Case, key: str, worker: Worker) -> Case:
    """A smaller case that shows the same."""
    return minimised(case, lambda c: key in [f.key for f in worker.judge(c)])


def hunt(seconds: float, first: int, out: Path) -> int:
    """The seeds from ``first`` on, until time is up."""
    suite()  # before the workers are forked
    worker, begun = Worker(), time.monotonic()
    seen: Counter[str] = Counter()
    seed = first
    while time.monotonic() - begun < seconds:
        for finding in worker.judge(seed):
            seen[finding.key] += 1
            if seen[finding.key] > 1:
                continue
            say(f"{time.monotonic() - begun:7.0f} s  seed {seed}  {finding.key}")
            case = case_of(random.Random(seed).randint)
            if finding.kind not in MILD:
                case = smaller(case, finding.key, worker)
            write(out, f"{finding.kind}_{seed}", case, finding, seed)
        seed += 1
        if (seed - first) % 500 == 0:
            say(f"{time.monotonic() - begun:7.0f} s  {seed - first} cases")
    worker.close()
    say(f"{seed - first} cases in {time.monotonic() - begun:.0f} s, seeds {first} to {seed - 1}")
    for key, count in seen.most_common():
        say(f"{count:5} {key}")
    return int(any(not key.startswith(MILD) for key in seen))


def again(cases: dict[str, Case | int], small: Path | None) -> int:
    """Judge files or a seed."""
    worker, wrong = Worker(), 0
    for name, case in cases.items():
        found = worker.judge(case)
        for finding in found:
            wrong += 1
            say(f"{name}: {finding.kind}: {finding.where}: {finding.text}")
            if small is not None:
                whole = case_of(random.Random(case).randint) if isinstance(case, int) else case
                least = smaller(whole, finding.key, worker)
                say(str(write(small, Path(name).stem, least, finding, None)))
                say(to_text(least))
        if not found:
            say(f"{name}: nothing wrong")
    worker.close()
    return int(wrong > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--first", type=int, default=None, help="the first seed")
    parser.add_argument("--seed", type=int, action="append", help="judge the case of this one")
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--minimise", action="store_true", help="of files and seeds, too")
    args = parser.parse_args()
    if args.files or args.seed:
        cases: dict[str, Case | int] = {str(p): read(p) for p in args.files}
        if args.seed:
            suite()
        cases |= {f"seed {s}": s for s in args.seed or ()}
        return again(cases, args.out if args.minimise else None)
    first = args.first if args.first is not None else int(time.time()) % 10**6 * 10**3
    return hunt(args.seconds, first, args.out)


if __name__ == "__main__":
    sys.exit(main())
