"""Finds the server's binary: HEADRACE_BINARY, else the command `headrace` that this package installed."""

from __future__ import annotations

import functools
import importlib.metadata
import os

from .errors import from_code


@functools.cache
def _installed() -> str:
    for file in importlib.metadata.files("headrace") or ():
        if file.parts[-2:] == ("bin", "headrace"):
            return os.path.normpath(str(file.locate()))
    raise from_code("ENVIRONMENT", "this installation has no command `headrace`: install the wheel, or set HEADRACE_BINARY to the binary's path")


def path() -> str:
    return os.environ.get("HEADRACE_BINARY") or _installed()
