"""headrace.share(): resources of the owner's process, and their release by close()."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headrace
import numpy as np
from running import wait_until
from shared import Batches


def mapped() -> int:
    """Feeds' memory in this process."""
    return Path("/proc/self/maps").read_text().count("/memfd:headrace-feed")


def shares(name: str) -> bool:
    return f"headrace.share {name}" in [thread.name for thread in threading.enumerate()]


def test_close_leaves_no_thread_no_memory_and_no_iterator() -> None:
    class Watched(Batches):
        def __iter__(self) -> Iterator[Any]:
            batches = super().__iter__()
            kept.append(weakref.ref(batches))
            return batches

    kept: list[weakref.ref[Any]] = []  # the iterators of all epochs that were begun
    before = mapped()
    share = headrace.share(Watched(), "watched")
    with headrace.Loader(share.address, stream="watched") as loader:
        next(iter(loader))
        assert shares("watched") and mapped() == before + 1
    share.close()
    assert not shares("watched") and mapped() == before
    gc.collect()
    assert not any(each() for each in kept)


def test_close_does_not_wait_for_an_iterable_that_hangs() -> None:
    hangs, goes_on = threading.Event(), threading.Event()

    class Hangs(Batches):
        def make(self, epoch: int, number: int) -> Any:
            if number == 1:
                hangs.set()
                assert goes_on.wait(100)
            return super().make(epoch, number)

    before = mapped()
    share = headrace.share(Hangs(), "hanging")
    assert hangs.wait(60)
    share.close()
    assert shares("hanging") and mapped() == before + 1, "its thread may still write"
    goes_on.set()
    wait_until(lambda: not shares("hanging"), "the thread's end")
    assert mapped() == before


def test_close_may_come_from_the_iterable() -> None:
    class Closes(Batches):
        def make(self, epoch: int, number: int) -> Any:
            if number == 2:
                made.wait(100)
                share.close()
            return super().make(epoch, number)

    made = threading.Event()
    share = headrace.share(Closes(), "closing")
    made.set()
    share.wait(60)
    assert not shares("closing")


def test_a_batch_is_released_once_it_was_copied() -> None:
    batches: list[weakref.ref[Any]] = []

    def endless() -> Iterator[Any]:
        for number in range(1000):
            batch = np.full(4, number)
            batches.append(weakref.ref(batch))
            yield batch
            del batch

    with headrace.share(endless(), batches=10) as share, headrace.Loader(share.address, stream="train") as loader:
        iterator = iter(loader)
        for number in range(6):
            assert next(iterator)[0][0] == number
        assert [each() for each in batches[:4]] == [None] * 4
