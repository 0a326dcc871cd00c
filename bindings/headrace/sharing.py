"""Shares one DataLoader with several processes: its batches become a stream that each process reads.

    with headrace.share(loader, "train", epochs=3) as share:     # elsewhere: headrace.Loader(share.address, stream="train")
        share.wait()

A thread iterates over the DataLoader and writes each batch into memory that it shares with a server of its own. The server copies the batch
to the ring: two copies in all. bindings/README.md says what consumers can rely on.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import mmap
import os
import re
import socket
import struct
import threading
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from ._arguments import text, texts, whole
from ._epochs import Epochs, samples_of
from ._forks import release_in_children
from ._rows import Values, fields_of, rows_of
from ._scratch import Scratch
from .errors import DatasetInvalid, Error, InvalidArgument, ServerLost, Timeout, from_code
from .server import Server

_STREAM_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,46}")
_SLOTS = 2
_LONGEST_REASON = 2400  # bytes, so that it fits into a packet and a control message
_CLOSE_TIMEOUT = 2.0  # seconds that close() waits for the iterable's current batch
_DEFAULT_CAPACITY_FACTOR = 4  # default capacity of a ragged field, as a multiple of the first batch's values


def _shortened(reason: str) -> str:
    raw = reason.encode(errors="backslashreplace")  # names of files may not be valid Unicode
    if len(raw) > _LONGEST_REASON:
        raw = raw[: _LONGEST_REASON // 2] + b"\n...\n" + raw[-_LONGEST_REASON // 2 :]
    return raw.decode(errors="ignore")


def _description(error: BaseException) -> str:
    if isinstance(error, Error):
        return str(error)
    details = traceback.TracebackException.from_exception(error)  # unlike str(error), this cannot raise
    return f"the shared iterable raised {type(error).__name__}: {details}\n{''.join(details.format())}"


@dataclass(frozen=True)
class Options:
    """The arguments of share(), which describes them."""

    epochs: int | None
    batches: int | None
    samples: int | None
    names: Sequence[str] | None
    ragged: Sequence[str] | Mapping[str, int]
    address: str | os.PathLike[str] | None
    prefetch: int
    max_clients: int
    wait_for: int
    overrides: Mapping[str, object]  # the argument `set`


class Share:
    """A DataLoader that is being shared; `share()` creates it. Sharing ends with the `with` block, with close(), or when this process ends.

    address   the server's directory, which consumers pass to `headrace.Loader`
    stats     the number of batches sent, and the seconds spent `loading` (in the iterable), `copying`, and `waiting` for consumers
    """

    def __init__(self, iterable: Iterable[Any], name: str, options: Options) -> None:
        self.name = text("name", name)
        if not _STREAM_NAME.fullmatch(name):
            raise InvalidArgument(f"name={name!r}: expected 1 to 47 letters, digits, _ and -, a letter first")
        max_clients = whole("max_clients", options.max_clients, 1, 64)
        options = replace(
            options,
            prefetch=whole("prefetch", options.prefetch, 1, 1024),
            max_clients=max_clients,
            wait_for=whole("wait_for", options.wait_for, 1, max_clients),
        )
        self._names = None if options.names is None else texts("names", options.names)
        ragged = options.ragged if isinstance(options.ragged, Mapping) else texts("ragged", options.ragged)
        self._ragged: dict[str, int | None] = dict(ragged) if isinstance(ragged, Mapping) else dict.fromkeys(ragged)
        epochs = None if options.epochs is None else whole("epochs", options.epochs, 1)
        self._batches = Epochs(iterable, epochs, options.batches)
        first = fields_of(self._batches.first, self._names, self._ragged)
        self._rows = rows_of(first)
        self._samples = samples_of(iterable, self._batches.batches, self._rows, options.samples)
        self._fields = {values.name: values.kind for values in first}
        self._capacities = {values.name: self._ragged_capacity(values) for values in first if values.offsets is not None}
        self._error: BaseException | None = None
        self._closing = False
        self._free: list[int] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.stats: dict[str, float] = {"batches": 0, "loading": 0.0, "copying": 0.0, "waiting": 0.0}
        self._scratch = Scratch("headrace-share-")
        self._server: Server | None = None
        self._thread = threading.Thread(target=self._run, name=f"headrace.share {name}", daemon=True)
        try:
            self._server = Server(self._write_config(first, options), 60.0, None, options.overrides, scratch=self._scratch)
            self.address = self._server.address
            self._connect_feed()
        except BaseException:
            self.close()
            raise
        self._thread.start()

    def _ragged_capacity(self, values: Values) -> int:
        given = self._ragged.get(values.name)
        return max(1, _DEFAULT_CAPACITY_FACTOR * values.count) if given is None else whole(f"ragged[{values.name!r}]", given, 1, 2**40)

    def _write_config(self, fields: list[Values], options: Options) -> Path:
        described: list[dict[str, Any]] = []
        for values in fields:
            described.append({"name": values.name, "dtype": values.dtype, "shape": list(values.shape)})
            if values.offsets is not None:
                described[-1]["most_values"] = self._capacities[values.name]
        feed = {"type": "feed", "fields": described, "samples": self._samples, "batch_size": self._rows, "slots": _SLOTS}
        stream = {
            "source": self.name,
            "ring": {"prefetch": options.prefetch, "max_clients": options.max_clients},
            "sharing": {"wait_for": options.wait_for},
        }
        config: dict[str, Any] = {
            "server": {"threads": 2, "metrics": "off"},
            "sources": {self.name: feed},
            "streams": {self.name: stream},
        }
        if options.address:
            config["server"]["directory"] = os.fsdecode(os.path.abspath(options.address))
        path = self._scratch.path / "share.yaml"
        path.write_text(json.dumps(config))
        return path

    # --- the feed's messages: see server/session/feeder.h

    def _connect_feed(self) -> None:
        path = os.path.join(self.address, f"feed-{self.name}.sock")
        self._socket.connect(path)
        _, uid, _ = struct.unpack("=iII", self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid not in (os.geteuid(), 0):
            raise from_code("PERMISSION_DENIED", f"{path}: the server runs as user {uid}, expected user {os.geteuid()} or root; pass the address of your own server")
        release_in_children(self, Share._close_socket)  # a child's copy of the socket would hide this process's death from the server
        self._send_message({"feed": 1})
        answer, descriptors, _, _ = socket.recv_fds(self._socket, 8192, 1)
        try:
            layout = self._parsed(answer)
            self._slot_bytes: int = layout["slot_bytes"]
            self._memory = mmap.mmap(descriptors[0], layout["slots"] * self._slot_bytes)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self._field_offsets = {field["name"]: (field["values"], field["offsets"]) for field in layout["fields"]}
        self._free.extend(range(layout["slots"]))

    def _send_message(self, what: dict[str, Any]) -> None:
        try:
            self._socket.send(json.dumps(what, ensure_ascii=False).encode())
        except OSError as error:
            raise ServerLost(f"the server that shares `{self.name}` ended: {error}; its output:\n{self._log()}") from error

    def _parsed(self, packet: bytes) -> dict[str, Any]:
        if not packet:
            raise ServerLost(f"the server that shares `{self.name}` ended; its output:\n{self._log()}")
        body: dict[str, Any] = json.loads(packet)
        if "error" in body:
            code, _, message = str(body["error"]).partition(": ")
            raise from_code(code, message)
        return body

    def _receive(self) -> dict[str, Any]:
        try:
            packet = self._socket.recv(8192)
        except OSError:
            packet = b""
        return self._parsed(packet)

    def _close_socket(self) -> None:
        self._socket.close()

    def _log(self) -> str:
        return "" if self._server is None else self._server.log().strip()

    def _free_slot(self) -> int:
        while not self._free:
            self._free.append(self._receive()["free"])
        return self._free.pop()

    # --- the thread

    def _run(self) -> None:
        position = "epoch 0"
        try:
            batches = iter(self._batches)
            for count in itertools.count():
                epoch, number = divmod(count, self._batches.batches)
                position = f"epoch {epoch}, batch {number}"
                began = time.perf_counter()
                following = next(batches, None)
                self.stats["loading"] += time.perf_counter() - began
                if self._closing:  # close() sends the end
                    return
                if following is None:
                    break
                self._send_batch(count, position, following[2])
            epochs = self._batches.epochs
            self._send_end(f"all {epochs} epochs were sent" if epochs != 1 else "its only epoch was sent", done=True)
            while "served" not in self._receive():
                pass
        except BaseException as error:
            if not self._closing:
                self._error = error
            with contextlib.suppress(Error):
                named = isinstance(error, Error) and error.message.startswith(f"{position}: ")  # by _send_batch()
                reason = _description(error)
                self._send_end(reason if named else f"{position}: {reason}", done=False)
        finally:
            # Consumers receive the end in any case. Do not close() the socket: unread packets would turn that into an error, which
            # the server would see before the messages that were sent.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
            with contextlib.suppress(BufferError):  # views in the error's traceback keep it mapped until they are gone
                self._memory.close()
            self._batches.release()

    def _send_batch(self, count: int, position: str, batch: Any) -> None:
        try:
            fields = fields_of(batch, self._names, self._ragged)
            rows = rows_of(fields)
            self._check(fields, rows, count)
        except (InvalidArgument, DatasetInvalid) as error:
            raise type(error)(f"{position}: {error.message}") from error
        began = time.perf_counter()
        slot = self._free_slot()
        copying = time.perf_counter()
        self.stats["waiting"] += copying - began
        for values in fields:
            at, offsets_at = self._field_offsets[values.name]
            values.copy_to(self._memory, slot * self._slot_bytes + at, slot * self._slot_bytes + offsets_at)
        self.stats["copying"] += time.perf_counter() - copying
        self._send_message({"batch": count, "slot": slot, "rows": rows})
        self.stats["batches"] += 1

    def _check(self, fields: list[Values], rows: int, count: int) -> None:
        kinds = {values.name: values.kind for values in fields}
        for name in [*self._fields, *kinds]:
            if name not in kinds:
                raise DatasetInvalid(f"field `{name}` is missing, expected the first batch's fields: {', '.join(self._fields)}")
            if name not in self._fields:
                raise DatasetInvalid(f"field `{name}` is new, expected only the first batch's fields: {', '.join(self._fields)}")
            if kinds[name] != self._fields[name]:
                found, expected = (kind.removeprefix("ragged ").split()[0] for kind in (kinds[name], self._fields[name]))
                remedy = "pad the rows, or pass lists of arrays and name the field in `ragged`" if found == expected else "convert it to one dtype"
                raise DatasetInvalid(f"field `{name}` is {kinds[name]}, expected {self._fields[name]} as in the first batch: {remedy}")
        for values in fields:
            if values.offsets is not None and values.count > self._capacities[values.name]:
                raise DatasetInvalid(
                    f"field `{values.name}` has {values.count} values, expected at most {self._capacities[values.name]}: "
                    f"give the largest number in a batch, such as ragged={{{values.name!r}: {2 * values.count}}}"
                )
        first = count % self._batches.batches * self._rows
        due = min(self._rows, self._samples - first)
        if rows != due:
            raise DatasetInvalid(
                f"found {rows} rows, expected {due}: only the last batch of an epoch may have fewer rows than the first batch ({self._rows}); "
                f"to allow that, set `samples` to the number of samples in an epoch (now {self._samples})"
            )

    def _send_end(self, why: str, done: bool) -> None:
        self._send_message({"end": _shortened(why), "done": done})

    # --- for the owner

    def wait(self, timeout: float | None = None) -> None:
        """Waits until every consumer has received and released the last epoch. Raises the iterable's error, or the error that ended the
        sharing; Timeout after `timeout` seconds."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise Timeout(f"`{self.name}` is still being shared after {timeout:g} s: {self.stats['batches']:g} batches were sent")
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Stops the server. Consumers that wait for more batches get StreamFailed: the owner closed the stream. Waits up to 2 s for the
        iterable's current batch, then releases the iterable. If the batch takes longer, the thread releases it later."""
        first, self._closing = not self._closing, True
        if first:
            with contextlib.suppress(Error):
                self._send_end("the owner closed the shared stream", done=False)
        if self._server is not None:
            self._server.stop()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_CLOSE_TIMEOUT)
        if first:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
            self._scratch.remove()

    def __enter__(self) -> Share:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def share(
    iterable: Iterable[Any],
    name: str = "train",
    *,
    epochs: int | None = None,
    batches: int | None = None,
    samples: int | None = None,
    names: Sequence[str] | None = None,
    ragged: Sequence[str] | Mapping[str, int] = (),
    address: str | os.PathLike[str] | None = None,
    prefetch: int = 4,
    max_clients: int = 4,
    wait_for: int = 1,
    set: Mapping[str, object] | None = None,  # noqa: A002
) -> Share:
    """Shares a DataLoader, or any iterable of batches, as the stream `name`. A thread iterates over it, epoch after epoch.

    epochs        the number of epochs; None: until close() (one epoch for an iterator)
    batches       batches in an epoch; None: len(iterable). With a number, an epoch begins where the previous one ended, perhaps in the
                  middle of a pass over the iterable. Every batch must then have the same number of rows (drop_last=True)
    samples       samples in an epoch; needed only if the last batch is shorter and the iterable is not a DataLoader
    names         names of the fields if batches are tuples or lists; default: field0, field1, ...
    ragged        fields that are lists of arrays, one array for each sample. A mapping gives the largest number of values in a batch (default:
                  four times the first batch's). Lists of strings need not be named
    address       a directory for the server; None: a temporary one
    prefetch      finished batches that wait for consumers; two more wait in the feed
    max_clients   the largest number of consumers; the ring has memory for prefetch + 3 batches, and for 3 more with each further consumer
    wait_for      consumers that must attach before the first batch is delivered (at most 60 s)
    set           additional configuration values by dotted path, as in serve()
    """
    return Share(
        iterable,
        name,
        Options(
            epochs=epochs,
            batches=batches,
            samples=samples,
            names=names,
            ragged=ragged,
            address=address,
            prefetch=prefetch,
            max_clients=max_clients,
            wait_for=wait_for,
            overrides=set or {},
        ),
    )
