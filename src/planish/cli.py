"""The ``planish`` program.

Exit codes: 0 done; 1 a check failed (``verify`` found a difference); 2 wrong usage, or an input
that cannot be used; 3 a fault of planish itself; 130 interrupted.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Protocol

from planish.compiler.errors import InternalError, PlanishError
from planish.model_file import ModelFile
from planish.version import __version__

OK, FAILED, UNUSABLE, FAULT, INTERRUPTED = 0, 1, 2, 3, 130

STAGES = ("graph", "fused", "lowered", "loops", "llvm", "asm")  # those of planish.show


class Progress(Protocol):
    """Takes what is being done, and which share of the whole is done, if that is known."""

    def __call__(self, text: str, share: float | None = None) -> None: ...


def build_parser() -> argparse.ArgumentParser:
    """The program's arguments."""
    parser = argparse.ArgumentParser(
        prog="planish",
        description="A tensor compiler: ONNX models as native code.",
        epilog="Exit codes: 0 done, 1 a check failed, 2 wrong usage or input, 3 a fault of ours,"
        " 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"planish {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, help: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
        sub.add_argument("--json", action="store_true", help="print the result as JSON")
        sub.add_argument("--traceback", action="store_true", help="show where an error came from")
        sub.set_defaults(parser=sub)  # whose usage is printed where the words are wrong
        return sub

    sub = command("compile", "compile an ONNX model into a module file")
    sub.add_argument("model", type=ModelFile, metavar="MODEL", help="an .onnx file")
    sub.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="OUT.planish",
        help="the module file to write",
    )
    _compiling(sub)
    sub.add_argument("--report", action="store_true", help="print how each function was scheduled")

    sub = command("run", "run a model or module file once")
    sub.add_argument("model", type=ModelFile, metavar="MODEL", help="an .onnx or .planish file")
    sub.add_argument(
        "--inputs",
        type=Path,
        required=True,
        metavar="IN.npz",
        help="the inputs by their names, as numpy.savez writes them",
    )
    sub.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="OUT.npz",
        help="where the outputs go, by their names",
    )
    _compiling(sub)

    sub = command("bench", "measure how fast a model or module file is")
    sub.add_argument("model", type=ModelFile, metavar="MODEL", help="an .onnx or .planish file")
    sub.add_argument("--inputs", type=Path, metavar="IN.npz", help="made up if not given")
    sub.add_argument(
        "--against", default="", metavar="NAMES", help="other runtimes, by commas: onnxruntime"
    )
    sub.add_argument("--profile", action="store_true", help="time each function")
    sub.add_argument("--seconds", type=float, default=2.0, help="for each runtime (default: 2)")
    _compiling(sub)

    sub = command("verify", "compare a compiled model with an oracle")
    sub.add_argument("model", type=ModelFile, metavar="MODEL", help="an .onnx file")
    sub.add_argument("--inputs", type=Path, metavar="IN.npz", help="made up if not given")
    sub.add_argument(
        "--against",
        default="reference",
        choices=("onnxruntime", "reference"),
        help="ONNX Runtime, or the operators in numpy (default: reference)",
    )
    sub.add_argument(
        "--tolerance",
        type=float,
        default=1e-4,
        help="allowed error, as a share of an output's largest value (default: 1e-4)",
    )
    _compiling(sub)

    sub = command("show", "print a model at a stage of its compilation")
    sub.add_argument("model", type=ModelFile, metavar="MODEL", help="an .onnx file")
    sub.add_argument("--stage", default="graph", choices=STAGES, help="(default: graph)")
    _compiling(sub)

    sub = command("target", "print what this machine, or another target, is")
    sub.add_argument("--target", metavar="T", help="a target, such as `llvm -mcpu=znver4`")
    sub.add_argument(
        "--label", action="store_true",
        help="print only what `ray start --resources` is told of a machine that measures for it",
    )  # fmt: skip

    sub = command("tune", "search for faster schedules of a model's functions on this machine")
    sub.add_argument("model", type=ModelFile, metavar="MODEL", help="an .onnx file")
    sub.add_argument(
        "--budget", default="10m", metavar="TIME", help="such as 90s, 10m or 2h (default: 10m)"
    )
    sub.add_argument(
        "--log", type=Path, required=True, metavar="FILE",
        help="where records go; one that is there is gone on with",
    )  # fmt: skip
    sub.add_argument("--trials", type=int, metavar="N", help="at most so many candidates")
    sub.add_argument(
        "--tasks", default="", metavar="WORDS",
        help="only functions whose names contain one of these, by commas",
    )  # fmt: skip
    sub.add_argument(
        "--target-speed", type=float, metavar="MS", help="end when a call takes no longer"
    )
    sub.add_argument(
        "--size", action="append", default=[], type=_dim, metavar="NAME=N",
        help="the size at which to tune a dimension that stays open; may be repeated",
    )  # fmt: skip
    sub.add_argument(
        "--cluster", nargs="?", const="local", metavar="ADDRESS",
        help="measure on a Ray cluster: auto, HOST:6379 or ray://HOST:10001 (default: one on this"
        " machine alone)",
    )  # fmt: skip
    sub.add_argument(
        "--model", dest="cost_model", metavar="FILE",
        help="a cost model that `planish logs fit` wrote, or the name of an installed one",
    )  # fmt: skip
    sub.add_argument("--html", type=Path, metavar="OUT.html", help="write a report, as one page")
    sub.add_argument("--start", default="default", choices=("default", "plain"),
                     help="the schedules to begin with (default: default)")  # fmt: skip
    sub.add_argument("--seed", type=int, default=0, help="of all that is drawn (default: 0)")
    _choosing(sub)

    sub = command("logs", "look into tuning logs, merge them, or learn from them")
    actions = sub.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, help in (
        ("list", "how many tasks and records logs hold"),
        ("show", "the records of a task"),
        ("best", "the best schedule of each task"),
        ("merge", "write several logs as one"),
        ("prune", "write a log without what is no longer used"),
        ("fit", "train the cost model on logs, and write it"),
    ):
        action = actions.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
        action.add_argument("logs", type=Path, nargs="*", metavar="FILE",
                            help="default: the shipped ones and PLANISH_LOGS")  # fmt: skip
        if name in ("list", "show", "best"):
            action.add_argument("--json", action="store_true", help="print the result as JSON")
        if name == "show":
            action.add_argument("--task", required=True, metavar="KEY", help="or how it begins")
        if name in ("merge", "prune", "fit"):
            action.add_argument("-o", "--output", type=Path, required=True, metavar="OUT")
        action.add_argument("--traceback", action="store_true", help=argparse.SUPPRESS)
        action.set_defaults(parser=action)

    sub = command("ops", "list the operators that are supported, or those that a model needs")
    sub.add_argument("model", type=ModelFile, nargs="?", metavar="MODEL", help="an .onnx file")

    command("env", "list the environment variables that are read")
    return parser


def _compiling(sub: argparse.ArgumentParser) -> None:
    """The options of everything that compiles."""
    _choosing(sub)
    logs = sub.add_mutually_exclusive_group()
    logs.add_argument(
        "--log", action="append", type=Path, metavar="FILE",
        help="a tuning log to use, instead of the shipped ones; may be repeated",
    )  # fmt: skip
    logs.add_argument("--no-logs", action="store_true", help="default schedules only")
    sub.add_argument("--no-optimize", action="store_true", help="every node a function of its own")


def _choosing(sub: argparse.ArgumentParser) -> None:
    """What code is made for."""
    sub.add_argument(
        "--target", metavar="T", help="such as `llvm -mcpu=znver4` (default: this CPU)"
    )
    sub.add_argument(
        "--dim",
        action="append",
        default=[],
        type=_dim,
        metavar="NAME=N",
        help="give a dimension that the model leaves open this size, and compile for it alone;"
        " may be repeated",
    )
    sub.add_argument(
        "--threads", type=int, metavar="N", help="at most; default: all that are allowed"
    )


def _dim(text: str) -> tuple[str, int]:
    name, equals, size = text.rpartition("=")
    if not equals or not name or not size.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=NUMBER")
    return name, int(size)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; gives its exit code."""
    try:
        args, rest = build_parser().parse_known_args(argv)
    except SystemExit as end:  # with a code, or after --help or --version
        code = end.code if isinstance(end.code, int) else OK
        raise SystemExit(_print("") or code) from None
    if rest:
        again = all("=" in word and word[0] != "-" for word in rest)
        hint = "\n  hint: repeat --dim before each size" if again else ""
        args.parser.error(f"unrecognized arguments: {' '.join(rest)}{hint}")
    output = io.StringIO()  # shown when the line about progress is gone
    code = _act(args, output)
    return _print(output.getvalue()) or code


def _act(args: argparse.Namespace, output: io.StringIO) -> int:
    """Do what the arguments say; gives the exit code."""
    from planish import commands, tuning_commands

    actions: dict[str, Callable[[argparse.Namespace, Progress], int]] = {
        "compile": commands.compile_model,
        "run": commands.run,
        "bench": commands.bench,
        "verify": commands.verify,
        "show": commands.show,
        "target": commands.target,
        "tune": tuning_commands.tune,
        "logs": tuning_commands.logs,
        "ops": commands.ops,
        "env": commands.env,
    }
    try:
        with progress() as say, redirect_stdout(output):
            return actions[args.command](args, say)
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except MemoryError as error:
        _explain(args, output, error)
        return _fail("there is not enough memory", UNUSABLE)
    except Exception as error:  # noqa: BLE001 -- the outermost place: nobody else will explain it
        _explain(args, output, error)
        if not isinstance(error, PlanishError):
            hint = "" if args.traceback else "\n  hint: --traceback shows where"
            return _fail(f"a fault of planish: {type(error).__name__}: {error}{hint}", FAULT)
        if isinstance(error, InternalError):
            return _fail(f"a fault of planish: {error}", FAULT)
        return _fail(str(error), UNUSABLE)


def _explain(args: argparse.Namespace, output: io.StringIO, error: Exception) -> None:
    """With ``--traceback``, show where an error came from; with ``--json``, print it as JSON."""
    if args.traceback:
        import traceback

        traceback.print_exc()
    if vars(args).get("json"):
        from planish.console import error_json

        output.write(error_json(error) + "\n")


def _print(text: str) -> int:
    """Write to stdout all that is to be written there; gives the exit code of that."""
    if sys.stdout is None:  # closed by whoever called
        return OK
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output has gone
        sys.stdout = None
    except OSError as error:
        sys.stdout = None  # or Python would try once more, at its end
        return _fail(f"the output cannot be written: {error.strerror or error}", UNUSABLE)
    return OK


def _fail(text: str, code: int) -> int:
    with suppress(OSError):  # there may be no place to say it
        print(f"planish: {text}", file=sys.stderr)
    return code


@contextmanager
def progress() -> Iterator[Progress]:
    """A line on the terminal that says what is being done; nothing if there is no terminal."""
    if not sys.stderr.isatty():
        yield lambda text, share=None: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def say(text: str, share: float | None = None) -> None:
            moving = share is None
            if bar.live.auto_refresh is not moving:  # no thread draws while something is measured
                bar.stop()
                bar.live.auto_refresh = moving
                bar.start()
            bar.update(
                task,
                description=f"{text} ..." if text else "",
                total=None if moving else 1.0,
                completed=share or 0.0,
                refresh=True,
            )

        yield say
