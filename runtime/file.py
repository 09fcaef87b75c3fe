"""Module files (``.planish``): a module as one file that loads by mapping it, compiling nothing.

A zip of stored members: ``manifest.json``, object code, and the weights as safetensors. Loading
checks every byte that matters against its checksum (2.8 GB/s a core) and that this machine has
what the code needs. The checksums guard against accidents, not against malice: a module file is
code, so load only those that you would run.
"""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path
from typing import Any, Final

from planish.compiler.dtypes import STRING, DType
from planish.compiler.errors import CodegenError, ParseError, PlanishError
from planish.compiler.files import MANIFEST, is_module, why, written_whole
from planish.compiler.given import as_number, as_path, as_truth
from planish.compiler.texts import Texts
from planish.targets.llvm.native import Objects

from .archive import CHUNK_BYTES, check, check_chunks, checksums, read_archive, write_archive
from .interface import Array
from .manifest import Manifest, encode_manifest
from .module import Module
from .pool import available_cpus
from .tensors import decode, encode, of_bytes

_WEIGHTS: Final = "weights.safetensors"
_CODE: Final = ("kernels.o", "entry.o")
_CONSTANT, _DEFAULT = "constant.", "default."


def save(module: Module, path: str | os.PathLike[str]) -> None:
    """Write a module as a file; a file that was there stays until the new one is whole.

    Links are followed, the mode is kept; what is no file, such as a pipe, is written to as it is.

    Errors: ParseError if the file cannot be written, CodegenError if there is no machine code,
    TypeCheckError for what is no path.
    """
    place = as_path(path, "save")
    code = module.code
    if not isinstance(code, Objects):
        raise CodegenError(
            f"a module for the target {code.target} cannot be saved",
            op=module.interface.name,
            hint="compile the model for the target llvm",
        )
    arrays = {f"{_CONSTANT}{k}": c for k, c in enumerate(module.constants)}
    texts = Texts(module.interface.texts)
    arrays |= {
        f"{_DEFAULT}{name}": texts.numbers(v) if v.dtype == STRING.numpy else v
        for name, v in module.defaults.items()
    }
    weights = encode(arrays)
    parts: dict[str, list[bytes | memoryview]] = {
        **{name: [code] for name, code in zip(_CODE, code.objects, strict=True)},
        _WEIGHTS: weights,
    }
    described = {name: _describe(pieces) for name, pieces in parts.items()}
    described[_WEIGHTS]["crc32"] = checksums(weights)
    described[_WEIGHTS]["chunk_bytes"] = CHUNK_BYTES
    manifest = encode_manifest(
        module.interface, code.target, module.given_threads, described, module.provenance
    )
    members: list[tuple[str, list[bytes | memoryview]]] = [(MANIFEST, [manifest])]
    members += parts.items()
    try:
        with written_whole(place) as file:
            for piece in write_archive(members):
                file.write(piece)
    except OSError as error:
        raise ParseError(f"{place} cannot be written: {why(error)}") from error


def _describe(pieces: list[bytes | memoryview]) -> dict[str, Any]:
    from hashlib import sha256

    digest = sha256()
    for piece in pieces:
        digest.update(piece)
    return {"bytes": sum(memoryview(p).nbytes for p in pieces), "sha256": digest.hexdigest()}


def load(path: str | os.PathLike[str], threads: int | None = None, verify: bool = False) -> Module:
    """The module of a file.

    ``threads`` is what a call may use at most; None: as it was compiled. ``verify`` compares the
    members' cryptographic hashes as well. The weights stay in the file and are mapped; don't
    change it in place while the module lives (``save`` never does).

    Errors: ParseError naming what is wrong with the file, or what this machine lacks;
    TypeCheckError for what is no path, or no number of threads.
    """
    place = as_path(path, "load")
    threads = None if threads is None else as_number(threads, "threads", "load", least=1)
    verify = as_truth(verify, "verify", "load")
    data = _mapped(place)
    try:
        return _load(data, threads, verify)
    except PlanishError as error:
        message = f"{error.op}: {error.message}" if error.op else error.message
        raise ParseError(message, op=str(path), node=error.node, hint=error.hint) from error


def _mapped(place: Path) -> memoryview:
    """A file's bytes, mapped.

    Errors: ParseError if that cannot be.
    """
    try:
        kind = place.stat().st_mode
        if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):  # opening a pipe would wait for ever
            raise _cannot_be_mapped(place)
        with place.open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                raise _cannot_be_mapped(place) if file.read(1) else ParseError(f"{place} is empty")
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        if isinstance(error, ParseError):
            raise
        raise ParseError(f"{place} cannot be read: {why(error)}") from error


def _cannot_be_mapped(place: Path) -> ParseError:
    return ParseError(f"{place} is no file that can be mapped", hint="copy it to a plain file")


def _load(data: memoryview, threads: int | None, verify: bool) -> Module:
    if bytes(data[:4]) != b"PK\3\4":
        raise ParseError(
            "this is no module file", hint="planish.compile makes one of an ONNX model"
        )
    if not is_module(data):
        raise ParseError(
            "this is no module file, but another archive",
            hint="module files are what module.save and `planish compile` write",
        )
    members = read_archive(data)
    if tuple(members) != (MANIFEST, *_CODE, _WEIGHTS):
        raise ParseError(f"this is no module file: it has {', '.join(members)}"[:200])
    manifest = Manifest(bytes(check(data, members[MANIFEST])))
    _check_target(manifest)
    objects = [bytes(check(data, members[name])) for name in _CODE]
    sums = manifest.members.get(_WEIGHTS, {})
    sums = sums.get("crc32") if isinstance(sums, dict) else None
    if not isinstance(sums, list):
        raise ParseError("the manifest has no checksums of the weights")
    weights = check_chunks(data, members[_WEIGHTS], sums, available_cpus())
    if verify:
        _verify(data, members, manifest)
    interface = manifest.interface()
    arrays = decode(weights)
    names = [f"{_CONSTANT}{k}" for k in range(interface.constants)]
    wanted = [*names, *(f"{_DEFAULT}{p.name}" for p in interface.inputs if p.default)]
    if list(arrays) != wanted:
        raise ParseError("the weights are not those of the manifest")
    texts = Texts(interface.texts)

    def default(array: Array, dtype: DType) -> Array:
        array = of_bytes(array, dtype.storage)
        if dtype is not STRING:
            return array
        if array.dtype != dtype.storage.numpy:
            raise ParseError("the weights are damaged: a string has no number")
        return texts.strings(array)

    return Module(
        interface,
        Objects(tuple(objects), manifest.target),
        [arrays[name] for name in names],
        defaults={
            p.name: default(arrays[f"{_DEFAULT}{p.name}"], p.dtype)
            for p in interface.inputs
            if p.default
        },
        threads=threads or manifest.threads,
        provenance=manifest.provenance,
    )


def _check_target(manifest: Manifest) -> None:
    if missing := manifest.target.missing:
        raise ParseError(
            f"the file is for another machine: this one lacks {', '.join(missing)}",
            node=f"compiled for {manifest.target.cpu} ({manifest.isa}), {manifest.target.triple}",
            hint="compile the model for this machine (target llvm)",
        )


def _verify(data: memoryview, members: dict[str, Any], manifest: Manifest) -> None:
    from hashlib import sha256

    for name in (*_CODE, _WEIGHTS):
        said = manifest.members.get(name)
        member = members[name]
        digest = sha256(data[member.start : member.end]).hexdigest()
        if not isinstance(said, dict) or said.get("sha256") != digest:
            raise ParseError(f"the module file is damaged: {name} is not what was written")
