"""Wrong uses of the program: what it prints, and its exit code."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

import numpy as np

from planish.cli import main

from .bad_files import saved
from .cases import CASES, layer


class Said(Exception):
    """What the program printed as its error, and its exit code."""


def files(folder: Path) -> None:
    """What the commands below are about."""
    x, k = np.zeros((2, 16), np.float32), np.zeros(2, np.int64)
    (folder / "layer.onnx").write_bytes(layer().SerializeToString())
    (folder / "layer.planish").write_bytes(saved())
    (folder / "cut.planish").write_bytes(saved()[:-100])
    (folder / "text.onnx").write_text("hello")
    np.save(folder / "one.npy", x)
    np.savez(folder / "in.npz", x=x, k=k)
    np.savez(folder / "other.npz", x=x, k=k, other=x)
    np.savez(folder / "less.npz", x=x)
    np.savez(folder / "wide.npz", x=np.zeros((2, 17), np.float32), k=k)
    np.savez(folder / "double.npz", x=x.astype(np.float64), k=k)
    np.savez(folder / "objects.npz", x=np.array([None]), k=k)
    (folder / "cut.npz").write_bytes((folder / "in.npz").read_bytes()[:-60])
    (folder / "empty.onnx").write_bytes(b"")


def used(name: str, words: str) -> None:
    """A case of the program called with these words, which ends in an error."""
    assert name not in CASES, name

    def use(folder: Path) -> object:
        files(folder)
        errors, before = io.StringIO(), Path.cwd()
        os.chdir(folder)
        try:
            with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
                code = main([word.replace("\t", " ") for word in words.split(" ") if word])
        except SystemExit as end:  # of argparse, which prints its usage first
            code = int(end.code or 0)
        finally:
            os.chdir(before)
        assert code, f"planish {words} did not fail"
        text = errors.getvalue().strip()
        lines = text.splitlines() if "Traceback" in text else [text[text.rfind("\nplanish") + 1 :]]
        raise Said(f"exit {code}: planish {words}\n" + "\n".join(lines))

    CASES[name] = use


used("no_command", "")
used("unknown_command", "dance")
used("unknown_option", "compile layer.onnx -o out.planish --fast")
used("no_output", "compile layer.onnx")
used("dim_without_a_number", "compile layer.onnx -o out.planish --dim batch=many")
used("dim_that_the_model_lacks", "compile layer.onnx -o out.planish --dim rows=2")
used("threads_that_are_no_number", "compile layer.onnx -o out.planish --threads many")
used("zero_threads", "compile layer.onnx -o out.planish --threads 0")
used("log_that_is_missing", "compile layer.onnx -o out.planish --log none.jsonl")
used("log_and_no_logs", "compile layer.onnx -o out.planish --log a.jsonl --no-logs")
used("output_in_a_missing_folder", "compile layer.onnx -o none/out.planish")
used("compiling_what_is_compiled", "compile layer.planish -o out.planish")
used("compiling_for_a_target_to_come", "compile layer.onnx -o out.planish --target cuda")
used("compiling_text", "compile text.onnx -o out.planish")
used("running_a_missing_file", "run none.onnx --inputs in.npz -o out.npz")
used("running_a_damaged_file", "run cut.planish --inputs in.npz -o out.npz")
used("running_without_inputs", "run layer.planish -o out.npz")
used("inputs_in_a_missing_file", "run layer.planish --inputs none.npz -o out.npz")
used("inputs_in_a_text", "run layer.planish --inputs text.onnx -o out.npz")
used("inputs_without_names", "run layer.planish --inputs one.npy -o out.npz")
used("inputs_that_are_objects", "run layer.planish --inputs objects.npz -o out.npz")
used("input_that_the_model_lacks", "run layer.planish --inputs other.npz -o out.npz")
used("input_that_is_missing", "run layer.planish --inputs less.npz -o out.npz")
used("input_of_another_shape", "run layer.planish --inputs wide.npz -o out.npz")
used("input_of_another_dtype", "run layer.planish --inputs double.npz -o out.npz")
used("outputs_in_a_missing_folder", "run layer.planish --inputs in.npz -o none/out.npz")
used("running_a_folder", "run . --inputs in.npz -o out.npz")
used("outputs_onto_a_folder", "run layer.planish --inputs in.npz -o .")
used("outputs_on_a_full_disk", "run layer.planish --inputs in.npz -o /dev/full")
used("module_on_a_full_disk", "compile layer.onnx -o /dev/full")
used("module_onto_a_folder", "compile layer.onnx -o .")
used("compiling_a_folder", "compile . -o out.planish")
used("compiling_nothing", "compile empty.onnx -o out.planish")
used("negative_dim", "compile layer.onnx -o out.planish --dim batch=-1")
used("dim_without_a_name", "compile layer.onnx -o out.planish --dim =3")
used("dim_given_twice", "compile layer.onnx -o out.planish --dim batch=1 --dim batch=2")
used("compiling_for_an_unknown_processor",
     "compile layer.onnx -o out.planish --target llvm\t-mcpu=pentagon9")  # fmt: skip
used("compiling_for_the_interpreter",
     "compile layer.onnx -o out.planish --target interpreter")  # fmt: skip
used("inputs_that_are_cut", "run layer.planish --inputs cut.npz -o out.npz")
used("operators_of_a_missing_model", "ops none.onnx")
used("operators_of_a_module", "ops layer.planish")
used("bench_of_no_threads", "bench layer.onnx --threads 0")
used("bench_of_other_inputs", "bench layer.onnx --inputs wide.npz")
used("verify_of_a_missing_model", "verify none.onnx")
used("target_of_what_is_compiled",
     "run layer.planish --inputs in.npz -o out.npz --target llvm")  # fmt: skip
used("bench_against_an_unknown_runtime", "bench layer.onnx --against abacus")
used("bench_of_a_module_against_another_runtime", "bench layer.planish --against onnxruntime")
used("bench_of_no_time", "bench layer.onnx --seconds 0")
used("bench_of_a_missing_file", "bench none.planish")
used("verify_of_a_module", "verify layer.planish")
used("verify_against_an_unknown_oracle", "verify layer.onnx --against delphi")
used("show_of_a_module", "show layer.planish")
used("show_of_an_unknown_stage", "show layer.onnx --stage soup")
used("description_of_an_unknown_target", "target --target abacus")
used("tuning_by_a_model_that_is_missing", "tune layer.onnx --log a.jsonl --model none.json")
used("tuning_by_a_model_that_is_text", "tune layer.onnx --log a.jsonl --model text.onnx")
used("tuning_by_a_network", "tune layer.onnx --log a.jsonl --model layer.onnx")
used("tuning_by_a_folder", "tune layer.onnx --log a.jsonl --model .")
used("tuning_by_a_device", "tune layer.onnx --log a.jsonl --model /dev/zero")
used("tuning_for_another_cpu", "tune layer.onnx --log a.jsonl --target interpreter")
