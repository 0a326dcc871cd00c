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

# CLOCK_OFFSET names the file with the seconds. Only the wall clock is shifted. The kernel keeps the right time, so a wait until a time
# that this clock gave ends a day late or at once.
WALL_CLOCK = r"""
static long offset(void) {
  static long* seconds;
  if (!seconds) seconds = shared("CLOCK_OFFSET");
  return *(volatile long*)seconds;
}
int clock_gettime(clockid_t clock, struct timespec* now) {
  static int (*real)(clockid_t, struct timespec*);
  if (!real) real = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  int done = real(clock, now);
  if (done == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += offset();
  return done;
}
int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  struct timespec time;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &time);
  now->tv_sec = time.tv_sec;
  now->tv_usec = time.tv_nsec / 1000;
  return 0;
}
time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
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

    def close(self) -> None:
        self._bytes.close()

    @property
    def value(self) -> int:
        number: int = struct.unpack("=q", self._bytes[:8])[0]
        return number

    @value.setter
    def value(self, number: int) -> None:
        self._bytes[:8] = struct.pack("=q", number)
