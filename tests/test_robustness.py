"""Damaged models and module files never take the process down, hang it, or give a wrong number.

Mutations run in a child process, which says what it is about to try; a crash, a silence or an
error that is not one of ours is the failure of the mutation that it named. To see one again:
``python tests/test_robustness.py KIND SEED``.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))

from models import networks

import planish
from planish.arrays import made_up
from planish.compiler.errors import InternalError, PlanishError
from planish.compiler.frontends.onnx.importer import import_model, load_handlers
from planish.compiler.graph.reference import run_reference

MOST_SECONDS: Final = 60  # of CPU time for one mutation
MEMORY_BYTES: Final = 6 << 30  # of the child's address space
SMALL: Final = 1 << 20  # bytes and operations up to which a module is called

KINDS: Final = ("onnx", "planish", "definition")


def seeds_of(kind: str) -> list[int]:
    return list(range(24 if kind == "onnx" else 100))  # of damaged models, the others are cheap


def child(kind: str, seeds: list[int]) -> list[dict[str, Any]]:
    """What became of the mutations of these seeds; all of it is an outcome that is allowed."""
    place = str(Path(planish.__file__).parent.parent)
    command = [sys.executable, __file__, kind, *map(str, seeds)]
    outcomes: list[dict[str, Any]] = []
    with tempfile.TemporaryFile("w+") as errors:
        last = "(none)"
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "PYTHONPATH": place},
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                event = json.loads(line)
                last = f"{kind} {event['seed']}"
                if "outcome" in event:
                    outcomes.append(event)
        code = process.returncode
        errors.seek(0)
        assert code == 0, f"exit code {code} at {last}:\n{errors.read()[-3000:]}"
    assert len(outcomes) == len(seeds)
    faults = [e for e in outcomes if e["outcome"] == "fault"]
    assert not faults, "\n".join(f"{kind} {e['seed']}: {e['text']}" for e in faults[:20])
    return outcomes


@pytest.mark.parametrize("kind", KINDS)
def test_some_mutations(kind: str) -> None:
    counts = Counter(e["outcome"] for e in child(kind, seeds_of(kind)))
    assert counts["refused"] > len(seeds_of(kind)) // 4


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize("kind", KINDS)
def test_many_mutations(kind: str, part: int) -> None:
    """In parts, since a process that compiles hundreds of models grows."""
    child(kind, list(range(100 * part, 100 * part + 100)))


# ------------------------------------------------------------------------------------- mutations


def damaged(data: bytes, rng: random.Random) -> bytes:
    """The bytes with something flipped, changed, cut, repeated or moved."""
    out = bytearray(data)
    at, length = rng.randrange(len(out)), rng.randrange(1, 40)
    match rng.randrange(7):
        case 0:
            return bytes(out[:at])
        case 1:
            out[at] ^= 1 << rng.randrange(8)
        case 2:
            out[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        case 3:
            del out[at : at + length]
        case 4:
            out[at:at] = out[at : at + length]
        case 5:
            out[at : at + length] = rng.randbytes(length)
        case _:
            to = rng.randrange(len(out))
            out[at : at + length] = out[to : to + length]
    return bytes(out)


def distorted(data: bytes, rng: random.Random) -> bytes:
    """A model that says something else than it did: other operators, names, numbers, types."""
    model = onnx.ModelProto.FromString(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        _distort(model.graph, rng)
    return model.SerializeToString()


NUMBERS: Final = (0, 1, 2, 3, 5, 7, -1, -2, 64, 1 << 20, 1 << 40, (1 << 63) - 1)


def _distort(graph: onnx.GraphProto, rng: random.Random) -> None:
    rng.choice([_distort_node, _distort_node, _distort_tensor, _distort_port])(graph, rng)


def _distort_node(graph: onnx.GraphProto, rng: random.Random) -> None:
    names = [n for node in graph.node for n in (*node.input, *node.output)]
    node, number = rng.choice(graph.node), rng.choice(NUMBERS)
    match rng.randrange(8):
        case 0:
            node.op_type = rng.choice(graph.node).op_type
        case 1 if node.input:
            node.input[rng.randrange(len(node.input))] = rng.choice([*names, ""])
        case 2 if node.input:
            del node.input[rng.randrange(len(node.input))]
        case 3:
            node.output[rng.randrange(len(node.output))] = rng.choice(names)
        case 4 if node.attribute:
            attribute = rng.choice(node.attribute)
            attribute.i = number
            if attribute.ints:
                attribute.ints[rng.randrange(len(attribute.ints))] = number
        case 5 if node.attribute:
            del node.attribute[rng.randrange(len(node.attribute))]
        case 6:
            graph.node.remove(node)
        case _:
            node.op_type = rng.choice(["Relu", "Add", "MatMul", "Transpose", "Softmax", "Sin"])


def _distort_tensor(graph: onnx.GraphProto, rng: random.Random) -> None:
    tensor = rng.choice(graph.initializer)
    match rng.randrange(5):
        case 0 if tensor.dims:
            tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(NUMBERS)
        case 1:
            tensor.data_type = rng.randrange(1, 24)
        case 2:
            graph.initializer.remove(tensor)
        case 3:
            tensor.raw_data = rng.randbytes(len(tensor.raw_data))
        case _ if tensor.data_type == onnx.TensorProto.FLOAT:
            values = np.random.default_rng(rng.randrange(99)).standard_normal(tensor.dims)
            tensor.raw_data = values.astype(np.float32).tobytes()


def _distort_port(graph: onnx.GraphProto, rng: random.Random) -> None:
    names = [n for node in graph.node for n in (*node.input, *node.output)]
    kind = rng.choice(graph.input).type.tensor_type
    match rng.randrange(5):
        case 0 if len(graph.output) > 1:
            graph.output.remove(rng.choice(graph.output))
        case 1:
            kind.elem_type = rng.randrange(1, 24)
        case 2:
            graph.output.append(onnx.ValueInfoProto(name=rng.choice(names)))
        case 3 if kind.shape.dim:
            rng.choice(kind.shape.dim).dim_value = rng.choice(NUMBERS)
        case _ if kind.shape.dim:
            rng.choice(kind.shape.dim).dim_param = rng.choice(["batch", "n", "other"])


# ----------------------------------------------------------------------------------- in the child


@cache
def originals() -> list[bytes]:
    """The models that are damaged."""
    makes = (networks.mlp, networks.mobilenet, networks.transformer, networks.gru, networks.unet)
    return [make().model.SerializeToString() for make in (*makes, networks.detection)]


def try_onnx(seed: int) -> str:
    """Compile a damaged model; if that can be done, call it."""
    rng = random.Random(seed)
    data = rng.choice(originals())
    data = damaged(data, rng) if rng.random() < 0.3 else distorted(data, rng)
    module = planish.compile(data, threads=1, optimize=rng.random() < 0.5)
    sizes = {name: rng.choice([1, 2, 4]) for name in module.interface.symbols}
    amount = sum(
        number(size, sizes)
        for p in (*module.inputs, *module.outputs)
        for size in [np.prod([number(d, sizes) for d in p.shape], dtype=object)]
    )
    work = sum(number(s.flops, sizes) + number(s.bytes, sizes) for s in module.interface.steps)
    if amount > SMALL or work > 100 * SMALL:
        return "compiled"
    inputs = made_up(module.inputs, sizes)
    found = module.run(inputs)
    try:
        wanted = run_reference(import_model(data), inputs)
    except planish.RuntimeFault:  # numpy refuses indices that compiled code holds inside
        return "called"
    for a, b in zip(found.values(), wanted, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if np.isfinite(b).all() and np.abs(b).max(initial=0) < 1e3:
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)
    return "called"


def number(size: Any, sizes: dict[str, int]) -> int:
    from planish.runtime.interface import evaluator

    return int(evaluator(tuple(sizes), [size])(*sizes.values())[0])


@cache
def saved() -> tuple[bytes, np.ndarray, np.ndarray]:
    """A module file, an input, and what it gives."""
    module = planish.compile(networks.mlp().model, threads=1)
    x = np.random.default_rng(0).standard_normal((3, 20), dtype=np.float32)
    with tempfile.TemporaryDirectory() as folder:
        module.save(Path(folder) / "m.planish")
        return (Path(folder) / "m.planish").read_bytes(), x, module(x)[0]


def try_planish(seed: int) -> str:
    """Load a damaged file; if that can be done, it must give what the whole one does."""
    data, x, wanted = saved()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.planish"
        path.write_bytes(damaged(data, random.Random(seed)))
        module = planish.load(path)
        assert module(x)[0].tobytes() == wanted.tobytes(), "a wrong number"
    return "called"


@cache
def defined() -> list[Any]:
    """What ONNX says of operators whose definitions it makes for a node's attributes and types.

    That is native code which sees whatever a model's file says.
    """
    from planish.compiler.frontends.onnx.control import CONTROL
    from planish.compiler.frontends.onnx.reader import HANDLERS

    schemas = onnx.defs.get_all_schemas_with_history()
    kinds = [s for s in schemas if s.has_context_dependent_function and not s.deprecated]
    kinds = [s for s in kinds if s.name not in CONTROL]
    return [s for s in kinds if s.since_version not in _versions(HANDLERS.get((s.domain, s.name)))]


def _versions(entry: Any) -> frozenset[int]:
    return frozenset() if entry is None else entry.versions


def try_definition(seed: int) -> str:
    """Compile a node whose operator ONNX defines, with any attributes and inputs."""
    load_handlers()
    rng = random.Random(seed)
    schema = rng.choice(defined())
    most = min(schema.max_input, 7)
    inputs = [f"x{k}" for k in range(rng.choice([schema.min_input, most, most]))]
    outputs = [f"y{k}" for k in range(rng.choice([schema.min_output, min(schema.max_output, 4)]))]
    node = onnx.NodeProto(op_type=schema.name, domain=schema.domain, output=outputs)
    node.input.extend(name if rng.random() < 0.9 else "" for name in inputs)
    for name, known in schema.attributes.items():
        if rng.random() < 0.5:
            node.attribute.add(name=name, **_value(rng, int(known.type.value)))
    kinds = [rng.choice([1, 1, 1, 1, 7, 9, 10, 11, 16]) for _ in inputs]
    shapes = [_shape(rng) for _ in inputs]
    ports = map(onnx.helper.make_tensor_value_info, inputs, kinds, shapes)
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = onnx.helper.make_graph([node], "g", list(ports), results)
    opsets = {"": 28, schema.domain: schema.since_version}
    imports = [onnx.helper.make_opsetid(d, v) for d, v in opsets.items()]
    planish.compile(onnx.helper.make_model(graph, opset_imports=imports), threads=1)
    return "compiled"


def _value(rng: random.Random, kind: int) -> dict[str, Any]:
    """An attribute's value, mostly of its kind."""
    kind = kind if rng.random() < 0.95 else 2
    words = [b"", b"mean", b"sum", b"none", b"gated", b"\xff\0", b'"; y = Relu(x)', b"x" * 999]
    fields: dict[int, dict[str, Any]] = {
        1: {"f": rng.choice([0.0, 1.0, -1.0, float("nan"), float("inf")])},
        2: {"i": rng.choice([*NUMBERS, 1, 2, 4])},
        3: {"s": rng.choice(words)},
        7: {"ints": [rng.choice(NUMBERS) for _ in range(rng.randrange(5))]},
        8: {"strings": [rng.choice(words)]},
    }
    return {"type": kind, **fields.get(kind, {})}


def _shape(rng: random.Random) -> list[int | str]:
    sizes = (0, 1, 2, 2, 4, 4, 8, "n", 1 << 20)
    return [rng.choice(sizes) for _ in range(rng.choice([0, 1, 2, 3, 4, 4]))]


def outcomes(attempt: Callable[[int], str], seeds: list[int]) -> Iterator[dict[str, Any]]:
    for seed in seeds:
        yield {"seed": seed}
        signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
        text = ""
        try:
            outcome = attempt(seed)
        except InternalError as error:
            outcome, text = "fault", f"InternalError: {error}"
        except PlanishError as error:
            outcome, text = "refused", f"{type(error).__name__}: {error}"
        except Exception as error:  # noqa: BLE001 - all others are what is looked for
            outcome, text = "fault", f"{type(error).__name__}: {error}"
        signal.setitimer(signal.ITIMER_PROF, 0)
        yield {"seed": seed, "outcome": outcome, "text": text}


def main(kind: str, *seeds: str) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    faulthandler.enable()
    faulthandler.register(signal.SIGPROF, chain=True)  # says where it is, then ends
    attempt = {"onnx": try_onnx, "planish": try_planish, "definition": try_definition}[kind]
    for event in outcomes(attempt, [int(s) for s in seeds]):
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
