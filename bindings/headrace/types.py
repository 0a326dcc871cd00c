"""A server's description of its streams and samples."""

from __future__ import annotations

import dataclasses
import json
import reprlib
from dataclasses import dataclass
from typing import Any

from ._arrays import array_of


@dataclass(frozen=True)
class FieldSpec:
    """One named field of a batch. `shape` is the shape of one row, or of one value if the field is ragged."""

    name: str
    dtype: str
    ragged: bool
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Fingerprint:
    """Streams with equal fingerprints deliver the same samples."""

    dataset: str
    plan: str
    seed: str
    algorithm: str


@dataclass(frozen=True)
class StreamInfo:
    """A server's description of a stream.

    delivery   "shard" or "broadcast"
    samples    per epoch
    last       "short", "pad" or "drop": how the last, incomplete batch of an epoch is handled
    live       another process makes each batch once (`headrace.share`), so a loader cannot go back or resume
    on_device  fields that the loader's device computes (`device: gpu` in the configuration)
    residence  "gpu" if a loader with a device uploads the dataset to it once and computes batches there
    """

    name: str
    delivery: str
    samples: int
    batch_size: int
    last: str
    shuffle: bool
    fields: tuple[FieldSpec, ...]
    classes: tuple[str, ...]
    fingerprint: Fingerprint
    live: bool
    on_device: tuple[str, ...]
    residence: str | None

    def __repr__(self) -> str:
        """As of a dataclass, with a long list of classes shortened."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        shown = {name: reprlib.repr(value) if name == "classes" else repr(value) for name, value in values.items()}
        return f"StreamInfo({', '.join(f'{name}={value}' for name, value in shown.items())})"

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> StreamInfo:
        return cls(
            **{
                **values,
                "fields": tuple(FieldSpec(**field) for field in values["fields"]),
                "classes": tuple(values["classes"]),
                "on_device": tuple(values["on_device"]),
                "fingerprint": Fingerprint(**values["fingerprint"]),
            }
        )


@dataclass(frozen=True)
class Sample:
    """One sample as trainers receive it. `parameters` lists what was drawn for each transform; if the sample has several images, it is a
    dict with such a list for each image field."""

    sample_index: int
    name: str
    replaced: bool
    label: int
    parameters: list[dict[str, Any]] | dict[str, list[dict[str, Any]]]
    fields: dict[str, Any]

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Sample:
        fields: dict[str, Any] = {}
        at = 0
        for entry in values["fields"]:
            spec = FieldSpec(**entry)
            fields[spec.name], at = array_of(values["bytes"], at, spec.dtype, spec.shape)
        return cls(
            sample_index=values["sample_index"],
            name=values["name"],
            replaced=values["replaced"],
            label=values["label"],
            parameters=json.loads(values["parameters"]),
            fields=fields,
        )
