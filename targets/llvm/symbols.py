"""The functions that a module's object code exports."""

from __future__ import annotations

from typing import Final

MAIN: Final = "planish_main"
PROFILE: Final = "planish_profile"
WORKER: Final = "planish_pool_worker"
