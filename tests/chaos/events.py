"""What happened in a chaos run, with times: a CSV file that is written as it happens."""

from __future__ import annotations

import csv
import threading
import time
from dataclasses import dataclass
from pathlib import Path

MISSED = "none was running"  # the detail of a fault that found no process
AGAIN = "again"  # the detail of the second kill of a kill_server_twice


@dataclass(frozen=True, slots=True)
class Event:
    time: float  # CLOCK_MONOTONIC
    kind: str
    target: str
    detail: str


class Events:
    """Thread safety: any thread."""

    def __init__(self, path: Path) -> None:
        self.all: list[Event] = []
        self._lock = threading.Lock()
        self._file = path.open("w", newline="", buffering=1)
        self._writer = csv.writer(self._file)
        self._writer.writerow(("seconds", "kind", "target", "detail"))
        self.begun = time.monotonic()

    def add(self, kind: str, target: str = "", detail: object = "") -> float:
        with self._lock:
            event = Event(time.monotonic(), kind, target, str(detail))
            self.all.append(event)
            self._writer.writerow((f"{event.time - self.begun:.3f}", kind, target, detail))
        return event.time

    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self.begun

    def close(self) -> None:
        self._file.close()
