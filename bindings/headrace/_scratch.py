"""Temporary folders that are removed with the process that made them, at the latest when another process makes its own.

A process locks its folder. The kernel releases the lock when the process ends, even if it is killed. `headrace bench` does the same
(server/verbs/scratch.h)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from ._forks import release_in_children
from .errors import DirectoryInUse, EnvironmentFailed


def _locked(path: str | Path, strict: bool = False) -> int | None:
    """Locks a file or folder and returns its descriptor. None if another process holds the lock, or the path does not exist. Any other
    failure raises OSError if `strict`, else gives None."""
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
            # The owner's server may still run for a moment.
            server = os.path.join(entry.path, "run", "lock")
            its = _locked(server)
            if its is not None or not os.path.exists(server):
                shutil.rmtree(entry.path, ignore_errors=True)
            for descriptor in (mine, its):
                if descriptor is not None:
                    os.close(descriptor)


def _named(name: str) -> Path:
    path = Path(tempfile.gettempdir(), name)
    path.mkdir(mode=0o700, exist_ok=True)
    if path.is_symlink() or path.stat().st_uid != os.geteuid():
        raise EnvironmentFailed(f"{path} is not a folder of user {os.geteuid()}; remove it")
    return path


class Scratch:
    """A folder of this process in the system's folder for temporary files. With a `name`, a process may continue the folder of one that
    was killed. Raises EnvironmentFailed, and DirectoryInUse if another process has the folder of this name."""

    def __init__(self, prefix: str, name: str | None = None) -> None:
        _sweep(prefix)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=prefix)) if name is None else _named(prefix + name)
            try:
                descriptor = _locked(self.path, strict=True)
            except OSError as error:
                with contextlib.suppress(OSError):
                    self.path.rmdir()
                raise EnvironmentFailed(f"{self.path} cannot be locked: {error.strerror}; set TMPDIR to a local disk") from error
            # Another process's sweep may have removed the folder before it was locked.
            if descriptor is not None and self.path.exists():
                self._lock = descriptor
                release_in_children(self, Scratch.release)
                return
            if descriptor is not None:
                os.close(descriptor)
            elif name is not None and self.path.exists():
                raise DirectoryInUse(f"{self.path} is in use by another process; end it first")

    def release(self) -> None:
        """Releases the lock; also called in forked children, which must not hold it after their parent has ended."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def remove(self) -> None:
        """Removes the folder, unless this is a forked child."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
        self.release()
