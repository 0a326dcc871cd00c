"""Closes descriptors in forked children, such as a DataLoader's workers. If a child kept its copy of a pipe's or socket's end, the process
at the other end would not notice that this process died."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

_Owner = TypeVar("_Owner")

_owners: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


def release_in_children(owner: _Owner, release: Callable[[_Owner], None]) -> None:
    """Calls release(owner) in every child that is forked while `owner` exists, even after `owner` was closed. `release` must be a function
    of the class, because a bound method would keep the owner alive."""
    _owners[owner] = release


def _after_fork() -> None:
    for owner, release in list(_owners.items()):
        with contextlib.suppress(OSError):
            release(owner)


os.register_at_fork(after_in_child=_after_fork)
