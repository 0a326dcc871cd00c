"""Temporary folders that go with the process that made them: at the latest when the next one makes its own.

A folder is locked by its process, which the kernel undoes however that ends. `headrace bench` does the same
(server/verbs/scratch.h)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from ._forks import let_go_in_children
from .errors import EnvironmentFailed


def _locked(path: str | Path, strict: bool = False) -> int | None:
    """A descriptor of a file or folder that holds its lock; None: somebody else does, or it is not there. `strict`: OSError for
    any other reason, which is None otherwise."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
    except (BlockingIOError, FileNotFoundError):
        return None
    except OSError:
        if strict:
            raise
        return None
    return descriptor


def _sweep(prefix: str) -> None:
    with os.scandir(tempfile.gettempdir()) as entries:
        found = [entry for entry in entries if entry.name.startswith(prefix) and entry.is_dir(follow_symlinks=False)]
    for entry in found:
        with contextlib.suppress(OSError):
            if entry.stat(follow_symlinks=False).st_uid != os.geteuid():
                continue
            mine = _locked(entry.path)
            if mine is None:
                continue
            # The owner's server may live on for a moment.
            server = os.path.join(entry.path, "run", "lock")
            its = _locked(server)
            if its is not None or not os.path.exists(server):
                shutil.rmtree(entry.path, ignore_errors=True)
            for descriptor in (mine, its):
                if descriptor is not None:
                    os.close(descriptor)


class Scratch:
    """A folder of this process below the system's for temporary files."""

    def __init__(self, prefix: str) -> None:
        _sweep(prefix)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=prefix))
            try:
                descriptor = _locked(self.path, strict=True)
            except OSError as error:
                with contextlib.suppress(OSError):
                    self.path.rmdir()
                raise EnvironmentFailed(f"{self.path} cannot be locked: {error.strerror}; set TMPDIR to a local disk") from error
            # Another process's sweep may have come between.
            if descriptor is not None and self.path.exists():
                self._lock = descriptor
                let_go_in_children(self, Scratch.let_go)
                return
            if descriptor is not None:
                os.close(descriptor)

    def let_go(self) -> None:
        """In a forked child, which must not keep the lock beyond its parent's end."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self.let_go()
