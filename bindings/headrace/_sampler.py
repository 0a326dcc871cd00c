"""The `sampler` and `batch_sampler` of a Loader, for frameworks that use a DataLoader's: Lightning calls set_epoch() on each sampler."""

from __future__ import annotations

from typing import Protocol

from ._caller import warn
from .types import StreamInfo


class Epochs(Protocol):
    """The part of a Loader that the samplers use."""

    _start_is_set: bool

    @property
    def info(self) -> StreamInfo: ...
    @property
    def epoch(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def sampler(self) -> EpochSampler: ...
    def set_epoch(self, epoch: int) -> None: ...
    def __len__(self) -> int: ...


class EpochSampler:
    """Has set_epoch() and the length of torch's DistributedSampler: the number of an epoch's samples that this rank gets. It cannot be
    iterated, because the server decides the order."""

    def __init__(self, loader: Epochs) -> None:
        self._loader = loader

    def set_epoch(self, epoch: int) -> None:
        """Same as Loader.set_epoch(), with two exceptions: it does nothing for a live stream, whose feeder decides the epochs; and a loader
        whose state is ahead of `epoch` still begins at its state."""
        loader = self._loader
        if loader.info.live:
            return
        if loader._start_is_set and epoch < loader.epoch:
            warn(
                f"sampler.set_epoch({epoch}), which Lightning calls, is ignored, because the loader's state (or `join`, `resume`) begins in epoch "
                f"{loader.epoch}; later calls are followed. To make both agree, resume both from one checkpoint (Lightning: fit(ckpt_path=…))"
            )
        else:
            loader.set_epoch(epoch)

    def __len__(self) -> int:
        info, ranks = self._loader.info, self._loader.world_size
        if info.last == "drop":
            return info.samples // (info.batch_size * ranks) * info.batch_size
        return -(-info.samples // ranks)


class BatchSampler:
    """The properties of a loader's batches."""

    def __init__(self, loader: Epochs) -> None:
        self._loader = loader

    @property
    def sampler(self) -> EpochSampler:
        return self._loader.sampler

    @property
    def batch_size(self) -> int:
        return self._loader.info.batch_size

    @property
    def drop_last(self) -> bool:
        return self._loader.info.last == "drop"

    def __len__(self) -> int:
        return len(self._loader)
