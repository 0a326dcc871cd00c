"""What a server prints, of which the end is kept."""

from __future__ import annotations

import os
import threading
from collections import deque

MOST_BYTES = 1 << 20


class LogTail:
    """The last MOST_BYTES that come through a pipe. A thread reads them, so that whoever writes never waits."""

    def __init__(self) -> None:
        self._read, self.write = os.pipe()
        self._parts: deque[bytes] = deque()  # without a lock, which a forked child could find taken
        self._thread = threading.Thread(target=self._run, name="headrace-log", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        size = 0
        while part := os.read(self._read, 1 << 16):
            self._parts.append(part)
            size += len(part)
            while size - len(self._parts[0]) >= MOST_BYTES:
                size -= len(self._parts.popleft())
        self.let_go()

    def text(self) -> str:
        return b"".join(self._parts.copy()).decode(errors="replace")

    def handed_over(self) -> None:
        """The writer has a descriptor of its own: the pipe ends with it."""
        os.close(self.write)

    def wait(self, seconds: float) -> None:
        """Until all that was written has been read, if the writers end."""
        self._thread.join(seconds)

    def let_go(self) -> None:
        """Also in a forked child, which has no such thread."""
        read, self._read = self._read, -1
        if read >= 0:
            os.close(read)
