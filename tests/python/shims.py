"""Libraries for LD_PRELOAD, compiled by the tests that use them: system calls that fail, or that lie about the time."""

from __future__ import annotations

import mmap
import struct
import subprocess
from pathlib import Path

# A long in a file that the test changes while the program runs: Shared, below.
SHARED = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long* shared(const char* name) {
  int fd = open(getenv(name), O_RDWR | O_CLOEXEC);
  void* at = mmap(0, sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd < 0 || at == MAP_FAILED) abort();
  close(fd);
  return at;
}
"""


def preload(folder: Path, source: str) -> str:
    """The path of the library."""
    code, library = folder / "shim.c", folder / "shim.so"
    code.write_text(SHARED + source)
    subprocess.run(["cc", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, code, "-ldl"], check=True)
    return str(library)


class Shared:
    """A number that a preloaded library reads, or counts down."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(8))
        with path.open("r+b") as file:
            self._bytes = mmap.mmap(file.fileno(), 8)

    @property
    def value(self) -> int:
        number: int = struct.unpack("=q", self._bytes[:8])[0]
        return number

    @value.setter
    def value(self, number: int) -> None:
        self._bytes[:8] = struct.pack("=q", number)
