"""Options of ``planish.compile`` that do not fit."""

from __future__ import annotations

from pathlib import Path

import planish

from .cases import case, layer, refused

refused("unknown_target", layer, target="abacus")
refused("target_that_is_not_built", layer, target="cuda")
refused("unknown_processor", layer, target="llvm -mcpu=pentagon9")
refused("unknown_architecture", layer, target="llvm -mtriple=vax-dec-bsd")
refused("unknown_option_of_a_target", layer, target="llvm -fast")
refused("target_of_another_type", layer, target=5)
refused("no_threads", layer, threads=0)
refused("negative_threads", layer, threads=-1)
refused("half_a_thread", layer, threads=1.5)
refused("threads_as_text", layer, threads="2")
refused("unknown_dimension", layer, dims={"rows": 2})
refused("negative_size", layer, dims={"batch": -1})
refused("size_of_another_type", layer, dims={"batch": 1.5})
refused("size_that_is_a_truth", layer, dims={"batch": True})
refused("huge_size", layer, dims={"batch": 1 << 60})
refused("dims_that_are_a_list", layer, dims=["batch"])
refused("dtype_option", layer, dtype="f16")
refused("unknown_accuracy", layer, accuracy="perfect")


@case
def target_without_code(folder: Path) -> object:
    return planish.compile(layer(), target="interpreter").save(folder / "layer.planish")


@case
def missing_log(folder: Path) -> object:
    return planish.compile(layer(), logs=[folder / "none.jsonl"])
