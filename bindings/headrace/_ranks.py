"""One rank has one loader. Those of this process that stand idle after a loop make way: a notebook's cell that is run twice, a Trainer that
still refers to its last one, a cycle that nobody refers to."""

from __future__ import annotations

import atexit
import gc
import os
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from .errors import RankTaken

if TYPE_CHECKING:
    from .loader import Loader

S = TypeVar("S")

_attached: weakref.WeakSet[Loader] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """While there is still a Python for threads that give back its memory."""
    for loader in list(_attached):
        loader.close()


def take_rank(loader: Loader, open_stream: Callable[[], S]) -> S:
    """What `open_stream` gives. A rank that an idle loader of this process holds is left by it first."""
    end = time.monotonic() + 1
    while True:
        try:
            opened = open_stream()
            _attached.add(loader)
            return opened
        except RankTaken as error:
            if f"(pid {os.getpid()})" not in str(error) or time.monotonic() > end:
                raise
        gc.collect()
        for other in list(_attached):
            if other is not loader and other.has_place_of(loader):
                other._park()
        time.sleep(0.02)  # the server hears of it by a socket's end
