"""What runs on the nodes that make rows. Ray sends this module's code there, because a node may have another version of Headrace or none. So it
imports only the standard library, and headrace in its functions."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import tempfile
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_REACH = 5.0  # seconds to reach the bridge
_SEND = 30_000  # ms for which a full queue of messages may block a maker
LARGEST = 4 << 30  # bytes of one array: 256 float32 images of 1024 x 1024 are 3 GiB


@dataclass(frozen=True)
class Plan:
    """What the processes of one start() need to know, or the server of a headrace.ray.Loader, which has no makers."""

    path: str  # of the configuration
    text: bytes  # of the configuration
    changes: dict[str, object]  # the argument `set`
    version: str  # of Headrace
    token: str  # names this start(), or the job
    env: dict[str, str] = field(default_factory=dict)  # HEADRACE_ variables of the driver, which override the configuration
    threads: int = 0
    makers: tuple[int, int] = (0, 0)
    resources: dict[str, float] = field(default_factory=dict)
    trainers: tuple[str, ...] = ()  # node ids
    ship: str | None = None  # the argument of start()
    wait: float = 60.0  # seconds until a server must be ready
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
        import zmq  # noqa: F401

        import headrace

        found.version = headrace.__version__
    except ImportError as error:
        found.code, found.error = "ENVIRONMENT", str(error)
    return found


def is_here(plan: Plan) -> bool:
    """Whether the file of the configuration is on this node, with the same content."""
    try:
        with open(plan.path, "rb") as file:
            return file.read() == plan.text
    except OSError:
        return False


@contextlib.contextmanager
def configuration(plan: Plan) -> Iterator[str]:
    """The path of the configuration on this node: the driver's if it is here with the same content, else a temporary copy."""
    if is_here(plan):
        yield plan.path
        return
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        path = os.path.join(folder, "config.yaml")
        with open(path, "wb") as copy:
            copy.write(plan.text)
        yield path


def keep_alive(connected: Any) -> None:
    """Closes connections of a ZeroMQ socket after about a minute without an answer of the other machine: it may be gone."""
    connected.tcp_keepalive, connected.tcp_keepalive_idle, connected.tcp_keepalive_intvl, connected.tcp_keepalive_cnt = 1, 30, 10, 3


class MakerActor:
    """Makes rows of some streams, and sends them to the bridge. open() comes first."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._makers: dict[str, Any] = {}
        self._inbox: Any = None  # a socket

    def open(self, streams: list[str], described: dict[str, str], inbox: str, password: bytes) -> Opened:
        """Opens the sources of the streams, and says which data and which version this node has. `described`: by stream, sources that the
        trainer's node reads; its samples come with each order. `inbox`, `password`: the bridge's address to which rows go."""
        plan, found = self._plan, probe()
        if found.code or found.version != plan.version:
            return found
        import headrace

        try:
            self._connect(inbox, password)
        except OSError as error:
            found.code, found.error = "ENVIRONMENT", f"it cannot reach the bridge at {inbox}, to which rows go: {error}"
            return found
        os.environ.update(plan.env)
        with configuration(plan) as path:
            try:
                for name in streams:
                    maker = headrace.Maker(path, name, threads=plan.threads, set=plan.changes, output="numpy", source=described.get(name, ""))
                    self._makers[name] = maker
                    found.fingerprints[name] = dict(vars(maker.info.fingerprint))
            except headrace.Error as error:
                found.code, found.error = error.code, error.message
        return found

    def _connect(self, inbox: str, password: bytes) -> None:
        """Raises OSError if the inbox cannot be reached. ZeroMQ alone would try again for ever."""
        import zmq

        url = urllib.parse.urlsplit(inbox)
        socket.create_connection((url.hostname, url.port), _REACH).close()
        self._inbox = zmq.Context.instance().socket(zmq.PUSH)
        self._inbox.ipv6 = "[" in inbox
        self._inbox.sndtimeo = _SEND
        self._inbox.plain_username, self._inbox.plain_password = b"maker", password
        keep_alive(self._inbox)
        self._inbox.connect(inbox)

    def rows(self, key: bytes, stream: str, epoch: int, first: int, count: int, *samples: Any) -> None:
        """Sends the key, the fields of the rows, their sample_index and replaced to the inbox (_inbox.py). Does not wait until they have
        arrived. Raises InvalidArgument if an array is too large for the inbox, which would drop it without a word."""
        import numpy as np

        from headrace.errors import InvalidArgument

        batch = self._makers[stream].rows(epoch, first, count, *samples)
        arrays = [np.ascontiguousarray(array) for array in (*batch, batch.sample_index, batch.replaced)]
        if (largest := max(array.nbytes for array in arrays)) > LARGEST:
            raise InvalidArgument(
                f"an array of {count} rows of stream `{stream}` has {largest} bytes; a maker can send {LARGEST}: choose a smaller batch_size"
            )
        self._inbox.send_multipart([key, *(array.view(np.uint8) for array in arrays)], copy=False)
