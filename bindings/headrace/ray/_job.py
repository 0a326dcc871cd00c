"""What an actor owns on its node: a private folder, which is removed when the actor's process ends, however it ends."""

from __future__ import annotations

import contextlib
import os
import secrets
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
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ..errors import EnvironmentFailed

NAMESPACE = "headrace"
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


def new_folder() -> str:
    """A path for a folder of an actor on this node. It does not exist yet."""
    base = tempfile.gettempdir()
    return os.path.join(base if len(os.fsencode(base)) <= _LONGEST else "/tmp", f"headrace-ray-{secrets.token_hex(6)}")


class Folder:
    """Creates the folder `path` for this process, and makes it the one for temporary files.

    A restarted actor uses the path of its predecessor, whose folder must have been removed: waits for that, then raises
    EnvironmentFailed."""

    def __init__(self, path: str) -> None:
        self.path = path
        end = time.monotonic() + _REMOVAL_SECONDS + 5
        while True:
            try:
                os.mkdir(path, 0o700)
                break
            except FileExistsError:
                if time.monotonic() > end:
                    raise EnvironmentFailed(f"{path} still exists: a server that ended has not removed it; remove it") from None
                time.sleep(0.05)
            except OSError as error:
                raise EnvironmentFailed(f"{path} cannot be created: {error.strerror}; set TMPDIR to a local folder on each node") from error
        command = [sys.executable, "-I", "-S", "-c", _REMOVER, path, str(_REMOVAL_SECONDS)]
        try:
            self._remover = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
            self._remover.wait()  # for its first half; the second one waits for the pipe's end
        except OSError as error:
            shutil.rmtree(path, ignore_errors=True)
            raise EnvironmentFailed(f"{sys.executable} does not start: {error.strerror}") from error
        tempfile.tempdir = path

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def this_node() -> str:
    """The id of the node on which this process runs, in hexadecimal."""
    return str(ray.get_runtime_context().get_node_id())


def on_node(node: str) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node, soft=False)


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
