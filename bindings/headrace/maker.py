"""The Maker: makes a stream's batches in this process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ._arguments import MOST, MOST_EPOCH, flag, mapping, setting, text, whole
from ._device import output_of
from .batch import Assembler, DictBatch, TupleBatch
from .errors import InvalidArgument
from .types import StreamInfo

_MOST_POSITION = 2**63 - 1


def _where(epoch: int, first: int, count: int) -> tuple[int, int, int]:
    return whole("epoch", epoch, most=MOST_EPOCH), whole("first", first, most=_MOST_POSITION), whole("count", count, 1)


class Maker:
    """Makes the batches of a stream in this process, without a server. They are byte-identical to those of a server with the same
    configuration and data. They have the same form as a Loader's: the fields, and the attributes `sample_index`, `valid` and `replaced`.

    config   a YAML file as for `headrace serve`; the environment's HEADRACE_ variables override it. The keys `server`, `ring`, `sharing` and
             `io.read_ahead` have no effect
    stream   the stream's name. A stream with a feed is refused
    threads  the number of threads that each call uses, without the GIL. The calling thread waits for them and handles signals
    set      configuration values by dotted path, such as {"streams.train.batch_size": 32}, which override the file and the environment
    output   "numpy", "torch", "jax", or "dlpack" for any other framework's from_dlpack. None: torch if the process has imported it already,
             else numpy
    batch    "tuple" or "dict"
    meta     True: each batch contains its row arrays (valid, sample_index, replaced), which are always its attributes
    caches   False: no samples are kept in memory, whatever the configuration says
    source   what describe_source() of a Maker with the data returned. This Maker then opens no data: only rows() makes rows, of the samples
             that the other Maker reads

    A Maker is thread-safe. A forked child can use its parent's Maker if no call was running at the fork. The CPU also runs the transforms of
    `device: gpu`.

    Raises ConfigInvalid, NoSuchStream, DatasetInvalid, InvalidArgument, or Error with the code TRANSIENT_IO. Ctrl-C ends the
    constructor while it waits for a remote source.
    """

    def __init__(
        self,
        config: str | os.PathLike[str],
        stream: str,
        *,
        threads: int = 1,
        set: Mapping[str, object] | None = None,  # noqa: A002
        output: str | None = None,
        batch: str = "tuple",
        meta: bool = False,
        caches: bool = True,
        source: str = "",
    ) -> None:
        try:
            path = os.fsdecode(os.fspath(config))
        except TypeError:
            raise InvalidArgument(f"config: expected the path of a YAML file, found {type(config).__name__}; write the configuration to a file first") from None
        if text("stream", stream) == "":
            raise InvalidArgument("stream='': a Maker needs a stream's name: headrace.Maker('train.yaml', 'train')")
        changes = [setting(where, value) for where, value in mapping("set", set).items()]
        threads = whole("threads", threads, 1, 1024)
        output = output_of(output, None)
        text("batch", batch, ("tuple", "dict"))
        flag("meta", meta)
        flag("caches", caches)
        text("source", source)
        from . import _maker  # loads the server's libraries, which other programs do not need

        self._maker = _maker.open(path, stream, threads, changes, source, caches)
        self._info = StreamInfo.from_dict(self._maker.info())
        self._assemble = Assembler(self._info.fields, output, batch, meta)

    @property
    def info(self) -> StreamInfo:
        """The stream as a server describes it, with the same fingerprint."""
        return self._info

    def length(self, world_size: int = 1) -> int:
        """The number of batches that each of `world_size` ranks receives in an epoch. A broadcast stream ignores `world_size`."""
        return self._maker.length(whole("world_size", world_size, 1))

    def rows(self, epoch: int, first: int, count: int, samples: Any = None) -> TupleBatch | DictBatch:
        """The rows at positions `first` to `first + count - 1` of an epoch, in its order, as `headrace sample --index` shows them. Arrays
        have the shape (count, ...), a ragged field's offsets (count + 1,). The batch's `number` is 0.

        samples  for a Maker with `source`: what samples() of the other Maker returned for the same rows. The rows are the same bytes as there,
                 except that a row with a bad sample, which is marked as `replaced`, has unspecified values

        Raises InvalidArgument if the epoch does not have these positions, and the errors of batch().
        """
        where = _where(epoch, first, count)
        return self._assemble(self._maker.rows(*where) if samples is None else self._maker.rows_of(samples, *where))

    def describe_source(self) -> str:
        """What a Maker without access to the data has to know about the source: its argument `source`.

        Raises InvalidArgument if rows of the stream need more than their own samples (`mix`), or differ in size (ragged fields).
        """
        return self._maker.describe_source()

    def samples(self, epoch: int, first: int, count: int) -> Any:
        """The samples of the rows at these positions, as the source stores them (such as JPEG files), in one numpy array of bytes. One thread,
        the caller's, reads them. Raises the errors of rows(), except those of bad samples.
        """
        return self._maker.samples(*_where(epoch, first, count))

    def batch(self, epoch: int, k: int, world_size: int = 1, rank: int = 0) -> TupleBatch | DictBatch:
        """Batch `k` (from 0) of rank `rank` of `world_size`, in an epoch that is read from its start. A broadcast stream ignores
        `world_size` and `rank`. Arrays have the shape (rows, ...), where rows is the stream's batch size, or less for the last batch.

        Raises InvalidArgument if there is no such batch or rank; TooManyBadSamples, DatasetInvalid, or Error with the code BAD_SAMPLE or
        TRANSIENT_IO if the stream would stop in a server; NotEnoughMemory. Ctrl-C ends the call after the rows in progress.
        """
        world_size = whole("world_size", world_size, 1)
        made = self._maker.batch(
            whole("epoch", epoch, most=MOST_EPOCH), whole("k", k, most=_MOST_POSITION), world_size, whole("rank", rank, 0, MOST)
        )
        return self._assemble(made)

    def __repr__(self) -> str:
        return f"Maker(stream={self._info.name!r}, samples={self._info.samples}, batch_size={self._info.batch_size})"
