"""planish as a backend of ONNX: ``onnx.backend.base.Backend``.

``prepare`` compiles for the target that ``PLANISH_TARGET`` names, or this machine. What cannot be
compiled is an error like any other, never one that makes ONNX's tests skip a case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx
import onnx.defs
from onnx import helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from planish.build import compile
from planish.compiler.errors import TypeCheckError
from planish.runtime.module import Module

_OPTIONS: Final = ("dims", "threads", "optimize", "target")
_NEWEST_IR: Final = 10  # of a model made around a node


class PlanishRep(BackendRep):
    """A compiled model."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs, which may also be asked for by name.

        ``inputs`` are arrays by name or in the order of the graph; those at the end that have
        initialisers may be left out.

        Errors: as a module's call.
        """
        outputs = self.module.run(self._named(inputs))
        found: tuple[Any, ...] = namedtupledict("Outputs", list(outputs))(*outputs.values())
        return found

    def _named(self, inputs: Any) -> dict[str, Any]:
        if isinstance(inputs, Mapping):
            return dict(inputs)
        given = list(inputs) if isinstance(inputs, Sequence) else [inputs]
        ports = self.module.inputs
        needed = [p.name for p in ports if not p.default]
        names = needed if len(given) == len(needed) else [p.name for p in ports]
        if len(given) > len(names):
            raise TypeCheckError(
                f"{len(given)} inputs are given, and there are {len(names)}",
                op=self.module.interface.name,
            )
        return dict(zip(names, given, strict=False))


class PlanishBackend(Backend):
    """Compiles models, for the CPU."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether this is the CPU."""
        return device.split(":")[0] == "CPU"

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> PlanishRep:
        """A compiled model; ``dims``, ``threads``, ``optimize`` and ``target`` as for ``compile``.

        Errors: those of ``compile``, and TypeCheckError for another device.
        """
        if not cls.supports_device(device):
            raise TypeCheckError(f"the device is {device!r}, and only CPU is supported")
        options = {name: kwargs[name] for name in _OPTIONS if name in kwargs}
        return PlanishRep(compile(model, **options))

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """The outputs of a model, compiled for this one call."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """The outputs of one node on arrays, in the newest opset or that of ``opset_version``."""
        arrays = dict(inputs) if isinstance(inputs, Mapping) else _by_name(node, inputs)
        ports = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in arrays.items()
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
        graph = helper.make_graph([node], "node", ports, outputs)
        opset = kwargs.get("opset_version", onnx.defs.onnx_opset_version())
        imports = [helper.make_opsetid("", opset)]
        if node.domain not in ("", "ai.onnx"):
            imports.append(helper.make_opsetid(node.domain, kwargs.get("domain_version", 1)))
        model = helper.make_model(graph, opset_imports=imports, ir_version=_NEWEST_IR)
        return cls.run_model(model, arrays, device, **kwargs)


def _by_name(node: onnx.NodeProto, inputs: Any) -> dict[str, np.ndarray[Any, Any]]:
    given = list(inputs) if isinstance(inputs, Sequence) else [inputs]
    names = list(dict.fromkeys(name for name in node.input if name))
    if len(names) != len(given):
        raise TypeCheckError(
            f"the node takes {len(names)} inputs, and {len(given)} are given", op=node.op_type
        )
    return dict(zip(names, map(np.asarray, given), strict=True))


prepare = PlanishBackend.prepare
run_model = PlanishBackend.run_model
run_node = PlanishBackend.run_node
supports_device = PlanishBackend.supports_device
is_compatible = PlanishBackend.is_compatible

__all__ = [
    "PlanishBackend",
    "PlanishRep",
    "is_compatible",
    "prepare",
    "run_model",
    "run_node",
    "supports_device",
]
