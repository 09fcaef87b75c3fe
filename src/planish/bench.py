"""How fast a module is: beside other runtimes in the same run, and step by step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from planish.compiler.errors import CodegenError, TypeCheckError

if TYPE_CHECKING:
    from planish.runtime.limits import Limits
    from planish.runtime.module import Module

Array = npt.NDArray[Any]
Call = Callable[[], object]

REPEAT = 20  # runs, of whose times a profile has the best
BUSY = 0.25  # rounds that differ by more than this were disturbed
AGAINST = ("onnxruntime",)
_PAUSE_SECONDS = 0.06  # other pools spin for a while after a call, and would hold the cores


@dataclass(frozen=True)
class Timing:
    """Times of calls, in seconds."""

    name: str
    calls: int
    median: float
    best: float
    p90: float


def time_calls(
    runners: Mapping[str, Call],
    seconds: float,
    rounds: int = 8,
    observe: Callable[[float], None] = lambda _: None,
) -> list[Timing]:
    """Time runners in interleaved rounds, in so many seconds for each.

    ``observe`` is told which share is done.
    """
    times: dict[str, list[float]] = {name: [] for name in runners}
    for call in runners.values():
        call()
    for done in range(rounds):
        observe(done / rounds)
        for name, call in runners.items():
            if len(runners) > 1:
                time.sleep(_PAUSE_SECONDS)
            call()
            end = time.perf_counter() + seconds / rounds
            while True:
                start = time.perf_counter()
                call()
                now = time.perf_counter()
                times[name].append(now - start)
                if now >= end:
                    break
    return [
        Timing(name, len(t), float(np.median(t)), min(t), float(np.quantile(t, 0.9)))
        for name, t in times.items()
    ]


def check_others(names: Iterable[str]) -> None:
    """Whether there are such runtimes to compare with.

    Errors: TypeCheckError naming one that there is not.
    """
    for name in names:
        if name not in AGAINST:
            raise TypeCheckError(
                f"there is no comparison with {name}", hint=f"one of: {' '.join(AGAINST)}"
            )


def other_runner(name: str, model: Path | bytes, threads: int, inputs: Mapping[str, Array]) -> Call:
    """A call of another runtime on the same model and inputs.

    Errors: CodegenError if it is not installed or cannot run the model; TypeCheckError if there
    is none.
    """
    check_others([name])
    session = onnx_session(model, threads)
    return lambda: onnx_outputs(session, None, inputs)


def onnx_outputs(
    session: Any, names: Sequence[str] | None, inputs: Mapping[str, Array]
) -> list[Array]:
    """What a session of ONNX Runtime gives; without names, all outputs.

    Errors: CodegenError if it cannot run the model on the inputs.
    """
    try:
        outputs: list[Array] = session.run(names, dict(inputs))
    except Exception as error:  # its errors have no common class that is exported
        raise CodegenError(f"onnxruntime cannot run the model: {error}") from error
    return outputs


def onnx_session(model: Path | bytes, threads: int | None) -> Any:
    """A session of ONNX Runtime; by its path, a model may have parts in other files.

    Errors: CodegenError if it is not installed or refuses the model.
    """
    try:
        import onnxruntime  # type: ignore[import-untyped]
    except ImportError as error:
        raise CodegenError(
            "onnxruntime is not installed", hint="pip install onnxruntime"
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    options.log_severity_level = 3
    try:
        source = str(model) if isinstance(model, Path) else model
        return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors have no common class that is exported
        raise CodegenError(f"onnxruntime refuses the model: {error}") from error


@dataclass(frozen=True)
class StepTime:
    """A step's time in seconds, its work, and the share of the machine's limit that it reaches."""

    function: str
    origin: tuple[str, ...]
    seconds: float
    share: float
    gflops: float
    gbytes: float
    of_limit: float


def profile_steps(
    module: Module, inputs: Mapping[str, Array], repeat: int = REPEAT
) -> tuple[list[StepTime], Limits]:
    """The steps with their best times, and the limits, which are those of the best rounds.

    The limits are measured before and after, so that it shows if the machine was busy.
    """
    from planish.runtime.interface import evaluator
    from planish.runtime.limits import best_of, measure_limits

    before = measure_limits(module.threads)
    module.profile(inputs, 2)
    times = [step.best_seconds for step in module.profile(inputs, repeat)]
    limits = best_of(before, measure_limits(module.threads))
    steps = module.interface.steps
    sizes = evaluator(module.interface.symbols, [x for s in steps for x in (s.flops, s.bytes)])
    work = sizes(*module.plan(inputs).symbols)
    total = sum(times) or 1.0
    out = []
    for k, (step, seconds) in enumerate(zip(steps, times, strict=True)):
        flops, moved = float(work[2 * k]), float(work[2 * k + 1])
        taken = max(seconds, 1e-9)
        out.append(
            StepTime(
                step.function,
                step.origin,
                seconds,
                seconds / total,
                flops / taken / 1e9,
                moved / taken / 1e9,
                limits.seconds(flops, moved) / taken,
            )
        )
    return out, limits
