"""What a chaos run takes from the machine and gives back: small disks that can be filled, a memory limit, and a clock that can be stepped."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import python_tests  # noqa: F401
from shims import WALL_CLOCK, Shared, preload

OWN_MOUNTS = "HEADRACE_CHAOS_MOUNTS"


def with_own_mounts() -> None:
    """Starts this program again with mounts of its own and an empty /dev/shm, where that is allowed: what it mounts ends with it, even if it
    is killed, and other programs of the machine leave nothing in its /dev/shm."""
    if OWN_MOUNTS in os.environ:
        return
    commands = 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'
    alone = ["unshare", "--mount", "--propagation", "private", "sh", "-c", commands, "sh"]
    if shutil.which("unshare") and subprocess.run([*alone, "true"], capture_output=True, check=False).returncode == 0:
        os.environ[OWN_MOUNTS] = "1"
        os.execvp(alone[0], [*alone, sys.executable, *sys.argv])


class SmallDisk:
    """A tmpfs. Raises OSError where mounting is not allowed."""

    def __init__(self, path: Path, megabytes: int) -> None:
        self.path = path
        path.mkdir(mode=0o700)
        command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0700", "headrace-chaos", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(done.stderr.strip() or "mount failed")

    def fill(self) -> None:
        with (self.path / "filler").open("ab", buffering=0) as filler:
            size = 1 << 16
            while size:
                try:
                    filler.write(b"x" * size)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    size //= 2

    def empty(self) -> None:
        (self.path / "filler").unlink(missing_ok=True)

    def close(self) -> None:
        subprocess.run(["umount", str(self.path)], check=True, capture_output=True)


class MemoryLimit:
    """A control group of version 1 or 2. Raises OSError where none can be made."""

    def __init__(self, name: str, megabytes: int) -> None:
        root = Path("/sys/fs/cgroup")
        first = (root / "memory").is_dir()
        self.path = (root / "memory" if first else root) / name
        self.path.mkdir()
        try:
            (self.path / ("memory.limit_in_bytes" if first else "memory.max")).write_text(str(megabytes << 20))
        except OSError:
            self.path.rmdir()
            raise

    def close(self) -> None:
        """Its processes have ended, which the kernel may not have noticed yet."""
        for _ in range(50):
            with contextlib.suppress(OSError):
                self.path.rmdir()
            if not self.path.exists():
                return
            time.sleep(0.1)


class WallClock:
    """Time of day that can be stepped, for processes with this environment. Raises OSError without a compiler."""

    def __init__(self, folder: Path) -> None:
        self._offset = Shared(folder / "clock")
        try:
            library = preload(folder, WALL_CLOCK)
        except subprocess.CalledProcessError as error:
            raise OSError(str(error)) from error
        self.env = {"LD_PRELOAD": library, "CLOCK_OFFSET": str(folder / "clock")}

    def step(self, seconds: int) -> None:
        """To this much before or behind the real time."""
        self._offset.value = seconds

    def close(self) -> None:
        self._offset.close()
