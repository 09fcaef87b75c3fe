"""What is no path, no number, no truth, no list; and files of another kind than is wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import planish

from .bad_calls import K, X, compiled, read_only
from .bad_files import saved
from .bad_usage import used
from .cases import CASES, case, layer, refused


def of_layer(name: str, use: Any) -> None:
    """A case that does something with a module."""
    assert name not in CASES, name
    CASES[name] = lambda _: use(compiled())


# --------------------------------------------------------------------------------------- paths

of_layer("save_without_a_name", lambda m: m.save(""))
of_layer("save_to_nothing", lambda m: m.save(None))
of_layer("save_to_bytes", lambda m: m.save(b"layer.planish"))
CASES["load_of_nothing"] = lambda _: planish.load(None)  # type: ignore[arg-type]
CASES["load_of_bytes"] = lambda _: planish.load(b"PK\3\4...")  # type: ignore[arg-type]
CASES["load_without_a_name"] = lambda _: planish.load("")
CASES["load_of_a_name_with_a_zero"] = lambda _: planish.load("a\0b")
CASES["load_of_what_cannot_be_mapped"] = lambda _: planish.load("/proc/self/mem")
CASES["load_of_a_file_of_no_size"] = lambda _: planish.load("/proc/self/status")
CASES["load_of_a_device"] = lambda _: planish.load("/dev/null")
CASES["compile_without_a_name"] = lambda _: planish.compile("")
CASES["compile_of_a_device"] = lambda _: planish.compile("/dev/zero")


@case
def arrays_as_model(folder: Path) -> object:
    np.savez(folder / "in.npz", x=X)
    return planish.compile(folder / "in.npz")


@case
def arrays_as_module_file(folder: Path) -> object:
    np.savez(folder / "in.npz", x=X)
    return planish.load(folder / "in.npz")


@case
def module_file_behind_a_file(folder: Path) -> object:
    (folder / "file").write_bytes(b"")
    return planish.load(folder / "file" / "layer.planish")


@case
def save_behind_a_file(folder: Path) -> object:
    (folder / "file").write_bytes(b"")
    return compiled().save(folder / "file" / "layer.planish")


# ---------------------------------------------------------------------- numbers, truths and lists

refused("negative_size_of_numpy", layer, dims={"batch": np.int64(-1)})
refused("size_that_is_an_array", layer, dims={"batch": np.ones(2, np.int64)})
refused("threads_that_are_a_truth", layer, threads=True)
refused("optimize_that_is_text", layer, optimize="no")
refused("logs_that_are_a_number", layer, logs=5)
refused("log_that_is_a_number", layer, logs=[5])
refused("log_that_is_text", layer, logs="none.jsonl")
refused("log_that_is_a_folder", layer, logs="/proc")
refused("progress_that_is_no_function", layer, progress="yes")
refused("accuracy_that_is_no_text", layer, accuracy=np.ones(2))


@case
def threads_of_a_loaded_module(folder: Path) -> object:
    (folder / "layer.planish").write_bytes(saved())
    return planish.load(folder / "layer.planish", threads=0)


@case
def verify_that_is_text(folder: Path) -> object:
    (folder / "layer.planish").write_bytes(saved())
    return planish.load(folder / "layer.planish", verify="no")  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------- calls

of_layer("call_by_names", lambda m: m(x=X, k=K))
of_layer("call_with_a_misspelt_option", lambda m: m(X, K, outs=[]))
of_layer("run_of_an_array", lambda m: m.run(X))
of_layer("plan_of_a_list", lambda m: m.plan([X, K]))
of_layer("profile_of_an_array", lambda m: m.profile(X))
of_layer("profile_of_text", lambda m: m.profile("xk"))
of_layer("profile_of_no_repetition", lambda m: m.profile([X, K], 0))
of_layer("output_array_of_another_dtype", lambda m: m(X, K, out=(X[:, :8].astype("f8"), K)))
of_layer("output_array_that_is_a_list", lambda m: m(X, K, out=([[0.0] * 8] * 2, K)))
of_layer("output_arrays_by_name_in_a_call", lambda m: m(X, K, out={"y": read_only(X), "z": K}))

# ------------------------------------------------------------------------------------- the program

used("bench_for_ever", "bench layer.onnx --seconds inf")
used("bench_of_no_number", "bench layer.onnx --seconds nan")
used("bench_against_an_unknown_runtime_first", "bench text.onnx --against torch")
used("tune_for_ever", "tune layer.onnx --log a.jsonl --budget 99999999h")
used("tune_to_no_speed", "tune layer.onnx --log a.jsonl --target-speed nan")
used("tune_for_no_trials", "tune layer.onnx --log a.jsonl --trials 0")
used("output_behind_a_file", "compile layer.onnx -o text.onnx/out.planish")
used("model_that_is_a_device", "show /dev/zero")
used("model_of_arrays", "compile in.npz -o out.planish")
used("option_of_another_command", "bench layer.onnx --report")
used("option_of_another_action", "logs list --output a.jsonl")
