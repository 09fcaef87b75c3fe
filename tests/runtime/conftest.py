"""What the runtime's tests share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from planish.compiler.expr.nodes import Expr
from planish.runtime.interface import interface_of
from planish.runtime.module import Module
from planish.targets.llvm.entry import entry_ir
from planish.targets.llvm.native import Objects, object_code
from planish.targets.llvm.pool import pool_ir
from planish.targets.llvm.target import host

from .twice import KERNELS, N, twice


@pytest.fixture(scope="session")
def build() -> Callable[..., Module]:
    """Makes the module of ``twice``; the kernels are compiled once."""
    kernels = object_code([KERNELS, pool_ir(host().triple)], host(), exports=["affine"])

    def make(rows: Expr | int = N, arena: int | None = None, threads: int | None = None) -> Module:
        program = twice(rows, arena)
        return Module(
            interface_of(program),
            Objects((kernels, object_code(entry_ir(program), host(), level=0)), host()),
            program.constants,
            defaults=program.defaults,
            threads=threads,
            provenance={"schedules": {}},
        )

    return make


@pytest.fixture(scope="session")
def module(build: Callable[..., Module]) -> Module:
    return build()
