"""How long a process takes until planish is there."""

from __future__ import annotations

import subprocess
import sys
from typing import Any


def bench_import(benchmark: Any) -> None:
    """``import planish`` in a fresh process, the interpreter's own start included."""
    benchmark(subprocess.run, [sys.executable, "-c", "import planish"], check=True)
