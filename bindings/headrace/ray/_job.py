"""What actors of this package need on their node: a private folder, which is removed however the process ends, and the end of their job."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import ray
import ray._private.state  # the only interface to the jobs of a cluster that needs no dashboard

from ..errors import EnvironmentFailed

_LONGEST = 48  # bytes of the folder for temporary files, so that a socket's path fits below it
_CHECK_SECONDS = 1.0
_REMOVAL_SECONDS = 20.0  # a server without its parent finishes its clients' leases first

# Removes a folder when its standard input ends. It is no child of the actor, whose children Ray kills.
_REMOVER = """
import fcntl, glob, os, shutil, sys, time
if os.fork():
    os._exit(0)
os.read(0, 1)
folder, end = sys.argv[1], time.monotonic() + float(sys.argv[2])
for name in glob.glob(os.path.join(glob.escape(folder), "**", "lock"), recursive=True):
    with open(name) as lock:
        while time.monotonic() < end:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # its server has ended
                break
            except OSError:
                time.sleep(0.02)
shutil.rmtree(folder, ignore_errors=True)
"""


def temporary_folder() -> str:
    """The folder for temporary files, or /tmp if that leaves no room for a socket's path."""
    base = tempfile.gettempdir()
    return base if len(os.fsencode(base)) <= _LONGEST else "/tmp"


class Folder:
    """Creates a folder for this process, and makes it the one for temporary files. Raises EnvironmentFailed."""

    def __init__(self) -> None:
        base = temporary_folder()
        try:
            self.path = tempfile.mkdtemp(prefix="headrace-ray-", dir=base)
        except OSError as error:
            raise EnvironmentFailed(f"no folder can be created in {base}: {error.strerror}; set TMPDIR to a local folder on each node") from error
        command = [sys.executable, "-I", "-S", "-c", _REMOVER, self.path, str(_REMOVAL_SECONDS)]
        try:
            self._remover = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
            self._remover.wait()  # for its first half; the second one waits for the pipe's end
        except OSError as error:
            self.remove()
            raise EnvironmentFailed(f"{sys.executable} does not start: {error.strerror}") from error
        tempfile.tempdir = self.path

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def _job_has_ended(job: str) -> bool:
    try:
        jobs: list[dict[str, Any]] = ray._private.state.jobs()
    except Exception:  # the cluster's control store is restarting; if it does not return, Ray ends this process
        return False
    return not any(entry["JobID"] == job and not entry["IsDead"] for entry in jobs)


def end_with_job(job: str, stop: Callable[[], object]) -> None:
    """Calls `stop` and ends this detached actor when the job has ended. The worker that created it may end before."""
    actor = ray.get_runtime_context().current_actor

    def watch() -> None:
        while not _job_has_ended(job):
            time.sleep(_CHECK_SECONDS)
        with contextlib.suppress(Exception):
            stop()
        ray.kill(actor)

    threading.Thread(target=watch, name="headrace-job", daemon=True).start()
