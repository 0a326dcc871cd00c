"""What runs on the nodes that make rows. Ray sends this module's code there, because a node may have another version of Headrace or none. So it
imports only the standard library, and headrace in its functions."""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Plan:
    """What every process of one start() needs to know."""

    path: str  # of the configuration
    text: bytes
    changes: dict[str, object]  # the argument `set`
    env: dict[str, str]  # HEADRACE_ variables of the driver, which override the configuration
    version: str  # of Headrace
    token: str  # names this start()
    threads: int
    makers: tuple[int, int]
    resources: dict[str, float]
    trainers: tuple[str, ...]  # node ids
    linger: float = 20.0  # seconds that a server without owner and clients goes on

    @property
    def key(self) -> str:
        """Names what is served: a server with the same key may be taken over."""
        parts = (self.path, self.text, sorted(self.changes.items()), sorted(self.env.items()), self.version)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


@dataclass
class Opened:
    """What a maker's node says about itself. `code` and `error`: why it cannot make rows; else `fingerprints` by stream."""

    node: str = ""
    host: str = ""
    pid: int = 0
    version: str = ""
    code: str = ""
    error: str = ""
    fingerprints: dict[str, dict[str, str]] = field(default_factory=dict)


def probe() -> Opened:
    """This node's version of Headrace."""
    import ray  # type: ignore[import-not-found, import-untyped, unused-ignore]

    found = Opened(node=ray.get_runtime_context().get_node_id(), host=os.uname().nodename, pid=os.getpid())
    try:
        import headrace

        found.version = headrace.__version__
    except ImportError as error:
        found.code, found.error = "ENVIRONMENT", f"headrace cannot be imported there: {error}"
    return found


def configuration(plan: Plan) -> str:
    """The path of the configuration on this node: the driver's if it is there with the same content, else a copy of it."""
    try:
        with open(plan.path, "rb") as file:
            if file.read() == plan.text:
                return plan.path
    except OSError:
        pass
    with tempfile.NamedTemporaryFile("wb", prefix="headrace-", suffix=".yaml", delete=False) as copy:
        copy.write(plan.text)
    return copy.name


class MakerActor:
    """Makes rows of some streams. open() comes first."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._makers: dict[str, Any] = {}

    def open(self, streams: list[str]) -> Opened:
        """Opens the sources of the streams, and says which data and which version this node has."""
        plan, found = self._plan, probe()
        if found.code or found.version != plan.version:
            return found
        import headrace

        os.environ.update(plan.env)
        path = configuration(plan)
        try:
            for name in streams:
                maker = headrace.Maker(path, name, threads=plan.threads, set=plan.changes, output="numpy")
                self._makers[name] = maker
                found.fingerprints[name] = dict(vars(maker.info.fingerprint))
        except headrace.Error as error:
            found.code, found.error = error.code, error.message
        finally:
            if path != plan.path:
                os.unlink(path)
        return found

    def rows(self, stream: str, epoch: int, first: int, count: int) -> list[Any]:
        """The fields of the rows, their sample_index and replaced."""
        import numpy as np

        batch = self._makers[stream].rows(epoch, first, count)
        fields = [array.view(np.uint16) if array.dtype.name == "bfloat16" else array for array in batch]
        return [*fields, batch.sample_index, batch.replaced]
