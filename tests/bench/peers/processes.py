"""CPU time, memory, stopping and ending of whole process trees, through /proc."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterable

_TICK = os.sysconf("SC_CLK_TCK")
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def keep_descendants() -> None:
    """Orphans of this process become its children, so that tree() and end_descendants() find them."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent() -> None:
    """This process is killed when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; the name before it may hold anything."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].decode().split()


def tree(roots: Iterable[int]) -> list[int]:
    """The living roots, and all their descendants."""
    children: dict[int, list[int]] = {}
    living = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                pid = int(entry)
                children.setdefault(int(_stat(pid)[1]), []).append(pid)
                living.add(pid)
    found, left = [], [root for root in roots if root in living]
    while left:
        pid = left.pop()
        found.append(pid)
        left += children.get(pid, [])
    return found


def cpu_seconds(roots: Iterable[int]) -> float:
    """User + system time of the trees, including children that have ended and were waited for."""
    total = 0.0
    for pid in tree(roots):
        with contextlib.suppress(OSError):
            total += time.clock_gettime((~pid << 3) | 2)  # clock_getcpuclockid(3): in ns, where stat counts in ticks
            total += sum(map(int, _stat(pid)[13:15])) / _TICK
    return total


def memory_bytes(roots: Iterable[int]) -> int:
    """Proportional set size of the trees: a page that n processes share counts 1/n for each."""
    total = 0
    for pid in tree(roots):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            total += sum(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
    return total


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # gone, or of another user
            os.kill(pid, number)


def stop(roots: list[int]) -> None:
    """Sends SIGSTOP to the trees until all processes have received it (one may fork meanwhile)."""
    told: set[int] = set()
    while new := set(tree(roots)) - told:
        _signal(new, signal.SIGSTOP)
        told |= new


def go_on(roots: list[int]) -> None:
    _signal(tree(roots), signal.SIGCONT)


def end(roots: list[int], seconds: float = 10) -> None:
    """SIGKILL to the trees; waits until they are gone, `seconds` at most."""
    stop(roots)
    pids = tree(roots)
    _signal(pids, signal.SIGKILL)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for root in roots:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(root, os.WNOHANG)
        if not any(alive(pid) for pid in pids):
            return
        time.sleep(0.01)


def end_descendants(seconds: float = 10) -> None:
    """SIGKILL to all descendants of this process, after keep_descendants(); waits until they are gone, `seconds` at most."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        living = [pid for pid in tree([os.getpid()])[1:] if alive(pid)]
        _signal(living, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not living:
            return
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        return _stat(pid)[0] not in "ZX"
    except OSError:
        return False
