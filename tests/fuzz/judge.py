"""What comes of a case: run in every mode of ours, and by others, and compared.

Two results agree when they have the same dtype and shape and differ by no more than rounding in
another order can explain. How much that is, is not a constant: sums that cancel, or an exponential
of them, turn the last bit into any number of bits. So it is measured: the graph runs a few more
times by its numpy references, every value in it moved by up to a rounding error of its dtype, and
what that changes in an output is what another order of the same operations may change, times a
small factor since a few random trials don't find the worst. Sums inside of an operator move by as
many roundings as they have terms, which no trial sees: for models with such, some tens of them are
allowed. Nothing else is allowed: not other infinities or NaN, and integers must be equal, unless
those trials change them too, or trials that move every value by some tens of roundings, that far.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import ml_dtypes
import numpy as np
import onnx
from onnx import helper

import planish
from planish.compiler.errors import InternalError, PlanishError
from planish.compiler.frontends.onnx.importer import import_model
from planish.compiler.graph.reference import run_reference

from .builders import BINARY, MOVEMENTS, UNARY, VARIADIC
from .case import Arrays, Case, initializers, walk
from .values import is_float, is_int

MODES: Final[dict[str, tuple[str, bool]]] = {
    "optimised": ("llvm", True),
    "plain": ("llvm", False),
    "interpreter": ("interpreter", True),
    "interpreter, plain": ("interpreter", False),
}
TRIALS: Final = 4
MORE_TRIALS: Final = 60  # where those do not explain a difference
RANDOM: Final = frozenset(
    ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike")
    + ("Bernoulli", "Multinomial", "Dropout")
)
# These compute coordinates in float32, whose fractions have fewer bits the greater they are; and
# where they interpolate integers, what should be 2 may be cut to 1.
PLACED: Final = frozenset(
    ("Resize", "Upsample", "GridSample", "AffineGrid", "RoiAlign", "DeformConv", "MaxRoiPool")
)
# No sums inside, whose terms may cancel, as 1 and an error function do.
ROUND_ONCE: Final = frozenset((*UNARY, *BINARY, *VARIADIC, *MOVEMENTS)) - {"Gelu"}
_MOST_WORK: Final = 60_000  # operations up to which the interpreter is asked
Outputs = list[Any]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Finding:
    """What is wrong with a case: of which kind, where, and in words."""

    kind: str  # fault, disagreement, refusal, outside, crash, hang
    where: str
    text: str

    @property
    def key(self) -> str:
        """The same for cases that show the same, as far as the words tell."""
        line = " ".join(self.text.split())
        line = re.sub(r"'[^']*'|\"[^\"]*\"|%\S+", "_", line)
        line = re.sub(r"[-+]?\d[\d.e+-]*|\b(nan|inf|[a-z]\w*_\d+)\b", "#", line)
        return f"{self.kind}: {self.where}: {line[:90]}"


@dataclass(frozen=True)
class Moves:
    """What outputs become when every value moves by a rounding error, and how far integers may."""

    trials: list[Outputs] = field(default_factory=list)
    wide: list[Outputs] = field(default_factory=list)  # moved as far as sums inside of operators
    places: bool = False  # whether coordinates are computed
    behind: bool = False  # whether something is computed of what they give
    sums: bool = False  # whether operators round inside of them, where no trial moves anything
    eps: float = 0.0  # of the least precise dtype in it
    huge: bool = False  # whether sums in another order may overflow
    lost: bool = False  # whether products in another order may leave the range of numbers


NONE: Final = Moves()


def judge(case: Case, say: Say = lambda _: None) -> list[Finding]:
    """All that is wrong; ``say`` is told what is about to be done."""
    warnings.simplefilter("ignore")
    say("import")
    try:
        graph = import_model(case.model)
    except InternalError as error:
        return [_fault("import", error)]
    except PlanishError as error:
        return _refused(case, "import", error, say)
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        return [_fault("import", error)]
    modules: dict[str, Any] = {}
    for mode, (target, optimize) in MODES.items():
        say(f"compile, {mode}")
        threads = 2 if mode == "optimised" and len(case.model.graph.node) % 2 else 1
        try:
            modules[mode] = planish.compile(
                case.model, target=target, optimize=optimize, threads=threads
            )
        except Exception as error:  # noqa: BLE001
            return [_fault(f"compile, {mode}", error)]
    found: list[Finding] = []
    for k, call in enumerate(case.calls):
        found += _judge_call(case, graph, modules, call, k, say)
        if found:
            break
    return found


def _judge_call(
    case: Case, graph: Any, modules: Mapping[str, Any], call: Arrays, k: int, say: Say
) -> list[Finding]:
    results: dict[str, Outputs | PlanishError] = {}
    runs: dict[str, Callable[[], Any]] = {
        mode: lambda module=module: module.run(dict(call)).values()
        for mode, module in modules.items()
        if MODES[mode][0] != "interpreter" or _is_small(module, call)
    }
    runs["reference"] = lambda: run_reference(graph, dict(call))
    for mode, run in runs.items():
        say(f"run, {mode}")
        try:
            results[mode] = _flat(run())
        except InternalError as error:
            return [_fault(f"run, {mode}", error)]
        except PlanishError as error:
            results[mode] = error
        except Exception as error:  # noqa: BLE001
            return [_fault(f"run, {mode}", error)]
    reference = results.pop("reference")
    first = results["optimised"]
    failed = {m: r for m, r in results.items() if isinstance(r, PlanishError)}
    if failed and len(failed) < len(results):
        text = f"only there: {next(iter(failed.values()))}"
        return [Finding("disagreement", ", ".join(failed), text)]
    if isinstance(first, PlanishError):
        if not isinstance(reference, PlanishError) and "memory" not in str(first):
            return [Finding("disagreement", "error", f"the reference has none: {first}")]
        return _refused(case, "run", first, say, call)
    if any(node.op_type in RANDOM for node in walk(case.model.graph.node)):
        return []
    say("trials")
    judged = _judged(case, call, {**results, "reference": reference}, TRIALS)
    if judged and judged[0]:
        judged = _judged(case, call, {**results, "reference": reference}, MORE_TRIALS)
    if judged is None:
        return []
    found, moves = judged
    if moves.huge and moves.sums:
        return found
    if not found and case.wanted and k == 0:
        wanted = [case.wanted[name] for name in graph.output_names]
        if what := differences(first, wanted, NONE):
            found = [Finding("wrong", "optimised", what)]
    # Numpy refuses indices that compiled code holds inside: what others say then is as good.
    if found or isinstance(reference, PlanishError):
        return found
    return _outside(case, call, first, moves, say)


def _judged(
    case: Case, call: Arrays, results: Mapping[str, Any], trials: int
) -> tuple[list[Finding], Moves] | None:
    """How modes disagree beyond what that many trials explain; None if nothing can be told."""
    moves = _moves(case.model, call, trials)
    if moves.lost:
        return None
    names = {node.op_type for node in walk(case.model.graph.node)}
    placed = {v for x in walk(case.model.graph.node) if x.op_type in PLACED for v in x.output}
    behind = any(placed & set(x.input) for x in walk(case.model.graph.node))
    moves = replace(moves, places=bool(placed), behind=behind, sums=not names <= ROUND_ONCE)
    if moves.sums and not all(is_float(a.dtype) for a in results["optimised"]):
        moves = replace(moves, wide=_wide(case.model, call))
    if moves.huge and moves.sums:
        # Squares and sums overflow in float32, and not in numpy's float64.
        results = {mode: r for mode, r in results.items() if mode != "reference"}
    return _disagreement(results, moves), moves


def _disagreement(results: Mapping[str, Any], moves: Moves) -> list[Finding]:
    """The first mode that differs from the optimised one; the latter is to blame if alone."""
    first = results["optimised"]
    for mode, result in results.items():
        if isinstance(result, PlanishError):
            continue
        if what := differences(first, result, moves):
            alone = mode != "plain" and not differences(results["plain"], result, moves)
            text = f"optimised and {mode}: {what}"
            return [Finding("disagreement", "optimised" if alone else mode, text)]
    return []


def _flat(values: Any) -> Outputs:
    """Outputs with sequences taken apart."""
    out: Outputs = []
    for v in values:
        if isinstance(v, list | tuple):
            out += _flat(v)
        elif v is not None:
            out.append(np.asarray(v))
    return out


def _fault(where: str, error: Exception) -> Finding:
    place = ""
    trace = error.__traceback__
    while trace is not None:
        place = (
            f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_frame.f_code.co_name}"
        )
        trace = trace.tb_next
    return Finding("fault", where, f"{type(error).__name__} in {place}: {error}")


def _is_small(module: Any, call: Arrays) -> bool:
    """Whether the interpreter is done within seconds."""
    from planish.runtime.interface import evaluator

    interface = module.interface
    sizes = {}
    for port in module.inputs:
        for d, extent in (
            zip(port.shape, call[port.name].shape, strict=False) if port.name in call else ()
        ):
            if str(d) in interface.symbols:
                sizes[str(d)] = extent
    try:
        work = [
            evaluator(tuple(sizes), [s.flops, s.bytes])(*sizes.values()) for s in interface.steps
        ]
    except (PlanishError, KeyError, AttributeError):
        return True
    return sum(float(a) + float(b) for a, b in work) < _MOST_WORK


# ------------------------------------------------------------------------------------- comparing


def _moves(model: onnx.ModelProto, call: Arrays, count: int) -> Moves:
    """Outputs with every value moved by a rounding error."""
    given = (*call.values(), *initializers(model).values())
    huge, eps = [_is_huge(a) for a in given], [_eps(a) for a in given]
    lost: list[bool] = []

    def see(node: Any, array: Any) -> None:
        huge.append(_is_huge(array))
        eps.append(_eps(array))
        lost.append(node.op.name == "reduce_prod" and _is_far(array))

    def rounded(seed: int) -> Callable[[Any], Any]:
        rng = np.random.default_rng(seed)

        def by(array: Any) -> Any:
            signs = rng.choice([-1.0, 0.0, 1.0], array.shape)
            out = array.astype(np.float64) * (1 + _eps(array) * signs)
            # What is less than any normal number may also be lost.
            lost = seed % 2 and np.abs(out) < float(ml_dtypes.finfo(array.dtype).smallest_normal)
            return np.where(lost, 0.0 * out, out)

        return by

    trials = [rounded(seed) for seed in range(count)]
    out = _outputs_moved(model, call, trials, see)
    return Moves(out, eps=max(eps, default=0.0), huge=any(huge), lost=any(lost))


def _wide(model: onnx.ModelProto, call: Arrays) -> list[Outputs]:
    """Outputs with every value moved by what is allowed to sums: all up, all down, either way."""

    def shifted(sign: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def by(array: Any) -> Any:
            x = array.astype(np.float64)
            return x + sign(x.shape) * _eps(array) * _sum_error(x)

        return by

    rng = np.random.default_rng(0)
    either = shifted(lambda shape: rng.choice([-1.0, 1.0], shape))
    moves = [shifted(lambda _: 1.0), shifted(lambda _: -1.0), either, either]
    return _outputs_moved(model, call, moves)


def _sum_error(x: Any) -> Any:
    """How many roundings (of 1) sums may differ by."""
    return 56 * np.abs(x) + 16 * np.max(np.abs(x), initial=0.0, where=np.isfinite(x))


def _outputs_moved(
    model: onnx.ModelProto,
    call: Arrays,
    moves: list[Callable[[Any], Any]],
    see: Callable[[Any, Any], None] = lambda *_: None,
) -> list[Outputs]:
    """The reference's outputs by each of some moves of all floats.

    ``see`` is shown all values, with the nodes that make them.
    """
    out = []
    for move in moves:

        def moved(array: Any, move: Callable[[Any], Any] = move) -> Any:
            with np.errstate(all="ignore"):
                return move(array).astype(array.dtype)

        start = {n: moved(a) if is_float(a.dtype) else a for n, a in call.items()}
        whole = [_whole(a) for a in start.values()]  # of which others may be views

        def observe(
            node: Any, results: tuple[Any, ...], moved: Any = moved, whole: list[Any] = whole
        ) -> None:
            for array in results:
                see(node, array)
                new = all(_whole(array) is not a for a in whole)
                if array.flags.writeable and new and is_float(array.dtype):
                    array[...] = moved(array)
                whole.append(_whole(array))

        try:
            out.append(_flat(run_reference(import_model(model), start, observe)))
        except PlanishError:
            continue
    return out


def _whole(array: Any) -> Any:
    """The array that has the elements of one that may be a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _eps(array: Any) -> float:
    return float(ml_dtypes.finfo(array.dtype).eps) if is_float(array.dtype) else 0.0


def _is_huge(array: Any) -> bool:
    """Whether a number is so great that sums of its kind, or their squares, overflow."""
    if not is_float(array.dtype) or not array.size:
        return False
    values = array.astype(np.float64)
    most = np.max(np.abs(values), initial=0.0, where=np.isfinite(values))
    computed = np.float64 if array.dtype == np.float64 else np.float32
    least = min(
        1e-1 * float(ml_dtypes.finfo(array.dtype).max), float(np.finfo(computed).max) ** 0.5
    )
    return bool(most > 1e-2 * least)


def _is_far(array: Any) -> bool:
    """Whether a number is so far from 1 that a part of its factors may over- or underflow."""
    if not is_float(array.dtype) or not array.size:
        return False
    values = np.abs(array.astype(np.float64))
    far = float(ml_dtypes.finfo(array.dtype).max) ** 0.5
    return bool(np.any((values > far) | (values < 1 / far)))


def differences(found: Outputs, wanted: Outputs, moves: Moves) -> str:
    """What differs between two lists of outputs, or nothing."""
    if len(found) != len(wanted):
        return f"{len(found)} arrays and {len(wanted)}"
    for k, (a, b) in enumerate(zip(found, wanted, strict=True)):
        trials, wide = (
            [m[k] for m in some if len(m) == len(wanted) and m[k].shape == b.shape]
            for some in (moves.trials, moves.wide)
        )
        loose = len(trials) < len(moves.trials)
        if what := difference(a, b, trials, loose, moves, wide):
            return f"output {k}: {what}"
    return ""


def difference(
    a: Any,
    b: Any,
    moved: list[Any] | None,
    loose: bool = False,
    moves: Moves = NONE,
    wide: Sequence[Any] = (),
) -> str:
    """What differs between two arrays beyond what moved."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return "" if loose else f"{a.dtype}{list(a.shape)} and {b.dtype}{list(b.shape)}"
    if not a.size:
        return ""
    if a.dtype.kind == "c":
        views = [[m.real, m.imag] for m in moved or ()]
        parts = [([v[0] for v in views], a.real, b.real), ([v[1] for v in views], a.imag, b.imag)]
        return next((w for m, x, y in parts if (w := difference(x, y, m, loose, moves))), "")
    same = _same(a, b)
    if not is_float(a.dtype):
        for m in moved or ():
            same |= m != b
        for m in wide if a.dtype != object else ():
            same |= (m != b) & ((m == a) | ((a < b) == (m < b)) & ((a < m) == (b < m)))
        if moves.places and is_int(a.dtype):
            # What comes behind may make any number of an integer that was cut to one less.
            x, y = a.astype(np.float64), b.astype(np.float64)
            same |= moves.behind | (np.abs(x - y) <= 1 + 1e-6 * np.max(np.abs(y)))
        wrong = ~same
    else:
        x, y = a.astype(np.float64), b.astype(np.float64)
        with np.errstate(all="ignore"):
            noise = np.zeros(y.shape)
            wild = (~np.isfinite(x) | ~np.isfinite(y)) & moves.huge
            for m in moved or ():
                z = m.astype(np.float64)
                unlike = ~np.isfinite(z) | ~np.isfinite(y)
                wild |= unlike & ~_same(m, b)
                noise = np.maximum(noise, np.where(unlike, 0, np.abs(z - y)))
            info = ml_dtypes.finfo(a.dtype)
            eps = float(info.eps)
            most = float(np.max(noise, initial=0.0))
            allowed = 24 * noise + 0.05 * most + 8 * eps * np.abs(y)
            if moves.sums:
                allowed += max(eps, moves.eps) * _sum_error(y)
            if moves.places:
                allowed += 1e-5 * np.max(np.abs(y), initial=0.0, where=np.isfinite(y))
            allowed += 4 * float(info.smallest_subnormal)
            wrong = ~same & ~(np.abs(x - y) <= allowed) & ~wild
            # The last number before infinity, and infinity.
            last = float(info.max) * (1 - 8 * eps)
            wrong &= ~((np.abs(x) >= last) & (np.abs(y) >= last) & (np.sign(x) == np.sign(y)))
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {a.size} differ, at {list(at)}: {a[at]!r} and {b[at]!r}"


def _same(a: Any, b: Any) -> Any:
    if is_float(a.dtype):
        return np.asarray(
            (a == b) | (np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64)))
        )
    if a.dtype == object:
        return np.asarray(a.astype(str) == b.astype(str))
    return np.asarray(a == b)


# --------------------------------------------------------------------------------------- others


def _refused(
    case: Case, where: str, error: PlanishError, say: Say, call: Arrays | None = None
) -> list[Finding]:
    """A finding if another runtime takes what we refuse, and no symbols are why."""
    if any(d.dim_param for i in case.model.graph.input for d in i.type.tensor_type.shape.dim):
        return []
    say("outside")
    if "sizes do not fit" in str(error):
        return []  # a size that data tells is no 1 that broadcasts
    found = by_runtime(case.model, call if call is not None else case.calls[0], [])
    if found is None:
        return []
    return [Finding("refusal", where, f"{error.op or ''}: {error.message}")]


def by_runtime(model: onnx.ModelProto, call: Arrays, dtypes: list[Any]) -> Outputs | None:
    """The outputs by ONNX Runtime, or None if it refuses."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for info, dtype in zip(copy.graph.output, dtypes, strict=False):
        if info.type.WhichOneof("value") is None and dtype is not None:
            info.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(dtype)
    try:
        if not dtypes:
            copy = onnx.shape_inference.infer_shapes(copy)
            names = {v.name: v for v in copy.graph.value_info}
            for info in copy.graph.output:
                if info.type.WhichOneof("value") is None and info.name in names:
                    info.CopyFrom(names[info.name])
        session = ort.InferenceSession(copy.SerializeToString(), options, ["CPUExecutionProvider"])
        return _flat(session.run(None, dict(call)))
    except Exception:  # noqa: BLE001 - it may be as wrong as it likes
        return None


def by_onnx(model: onnx.ModelProto, call: Arrays) -> Outputs | None:
    """The outputs by onnx.reference, or None if it fails."""
    from onnx.reference import ReferenceEvaluator

    try:
        with np.errstate(all="ignore"):
            return _flat(ReferenceEvaluator(model).run(None, dict(call)))
    except Exception:  # noqa: BLE001
        return None


def _outside(case: Case, call: Arrays, ours: Outputs, moves: Moves, say: Say) -> list[Finding]:
    """A finding if others are of another opinion, and don't contradict each other."""
    say("outside")
    theirs = by_runtime(case.model, call, [a.dtype for a in ours])
    unlike = "" if theirs is None else differences(ours, theirs, moves)
    if theirs is not None and not unlike:
        return []
    say("outside, reference")
    reference = by_onnx(case.model, call)
    if reference is None:
        where = "onnxruntime alone"
    else:
        against = differences(ours, reference, moves)
        if not against:
            return []
        if theirs is None and "differ" not in against:
            return []  # it has other dtypes and shapes wrong, too
        where = "onnx.reference alone" if theirs is None else "both"
        if theirs is not None and differences(theirs, reference, moves):
            where = "all three differ"
        unlike = unlike or against
    names = ",".join(dict.fromkeys(case.operators))
    return [Finding("outside", f"{where} {names}", unlike)] if unlike else []
