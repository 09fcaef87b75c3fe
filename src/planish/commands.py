"""What the program's commands do; ``planish.cli`` says what they are called."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from math import inf
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from planish.compiler.config import CONFIG
from planish.compiler.errors import PlanishError, TypeCheckError
from planish.console import (
    check_writable,
    counted,
    given_dims,
    in_bytes,
    note,
    refuse_module,
    wrapped,
    write,
    write_json,
)

if TYPE_CHECKING:
    from planish.bench import StepTime
    from planish.cli import Progress
    from planish.compiler.graph.ir import Graph
    from planish.operators import Need, OnnxOperator
    from planish.runtime.module import Module

Array = npt.NDArray[Any]


def compile_model(args: Namespace, say: Progress) -> int:
    """``planish compile``."""
    check_writable(args.output, args.model.path)
    module = _compiled(args, say)
    say(f"writing {args.output}")
    module.save(args.output)
    size = args.output.stat().st_size
    schedules = module.provenance.get("schedules", {})
    functions = len(schedules)
    if args.json:
        write_json(
            {
                "output": str(args.output),
                "bytes": size,
                "functions": functions,
                "steps": len(module.interface.steps),
                "inputs": [str(p) for p in module.inputs],
                "outputs": [str(p) for p in module.outputs],
                "target": str(module.target),
                **({"schedules": _scheduled(module)} if args.report else {}),
            }
        )
        return 0
    steps = counted(len(module.interface.steps), "step")
    write(f"{args.output}: {in_bytes(size)}, {counted(functions, 'function')} in {steps}")
    for port in module.inputs:
        write(f"  in   {port}{'  (has a default)' if port.default else ''}")
    for port in module.outputs:
        write(f"  out  {port}")
    if args.report:
        scheduled = _scheduled(module)
        for name, s in scheduled.items():
            time = f", {s['microseconds']:.1f} us a call" if "microseconds" in s else ""
            write(f"\n{name}: {s['how']} schedule{time}")
            trace = s["trace"].splitlines()
            write("\n".join(f"    {line}" for line in trace) or "    (plain loops)")
        write(f"\n{_summary(scheduled)}")
    return 0


def _scheduled(module: Module) -> dict[str, dict[str, Any]]:
    """How each function was scheduled and, where this machine can run it, how long it takes.

    The time is that of all its calls in a run on inputs that are made up, if some can be.
    """
    from planish.arrays import usable_inputs

    out = {name: dict(s) for name, s in module.provenance.get("schedules", {}).items()}
    if module.target.missing:
        return out
    try:
        _, inputs = usable_inputs(module, {})
    except PlanishError:  # what it needs, nobody can make up
        return out
    for name in out:
        out[name]["microseconds"] = 0.0
    for step in module.profile(inputs, 5):
        if step.function in out:
            out[step.function]["microseconds"] += 1e6 * step.best_seconds
    return out


def _summary(schedules: Mapping[str, Mapping[str, Any]]) -> str:
    """How much of the time goes to functions of each kind of schedule."""
    kinds = dict.fromkeys(s["how"] for s in schedules.values())
    total = sum(s.get("microseconds", 0.0) for s in schedules.values())
    parts = []
    for kind in kinds:
        of_kind = [s for s in schedules.values() if s["how"] == kind]
        spent = sum(s.get("microseconds", 0.0) for s in of_kind)
        share = f", {spent / total:.0%} of the time" if total else ""
        parts.append(f"{kind}: {counted(len(of_kind), 'function')}{share}")
    return "; ".join(parts)


def run(args: Namespace, say: Progress) -> int:
    """``planish run``."""
    from planish.arrays import by_names, inputs_from, write_npz

    check_writable(args.output, args.model.path, args.inputs)
    module = _module(args, say)
    inputs = inputs_from(args.inputs, module.inputs)
    say("running")
    outputs = by_names(module.run(inputs))
    write_npz(args.output, outputs)
    if args.json:
        write_json({n: {"dtype": str(a.dtype), "shape": a.shape} for n, a in outputs.items()})
    else:
        for name, array in outputs.items():
            write(f"{name}: {array.dtype}{list(array.shape)}")
    return 0


def bench(args: Namespace, say: Progress) -> int:
    """``planish bench``."""
    from planish.bench import check_others, other_runner, profile_steps, time_calls
    from planish.bench_tables import write_profile, write_timings

    if not 0 < args.seconds < inf:
        raise TypeCheckError(f"--seconds is {args.seconds}, and must be a time of more than 0")
    against = [name.strip() for name in args.against.split(",") if name.strip()]
    check_others(against)
    if against and not args.model.is_onnx:
        raise TypeCheckError(
            f"{args.model} is no model that other runtimes can read",
            hint="bench the .onnx file for --against",
        )
    module = _module(args, say)
    inputs = _inputs(args, module)
    positional = [inputs[p.name] for p in module.inputs if p.name in inputs and not p.default]
    whole = len(positional) == len(inputs)
    runners: dict[str, Callable[[], object]] = {
        "planish": (lambda: module(*positional)) if whole else (lambda: module.run(inputs))
    }
    for name in against:
        say(f"preparing {name}")
        runners[name] = other_runner(name, args.model.source, module.threads, inputs)
    timings = time_calls(runners, args.seconds, observe=lambda done: say("measuring", done))
    profile: list[StepTime] = []
    limits = None
    if args.profile:
        say("measuring each step, and the machine")
        profile, limits = profile_steps(module, inputs)
    if args.json:
        write_json(
            {
                "threads": module.threads,
                "seconds": {t.name: asdict(t) for t in timings},
                **({"limits": asdict(limits)} if limits else {}),
                **({"profile": [asdict(s) for s in profile]} if args.profile else {}),
            }
        )
        return 0
    write_timings(timings, module.threads)
    if limits:
        write_profile(profile, limits)
    return 0


def verify(args: Namespace, say: Progress) -> int:
    """``planish verify``."""
    from planish import build
    from planish.verify import check_oracle, onnxruntime_oracle, reference_oracle
    from planish.verify import verify as compare

    check_oracle(args.against, args.model.is_onnx)
    if not args.tolerance >= 0:
        raise TypeCheckError(f"--tolerance is {args.tolerance}, and must not be negative")
    target = build.resolve_target(args.target)
    graph = build.import_graph(args.model.source, given_dims(args), say)

    def make(g: Graph, optimize: bool) -> Module:
        return build.compile_imported(g, target, args.threads, optimize and not args.no_optimize)

    module = make(graph, True)
    inputs = _inputs(args, module)
    if graph.packings:
        inputs, graph = _without_lists(args, module, inputs), graph.with_(packings=())
    oracle = (
        reference_oracle(graph, inputs)
        if args.against == "reference"
        else onnxruntime_oracle(args.model.source, inputs)
    )
    report = compare(graph, oracle, inputs, make, args.tolerance, say)
    if args.json:
        write_json({"right": report.right, **asdict(report)})
        return 0 if report.right else 1
    for d in report.outputs:
        mark = "right" if d.right else "WRONG"
        write(f"{mark}  {d.name}: off by {d.error:.1e} of its largest value {d.what}".rstrip())
    if not report.right:
        if report.value is not None:
            write(f"\nfirst value that is off: {report.value.name}, by {report.value.error:.1e}")
        write(f"    {report.node}\ncause: {report.blame}")
    return 0 if report.right else 1


def _without_lists(args: Namespace, module: Module, inputs: dict[str, Any]) -> dict[str, Any]:
    """The inputs as the code gets them; sequences are compared as the tensors that they are."""
    from planish.runtime.packing import Boundary

    if args.against != "reference":
        raise TypeCheckError(
            "among inputs and outputs are sequences or optionals",
            op="verify",
            hint="--against reference can compare them",
        )
    return Boundary(module.interface).given(inputs)


def show(args: Namespace, say: Progress) -> int:
    """``planish show``."""
    from planish.build import resolve_target
    from planish.show import stage_text

    refuse_module(args.model)
    say(f"making the stage {args.stage}")
    text = stage_text(
        args.model.source,
        args.stage,
        resolve_target(args.target),
        given_dims(args),
        args.threads,
        not args.no_optimize,
    )
    if args.json:
        write_json({"stage": args.stage, "text": text})
    else:
        write(text)
    return 0


def target(args: Namespace, _: Progress) -> int:
    """``planish target``."""
    from planish.runtime.pool import available_cpus
    from planish.targets.llvm.target import Llvm
    from planish.targets.target import parse_target

    found = parse_target(args.target or CONFIG.target)
    if args.label:
        from planish.autotune.device import label_of

        write(json.dumps({label_of(found): 1}))
        return 0
    machine = found.machine
    facts: dict[str, Any] = {
        "target": str(found),
        "isa": machine.isa,
        "vector_bytes": machine.vector_bytes,
        "vector_registers": machine.vector_registers,
        "fma": machine.fma,
        "l1_bytes": machine.l1_bytes,
        "l2_bytes": machine.l2_bytes,
        "l3_bytes": machine.l3_bytes,
        "cores": machine.cores,
    }
    assumed = not (isinstance(found, Llvm) and found.is_host)
    if isinstance(found, Llvm):
        facts["missing_here"] = list(found.missing)
    if assumed:
        facts["assumed"] = ["l1_bytes", "l2_bytes", "l3_bytes", "cores"]
    else:
        facts["threads"] = available_cpus()
    if args.json:
        write_json(facts)
    else:
        guesses = facts.pop("assumed", ())
        for name, value in facts.items():
            text = ", ".join(value) or "nothing" if isinstance(value, list) else value
            note = "  (assumed)" if name in guesses else ""
            write(f"{name.replace('_', ' '):17} {text}{note}")
    return 0


def ops(args: Namespace, say: Progress) -> int:
    """``planish ops``."""
    from planish.operators import needs, onnx_operators, own_operators

    if args.model is None:
        known, own = onnx_operators(), own_operators()
        if args.json:
            write_json({"onnx": [asdict(o) for o in known], "planish": [asdict(o) for o in own]})
        else:
            _write_operators(known)
            write("\noperators of planish, into which a model is translated:")
            write(wrapped(o.name for o in own))
        return 0
    refuse_module(args.model)
    say("reading the model")
    found = needs(args.model.source)
    if args.json:
        write_json({"supported": found.supported, **asdict(found)})
    else:
        _write_needs(found.operators)
        write(f"\nnot supported\n{found.error}" if found.error else "\nall of it is supported")
    return 0 if found.supported else 1


def env(args: Namespace, _: Progress) -> int:
    """``planish env``."""
    if args.json:
        write_json({v.name: {"value": v.text or None, "help": v.help} for v in CONFIG})
    else:
        for variable in CONFIG:
            write(f"{variable.name:16} {variable.help}")
            write(f"{'':16} {f'is {variable.text}' if variable.text else 'is not set'}")
    return 0


# ---------------------------------------------------------------------------------------- pieces


def _compiled(args: Namespace, say: Progress) -> Module:
    from planish.build import compile

    refuse_module(args.model)
    return compile(
        args.model.source,
        target=args.target,
        dims=given_dims(args),
        threads=args.threads,
        logs=[] if args.no_logs else args.log,
        optimize=not args.no_optimize,
        progress=say,
    )


def _module(args: Namespace, say: Progress) -> Module:
    """The module of a model or module file."""
    if args.model.is_onnx:
        return _compiled(args, say)
    from planish.runtime.file import load

    compiling = args.target is not None or args.no_optimize or args.log or args.no_logs
    if compiling or (args.dim and args.inputs is not None):
        raise TypeCheckError(
            f"{args.model} is already compiled",
            hint="--target, --dim, --log, --no-logs and --no-optimize don't apply",
        )
    say(f"loading {args.model}")
    if isinstance(args.model.source, bytes):
        raise TypeCheckError(
            f"{args.model} is a compiled module, which a pipe cannot give",
            hint="name the .planish file",
        )
    return load(args.model.path, args.threads)


def _inputs(args: Namespace, module: Module) -> dict[str, Any]:
    """The inputs given, or made up."""
    from planish.arrays import inputs_from, usable_inputs

    if args.inputs is not None:
        return inputs_from(args.inputs, module.inputs)
    dims = {} if args.model.is_onnx else _printed_dims(given_dims(args), module.interface.symbols)
    sizes, inputs = usable_inputs(module, dims)
    if guessed := [f"{name}={size}" for name, size in sizes.items() if name not in dims]:
        names = ", ".join(guessed)
        note(f"sizes made up: {names} (--dim NAME=N sets one)")
    return inputs


def _printed_dims(dims: Mapping[str, int], symbols: Sequence[str]) -> dict[str, int]:
    """The sizes by the names that a module has, where a model may have others.

    Errors: TypeCheckError for one that it does not have.
    """
    from planish.compiler.graph.ir import identifier

    out: dict[str, int] = {}
    for name, size in dims.items():
        printed = name if name in symbols else identifier(name)
        if printed not in symbols:
            raise TypeCheckError(
                f"the inputs have no dimension {name!r}",
                hint=f"symbolic dimensions: {', '.join(symbols) or 'none'}",
            )
        if out.setdefault(printed, size) != size:
            raise TypeCheckError(f"--dim gives {printed!r} two sizes: {out[printed]} and {size}")
    return out


def _write_operators(known: Sequence[OnnxOperator]) -> None:
    """The table of ONNX's operators, each form by the opset in which it began."""
    import onnx

    newest = onnx.defs.onnx_opset_version()
    write(f"operators of ONNX {onnx.__version__} (opset {newest}), with the opsets in which their")
    write("forms began; cases: how many of ONNX's tests pass, compiled (and on the interpreter)")
    write(f"\n{'operator':28}{'cases':>9}  forms")
    for o in known:
        forms = [
            f"{title} {' '.join(map(str, versions))}"
            for title, versions in (
                ("own kernel:", o.handled),
                ("by its definition:", o.expanded),
                ("REFUSED:", o.missing),
            )
            if versions
        ]
        why = f" ({o.why})" if o.missing else ""
        write(f"{o.name:28}{_passed(o.passed, o.cases):>9}  {'; '.join(forms)}{why}")


def _passed(passed: Mapping[str, int], cases: int) -> str:
    """How many of an operator's cases pass, on both targets if they differ."""
    compiled, interpreted = passed.values()
    also = f" ({interpreted})" if interpreted != compiled else ""
    return f"{compiled}/{cases}{also}" if cases else ""


def _write_needs(operators: Sequence[Need]) -> None:
    said = {"handled": "yes", "expanded": "yes, by its definition", "function": "in the model"}
    write(f"{'operator':32}{'form':>5}{'nodes':>7}{'cases':>9}  supported")
    for o in operators:
        form = "" if o.version is None else str(o.version)
        cases = f"{o.passed}/{o.cases}" if o.cases else ""
        supported = said.get(o.how) or f"NO: {o.why}"
        write(f"{o.operator:32}{form:>5}{o.nodes:7}{cases:>9}  {supported}")
