"""The configuration that a caller gives, and the server of a node and job, which outlives the worker that asked for it first."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray  # type: ignore[import-not-found, import-untyped, unused-ignore]

from .. import __version__
from .._arguments import mapping, seconds
from ..errors import Closed, InvalidArgument, Timeout
from ._nodes import cause_of, on, this_node
from ._remote import Plan
from ._server_actor import ServerActor

NAMESPACE = "headrace"
_ACTOR = 60.0  # seconds that the actor's process and the server's keeper may need to start


def plan_of(config: object, changes: object, **more: Any) -> Plan:
    """What to serve: a file or a dict, with the argument `set`. Raises InvalidArgument."""
    if isinstance(config, Mapping):
        path = "configuration"
        try:
            text = json.dumps(config, sort_keys=True).encode()
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"config: {error}; expected only dicts with str keys, lists, numbers and str") from None
    elif isinstance(config, str | os.PathLike):
        path = os.path.abspath(os.fsdecode(config))
        try:
            text = Path(path).read_bytes()
        except OSError as error:
            raise InvalidArgument(f"config: {path} on node {this_node()}: {error.strerror}; give an absolute path that each node has, or a dict") from None
    else:
        raise InvalidArgument(f"config: expected the path of a YAML file, its content as a dict, or, for a Loader, the result of share(); found {type(config).__name__}")
    return Plan(path=path, text=text, changes=mapping("set", changes), version=__version__, **more)


def server_of_node(config: object, changes: object, num_cpus: float, wait: object) -> str:
    """Finds or starts the server of this node and job for `config`; returns its directory. Raises the error of a server that does not
    start."""
    job, node = str(ray.get_runtime_context().get_job_id()), this_node()
    plan = plan_of(config, changes, token=job, wait=seconds("wait", wait, above_zero=True))
    name = f"server-{job}-{node[:16]}-{plan.key}"
    actors = ray.remote(ServerActor).options(
        name=name,
        namespace=NAMESPACE,
        get_if_exists=True,
        lifetime="detached",  # otherwise it would end with the worker that creates it; it ends with the job
        scheduling_strategy=on(node),
        num_cpus=num_cpus,
        max_restarts=-1,
        max_concurrency=8,
    )
    end = time.monotonic() + plan.wait + _ACTOR
    while True:
        actor = actors.remote(plan, job)
        try:
            return str(ray.get(actor.start.remote(), timeout=max(0.0, end - time.monotonic()))["address"])
        except ray.exceptions.GetTimeoutError:
            raise Timeout(f"the actor {name} on node {node} started no server within {plan.wait + _ACTOR:g} s; `ray list actors` shows its state") from None
        except ray.exceptions.RayError as error:
            cause = cause_of(error)
            # It ends because its server did not start for another worker, or its process was killed just now.
            if not isinstance(cause, Closed | ray.exceptions.RayActorError) or time.monotonic() > end:
                raise cause from None
            time.sleep(0.1)
