"""What a chaos run leaves behind: processes, shared memory, files, descriptors and threads. There must be nothing."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from room import OWN_MOUNTS
from sampler import descriptors
from supervised import Supervised

HALF_WRITTEN = ".tmp"  # clientlib/base/new_file.h
SESSION = "anon_inode:[pidfd]"


@dataclass
class Before:
    shared: set[str]
    descriptors: Counter[str]
    threads: int


def before() -> Before:
    return Before(_shared(), descriptors(os.getpid()), threading.active_count())


def _shared() -> set[str]:
    """Other programs use the machine's /dev/shm, too."""
    return {name for name in os.listdir("/dev/shm") if OWN_MOUNTS in os.environ or "headrace" in name}


def processes(mark: str) -> list[str]:
    """Those that have `mark` in their environment, besides this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if mark.encode() in (entry / "environ").read_bytes():
                found.append(f"process {entry.name}: {(entry / 'cmdline').read_bytes().replace(bytes(1), b' ').decode(errors='replace')}")
        except OSError:  # it has ended, or belongs to somebody else
            continue
    return found


def sees_sessions(server: Supervised, seconds: float = 30) -> bool:
    """Of a server with clients: else `sessions` would find none, whatever there is."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if server.pid and descriptors(server.pid)[SESSION]:
            return True
        time.sleep(0.05)
    return False


def sessions(server: int | None) -> list[str]:
    """Of a server without clients: each session has a pidfd. The server may need a moment to notice the last client's end."""
    end = time.monotonic() + 3
    while server is not None and (left := descriptors(server)[SESSION]):
        if time.monotonic() > end:
            return [f"{left} sessions of clients that have ended"]
        time.sleep(0.05)
    return []


def files(folder: Path, but: Collection[str] = ()) -> list[str]:
    return [f"file {path}" for path in sorted(folder.rglob("*")) if (path.is_file() or path.is_socket()) and path.name not in but]


def after(then: Before) -> list[str]:
    left = [f"/dev/shm/{name}" for name in sorted(_shared() - then.shared)]
    now = before()
    now.descriptors.pop("/memfd:headrace-lost-pages (deleted)", None)  # the first Maker makes it, for the whole process
    if more := now.descriptors - then.descriptors:
        left.append(f"descriptors of the harness: {', '.join(more.elements())}")
    if now.threads > then.threads:
        left.append(f"{now.threads - then.threads} threads of the harness: {[thread.name for thread in threading.enumerate()]}")
    return left
