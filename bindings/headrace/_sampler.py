"""What a DataLoader has as `sampler` and `batch_sampler`, for those who look there: Lightning tells each sampler its epoch."""

from __future__ import annotations

from typing import Protocol

from ._caller import warn
from .types import StreamInfo


class Epochs(Protocol):
    """Of a Loader: what there is to know of its epochs."""

    _placed: bool

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
    """`set_epoch` of torch's DistributedSampler, and its length: how many samples of an epoch this rank gets. The order is the
    server's, so there is nothing to iterate over."""

    def __init__(self, loader: Epochs) -> None:
        self._loader = loader

    def set_epoch(self, epoch: int) -> None:
        """As the loader's. A live stream's epochs are its feeder's; a loader whose state is ahead of `epoch` begins there."""
        loader = self._loader
        if loader.info.live:
            return
        if loader._placed and epoch < loader.epoch:
            warn(
                f"sampler.set_epoch({epoch}), as Lightning calls it, on a loader whose state (or `join`, `resume`) is of epoch {loader.epoch}: it "
                f"begins there, and follows such calls from then on. Resume both from one checkpoint (Lightning: fit(ckpt_path=…)), and they agree"
            )
        else:
            loader.set_epoch(epoch)

    def __len__(self) -> int:
        info, ranks = self._loader.info, self._loader.world_size
        if info.last == "drop":
            return info.samples // (info.batch_size * ranks) * info.batch_size
        return -(-info.samples // ranks)


class BatchSampler:
    """What there is to know of batches without making any."""

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
