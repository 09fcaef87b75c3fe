"""Compile a pretrained network that reads text, and let it read a photographed page.

The network is PP-OCRv4's English and Chinese line reader (from the package
rapidocr-onnxruntime, Apache-2.0), the photograph comes with scikit-image (BSD-3-Clause).
The two lines have different widths: the one compiled module serves both.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt
import onnx
from packages import PackageFile
from pictures import Picture, draw, read_png, resize

import planish

READER = PackageFile(
    "rapidocr-onnxruntime",
    "1.4.4",
    "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
    "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
)
PAGE = PackageFile(
    "scikit-image",
    "0.26.0",
    "skimage/data/page.png",
    "341a6f0a61557662b02734a9b6e56ec33a915b2c41886b97509dedf2a43b47a3",
    ("--platform", "manylinux_2_28_x86_64", "--python-version", "3.11", "--abi", "cp311"),
)
# What the page says, and where: top, bottom, left, right.
LINES = {
    "Region-based segmentation": (8, 36, 0, 300),
    "histogram of grey values:": (114, 138, 0, 200),
}
HEIGHT = 48  # of a line of text, as the network wants it


def main() -> int:
    """Compile, read both lines, and say whether they were read right."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # the pictures, on a terminal without Unicode
    model = READER.path()
    page = read_png(PAGE.path().read_bytes())

    print("compiling (half a minute on a slow machine) ...", flush=True)
    start = time.perf_counter()
    module = planish.compile(model)
    print(f"compiled {READER.package}'s text reader in {time.perf_counter() - start:.1f} s\n")

    letters = alphabet(model)
    right = 0
    for text, (top, bottom, left, end) in LINES.items():
        line = page[top:bottom, left:end]
        x = prepare(line)
        (scores,) = module(x)
        said = read(scores[0], letters)
        right += said == text
        print(draw(shrink(line, 180)))
        print(f"  planish reads: {said}")
        print(f"  {milliseconds(module, x):.1f} ms for {x.shape[3]} x {x.shape[2]} pixels\n")
    print("A right answer has the same words as the pictures above it.")
    print(f"{right} of {len(LINES)} lines are right.")
    return 0 if right == len(LINES) else 1


def prepare(line: Picture) -> npt.NDArray[np.float32]:
    """A picture of a line as the network's input: [1, 3, 48, width], from -1 to 1."""
    sized = resize(line, HEIGHT, round(line.shape[1] * HEIGHT / line.shape[0]))
    return np.repeat(sized[None, None] * 2 - 1, 3, axis=1)


def alphabet(model: Path) -> list[str]:
    """The characters that the network's classes stand for; class 0 means "nothing new"."""
    facts = {fact.key: fact.value for fact in onnx.load(model).metadata_props}
    return ["", *facts["character"].splitlines(), " "]


def read(scores: npt.NDArray[np.float32], letters: list[str]) -> str:
    """The text in scores [step, class]: the best class of each step, repeats said once."""
    best = scores.argmax(axis=1).tolist()
    return "".join(letters[new] for old, new in zip([0, *best], best, strict=False) if new != old)


def shrink(line: Picture, width: int) -> Picture:
    """The line, at most so many pixels wide."""
    if line.shape[1] <= width:
        return line
    return resize(line, round(line.shape[0] * width / line.shape[1]), width)


def milliseconds(module: Callable[..., object], x: npt.NDArray[np.float32]) -> float:
    """The median time of a call, from a second's worth of calls."""
    times: list[float] = []
    while sum(times) < 1 or len(times) < 5:
        start = time.perf_counter()
        module(x)
        times.append(time.perf_counter() - start)
    return 1000 * median(times)


if __name__ == "__main__":
    sys.exit(main())
