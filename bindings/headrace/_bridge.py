"""The connection of a bridge: a process that has a server's rows made elsewhere. It takes the server's orders and hands over the rows.

    bridge  {"bridge": 1, "most": n}; then {"made": ...}, {"failed": ...}, {"most": n}
    server  {"bridge": 1, "streams": n}, one packet for each stream; then {"order": ...}, {"release": ...}, {"refused": ...}

The packets are those of server/session/bridge.h. The server copies rows out of this process's memory, so they stay alive and unchanged until
it releases their order. It does that exactly once for each order, whether or not the order was made.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._arguments import seconds, whole
from ._arrays import numpy_dtype
from ._forks import release_in_children
from .ask import streams
from .errors import Closed, DatasetInvalid, Error, ServerLost, ServerUnreachable, from_code
from .types import StreamInfo

MOST_ORDERS = 4096
_PACKET = 4096  # bytes
_LONGEST_REASON = 1200  # bytes; JSON may escape each as two
_SEND_TIMEOUT = 10.0  # seconds until a server that reads no packets counts as lost
_PAUSE = 0.1  # seconds between two attempts to connect
_SET_PTRACER = 0x59616D61  # Yama: the server may read this process's memory


@dataclass(frozen=True)
class BridgeStream:
    """A stream of the server. `obstacle`: why its rows are made by the server only; empty if they can be made elsewhere."""

    info: StreamInfo
    obstacle: str


@dataclass(frozen=True)
class Order:
    """The rows at positions `first` to `first + rows - 1` of an epoch. `ready`: finished batches that wait for the same client."""

    id: int
    stream: str
    epoch: int
    first: int
    rows: int
    ready: int


def _shortened(why: str) -> str:
    printable = "".join(letter if letter.isprintable() else " " for letter in why)
    return printable.encode(errors="replace")[:_LONGEST_REASON].decode(errors="ignore")


def _admit(server: int) -> None:
    """Lets the server copy rows out of this process where Yama restricts that. Without Yama there is nothing to do."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_SET_PTRACER, ctypes.c_ulong(server), 0, 0, 0)


class Bridge:
    """A connection to the bridge socket of one server, until the server ends or close() is called.

    address     the server's directory
    most        how many orders may be under way at once, 0 to 4096
    on_order    called with each Order
    on_release  called with an order's id: its rows are freed, or nobody wants it any more
    on_refused  called with a node and the reason: its rows were wrong, so it must get no more orders
    on_lost     called once with the reason if the server ends the connection; not after close(). The owner may connect again, with a new Bridge
    timeout     seconds to wait for the server, which may be starting again

    A thread of the Bridge makes these calls, one after another; they must not block. All methods are thread-safe.

    Raises ServerUnreachable, PermissionDenied, or the error that the server reports.
    """

    def __init__(
        self, address: str, most: int, *,
        on_order: Callable[[Order], None],
        on_release: Callable[[int], None],
        on_refused: Callable[[str, str], None],
        on_lost: Callable[[str], None], timeout: float = 30.0,
    ) -> None:  # fmt: skip
        self.address = address
        self._on_order, self._on_release, self._on_refused, self._on_lost = on_order, on_release, on_refused, on_lost
        self._most = whole("most", most, 0, MOST_ORDERS)
        self._end = time.monotonic() + seconds("timeout", timeout, above_zero=True)
        self._lock = threading.Lock()  # guards the next three
        self._open: dict[int, Order] = {}
        self._kept: dict[int, list[Any]] = {}
        self._closed = False
        self._sending = threading.Lock()
        self.streams: dict[str, BridgeStream] = {}
        self._names: dict[int, str] = {}
        self._socket = self._connected()
        release_in_children(self, Bridge._close_socket)  # a child's copy would hide this process's death from the server
        try:
            self._shake_hands()
        except BaseException:
            self._socket.close()
            raise
        self._thread = threading.Thread(target=self._run, name="headrace-bridge", daemon=True)
        self._thread.start()

    # --- connecting

    @property
    def _left(self) -> float:
        return max(0.05, self._end - time.monotonic())

    def _connected(self) -> socket.socket:
        path = os.path.join(self.address, "bridge.sock")
        while True:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                made.settimeout(self._left)
                made.connect(path)
                return made
            except OSError as error:
                made.close()
                if time.monotonic() + _PAUSE > self._end:
                    raise ServerUnreachable(
                        f"{path}: no server takes bridges there: {error}; is it running, with a version that has bridges?"
                    ) from error
            time.sleep(_PAUSE)

    def _shake_hands(self) -> None:
        self.server_pid, uid, _ = struct.unpack("=iII", self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid not in (os.geteuid(), 0):
            raise from_code(
                "PERMISSION_DENIED",
                f"{self.address}: the server runs as user {uid}, expected user {os.geteuid()} or root; run the bridge as the server's user",
            )
        _admit(self.server_pid)
        try:
            with contextlib.suppress(ServerLost):  # its error can still be read
                self._send({"bridge": 1, "most": self._most})
            count = self._receive()["streams"]
            described = [self._receive() for _ in range(count)]
            known = {info.name: info for info in streams(self.address, timeout=self._left)}
        except TimeoutError as error:
            if isinstance(error, Error):
                raise
            raise ServerUnreachable(f"{self.address}: the server did not answer the bridge in time; is it stopped?") from None
        except OSError as error:
            raise error if isinstance(error, Error) else ServerLost(f"{self.address}: the server ended: {error}") from error
        for each in described:
            self._names[each["stream"]] = each["name"]
            if each["name"] in known:
                self.streams[each["name"]] = BridgeStream(known[each["name"]], each["obstacle"])
        self._socket.settimeout(None)

    def _receive(self) -> dict[str, Any]:
        self._socket.settimeout(self._left)
        return self._parsed(self._packet())

    def _packet(self) -> bytes:
        try:
            return self._socket.recv(_PACKET)
        except ConnectionResetError:  # the server left packets unread; its own, such as an error, come after that
            return self._socket.recv(_PACKET)

    def _parsed(self, packet: bytes) -> dict[str, Any]:
        if not packet:
            raise ServerLost("the server closed the connection")
        body: dict[str, Any] = json.loads(packet)
        if "error" in body:
            code, _, message = str(body["error"]).partition(": ")
            raise from_code(code, message)
        return body

    # --- what the owner says

    def made(self, order: int, node: str, received: int, fields: Sequence[Any], sample_index: Any, replaced: Any, sent: int = 0) -> bool:
        """Hands over the rows of an order. They are not copied here, so nobody may change them.

        node          the name of the node that made them
        received      the bytes that came over the network
        sent          the bytes of samples that went over the network before
        fields        for each field of the stream, in the stream's order, an array of shape (rows, ...), or a memoryview of its bytes
        sample_index  one int64 for each row
        replaced      one bool for each row: its own sample is bad. The server makes that row, whatever is in the fields

        Returns False if nobody wants the order any more. Raises DatasetInvalid if one has another type or size; the order is then still
        open. Raises ServerLost.
        """
        with self._lock:
            wanted = self._open.get(order)
        if wanted is None:
            return False
        arrays = self._checked(wanted, [*fields, sample_index, replaced])
        with self._lock:
            if self._open.pop(order, None) is None:
                return False
            self._kept[order] = arrays
        at = [array.ctypes.data for array in arrays]
        traffic = {"received": received, "sent": sent}
        self._send({"made": order, "node": node, **traffic, "fields": at[:-2], "samples": at[-2], "replaced": at[-1]})
        return True

    def _checked(self, order: Order, given: list[Any]) -> list[Any]:
        """The bytes of each, as arrays that keep them in memory."""
        specs = [(field.name, numpy_dtype(field.dtype), field.shape) for field in self.streams[order.stream].info.fields]
        specs += [("sample_index", np.dtype(np.int64), ()), ("replaced", np.dtype(np.bool_), ())]
        if len(given) != len(specs):
            raise DatasetInvalid(f"stream `{order.stream}`: expected {len(specs) - 2} fields, found {len(given) - 2}")
        arrays = []
        for (name, dtype, shape), each in zip(specs, given, strict=True):
            whole = (order.rows, *shape)
            if isinstance(each, np.ndarray):
                found, fits = f"{each.dtype} {each.shape}", each.shape == whole and each.dtype.itemsize == dtype.itemsize
            elif isinstance(each, memoryview):
                found, fits = f"{each.nbytes} bytes", each.nbytes == math.prod(whole) * dtype.itemsize
            else:
                found, fits = type(each).__name__, False
            if not fits:
                raise DatasetInvalid(f"stream `{order.stream}`, field `{name}`: expected {dtype} {whole}, found {found}")
            arrays.append(np.ascontiguousarray(each))
        return arrays

    def failed(self, order: int, node: str, why: str) -> bool:
        """Gives an order back: the server makes its rows. Returns False if nobody wants it any more. Raises ServerLost."""
        with self._lock:
            if self._open.pop(order, None) is None:
                return False
            self._kept[order] = []
        self._send({"failed": order, "node": node, "why": _shortened(why)})
        return True

    def limit(self, most: int) -> None:
        """Changes how many orders may be under way at once, 0 to 4096; 0: no new orders. Raises ServerLost."""
        most = whole("most", most, 0, MOST_ORDERS)
        if most != self._most:
            self._most = most
            self._send({"most": most})

    def _send(self, what: dict[str, Any]) -> None:
        if self._closed:
            raise Closed("the bridge was closed")
        packet = json.dumps(what, ensure_ascii=False).encode(errors="replace")
        try:
            with self._sending:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("=qq", int(_SEND_TIMEOUT), 0))
                self._socket.send(packet)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # the thread sees the end, and says so
            raise ServerLost(f"{self.address}: the server ended, or takes no packets: {error}") from error

    # --- what the server says

    def _run(self) -> None:
        reason = "the server closed the connection"
        try:
            while True:
                self._take(self._parsed(self._packet()))
        except Error as error:
            reason = error.message if isinstance(error, ServerLost) else str(error)
        except Exception as error:  # whatever it is, the owner must know that nobody takes orders now
            reason = f"{type(error).__name__}: {error}"
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # the server copies no rows any more; now they may be freed
        with self._lock:
            closed, self._closed = self._closed, True
            self._open.clear()
            self._kept.clear()
        if not closed:
            self._on_lost(reason)
        self._socket.close()

    def _take(self, packet: dict[str, Any]) -> None:
        if "order" in packet:
            order = Order(packet["order"], self._names[packet["stream"]], packet["epoch"], packet["first"], packet["rows"], packet["ready"])
            with self._lock:
                self._open[order.id] = order
            self._on_order(order)
        elif "release" in packet:
            with self._lock:
                self._open.pop(packet["release"], None)
                kept = self._kept.pop(packet["release"], None)
            del kept  # outside of the lock: this may unmap memory
            self._on_release(packet["release"])
        elif "refused" in packet:
            self._on_refused(packet["refused"], packet["why"])

    def close(self) -> None:
        """Ends the connection. The server makes all open orders itself."""
        with self._lock:
            self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._thread is not threading.current_thread():
            self._thread.join(5)

    def _close_socket(self) -> None:
        self._socket.close()
