"""The nodes of a cluster, and their versions of Headrace."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import ray  # type: ignore[import-not-found, import-untyped, unused-ignore]
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # type: ignore[import-not-found, import-untyped, unused-ignore]

from ..errors import Error, InvalidArgument, VersionMismatch, from_code
from ._remote import Opened, Plan, probe

_PROBE = 30.0  # seconds for all nodes to say their version
_logger = logging.getLogger("headrace")


@dataclass(frozen=True)
class Node:
    """A node that is alive. `name`: for people and metrics; two nodes of one machine differ in it."""

    id: str
    name: str
    resources: dict[str, float]


def named(host: str, node: str) -> str:
    return f"{host}/{node[:8]}"


def cause_of(error: BaseException) -> BaseException:
    """The headrace.Error that a task raised, which Ray's error contains; otherwise Ray's error."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, Error) else error


def reason(error: BaseException) -> str:
    """Why a task of Ray failed, in one line."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, Error):
        return str(cause)
    if isinstance(error, ray.exceptions.ActorUnavailableError):
        return "it cannot be reached"
    if isinstance(error, ray.exceptions.RayActorError):
        return "its process or its node ended"
    lines = str(cause or error).strip().splitlines()
    return f"{type(cause or error).__name__}: {lines[-1] if lines else ''}"


def nodes() -> list[Node]:
    return [Node(each["NodeID"], named(each["NodeManagerHostname"], each["NodeID"]), each["Resources"]) for each in ray.nodes() if each["Alive"]]


def eligible(plan: Plan) -> list[Node]:
    """Nodes that may have makers: those with the resources; without resources all but the trainers' nodes."""
    wanted = {"CPU": float(plan.threads), **plan.resources}
    found = [node for node in nodes() if all(node.resources.get(name, 0) >= amount for name, amount in wanted.items())]
    return [node for node in found if plan.resources or node.id not in plan.trainers]


def trainers_of(given: Iterable[str] | str | None) -> tuple[str, ...]:
    """The ids of the trainers' nodes. Raises InvalidArgument."""
    if given is None:
        return (this_node(),)
    if isinstance(given, str):
        found = [node.id for node in nodes() if node.resources.get(given, 0) > 0]
        if not found:
            raise InvalidArgument(f"trainers={given!r}: no node has this resource; pass node ids, or start nodes with --resources")
        return tuple(found)
    return with_ids("trainers", given)


def with_ids(argument: str, given: Iterable[str]) -> tuple[str, ...]:
    """The ids that a caller gave, each once. Raises InvalidArgument if there is none, or no node with one of them."""
    asked, alive = tuple(dict.fromkeys(given)), {node.id for node in nodes()}
    if not asked:
        raise InvalidArgument(f"{argument}={given!r}: expected at least one node id, or None")
    for each in asked:
        if each not in alive:
            raise InvalidArgument(f"{argument}: no node has the id {each!r}; ray.nodes() lists them")
    return asked


def this_node() -> str:
    """The id of the node on which this process runs, in hexadecimal."""
    return str(ray.get_runtime_context().get_node_id())


def on(node: str) -> Any:
    """Schedules on this node or not at all."""
    return NodeAffinitySchedulingStrategy(node_id=node, soft=False)


def mismatch(found: Opened, version: str) -> VersionMismatch:
    return VersionMismatch(
        f"node {named(found.host, found.node)} has headrace {found.version}, this program has {version}; install the same version on all nodes"
    )


def not_installed(found: Opened, version: str) -> str:
    return f"{found.error}; install headrace[ray] {version} there"


def check_versions(plan: Plan) -> None:
    """Asks all nodes of the trainers and makers. Raises VersionMismatch, or the error with which headrace is not imported. A maker's node
    that does not answer in time is only named in the log."""
    asked = {node.id: node.name for node in nodes() if node.id in plan.trainers} | {node.id: node.name for node in eligible(plan)}
    remote = ray.remote(probe)
    answers = {remote.options(num_cpus=0, max_retries=0, name="headrace version", scheduling_strategy=on(node)).remote(): node for node in asked}
    done, late = ray.wait(list(answers), num_returns=len(answers), timeout=_PROBE)
    for answer in done:
        try:
            found: Opened = ray.get(answer, timeout=_PROBE)
        except ray.exceptions.RayError as error:
            _logger.warning("headrace.ray: node %s did not say its version of headrace: %s", asked[answers[answer]], error)
            continue
        if found.code:
            raise from_code(found.code, f"node {named(found.host, found.node)}: {not_installed(found, plan.version)}")
        if found.version != plan.version:
            raise mismatch(found, plan.version)
    for answer in late:
        _logger.warning("headrace.ray: node %s did not say its version of headrace within %g s", asked[answers[answer]], _PROBE)
