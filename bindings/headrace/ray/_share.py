"""Shares the batches of a Ray Dataset: on each node an actor reads them once, for all trainers of that node."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import ray

import headrace

from .._arguments import flag, mapping, seconds, text, whole
from ..errors import InvalidArgument, StreamFailed, Timeout
from ._job import Folder
from ._nodes import cause_of, nodes, on, this_node, with_ids

_START_SECONDS = 120.0  # includes the first batch


def _plain(values: Any) -> Any:
    """A column as headrace.share() accepts it: numpy has strings and rows of different lengths as arrays of objects."""
    return list(values) if isinstance(values, np.ndarray) and values.dtype.kind in "OUST" else values


class _Batches:
    """The batches of a Dataset or of one part of it, as headrace.share() wants them."""

    def __init__(self, data: Any, count: int, options: dict[str, Any]) -> None:
        self._data, self._count, self._options = data, count, options

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self._data.iter_batches(**self._options, batch_format="numpy"):
            yield {name: _plain(values) for name, values in batch.items()}


class ShareActor:
    """Shares one node's batches. Ray never starts it again: a batch is delivered once, so the shared stream ends with this process."""

    def __init__(self) -> None:
        self._folder = Folder()
        self._share: headrace.Share | None = None

    def start(self, data: Any, samples: int, options: dict[str, Any], share: dict[str, Any]) -> str:
        """Makes the first batch, then returns the server's directory."""
        rows = options["batch_size"]
        count = samples // rows if options["drop_last"] else -(-samples // rows)
        self._share = headrace.share(_Batches(data, count, options), samples=None if options["drop_last"] else samples, **share)
        return self._share.address

    def wait(self, timeout: float | None) -> None:
        assert self._share is not None
        self._share.wait(timeout)

    def stats(self) -> dict[str, float]:
        assert self._share is not None
        return {**self._share.stats, "pid": os.getpid()}

    def close(self) -> None:
        if self._share is not None:
            self._share.close()
        self._folder.remove()


class Shared:
    """A Ray Dataset that is being shared; share() creates it. It can be pickled: give it to workers, for headrace.ray.Loader(shared).

    Sharing ends with the `with` block, with stop(), at the end of the job, and when no process has this object or a copy of it.

    name    the stream's name
    nodes   the ids of the nodes that share it
    """

    def __init__(self, name: str, actors: Mapping[str, Any], addresses: Mapping[str, str]) -> None:
        self.name = name
        self._actors, self._addresses = dict(actors), dict(addresses)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The ids of the nodes that share it, in hexadecimal."""
        return tuple(self._actors)

    def address(self, node: str | None = None) -> str:
        """The server's directory on a node, for headrace.Loader there; None: the node of this process. Raises InvalidArgument if that node
        shares nothing, and StreamFailed if its actor has ended."""
        node = this_node() if node is None else node
        if node not in self._addresses:
            raise InvalidArgument(f"node {node} does not share '{self.name}', only {', '.join(self._addresses)}: give headrace.ray.share() the nodes of the trainers")
        self._ask(node, "stats", (), 30.0)
        return self._addresses[node]

    def stats(self) -> dict[str, dict[str, float]]:
        """By node: the number of `batches` sent, the seconds spent `loading`, `copying` and `waiting` for consumers, and the actor's `pid`."""
        return {node: self._ask(node, "stats", (), 30.0) for node in self._actors}

    def wait(self, timeout: float | None = None) -> None:
        """Waits until the consumers of every node have received the last epoch. Raises the error that ended the sharing of a node; Timeout
        after `timeout` seconds for each node."""
        for node in self._actors:
            self._ask(node, "wait", (None if timeout is None else seconds("timeout", timeout),), None)

    def _ask(self, node: str, method: str, arguments: tuple[Any, ...], limit: float | None) -> Any:
        try:
            return ray.get(getattr(self._actors[node], method).remote(*arguments), timeout=limit)
        except ray.exceptions.RayTaskError as error:
            raise cause_of(error) from None
        except ray.exceptions.GetTimeoutError:
            raise Timeout(f"the actor that shares '{self.name}' on node {node} did not answer within {limit:g} s") from None
        except ray.exceptions.RayActorError as error:
            raise StreamFailed(
                f"the actor that shares '{self.name}' on node {node} ended: {error}; its batches are delivered once, so call headrace.ray.share() again for a new stream"
            ) from None

    def stop(self) -> None:
        """Ends sharing on all nodes. Consumers that wait for more batches get StreamFailed."""
        closing = [actor.close.remote() for actor in self._actors.values()]
        with contextlib.suppress(Exception):  # an actor may have ended before
            ray.wait(closing, num_returns=len(closing), timeout=20)
        for actor in self._actors.values():
            ray.kill(actor)

    def __enter__(self) -> Shared:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"headrace.ray.Shared(name={self.name!r}, nodes={len(self._actors)})"


def _nodes_given(given: Sequence[str] | None) -> tuple[str, ...]:
    if given is None:
        return tuple(node.id for node in nodes() if node.resources.get("CPU", 0) > 0)
    if isinstance(given, str):
        raise InvalidArgument(f"nodes={given!r}: expected a list of node ids, such as [ray.get_runtime_context().get_node_id()], or None")
    return with_ids("nodes", given)


def share(
    dataset: ray.data.Dataset,
    name: str = "train",
    *,
    batch_size: int,
    epochs: int | None = None,
    split: bool = False,
    drop_last: bool = False,
    samples: int | None = None,
    nodes: Sequence[str] | None = None,
    batch_options: Mapping[str, Any] | None = None,
    num_cpus: float = 0,
    **options: Any,
) -> Shared:
    """Makes the batches of a Ray Dataset a broadcast stream on each node. Call it in the driver, whose job ends the sharing.

    An actor on each node reads every block of its data once for all trainers of that node. Trainers get a batch as a dict of columns
    (headrace.ray.Loader(shared, batch="dict")), each of shape (rows, ...), and of the dataset's dtype; strings are ragged uint8.

    dataset        executed by each actor for each epoch; dataset.materialize() executes it once
    name           the stream's name
    batch_size     rows in a batch; the last one of an epoch may have fewer, unless `drop_last`
    epochs         the number of epochs; None: until stop()
    split          False: each node gets the whole dataset. True: the nodes divide it, with equally many rows each (streaming_split()):
                   the epochs begin together on all nodes, so each node must have a trainer
    samples        rows of the dataset; None: dataset.count(), which may execute it
    nodes          the ids of the nodes with trainers; None: all nodes that have CPUs now
    batch_options  further arguments of Dataset.iter_batches(), such as {"local_shuffle_buffer_size": 1000}
    num_cpus       CPUs that Ray reserves for each actor
    options        of headrace.share(): ragged, prefetch, max_clients, wait_for, set

    Raises InvalidArgument for wrong arguments, DatasetInvalid for batches that cannot be shared, and Timeout after 120 s without a first
    batch. If an actor ends, its consumers get StreamFailed or ServerLost: it is not started again, because its batches exist once.
    """
    import ray.data

    if not isinstance(dataset, ray.data.Dataset):
        raise InvalidArgument(f"dataset: expected a ray.data.Dataset, found {type(dataset).__name__}; headrace.share() takes a DataLoader")
    text("name", name)
    for taken in ("batches", "names", "address"):
        if taken in options:
            raise InvalidArgument(f"{taken}=: not an argument of headrace.ray.share(), which finds it itself")
    chosen = _nodes_given(nodes)
    rows = dataset.count() if samples is None else whole("samples", samples, 1)
    parts: list[Any] = [dataset] * len(chosen)
    if flag("split", split):
        rows //= len(chosen)
        parts = list(dataset.streaming_split(len(chosen), equal=True, locality_hints=list(chosen)))
    batch_size = whole("batch_size", batch_size, 1)
    if rows < (batch_size if flag("drop_last", drop_last) else 1):
        raise InvalidArgument(f"the dataset has {rows} rows for each of {len(chosen)} nodes: too few for one batch of {batch_size}")
    # The first batch decides how large batches are.
    reading = {**mapping("batch_options", batch_options), "batch_size": min(batch_size, rows), "drop_last": drop_last}
    actors: dict[str, Any] = {}
    try:
        starts = {}
        for node, part in zip(chosen, parts, strict=True):
            actors[node] = ray.remote(ShareActor).options(scheduling_strategy=on(node), num_cpus=num_cpus, max_restarts=0, max_concurrency=8).remote()
            starts[node] = actors[node].start.remote(part, rows, reading, {"name": name, "epochs": epochs, **options})
        addresses = {node: str(ray.get(start, timeout=_START_SECONDS)) for node, start in starts.items()}
    except BaseException as error:
        for actor in actors.values():
            ray.kill(actor)
        if isinstance(error, ray.exceptions.RayTaskError):
            raise cause_of(error) from None
        if isinstance(error, ray.exceptions.GetTimeoutError):
            raise Timeout(f"'{name}' has no first batch on each of {len(chosen)} nodes after {_START_SECONDS:g} s: is there a free CPU to execute the dataset?") from None
        raise
    return Shared(name, actors, addresses)
