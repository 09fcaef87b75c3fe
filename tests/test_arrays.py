"""Arrays of every dtype in .npz files, and inputs that are made up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planish.arrays import inputs_from, made_up, read_npz, write_npz
from planish.compiler.dtypes import ALL, F8E8M0, DType
from planish.runtime.interface import Port


@pytest.mark.parametrize("dtype", ALL.values(), ids=str)
def test_there_and_back(dtype: DType, tmp_path: Path) -> None:
    port = Port("x", dtype, (2, 3))
    arrays = made_up([port], {})
    assert arrays["x"].dtype == dtype.numpy
    if dtype is F8E8M0:
        assert np.isfinite(arrays["x"].astype(np.float32)).all()
    write_npz(tmp_path / "x.npz", arrays)
    assert read_npz(tmp_path / "x.npz")["x"].dtype.kind in "biufc"
    again = inputs_from(tmp_path / "x.npz", [port])
    assert again["x"].dtype == dtype.numpy
    assert again["x"].tobytes() == arrays["x"].tobytes()
