"""A pseudoterminal for verbs that draw on one, and for shells."""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import subprocess
import termios

from running import headrace_binary


class Terminal:
    """A verb of headrace, or another program, on a terminal of its own."""

    def __init__(self, rows: int, columns: int, *arguments: str, program: str | None = None) -> None:
        self.main, terminal = os.openpty()
        self.resize(rows, columns)
        self.process = subprocess.Popen([program or headrace_binary(), *arguments], stdin=terminal, stdout=terminal, stderr=terminal)
        os.close(terminal)
        self.seen = b""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.main, text.encode())

    def read(self) -> bytes:
        while select.select([self.main], [], [], 0)[0]:
            try:
                self.seen += os.read(self.main, 65536)
            except OSError:  # the terminal has been closed
                break
        return self.seen

    def screen(self) -> list[str]:
        """The lines drawn last."""
        last = self.read().rsplit(b"\x1b[H", 1)[-1].decode()
        return [re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", line) for line in last.split("\r\n")]

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.main)
