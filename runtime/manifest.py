"""A module file's manifest: interface and target as JSON, sizes as the text of expressions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from planish.compiler.calling import HostFunction
from planish.compiler.dtypes import EVERY, DType
from planish.compiler.errors import ParseError, PlanishError
from planish.compiler.packings import KINDS, Packing
from planish.targets.llvm.target import Llvm

from .interface import Constraint, Failure, Interface, Port, StepInfo

if TYPE_CHECKING:
    from planish.compiler.expr.nodes import Expr

    from .interface import Size

FORMAT: Final = "planish module"
SCHEMA: Final = 5
MOST_BYTES: Final = 256 << 20
MOST_FEATURES: Final = 1000  # of a CPU
_MOST_ARRAYS: Final = 1 << 20
_MOST_RANK: Final = 64
_MOST_TEXT: Final = 20_000  # characters of one expression

T = TypeVar("T")


def encode_manifest(
    interface: Interface,
    target: Llvm,
    threads: int | None,
    members: Mapping[str, Mapping[str, Any]],
    provenance: Mapping[str, Any],
) -> bytes:
    """The manifest's bytes; the same for the same contents."""
    contents = {
        "format": FORMAT,
        "schema": SCHEMA,
        "interface": {
            "name": interface.name,
            "inputs": [_port(p) for p in interface.inputs],
            "outputs": [_port(p) for p in interface.outputs],
            "symbols": list(interface.symbols),
            "constraints": [[str(c.condition), c.node] for c in interface.constraints],
            "arena_bytes": _text(interface.arena_bytes),
            "constants": interface.constants,
            "steps": [
                [s.function, list(s.origin), _text(s.flops), _text(s.bytes)]
                for s in interface.steps
            ],
            "bound": list(interface.bound),
            "heap": interface.heap,
            "failures": [
                [f.message, f.node, [[name, *symbols] for name, symbols in f.about]]
                for f in interface.failures
            ],
            "packings": [
                [p.name, p.kind, p.dtype.name, None if p.shape is None else list(p.shape), p.output]
                for p in interface.packings
            ],
            "hosts": [
                {
                    "name": f.name,
                    "attributes": dict(f.attributes),
                    "inputs": [[dtype.name, rank] for dtype, rank in f.inputs],
                    "outputs": [[dtype.name, rank] for dtype, rank in f.outputs],
                    "origin": f.origin,
                }
                for f in interface.hosts
            ],
            "texts": list(interface.texts),
        },
        "target": {
            "cpu": target.cpu,
            "triple": target.triple,
            "features": list(target.features),
            "isa": target.machine.isa,
        },
        "threads": threads,
        "members": members,
        "provenance": provenance,
    }
    text = json.dumps(contents, sort_keys=True, indent=1, ensure_ascii=True)
    return text.encode("ascii")


def _text(size: Size) -> int | str:
    return size if isinstance(size, int) else str(size)


def _port(port: Port) -> dict[str, Any]:
    out = {"name": port.name, "dtype": port.dtype.name, "shape": [_text(d) for d in port.shape]}
    return {**out, "default": True} if port.default else out


class Manifest:
    """A manifest that was read.

    Errors: ParseError naming what is missing, wrong or too new.
    """

    def __init__(self, data: bytes) -> None:
        if len(data) > MOST_BYTES:
            raise ParseError("the manifest is too large to be one")
        try:
            contents = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ParseError("the manifest is no JSON") from error
        root = _Reader(contents, "manifest")
        if root.get("format", str) != FORMAT:
            raise ParseError("this is no module file of planish")
        schema = root.get("schema", int)
        if schema != SCHEMA:
            raise ParseError(
                f"the module file has schema {schema}, this version of planish reads {SCHEMA}",
                hint="compile the model again" if schema < SCHEMA else "use a newer planish",
            )
        target = root.inner("target")
        features = tuple(target.items("features", str))
        if len(features) > MOST_FEATURES:
            raise ParseError(f"the manifest names {len(features)} features of a CPU")
        self.target = Llvm(target.get("cpu", str), target.get("triple", str), features)
        self.isa = target.get("isa", str)
        self._interface = root.inner("interface")
        threads = contents.get("threads")
        self.threads = threads if type(threads) is int and threads > 0 else None
        self.members = root.get("members", dict)
        self.provenance = _provenance(root)

    def interface(self) -> Interface:
        """What the module takes and gives.

        Errors: ParseError naming the part that is not understood.
        """
        r = self._interface
        try:
            found = Interface(
                r.get("name", str),
                tuple(_read_port(p) for p in r.inners("inputs")),
                tuple(_read_port(p) for p in r.inners("outputs")),
                tuple(r.items("symbols", str)),
                tuple(map(_constraint, r.items("constraints", list))),
                _size(r.get("arena_bytes", object)),
                _count(r.get("constants", int)),
                tuple(map(_step, r.items("steps", list))),
                tuple(r.items("bound", str)),
                _count(r.get("heap", int)),
                tuple(map(_failure, r.items("failures", list))),
                tuple(map(_packing, r.items("packings", list))),
                tuple(map(_host, r.inners("hosts"))),
                tuple(r.items("texts", str)),
            )
            names = {*found.symbols, *found.bound}
            about = [symbols for f in found.failures for _, symbols in f.about]
            if not all(map(names.issuperset, about)):
                raise ParseError("a failure of the manifest is about sizes that there are not")
            return found
        except ParseError:
            raise
        except PlanishError as error:
            raise ParseError(f"the manifest does not fit together: {error}") from error


def _provenance(root: _Reader) -> dict[str, Any]:
    """How a module was made; the schedules by the functions' names."""
    found = root.get("provenance", dict)
    schedules = found.get("schedules", {})
    if not isinstance(schedules, dict) or not all(map(_is_schedule, schedules.values())):
        raise ParseError("provenance has no proper schedules")
    return found


def _is_schedule(s: object) -> bool:
    return isinstance(s, dict) and all(isinstance(s.get(k), str) for k in ("how", "trace"))


class _Reader:
    """A JSON object whose parts are asked for by name and type."""

    def __init__(self, value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise ParseError(f"{where} is no object")
        self.value, self.where = value, where

    def get(self, key: str, kind: type[T]) -> T:
        found = self.value.get(key)
        if found is None or not isinstance(found, kind) or (kind is int and type(found) is bool):
            raise ParseError(f"{self.where} has no proper {key}")
        return found

    def items(self, key: str, kind: type[T]) -> list[T]:
        found = self.get(key, list)
        if not all(isinstance(x, kind) for x in found):
            raise ParseError(f"{self.where} has no proper {key}")
        return found

    def inner(self, key: str) -> _Reader:
        return _Reader(self.get(key, dict), key)

    def inners(self, key: str) -> list[_Reader]:
        return [_Reader(x, key) for x in self.items(key, dict)]


def _read_port(r: _Reader) -> Port:
    dtype = _dtype(r.get("dtype", str))
    default = r.value.get("default") is True
    return Port(r.get("name", str), dtype, tuple(map(_size, r.get("shape", list))), default)


def _dtype(name: str) -> DType:
    if name not in EVERY:
        raise ParseError(f"there is no dtype {name[:40]}")
    return EVERY[name]


def _host(r: _Reader) -> HostFunction:
    attributes = r.get("attributes", dict)
    if not all(isinstance(value, str | int) for value in attributes.values()):
        raise ParseError("an attribute of a function is not understood")
    inputs, outputs = (tuple(map(_kind, r.items(key, list))) for key in ("inputs", "outputs"))
    name, origin = r.get("name", str), r.get("origin", str)
    return HostFunction(name, tuple(attributes.items()), inputs, outputs, origin)


def _kind(parts: list[Any]) -> tuple[DType, int]:
    match parts:
        case [str(name), int(rank)] if 0 <= rank <= _MOST_RANK:
            return _dtype(name), rank
        case _:
            raise ParseError("what a function takes or gives is not understood")


def _step(parts: list[Any]) -> StepInfo:
    match parts:
        case [str(function), [*origin], flops, size] if all(isinstance(o, str) for o in origin):
            return StepInfo(function, tuple(origin), _size(flops), _size(size))
        case _:
            raise ParseError("a step of the manifest is not understood")


def _count(value: int) -> int:
    if not 0 <= value <= _MOST_ARRAYS:
        raise ParseError(f"there cannot be {value} arrays")
    return value


def _constraint(parts: list[Any]) -> Constraint:
    match parts:
        case [str(condition), str(node)]:
            return Constraint(_expression(condition), node)
        case _:
            raise ParseError("a condition of the manifest is not understood")


def _failure(parts: list[Any]) -> Failure:
    match parts:
        case [str(message), str(node), [*about]]:
            return Failure(message, node, tuple(map(_told, about)))
        case _:
            raise ParseError("a failure of the manifest is not understood")


def _told(parts: object) -> tuple[str, tuple[str, ...]]:
    match parts:
        case [str(name), str(symbol)]:
            return name, (symbol,)
        case [str(name), str(above), str(below)]:
            return name, (above, below)
        case _:
            raise ParseError("a failure of the manifest is not understood")


def _packing(parts: list[Any]) -> Packing:
    match parts:
        case [str(name), str(kind), str(dtype), shape, bool(output)] if (
            kind in KINDS and dtype in EVERY and (shape is None or isinstance(shape, list))
        ):
            for d in shape or ():
                if d is not None and (type(d) is not int or d < 0):
                    break
            else:
                return Packing(
                    name, kind, EVERY[dtype], None if shape is None else tuple(shape), output
                )
    raise ParseError("a sequence among inputs or outputs of the manifest is not understood")


def _size(value: object) -> Size:
    if isinstance(value, str):
        return _expression(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise ParseError(f"{str(value)[:40]!r} is no size")
    return value


def _expression(text: str) -> Expr:
    if len(text) > _MOST_TEXT:
        raise ParseError(f"an expression of {len(text)} characters is too long")
    return _parser()(text)


def _parser() -> Callable[[str], Expr]:
    from planish.compiler.expr.text import parse  # modules of fixed sizes do without

    return parse
