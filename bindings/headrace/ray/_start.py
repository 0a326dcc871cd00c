"""start(): servers beside the trainers of a Ray cluster, and makers on its other nodes."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

import ray  # type: ignore[import-not-found, import-untyped, unused-ignore]

from .._arguments import mapping, whole
from .._arguments import text as given
from ..errors import Closed, Error, InvalidArgument, Timeout, from_code
from ._bridge_actor import BridgeActor
from ._hiring import by_value
from ._job_server import plan_of
from ._nodes import cause_of, check_versions, eligible, on, this_node, trainers_of
from ._remote import Plan
from ._server_actor import ServerActor

_SERVERS = 150.0  # seconds until all servers must be ready
_ANSWER = 15.0  # seconds for an actor to answer
_STOP = 30.0  # seconds for the actors to end what they own
# The bridge keeps the memory of rows for the next ones. By default malloc() returns it to the kernel, and the clearing of new pages costs twice as
# much as receiving the rows.
_BRIDGE = {"env_vars": {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**30)}}
_NOT_SENT = ("HEADRACE_ADDRESS", "HEADRACE_BINARY", "HEADRACE_LOG")  # each node has its own
_logger = logging.getLogger("headrace")
_running: set[Servers] = set()  # actors end with the last handle; these keep theirs until stop(), also if the caller drops the object


class Servers:
    """The servers that start() placed. They end with the `with` block, with stop(), or with the driver: a server that still has trainers ends
    when these have detached. A copy that Ray sends to a task or actor gives addresses and statistics."""

    def __init__(self, actors: dict[str, tuple[Any, Any]], known: dict[str, str]) -> None:
        self._actors = actors  # by node id: the server's and the bridge's
        self._addresses = known
        self._stopped = False

    @property
    def addresses(self) -> dict[str, str]:
        """The servers' directories by node id."""
        return dict(self._addresses)

    def address(self, node: str | None = None) -> str:
        """The directory of the server on a node (its id), for headrace.Loader. None: the node of the caller.

        Raises InvalidArgument if that node has no server, and Closed after stop().
        """
        if self._stopped:
            raise Closed("these servers were stopped; call headrace.ray.start() again")
        if node is None:
            node = this_node()
        if node not in self._addresses:
            raise InvalidArgument(f"node {node} has no server; those with one: {', '.join(self._addresses)}; pass trainers= to headrace.ray.start()")
        return self._addresses[node]

    def stats(self) -> dict[str, dict[str, Any]]:
        """For each trainer's node id:

        address, pid, restarts, metrics_url   of the server, as of headrace.Server
        drained, owner_pid                    whether drain() has ended it; the process id of the actor that owns it
        bridge_pid, connected, connections    of the bridge: whether it has a connection, and how many it has had
        lost                                  why the bridge's last connection ended; empty while it has one
        orders, made, failed, late            orders of the server: handed over, given back, or made by the server because they were late
        lost_makers                           makers whose process or node ended
        rows                                  rows handed over, by node
        received_bytes, sent_bytes            of rows from other nodes, and of samples that were sent for them (with `ship`)
        makers, wanted                        the makers that are ready, and how many there should be
        excluded                              nodes that get no orders, by id: the reason

        A part is missing if its actor does not answer, such as while it starts again.
        """
        asked = {node: [server.status.remote(), bridge.stats.remote()] for node, (server, bridge) in self._actors.items()}
        found: dict[str, dict[str, Any]] = {}
        end = time.monotonic() + _ANSWER
        for node, answers in asked.items():
            found[node] = {"address": self._addresses[node]}
            for answer in answers:
                with contextlib.suppress(ray.exceptions.RayError, Error):
                    found[node].update(ray.get(answer, timeout=max(0.1, end - time.monotonic())))
        return found

    def stop(self) -> None:
        """Ends makers, bridges and servers, and returns when they have ended. Without Ray's answer within 30 s the servers end by themselves, when
        no trainer is attached."""
        for which in (1, 0):  # bridges first: a bridge would look for its server
            stopping = [actors[which].stop.remote() for actors in self._actors.values()]
            with contextlib.suppress(ray.exceptions.RayError):
                _, late = ray.wait(stopping, num_returns=len(stopping), timeout=_STOP)
                if late:
                    _logger.warning("headrace.ray: %d actors did not answer within %g s", len(late), _STOP)
            for actors in self._actors.values():
                with contextlib.suppress(ray.exceptions.RayError, ValueError):
                    ray.kill(actors[which], no_restart=True)
        self._actors = {}
        self._stopped = True
        _running.discard(self)

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"headrace.ray.Servers({self._addresses!r})"


def _plan(
    config: object, trainers: Iterable[str] | str | None, makers: tuple[int, int], resources: Mapping[str, float] | None, threads: int,
    ship: str | None, changes: object,
) -> Plan:
    try:
        least, most = makers
    except (TypeError, ValueError):
        raise InvalidArgument(f"makers={makers!r}: expected (min, max), such as (1, 8)") from None
    least, most = whole("makers[0]", least, 0, 1024), whole("makers[1]", most, 0, 1024)
    if least > most:
        raise InvalidArgument(f"makers={makers!r}: expected min <= max")
    if not ray.is_initialized():
        raise InvalidArgument("headrace.ray.start() needs a connection to Ray: call ray.init(address='auto') before it")
    return plan_of(
        config, changes, env={name: value for name, value in os.environ.items() if name.startswith("HEADRACE_") and name not in _NOT_SENT},
        token=secrets.token_hex(4), threads=whole("threads", threads, 1, 1024), makers=(least, most),
        resources={str(name): float(amount) for name, amount in mapping("resources", resources).items()},  # type: ignore[arg-type]
        trainers=trainers_of(trainers), ship=None if ship is None else given("ship", ship, ("encoded",)),
    )  # fmt: skip


def start(
    config: str | os.PathLike[str] | Mapping[str, object],
    *,
    trainers: Iterable[str] | str | None = None,
    makers: tuple[int, int] = (1, 8),
    resources: Mapping[str, float] | None = None,
    threads: int = 1,
    ship: str | None = None,
    set: Mapping[str, object] | None = None,  # noqa: A002
) -> Servers:
    """Starts a server on each trainer's node of a Ray cluster, and makers on other nodes that make rows for it. Trainers on these nodes attach
    with `headrace.Loader(servers.address(), ...)`, and receive the same bytes as from a lone server, whatever happens to the makers.

    config     the YAML file of `headrace serve`, or its content as a dict with absolute paths
    trainers   node ids, or the name of a resource that the trainers' nodes have; None: the node of the caller
    makers     the least and the most makers for each server. More start while trainers wait; one ends when the rings are full
    resources  what a maker needs besides CPUs, such as {"decode": 1}: only nodes with these have makers, which may be the trainers' own. None: all
               nodes except the trainers'
    threads    the CPUs and threads of each maker
    ship       None: each maker's node reads the sources itself, so they must be on a shared mount, http or s3. "encoded": only the trainer's node
               reads them, and sends the samples of each order as the source stores them, such as JPEG files
    set        configuration values by dotted path, which override the file. HEADRACE_ variables of this process do so, too

    Each server has a directory of its own, unless `set` names one. It starts again if it is killed (as with headrace.serve(restart=True)), and so
    does its bridge to the makers. Nodes whose rows are wrong, whose data differ, or that cannot open them get no orders; the logger "headrace" in
    the bridge's process and stats() name them. If Ray ends on a trainer's node, the server goes on alone as long as trainers are attached. start()
    with the same configuration takes it over.

    Raises VersionMismatch if a node has another version of Headrace, InvalidArgument, Timeout, and the error with which a server does not start.
    """
    plan = _plan(config, trainers, makers, resources, threads, ship, set)
    by_value()
    check_versions(plan)
    if plan.makers[1] > 0 and not eligible(plan):
        wanted = ", ".join(f"{name}: {amount:g}" for name, amount in {"CPU": plan.threads, **plan.resources}.items())
        others = "" if plan.resources else " other than the trainers'"
        _logger.warning(
            "headrace.ray: no node%s has the resources of a maker (%s); the servers make all rows until such a node joins; lower threads= or change "
            "resources=", others, wanted,
        )  # fmt: skip
    actors: dict[str, tuple[Any, Any]] = {}
    servers = Servers(actors, {})
    lasting: dict[str, Any] = {"num_cpus": 0, "max_restarts": -1, "max_concurrency": 4}
    name = os.path.basename(plan.path)
    try:
        placed = {
            node: ray.remote(ServerActor).options(name=f"headrace server {name} {plan.token}-{node[:8]}", scheduling_strategy=on(node), **lasting).remote(plan)
            for node in plan.trainers
        }
        asked = {node: server.start.remote() for node, server in placed.items()}
        end = time.monotonic() + _SERVERS
        for node, server in placed.items():
            actors[node] = (server, server)  # it has no bridge yet
        for node, server in placed.items():
            address = _result(asked[node], end, node)["address"]
            servers._addresses[node] = address
            bridge = ray.remote(BridgeActor).options(
                name=f"headrace bridge {name} {plan.token}-{node[:8]}", scheduling_strategy=on(node), runtime_env=_BRIDGE, **lasting
            )
            actors[node] = (server, bridge.remote(plan, address))
        for node, (_, running) in actors.items():
            _result(running.stats.remote(), end, node)  # otherwise nobody would notice a bridge that cannot start
    except BaseException:
        servers.stop()
        raise
    _running.add(servers)
    return servers


def _result(answer: Any, end: float, node: str) -> Any:
    try:
        return ray.get(answer, timeout=max(0.1, end - time.monotonic()))
    except ray.exceptions.GetTimeoutError:
        raise Timeout(f"the server on node {node} was not ready within {_SERVERS:g} s; does the node run?") from None
    except ray.exceptions.RayTaskError as error:
        cause = cause_of(error)
        if isinstance(cause, Error):
            cause.message = f"node {node}: {cause.message}"
        raise cause from None
    except ray.exceptions.ActorDiedError as error:
        raise from_code("ENVIRONMENT", f"the server or the bridge on node {node} did not start: {str(error).strip().splitlines()[-1]}") from None
