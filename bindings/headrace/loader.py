"""The Loader: iterates over a stream. See bindings/README.md for the contract of iteration."""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ._arguments import (
    MOST_EPOCH,
    connect,
    explain_unknown,
    flag,
    from_environment,
    ranks_of_torch,
    refuse_nameless_resume,
    seconds,
    state_text,
    text,
    users,
    warn_of_going_back,
    whole,
)
from ._caller import warn
from ._device import ArrayAssembler, TorchAssembler, TorchBlocks, device_of, output_of
from ._headrace import DeviceStream, Stream
from ._ranks import Claim, claim_rank
from ._sampler import BatchSampler, EpochSampler
from .batch import Assembler, DictBatch, TupleBatch
from .errors import Closed, InvalidArgument, IteratorBusy
from .types import StreamInfo

_END: Any = object()  # marks an epoch's end; a transform may return anything else


class _Epoch(Iterator["TupleBatch | DictBatch"]):
    """The iterator of one epoch. A later iter() of its loader makes it invalid."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self.done = False

    def __next__(self) -> TupleBatch | DictBatch:
        if self.done:
            raise StopIteration
        batch: TupleBatch | DictBatch = self._loader._next(self)
        if batch is _END:
            self.done = True
            raise StopIteration
        return batch


class Loader:
    """Iterates over a stream like a torch DataLoader; each `for` is one epoch.

    address            the server's directory; None: HEADRACE_ADDRESS, then the server's default
    stream             the stream's name; required
    rank, world_size   select this process's part of a shard stream; None: RANK and WORLD_SIZE, else torch.distributed's, else 0 and 1.
                       Ignored on a broadcast stream
    group              the job that the ranks belong to
    client             name in metrics and messages; unique within its stream
    output             "numpy", "torch", "jax", "cupy", or "dlpack" for any other framework's from_dlpack. None: torch
                       with a device, or if the process has imported torch already (but not with zero_copy); else numpy
    device             the device that batches are copied to: "cuda:N", "cuda" (the current one), a number or a torch.device. "cpu" or
                       None: batches stay in host memory. "host": the CPU backend, to test without a GPU. The current CUDA stream waits
                       for a batch's copy; the host does not wait
    prefetch           batches that are copied to the device, or computed there, ahead of the loop (with `residence: gpu` up to 15
                       more); only with a device
    transform          called with each batch, in the loop's thread; the loop gets what it returns
    batch              "tuple" or "dict"
    zero_copy          True: batches are read-only numpy views (except labels); False: the loop may change its batches
    join               where to begin without a state: "default" (epoch 0); "now" (the foremost client's position), "epoch_start"
                       (the start of that client's epoch)
    state              a saved state_dict() from which to resume
    resume             "server": resume from the position that the server remembers for this group; not together with state or join
    timeout            seconds for attaching and for each request
    batch_timeout      seconds to wait for one batch; the first wait of more than 10 s warns, with the reason
    reconnect_timeout  seconds to wait for a dead server to restart
    meta               True: each batch contains its row arrays (valid, sample_index, replaced), which are always its attributes
    allow_uids         users whose server is trusted, besides this process's own user and root; HEADRACE_ALLOW_UIDS adds to them
    """

    def __init__(
        self,
        address: str | os.PathLike[str] | None = None,
        *,
        stream: str = "",
        rank: int | None = None,
        world_size: int | None = None,
        group: str | None = None,
        client: str | None = None,
        output: str | None = None,
        device: Any = None,
        prefetch: int = 2,
        transform: Callable[[Any], Any] | None = None,
        batch: str = "tuple",
        zero_copy: bool = False,
        join: str = "default",
        state: dict[str, Any] | None = None,
        resume: str | None = None,
        timeout: float = 10.0,
        batch_timeout: float = 600.0,
        reconnect_timeout: float = 60.0,
        meta: bool = False,
        allow_uids: Iterable[int] = (),
    ) -> None:
        if stream == "":
            name = address if isinstance(address, str) and "/" not in address else "train"
            raise InvalidArgument(f"a Loader needs a stream's name: headrace.Loader(stream={name!r}); the address, which comes first, is optional")
        text("stream", stream)
        output = output_of(output, device, zero_copy)
        prefetch = whole("prefetch", prefetch, 1, 64)
        if transform is not None and not callable(transform):
            raise InvalidArgument(f"transform={transform!r}: expected a function of the batch")
        flag("zero_copy", zero_copy)
        flag("meta", meta)
        allow_uids = users("allow_uids", allow_uids)
        text("batch", batch, ("tuple", "dict"))
        if resume not in (None, "server"):
            raise InvalidArgument(f"resume={resume!r}: expected 'server' or None")
        batch_timeout = seconds("batch_timeout", batch_timeout)
        reconnect_timeout = seconds("reconnect_timeout", reconnect_timeout)
        if zero_copy and output == "torch":
            raise InvalidArgument(
                "zero_copy=True with output='torch': torch has no read-only tensors. Omit zero_copy, because large batches "
                "are not copied by default either, or use output='numpy'"
            )
        device = device_of(device)
        if zero_copy and device is not None:
            raise InvalidArgument(f"zero_copy=True with device={device!r}: batches in device memory are always copies, which the loop may change; omit zero_copy")
        self._arguments: dict[str, Any] = {
            name: value for name, value in locals().items() if name not in ("self", "__class__")
        }
        self._begin()
        self._attach()

    if not TYPE_CHECKING:
        __init__ = explain_unknown(__init__)

    def _begin(self) -> None:
        self._assemble: Assembler
        self._claim: Claim
        self._stream: Stream | DeviceStream | None = None
        self._iterator: weakref.ref[_Epoch] | None = None
        self._next_epoch: int | None = None
        self._closed = False
        self._broken_off = False
        self._parked: dict[str, Any] | None = None  # the state while detached for another loader of this rank
        self._iterated = False
        self._skips_rest = False  # attached again within an epoch; the next iter() skips its rest
        given = self._arguments
        self._start_is_set = given["state"] is not None or given["join"] != "default" or given["resume"] is not None  # and no batch was returned since

    def _attach(self) -> Stream | DeviceStream:
        given = self._arguments
        server = connect(given["address"], given["timeout"], given["allow_uids"])
        known = {entry["name"]: entry for entry in server.streams()}
        about = known.get(given["stream"], {})
        rank, world_size = self._rank_and_world_size(about.get("delivery") == "broadcast")
        self._world_size = world_size
        refuse_nameless_resume(given, about)
        state = given["state"] if self._parked is None else self._parked
        how: dict[str, Any] = {
            "stream": given["stream"],
            "group": text("group", given["group"] or ""),
            "rank": rank,
            "world_size": world_size,
            "client": text("client", given["client"] or ""),
            "join": text("join", given["join"]),
            "state": None if state is None else state_text(state, ", or None to start anew"),
            "resume_from_server": given["resume"] == "server",
            "reconnect_timeout": given["reconnect_timeout"],
            "warn": warn,
        }
        claim = Claim(server.address, given["stream"], how["group"] or "default", rank, how["client"])
        output, form, meta, device = (given[name] for name in ("output", "batch", "meta", "device"))
        if device is None:
            self._stream = claim_rank(self, claim, lambda: server.open(**how, zero_copy=given["zero_copy"]))
            self._info = StreamInfo.from_dict(self._stream.info())
            self._assemble = Assembler(self._info.fields, output, form, meta)
            return self._stream
        blocks = TorchBlocks(device) if output == "torch" else None
        there = {"device": device, "prefetch": given["prefetch"], "allocate": blocks, "copy_stream": blocks.copy_stream if blocks else 0}
        stream = claim_rank(self, claim, lambda: server.open_on_device(**how, **there))
        self._info = StreamInfo.from_dict(stream.info())
        if blocks is not None:
            self._assemble = TorchAssembler(self._info.fields, form, meta, blocks)
        else:
            self._assemble = ArrayAssembler(self._info.fields, output, form, meta, device)
        self._stream = stream
        return stream

    def _rank_and_world_size(self, broadcast: bool) -> tuple[int, int]:
        """The rank and world size to use."""
        rank, world_size = self._arguments["rank"], self._arguments["world_size"]
        of_torch = ranks_of_torch()
        if broadcast:
            name, said = ("WORLD_SIZE", os.environ.get("WORLD_SIZE", of_torch[1])) if world_size is None else ("world_size", world_size)
            if str(said) != "1":
                warn(
                    f"{name}={said}, but stream '{self._arguments['stream']}' is broadcast: every rank gets "
                    "every batch. Set the stream's `delivery: shard` to divide the epoch, or pass world_size=1 if this is meant"
                )
            if rank is not None and whole("rank", rank) >= whole("world_size", world_size or 1, 1):
                raise InvalidArgument(f"rank={rank}, world_size={world_size or 1}: ranks go from 0 to world_size - 1")
            return 0, 1
        return (
            from_environment("RANK", of_torch[0], 0) if rank is None else whole("rank", rank),
            from_environment("WORLD_SIZE", of_torch[1], 1) if world_size is None else whole("world_size", world_size, 1),
        )

    def _park(self) -> bool:
        """Detaches an idle loader, so that another one of this process can claim its rank; the next call attaches again. Returns False if
        it is not attached, in a loop, or was never iterated: two unused loaders of one rank are a mistake."""
        if self._stream is None or not self._iterated or self._running() is not None:
            return False
        self._parked, self._skips_rest = self.state_dict(), self._skips_rest or (self._stream.begun() and not self._broken_off)
        self._stream.close()
        self._stream = None
        self._assemble.forget()
        return True

    def _is_attached(self) -> bool:
        """Whether the loader occupies a lane on the server. A loader of a broadcast stream whose dataset is in GPU memory does not."""
        resident = self._arguments["device"] is not None and self._stream is not None and self._info.residence is not None
        return self._stream is not None and not (resident and self._info.delivery == "broadcast")

    def _attached(self) -> Stream | DeviceStream:
        if self._closed:
            raise Closed("this loader was closed")
        return self._stream or self._attach()

    # --- iteration

    def _running(self) -> _Epoch | None:
        iterator = self._iterator() if self._iterator is not None else None
        return None if iterator is None or iterator.done else iterator

    def __iter__(self) -> Iterator[TupleBatch | DictBatch]:
        stream = self._attached()
        stream.begun()  # raises IteratorBusy while another thread waits here, whose loop must go on
        if self._next_epoch is not None:
            stream.set_epoch(self._next_epoch)
            self._next_epoch = None
            self._broken_off = False
        elif not self._broken_off:  # otherwise it continues with the batch that was not delivered
            if self._skips_rest:
                stream.set_epoch(stream.epoch() + 1)
            stream.next_epoch()  # skips the rest of an epoch that a `break` ended; does nothing if none was begun
        self._skips_rest = False
        self._iterated = True
        iterator = _Epoch(self)
        self._iterator = weakref.ref(iterator)
        return iterator

    def _next(self, iterator: _Epoch) -> Any:
        stream = self._attached()
        if self._iterator is None or self._iterator() is not iterator:
            stream.begun()  # raises ForkedError in a child, in which no iterator works
            raise IteratorBusy(
                "a later iter() of this loader made this iterator invalid: a loader has one iterator at a time; open a second "
                "Loader to read the stream twice at once"
            )
        if self._broken_off:
            stream.undo()
        # Set until the batch is returned: an exception, such as a signal handler's, may come at any point.
        self._broken_off = True
        raw = stream.next(self._arguments["batch_timeout"])
        batch = _END if raw is None else self._assemble(raw)
        if batch is not _END and self._arguments["transform"] is not None:
            try:
                batch = self._arguments["transform"](batch)
            except StopIteration as error:  # it would end the epoch silently (PEP 479)
                raise RuntimeError("transform raised StopIteration") from error
        self._broken_off = self._start_is_set = False
        return batch

    def __len__(self) -> int:
        """The number of batches in the current epoch, or in the one about to begin. It is the same on every rank."""
        return self._attached().length()

    def __getitem__(self, index: object) -> Any:
        raise TypeError("a headrace.Loader cannot be indexed: it gives whole batches in its stream's order; iterate over it, without a DataLoader")

    def set_epoch(self, epoch: int) -> None:
        """Makes `epoch` the next one to begin. A loop that is running finishes its own epoch first."""
        epoch = whole("epoch", epoch, most=MOST_EPOCH)
        stream = self._attached()
        if self._start_is_set:
            warn_of_going_back(epoch, stream.epoch())
        if self._running() is not None and stream.begun():
            self._next_epoch = epoch
        else:
            stream.set_epoch(epoch)
            self._next_epoch = None
            self._broken_off = self._skips_rest = self._start_is_set = False

    # --- state

    def state_dict(self) -> dict[str, Any]:
        """The loop's position after the batches that it has received, as a dict of plain JSON values."""
        state: dict[str, Any] = json.loads(self._attached().state(self._broken_off))
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Moves the loop to a saved state at once: before, during or after iteration, at any world size or batch size. Raises
        FingerprintMismatch if the dataset, plan or seed changed."""
        self._attached().load_state(state_text(state))
        self._next_epoch = None
        self._broken_off = self._skips_rest = False
        self._start_is_set = True

    # --- properties

    @property
    def info(self) -> StreamInfo:
        """The server's description of the stream."""
        self._attached()
        return self._info

    @property
    def epoch(self) -> int:
        """The current epoch, or the one about to begin."""
        return self._attached().epoch()

    @property
    def world_size(self) -> int:
        """The number of ranks that divide an epoch; 1 on a broadcast stream."""
        self._attached()
        return self._world_size

    @property
    def batch_size(self) -> int:
        """The number of samples in a batch; the last one of an epoch may have fewer."""
        return self.info.batch_size

    @property
    def sampler(self) -> EpochSampler:
        """For Lightning, which calls its `set_epoch` at the start of each epoch."""
        return EpochSampler(self)

    @property
    def batch_sampler(self) -> BatchSampler:
        """For frameworks that ask a DataLoader for its batch size or drop_last."""
        return BatchSampler(self)

    @property
    def dataset(self) -> Any:
        raise AttributeError(
            "a headrace.Loader has no dataset: the server has the samples (their number: loader.info.samples). To skip batches "
            "(Accelerate's skip_first_batches), call load_state_dict() with a saved state_dict(), which resumes at once"
        )

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, by label."""
        return self.info.classes

    @property
    def waited(self) -> float:
        """Seconds that the loop has waited for batches since it attached."""
        return self._attached().waited()

    @property
    def ready(self) -> int:
        """The number of batches that the loop would get without waiting for the server."""
        return self._attached().ready()

    # --- closing, and pickles

    def close(self) -> None:
        """Detaches from the server. Batches stay usable. zero_copy arrays keep their slots leased until they are deleted."""
        self._closed = True
        if self._stream is not None:
            self._stream.close()
            self._stream = None
            self._assemble.forget()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return self._arguments

    def __setstate__(self, arguments: dict[str, Any]) -> None:
        """A pickle contains only the loader's arguments: the copy attaches on first use, as a separate client."""
        self._arguments = arguments
        self._begin()

    def __repr__(self) -> str:
        return f"headrace.Loader({self._arguments['address']!r}, stream={self._arguments['stream']!r})"
