"""The server's memory, descriptors and threads, each second, as a CSV file."""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from pathlib import Path

from events import Events
from supervised import Supervised

COLUMNS = ("seconds", "pid", "rss_mb", "anonymous_mb", "shared_mb", "descriptors", "threads")


def status(pid: int) -> dict[str, int] | None:
    """Sizes in kB; None if there is no such process, or it has just ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    found = {name: int(value) for name, value in re.findall(r"^(VmRSS|RssAnon|RssShmem|Threads):\s+(\d+)", text, re.MULTILINE)}
    return found if len(found) == 4 else None


def descriptors(pid: int) -> Counter[str]:
    """How many of each kind: "socket:[]", "anon_inode:[pidfd]", or a path, without digits."""
    kinds: Counter[str] = Counter()
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                kinds[re.sub(r"\d", "", os.readlink(f"/proc/{pid}/fd/{name}"))] += 1
            except OSError:
                continue
    except OSError:
        pass
    return kinds


class Sampler:
    def __init__(self, server: Supervised, events: Events, path: Path) -> None:
        self._server, self._events, self._path = server, events, path
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler")
        self._thread.start()

    def _run(self) -> None:
        with self._path.open("w", buffering=1) as out:
            out.write(",".join(COLUMNS) + "\n")
            while not self._stop.wait(1):
                pid = self._server.pid
                if pid is None or (found := status(pid)) is None:
                    continue
                values = [found["VmRSS"] / 1024, found["RssAnon"] / 1024, found["RssShmem"] / 1024]
                seconds = self._events.seconds()
                row = [f"{seconds:.1f}", str(pid), *(f"{v:.1f}" for v in values), str(descriptors(pid).total()), str(found["Threads"])]
                out.write(",".join(row) + "\n")

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
