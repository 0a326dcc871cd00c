"""Starts and ends maker actors. A thread does it, because Ray's head may not answer."""

from __future__ import annotations

import logging
import queue
import secrets
import sys
import threading
from collections.abc import Callable
from typing import Any

import ray  # type: ignore[import-not-found, import-untyped, unused-ignore]

from . import _remote
from ._nodes import eligible
from ._remote import MakerActor, Plan
from ._shipping import Shipping

_CLOSE = 10.0  # seconds
_logger = logging.getLogger("headrace")


def by_value() -> None:
    """Sends the code of _remote.py to nodes, whatever they have installed."""
    ray.cloudpickle.register_pickle_by_value(sys.modules[_remote.__name__])


class Hiring:
    """Requests for makers. on_hired(actor, future) is called with each actor, whose future has its Opened; on_hired(None, None) if no node
    may have a maker now. `inbox`: the address to which makers send rows, and the password there."""

    def __init__(self, plan: Plan, shipping: Shipping | None, inbox: tuple[str, bytes], on_hired: Callable[[Any, Any], None]) -> None:
        self._plan = plan
        self._shipping = shipping
        self._inbox = inbox
        self._on_hired = on_hired
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        by_value()
        self._thread = threading.Thread(target=self._run, name="headrace-hiring", daemon=True)
        self._thread.start()

    def hire(self, streams: list[str], excluded: set[str]) -> None:
        """Asks for a maker of these streams on a node that is not excluded (node ids)."""
        self._jobs.put(lambda: self._hire(streams, excluded))

    def dismiss(self, actor: Any) -> None:
        """Ends a maker. Its tasks fail."""
        self._jobs.put(lambda: ray.kill(actor, no_restart=True))

    def close(self) -> None:
        """Returns when the makers that were dismissed have ended, or after some seconds."""
        self._jobs.put(None)
        self._thread.join(_CLOSE)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception as error:
                _logger.warning("headrace.ray: a maker could not be started or ended: %s", error)

    def _hire(self, streams: list[str], excluded: set[str]) -> None:
        hired: tuple[Any, Any] = (None, None)
        try:
            hired = self._hired(streams, excluded)
        finally:
            self._on_hired(*hired)

    def _hired(self, streams: list[str], excluded: set[str]) -> tuple[Any, Any]:
        plan = self._plan
        if not any(node.id not in excluded for node in eligible(plan)):
            return None, None
        avoided = excluded if plan.resources else excluded | set(plan.trainers)
        options: dict[str, Any] = {"num_cpus": plan.threads, "resources": plan.resources, "max_restarts": 0}
        if avoided:
            options["label_selector"] = {"ray.io/node-id": f"!in({','.join(sorted(avoided))})"}
        described = self._shipping.described(streams) if self._shipping else {}
        shown = ",".join(streams)[:80]
        actor = ray.remote(MakerActor).options(name=f"headrace maker {shown} {plan.token}-{secrets.token_hex(3)}", **options).remote(plan)
        return actor, actor.open.options(name=f"open {shown}").remote(streams, described, *self._inbox).future()
