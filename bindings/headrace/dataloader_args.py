"""A Loader from a torch DataLoader's arguments: https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader."""

from __future__ import annotations

import os
import sys
from typing import Any

from ._arguments import DATALOADER_REPLACEMENTS, flag, seconds, whole
from ._caller import warn
from .ask import streams
from .errors import InvalidArgument
from .loader import Loader
from .types import StreamInfo

# A DataLoader's defaults, unless they are None.
_DEFAULTS: dict[str, Any] = {"num_workers": 0, "pin_memory": False, "pin_memory_device": "", "persistent_workers": False, "in_order": True}


def from_dataloader_args(
    dataset: Any = None,
    batch_size: int | None = 1,
    shuffle: bool | None = None,
    sampler: Any = None,
    batch_sampler: Any = None,
    num_workers: int = 0,
    collate_fn: Any = None,
    pin_memory: bool = False,
    drop_last: bool = False,
    timeout: float = 0,
    worker_init_fn: Any = None,
    multiprocessing_context: Any = None,
    generator: Any = None,
    *,
    prefetch_factor: int | None = None,
    persistent_workers: bool = False,
    pin_memory_device: str = "",
    in_order: bool = True,
    stream: str,
    **loader: Any,
) -> Loader:
    """A Loader that replaces `DataLoader(…)` with these arguments.

    Also give `stream`, and other arguments of Loader if needed. `output` is "torch" unless given. The stream's configuration decides
    batch_size, shuffle, drop_last and the dataset's length. If it differs from these arguments, InvalidArgument says which line to change.
    Values that a DataLoader would refuse also raise InvalidArgument. A DistributedSampler gives rank and world size, and needs `delivery:
    shard`. For samplers other than torch's usual ones, configure the stream's `sampler:`. One RuntimeWarning lists the arguments that have
    no effect, and what replaces them.
    """
    given = dict(locals())
    if batch_sampler is not None:
        raise InvalidArgument("batch_sampler: the server makes batches; set the stream's `batch_size:` and `sampler:` instead")
    if collate_fn is not None and collate_fn is not _default_collate():
        name = getattr(collate_fn, "__name__", None) or repr(collate_fn)
        raise InvalidArgument(f"collate_fn={name}: the server makes batches; use `transform=`, which gets whole batches")
    if batch_size is None:
        raise InvalidArgument("batch_size=None: a stream has batches; set `batch_size: 1` for single samples")
    if isinstance(dataset, str | bytes | os.PathLike):
        raise InvalidArgument(f"dataset={dataset!r}: expected a dataset, found a path; leave it out, and give a server's directory as `address`")
    _check_values(given)
    if timeout:
        loader.setdefault("batch_timeout", timeout)
    if sampler is not None:
        if shuffle:
            raise InvalidArgument("sampler and shuffle=True: give one of them, as to a DataLoader")
        shuffle, rank, drop_last = _sampler(sampler, drop_last)
        if rank.get("world_size", 1) > 1 and "world_size" not in loader:
            _check_divided(stream, rank["world_size"], loader)
        loader = {**rank, **loader}
    loader.setdefault("output", "torch")
    made = Loader(stream=stream, **loader)
    try:
        _compare(made.info, dataset, batch_size, bool(shuffle), drop_last)
    except InvalidArgument:
        made.close()
        raise
    without = [f"{name}={given[name]!r} ({why})" for name, why in DATALOADER_REPLACEMENTS.items() if given[name] != _DEFAULTS.get(name)]
    if getattr(dataset, "transform", None) is not None or getattr(dataset, "transforms", None) is not None:
        without.append("the dataset's transforms (the stream's `transforms:`)")
    if without:
        warn("these arguments of a DataLoader have no effect: " + "; ".join(without))
    return made


def _default_collate() -> Any:
    """torch's default_collate, which makes the same batches as the server; None if torch.utils.data was never imported."""
    return getattr(sys.modules.get("torch.utils.data"), "default_collate", None)


def _check_values(given: dict[str, Any]) -> None:
    """Checks all values as a DataLoader does, so that arguments without effect do not hide a mistake."""
    whole("batch_size", given["batch_size"], 1)
    whole("num_workers", given["num_workers"])
    seconds("timeout", given["timeout"])
    if given["prefetch_factor"] is not None:
        whole("prefetch_factor", given["prefetch_factor"], 1)
    for name in ("drop_last", "pin_memory", "persistent_workers", "in_order"):
        flag(name, given[name])
    if given["shuffle"] is not None:
        flag("shuffle", given["shuffle"])


def _check_divided(stream: str, ranks: int, loader: dict[str, Any]) -> None:
    where = {name: loader[name] for name in ("address", "timeout") if name in loader}
    if any(known.name == stream and known.delivery == "broadcast" for known in streams(**where)):
        raise InvalidArgument(
            f"sampler=DistributedSampler of {ranks} replicas, but stream '{stream}' is broadcast: every rank would get every batch. "
            "Set `delivery: shard`, which divides the epoch"
        )


def _sampler(sampler: Any, drop_last: bool) -> tuple[bool, dict[str, int], bool]:
    """Whether the sampler shuffles, its rank and world size, and whether it drops the last, incomplete batch."""
    from torch.utils.data import RandomSampler, SequentialSampler
    from torch.utils.data.distributed import DistributedSampler

    if isinstance(sampler, DistributedSampler):
        return sampler.shuffle, {"rank": sampler.rank, "world_size": sampler.num_replicas}, drop_last or sampler.drop_last
    if isinstance(sampler, SequentialSampler):
        return False, {}, drop_last
    if isinstance(sampler, RandomSampler) and not sampler.replacement and sampler.num_samples == len(sampler.data_source):
        return True, {}, drop_last
    raise InvalidArgument(
        f"sampler={type(sampler).__name__}: configure the stream's `sampler:` instead, which offers weighted and by-class draws "
        "and subsets"
    )


def _compare(info: StreamInfo, dataset: Any, batch_size: int, shuffle: bool, drop_last: bool) -> None:
    lines = []
    if batch_size != info.batch_size:
        lines.append(f"batch_size={batch_size}: set `batch_size: {batch_size}` (it is {info.batch_size})")
    if shuffle != info.shuffle:
        lines.append(f"shuffle={shuffle}: set `shuffle: {str(shuffle).lower()}` (it is {str(info.shuffle).lower()})")
    if drop_last != (info.last == "drop"):
        lines.append(f"drop_last={drop_last}: set `last: {'drop' if drop_last else 'short'}` (it is {info.last})")
    samples = len(dataset) if hasattr(dataset, "__len__") else info.samples
    if samples != info.samples:
        lines.append(f"the dataset has {samples} samples, the stream {info.samples}: check its `source:`")
    if lines:
        raise InvalidArgument(f"stream '{info.name}' differs from the DataLoader: " + "; ".join(lines))
