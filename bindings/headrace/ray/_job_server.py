"""One server for each node, configuration and job: an actor that owns it, and that outlives the worker which created it."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray

import headrace

from .._arguments import mapping, seconds
from ..errors import Error, InvalidArgument, Timeout
from ._job import NAMESPACE, Folder, end_with_job, new_folder, on_node, this_node


class JobServer:
    """Owns the server of a node. If this process is killed, Ray starts it again, and the server has the same directory as before."""

    def __init__(self, folder: str, config: str | dict[str, Any], overrides: dict[str, object], job: str, wait: float) -> None:
        self._folder_path, self._config, self._overrides, self._wait = folder, config, overrides, wait
        self._lock = threading.Lock()
        self._folder: Folder | None = None
        self._server: headrace.Server | None = None
        self._stopped = False
        end_with_job(job, self._stop)
        if ray.get_runtime_context().was_current_actor_reconstructed:
            self.start()  # its loaders wait for it

    def start(self) -> str:
        """Starts the server if it does not run; returns its directory."""
        with self._lock:
            if self._stopped:
                raise EOFError("the job has ended")
            if self._folder is None:
                self._folder = Folder(self._folder_path)
            if self._server is not None and self._server.poll() == 0:  # by drain()
                self._server.stop()
                self._server = None
            if self._server is None:
                config = self._config
                if not isinstance(config, str):
                    file = Path(self._folder.path) / "config.yaml"
                    file.write_text(json.dumps(config))
                    config = str(file)
                directory = {"server.directory": os.path.join(self._folder.path, "run")}
                self._server = headrace.serve(config, restart=True, wait=self._wait, set={**self._overrides, **directory})
            return self._server.address

    def describe(self) -> dict[str, Any]:
        """The server's process and this actor's, for tests and status commands."""
        server = self._server
        return {"actor": os.getpid(), "server": None if server is None else server.pid, "folder": self._folder_path}

    def _stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._server is not None:
                self._server.stop()
            if self._folder is not None:
                self._folder.remove()


def _given(config: object) -> tuple[str | dict[str, Any], str]:
    """A configuration as the actor gets it, and text that identifies it."""
    if isinstance(config, Mapping):
        try:
            return dict(config), json.dumps(config, sort_keys=True)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"config: {error}; expected only dicts with str keys, lists, numbers and str") from None
    if not isinstance(config, str | os.PathLike):
        found = type(config).__name__
        raise InvalidArgument(f"config: expected the path of a YAML file on each node, a dict, or the result of share(); found {found}")
    path = os.path.abspath(os.fsdecode(config))
    try:
        return path, f"{path}\n{Path(path).read_text()}"
    except OSError as error:
        raise InvalidArgument(f"config: {path} on node {this_node()}: {error.strerror}; give an absolute path that each node has, or a dict") from None


def server_of_node(config: object, overrides: object, num_cpus: float, wait: object) -> str:
    """Finds or starts the server of this node and job for `config`; returns its directory. Raises the error of a server that does not
    start."""
    given, identity = _given(config)
    changed = mapping("set", overrides)
    limit = seconds("wait", wait, above_zero=True)
    job = str(ray.get_runtime_context().get_job_id())
    node = this_node()
    text = json.dumps([identity, {name: str(value) for name, value in changed.items()}, headrace.__version__], sort_keys=True)
    name = f"server-{job}-{node[:16]}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    actors = ray.remote(JobServer).options(
        name=name,
        namespace=NAMESPACE,
        get_if_exists=True,
        lifetime="detached",  # otherwise it would end with the worker that creates it; end_with_job() ends it
        scheduling_strategy=on_node(node),
        num_cpus=num_cpus,
        max_restarts=-1,
        max_concurrency=8,
    )
    end = time.monotonic() + limit + 30  # of which Ray needs some to start the actor's process
    while True:
        actor = actors.remote(new_folder(), given, changed, job, limit)
        try:
            return str(ray.get(actor.start.remote(), timeout=max(0.0, end - time.monotonic())))
        except ray.exceptions.GetTimeoutError:
            raise Timeout(f"the actor {name} on node {node} started no server within {limit + 30:g} s; `ray list actors` shows its state") from None
        except ray.exceptions.RayTaskError as error:
            ray.kill(actor)  # so that its name is free for another attempt
            if isinstance(error.cause, Error):
                raise error.cause from None
            raise
        except ray.exceptions.RayActorError:
            # Another worker met the same error and ended the actor, or its process was killed just now.
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
