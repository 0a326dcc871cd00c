"""What forked children (a DataLoader's workers, say) let go of: with their copy of a descriptor, who waits at its other end for
the death of this process would never see it."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

_Owner = TypeVar("_Owner")

_held: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


def let_go_in_children(owner: _Owner, let_go: Callable[[_Owner], None]) -> None:
    """let_go(owner) in every child that is forked while `owner` lives, also after it closed what it has. A function of the class:
    a bound method would keep the owner alive."""
    _held[owner] = let_go


def _after_fork() -> None:
    for owner, let_go in list(_held.items()):
        with contextlib.suppress(OSError):
            let_go(owner)


os.register_at_fork(after_in_child=_after_fork)
