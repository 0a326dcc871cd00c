"""The end of a server's output."""

from __future__ import annotations

import os
import threading
from collections import deque

MOST_BYTES = 1 << 20


class LogTail:
    """The last MOST_BYTES that were written to a pipe. A thread reads them, so that the writer never waits."""

    def __init__(self) -> None:
        self._read, self.write = os.pipe()
        self._parts: deque[bytes] = deque()  # no lock, because a forked child might inherit it locked
        self._thread = threading.Thread(target=self._run, name="headrace-log", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        size = 0
        while part := os.read(self._read, 1 << 16):
            self._parts.append(part)
            size += len(part)
            while size - len(self._parts[0]) >= MOST_BYTES:
                size -= len(self._parts.popleft())
        self.release()

    def text(self) -> str:
        return b"".join(self._parts.copy()).decode(errors="replace")

    def close_write_end(self) -> None:
        """Closes this process's write end, after the last writer has inherited its own."""
        write, self.write = self.write, -1
        if write >= 0:
            os.close(write)

    def wait(self, seconds: float) -> None:
        """Waits until the writers have ended and everything was read, for at most `seconds`."""
        self._thread.join(seconds)

    def release(self) -> None:
        """Closes the read end; also called in forked children, which do not have the thread."""
        read, self._read = self._read, -1
        if read >= 0:
            os.close(read)
