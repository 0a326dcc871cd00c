"""Divides a batch between several devices of one process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from .batch import META, DictBatch, TupleBatch
from .errors import InvalidArgument

Batch = TypeVar("Batch", TupleBatch, DictBatch)


def scatter(batch: Batch, devices: int | Sequence[Any]) -> list[Batch]:
    """Cuts a batch into one part per device, in the order of its rows. The parts' sizes differ by one row at most.

    devices   the number of parts, or the torch devices to copy them to (which needs output="torch"). The host waits for copies from memory
              that is not pinned, as everywhere in torch

    A part is a batch of the same kind, with its own `valid`, `sample_index` and `replaced`. Parts that stay on the host are views of the
    batch, not copies. A ragged field's offsets begin at 0 in each part. If there are fewer rows than devices, some parts have no rows. To
    use one loader per device instead, set `delivery: shard`, and give each loader `rank=i, world_size=n`.
    """
    targets: Sequence[Any] = (
        [None] * devices if isinstance(devices, int) and not isinstance(devices, bool) else _listed(devices)
    )
    if not targets:
        raise InvalidArgument(f"devices={devices!r}: expected at least one")
    if not isinstance(batch, TupleBatch | DictBatch):
        raise InvalidArgument(f"batch: expected a batch of a headrace.Loader, found {type(batch).__name__}")
    rows = len(batch.valid)
    bounds = [rows * part // len(targets) for part in range(len(targets) + 1)]
    return [_part(batch, bounds[i], bounds[i + 1], device) for i, device in enumerate(targets)]


def _listed(devices: Any) -> Sequence[Any]:
    if isinstance(devices, str | bytes | bool) or not isinstance(devices, Sequence):
        raise InvalidArgument(f"devices={devices!r}: expected a number of parts, or a list of torch devices")
    return devices


def _part(batch: Batch, begin: int, end: int, device: Any) -> Batch:
    def sent(array: Any) -> Any:
        if device is None:
            return array
        if not hasattr(array, "to"):
            raise InvalidArgument(
                f"device {device!r}: numpy arrays cannot be copied to a device; use output='torch', or a number of parts"
            )
        return array.to(device, non_blocking=True)

    def cut(value: Any) -> Any:
        if isinstance(value, tuple):  # ragged
            values, offsets = value
            first, last = int(offsets[begin]), int(offsets[end])
            return sent(values[first:last]), sent(offsets[begin : end + 1] - offsets[begin])
        if isinstance(value, dict):  # meta=True
            return {name: cut(array) for name, array in value.items()}
        return sent(value[begin:end])

    part: Any
    if isinstance(batch, TupleBatch):
        part = TupleBatch([cut(value) for value in batch])
    else:
        part = DictBatch((name, cut(value)) for name, value in batch.items())
    for name in META:
        setattr(part, name, cut(getattr(batch, name)))
    part.epoch, part.number, part.private_copy = batch.epoch, batch.number, batch.private_copy
    return part  # type: ignore[no-any-return]
