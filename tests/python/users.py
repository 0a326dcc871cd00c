"""Runs parts of a test as other users, which needs root."""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from running import copied_binary

NOBODY = 65534
THIRD = 54321  # another one

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="two users at once: run these tests as root, as CI does")


def as_user(uid: int, work: Callable[[], Any], groups: Sequence[int] = ()) -> Any:
    """Returns the result of `work` in a forked child that runs as `uid`. An exception in it is raised here."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups(list(groups))
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            try:
                told = (True, work())
            except BaseException as error:
                told = (False, error)
            with os.fdopen(write, "wb") as pipe:
                pickle.dump(told, pipe)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    assert data, "the child ended without a result"
    good, value = pickle.loads(data)
    if not good:
        raise value
    return value


def owned(path: Path, uid: int, mode: int) -> Path:
    if uid != os.geteuid():
        os.chown(path, uid, uid)
    path.chmod(mode)
    return path


class Common:
    """A folder that all users can read, with the binary under test in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.chmod(0o755)
        self.binary = copied_binary(path)

    def folder(self, name: str, uid: int | None = None, mode: int = 0o755) -> Path:
        """Another user's needs root."""
        path = self.path / name
        path.mkdir()
        return owned(path, os.geteuid() if uid is None else uid, mode)


@pytest.fixture
def common() -> Iterator[Common]:
    path = Path(tempfile.mkdtemp(prefix="headrace-users-"))
    yield Common(path)
    shutil.rmtree(path)
