"""The server's binary: the packaged one, unless HEADRACE_BINARY names another."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def path() -> str:
    return os.environ.get("HEADRACE_BINARY") or str(Path(__file__).parent / "bin" / "headrace")


def main() -> None:
    """Console script `headrace`: becomes the binary."""
    os.execv(path(), ["headrace", *sys.argv[1:]])
