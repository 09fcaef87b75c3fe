"""What all tests share."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings

# Neither profile has deadlines: the time of one example says nothing on a shared machine.
settings.register_profile(
    "ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("dev", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "dev"))


@pytest.fixture
def full_device(tmp_path: Path) -> Path:
    """A device that is full, in a folder of its own: a fault replaces none of the system's."""
    device = tmp_path / "devices" / "full"
    device.parent.mkdir()
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 7))
        device.open("wb").close()
    except PermissionError:
        pytest.skip("devices cannot be made here")
    return device


@pytest.fixture
def shut_folder() -> Iterator[Path]:
    """A folder into which one may not look, beside a file ``kept`` that one may only read."""
    root = os.geteuid() == 0
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        shut = folder / "shut"
        shut.mkdir(mode=0o000)
        (folder / "kept").write_bytes(b"old")
        (folder / "kept").chmod(0o444)
        if root:
            os.seteuid(65534)
        try:
            yield shut
        finally:
            if root:
                os.seteuid(0)
            shut.chmod(0o700)


# The targets that this machine can run, as `--target` names them.
TARGETS = ["interpreter"]


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    """Each target in turn."""
    name: str = request.param
    return name
