"""Encodes samples of a Python dataset as records, in this process or in worker processes.

With n workers, each one makes every n-th block of samples: one sample, or as many as the dataset's `pack_blocks` say. The workers' pipes are
read in turn, so records arrive in order without being sorted. A worker runs ahead by one sample and what its pipe holds. With blocks of several
samples it runs ahead further, by its part of _AHEAD_BYTES: otherwise all workers would wait for the one whose turn it is.
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import fcntl
import itertools
import multiprocessing
import os
import pickle
import select
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

from ._pack_fields import Field, Misfit, Missing, entries, fields_of
from .errors import DatasetInvalid, EnvironmentFailed, InvalidArgument

_SAMPLE, _BAD = 1, 2  # kinds of records: server/pack/record_input.h
_HEAD = struct.Struct("<QqII")  # index, label, length of the name, kind
_MESSAGE = struct.Struct("<QQ")  # bytes that follow, kind
_RECORD, _FAILED, _DESCRIBED = range(3)
_PIPE_BYTES = 1 << 20
_AHEAD_BYTES = 64 << 20  # of all workers together
_LONGEST_REASON = 1000  # bytes
_END_TIMEOUT = 2.0  # seconds

Write = Callable[[Any], None]


def _head(index: int, label: int, name: bytes, kind: int) -> bytes:
    return _HEAD.pack(index, label, len(name), kind)


def end_mark(count: int) -> bytes:
    return _head(count, 0, b"", 0)


def record(index: int, sample: Any, fields: list[Field], classes: int) -> list[Any]:
    """Encodes a sample as a record, in parts."""
    values = entries(sample)
    label, heads, bodies = 0, b"", []
    for field in fields:
        try:
            if field.key not in values:
                raise Misfit("is missing")
            if field.kind == "label":
                label = field.label(values[field.key], classes)
                continue
            body, height, width = field.encode(values[field.key])
        except Misfit as error:
            kind = Missing if values.get(field.key, error) is None else Misfit
            raise kind(f"field `{field.name}` {error}") from None
        heads += struct.pack("<QII", len(body), height, width)
        bodies.append(body)
    name = str(index).encode()
    return [_head(index, label, name, _SAMPLE) + heads + name, *bodies]


def renumbered(first: bytes, index: int) -> bytes:
    """The first part of a record, as record() made it for another index, for `index`."""
    _, label, length, kind = _HEAD.unpack_from(first)
    name = str(index).encode()
    return b"".join([_head(index, label, name, kind), memoryview(first)[_HEAD.size : len(first) - length], name])


def block_ends(dataset: Any, count: int) -> Sequence[int]:
    """The index after the last sample of each block."""
    blocks = getattr(dataset, "pack_blocks", None)
    if not (isinstance(blocks, list | tuple) and all(type(block) is int and block >= 0 for block in blocks)):
        return range(1, count + 1)
    ends = list(itertools.accumulate(blocks))
    if ends[-1:] != [count]:
        raise InvalidArgument(f"the dataset's `pack_blocks` have {sum(blocks)} samples, expected {count} as its length says")
    return ends


def _blocks(begin: int, ends: Sequence[int]) -> Iterator[range]:
    """The blocks from sample `begin`, at which the first one is cut."""
    for end in ends[bisect.bisect_right(ends, begin) :]:
        if end > begin:
            yield range(begin, end)
        begin = end


class Failure:
    """An error in one sample, in a form that can be sent through a pipe."""

    def __init__(self, index: int, error: BaseException) -> None:
        self.index = index
        self.misfit = isinstance(error, Misfit)
        self.may_be_bad = not self.misfit or isinstance(error, Missing)
        self.argument = isinstance(error, InvalidArgument)
        self.damage = isinstance(error, DatasetInvalid)
        details = traceback.TracebackException.from_exception(error)  # unlike str(error), this cannot raise
        self.text = str(details)
        self.trace = "".join(details.format()).rstrip()
        self.error: BaseException | None = error
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            self.error = None

    def bad_record(self) -> bytes:
        last = self.text if self.misfit else self.trace.rsplit("\n", 1)[-1]
        why = last.encode(errors="backslashreplace")  # names of files may not be valid Unicode
        why = why[:_LONGEST_REASON].decode(errors="ignore").encode()
        return _head(self.index, 0, why, _BAD) + why

    def raised(self, kept: str, described: bool) -> Exception:
        """`described`: the fields are known, so a sample may be packed as a bad one."""
        if self.argument:
            return InvalidArgument(getattr(self.error, "message", self.text))
        if self.misfit or self.damage:
            what = DatasetInvalid(f"sample {self.index}: {getattr(self.error, 'message', self.text)}; {kept}")
            what.helps = (*(("columns",) if self.misfit else ()), *(("on_error",) if described and self.may_be_bad else ()))
        else:
            last = self.trace.rsplit("\n", 1)[-1]
            what = DatasetInvalid(f"sample {self.index}: the dataset raised {last}; {kept}\n{self.trace}")
        what.__cause__ = None if self.misfit else self.error
        return what


class Local:
    """Samples made in this process, one after the other."""

    def __init__(self, dataset: Any, count: int | None) -> None:
        self._count = count
        self._samples: Iterator[Any] = iter(dataset) if count is None else (dataset[i] for i in range(count))
        self._dataset = dataset
        self._first: list[Any] = []

    def describe(self, spellings: Mapping[Any, Any] | None) -> list[Field] | Failure:
        try:
            self._first = [self._dataset[0] if self._count is not None else next(self._samples)]
            return fields_of(self._first[0], spellings)
        except StopIteration:
            return Failure(0, InvalidArgument("the dataset has no samples"))
        except Exception as error:
            return Failure(0, error)

    def _from(self, begin: int) -> Iterator[Any]:
        if self._count is not None:
            yield from self._first if begin == 0 else []
            for index in range(max(begin, 1), self._count):
                yield self._dataset[index]
            return
        yield from self._first if begin == 0 else []
        for _ in range(1, begin):
            if next(self._samples, self) is self:
                raise Misfit("the iterable ended before this sample, at which packing resumes: is it the same dataset as before?")
        yield from self._samples

    def feed(self, begin: int, fields: list[Field], classes: int, bad: bool, write: Write) -> int | Failure:
        samples, index = self._from(begin), begin
        while True:
            try:
                parts = record(index, next(samples), fields, classes)
            except StopIteration:
                return index
            except Exception as error:
                failure = Failure(index, error)
                if not bad or not failure.may_be_bad or self._count is None:
                    return failure
                parts = [failure.bad_record()]
                samples = self._from(index + 1)
            for part in parts:
                write(part)
            index += 1

    def __enter__(self) -> Local:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass


class _Outbox:
    """Sends messages to a pipe. Keeps up to `ahead` bytes that the pipe does not take yet."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._writable = select.poll()
        self._writable.register(fd, select.POLLOUT)
        self._waiting: collections.deque[memoryview] = collections.deque()
        self._bytes = 0

    def send(self, kind: int, parts: Iterable[Any], ahead: int = 0) -> None:
        views = [memoryview(part) for part in parts]
        views.insert(0, memoryview(_MESSAGE.pack(sum(view.nbytes for view in views), kind)))
        if all(view.nbytes < 65536 for view in views):
            views = [memoryview(b"".join(views))]
        self._waiting.extend(view for view in views if view.nbytes)
        self._bytes += sum(view.nbytes for view in views)
        self.flush(ahead)

    def flush(self, ahead: int = 0) -> None:
        while self._waiting:
            try:
                sent = os.write(self._fd, self._waiting[0])
            except BlockingIOError:
                if self._bytes <= ahead:
                    return
                self._writable.poll()
                continue
            self._bytes -= sent
            if sent == self._waiting[0].nbytes:
                self._waiting.popleft()
            else:
                self._waiting[0] = self._waiting[0][sent:]


def _run_worker(dataset: Any, results: Connection, orders: Connection, others: list[int]) -> None:
    """The main function of a worker process."""
    for fd in others:
        os.close(fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # do not inherit a handler of the parent
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    out, first = _Outbox(results.fileno()), []
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            kind, *order = orders.recv()
            if kind == _DESCRIBED:
                try:
                    first = [dataset[0]]
                    answer: Any = fields_of(first[0], order[0])
                except BaseException as error:
                    answer = Failure(0, error)
                out.send(_DESCRIBED, [pickle.dumps(answer)])
                continue
            begin, ends, worker, workers, fields, classes, bad = order
            ahead = 0 if isinstance(ends, range) or workers == 1 else _AHEAD_BYTES // workers
            for index in itertools.chain.from_iterable(itertools.islice(_blocks(begin, ends), worker, None, workers)):
                try:
                    parts = record(index, first.pop() if index == 0 and first else dataset[index], fields, classes)
                except BaseException as error:
                    failure = Failure(index, error)
                    if not bad or not failure.may_be_bad:
                        out.send(_FAILED, [pickle.dumps(failure)])
                        return
                    parts = [failure.bad_record()]
                out.send(_RECORD, parts, ahead)
            out.flush()


def _wait_for(processes: list[Any]) -> list[Any]:
    """Waits for processes to end, and returns those that have not ended in time."""
    until = time.monotonic() + _END_TIMEOUT
    for process in processes:
        process.join(max(0.0, until - time.monotonic()))
    return [process for process in processes if process.is_alive()]


class WorkerPool:
    """Worker processes. They end with the `with` block, or with this process, even if it is killed, because their pipes close."""

    def __init__(self, dataset: Any, count: int, workers: int, start: str) -> None:
        self._count = count
        self._ends = block_ends(dataset, count)
        context: Any = multiprocessing.get_context(start)
        self._orders: list[Connection] = []
        self._results: list[Connection] = []
        self._processes: list[Any] = []
        try:
            for _ in range(min(workers, len(self._ends))):
                results, results_in = context.Pipe(duplex=False)
                orders_out, orders = context.Pipe(duplex=False)
                self._results.append(results)
                self._orders.append(orders)
                with contextlib.suppress(OSError):
                    fcntl.fcntl(results.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
                # A forked child inherits the other workers' pipes, and must close them.
                others = [end.fileno() for end in self._results + self._orders] if start == "fork" else []
                process = context.Process(target=_run_worker, args=(dataset, results_in, orders_out, others), daemon=True)
                process.start()
                self._processes.append(process)
                results_in.close()
                orders_out.close()
        except BaseException:
            self.close()
            raise

    def _ended(self, worker: int, index: int) -> EnvironmentFailed:
        self._processes[worker].join(_END_TIMEOUT)
        return EnvironmentFailed(
            f"the worker that made sample {index} ended with status {self._processes[worker].exitcode}"
            " (-9: killed, perhaps because memory ran out); try fewer workers=, or workers=0 to see the error"
        )

    def _order(self, worker: int, order: tuple[Any, ...], index: int) -> None:
        try:
            self._orders[worker].send(order)
        except (BrokenPipeError, ConnectionResetError):
            raise self._ended(worker, index) from None

    def _read(self, worker: int, size: int, index: int, write: Write) -> None:
        fd, left = self._results[worker].fileno(), size
        while left:
            data = os.read(fd, min(left, _PIPE_BYTES))
            if not data:
                raise self._ended(worker, index)
            write(data)
            left -= len(data)

    def _bytes(self, worker: int, size: int, index: int) -> bytes:
        parts: list[bytes] = []
        self._read(worker, size, index, parts.append)
        return b"".join(parts)

    def _loaded(self, worker: int, size: int, index: int) -> Any:
        return pickle.loads(self._bytes(worker, size, index))

    def describe(self, spellings: Mapping[Any, Any] | None) -> list[Field] | Failure:
        # In a worker: resources that a dataset opens on first use must not be forked.
        self._order(0, (_DESCRIBED, spellings), 0)
        size, _ = _MESSAGE.unpack(self._bytes(0, _MESSAGE.size, 0))
        answer: list[Field] | Failure = self._loaded(0, size, 0)
        return answer

    def feed(self, begin: int, fields: list[Field], classes: int, bad: bool, write: Write) -> int | Failure:
        workers = len(self._processes)
        for worker, block in enumerate(itertools.islice(_blocks(begin, self._ends), workers)):
            self._order(worker, (_RECORD, begin, self._ends, worker, workers, fields, classes, bad), block[0])
        for turn, block in enumerate(_blocks(begin, self._ends)):
            for index in block:
                failure = self._forward(turn % workers, index, write)
                if failure is not None:
                    return failure
        return self._count

    def _forward(self, worker: int, index: int, write: Write) -> Failure | None:
        size, kind = _MESSAGE.unpack(self._bytes(worker, _MESSAGE.size, index))
        if kind == _FAILED:
            failure: Failure = self._loaded(worker, size, index)
            return failure
        self._read(worker, size, index, write)
        return None

    def close(self) -> None:
        for end in self._results + self._orders:
            end.close()
        left = _wait_for(self._processes)  # a worker first finishes its sample
        for process in left:
            process.terminate()
        left = _wait_for(left)
        for process in left:
            process.kill()
        _wait_for(left)

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
