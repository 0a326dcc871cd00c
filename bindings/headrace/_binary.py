"""Finds the server's binary: HEADRACE_BINARY, else the one inside this package."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import from_code

_PACKAGED = Path(__file__).parent / "bin" / "headrace"


def path() -> str:
    named = os.environ.get("HEADRACE_BINARY")
    if not named and not _PACKAGED.exists():
        raise from_code("ENVIRONMENT", f"this installation has no server: {_PACKAGED} is missing; install the wheel, or set HEADRACE_BINARY to the binary's path")
    return named or str(_PACKAGED)
