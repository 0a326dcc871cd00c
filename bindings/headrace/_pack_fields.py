"""Describes a sample's entries as fields of a packed set, and encodes their values."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from ._given import DTYPES, array_given, is_tensor
from .errors import InvalidArgument

_SPELLING = re.compile(
    r"(?P<image>image|mask|file)(?: x(?P<scale>[1-9]\d*))?|(?P<plain>label|text|bytes)|"
    rf"(?P<ragged>ragged )?(?P<dtype>{'|'.join(DTYPES)})(?: ?\((?P<shape>[\d, ]*)\))?"
)
_SPELLINGS = "image, mask, file (each perhaps with x4, its scale), label, text, bytes, float32 (3, 4), ragged float32 (4,)"


class Misfit(Exception):
    """A value that does not fit its field. Messages put "field `name`" in front of its text."""


class Missing(Misfit):
    """A value that is None."""


@dataclass(frozen=True)
class Field:
    key: Any  # key of the entry in a sample; None: the sample itself is the value
    name: str
    kind: str  # image, mask, file, label, text, bytes, values, ragged
    dtype: str = "uint8"
    shape: tuple[int, ...] = ()
    channels: int = 3
    scale: int = 1
    given: bool = False  # the caller gave the dtype: then values are converted to it

    def described(self) -> dict[str, Any]:
        """The description for `headrace pack`, which stores the label separately."""
        content = {"image": "pixels", "mask": "pixels", "file": "encoded_image", "values": "values"}.get(self.kind, "ragged")
        return {
            "name": self.name,
            "content": content,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "channels": 1 if self.kind == "mask" else self.channels,
            "scale": self.scale,
            "mask": self.kind == "mask",
        }

    def __str__(self) -> str:
        if self.kind in ("values", "ragged"):
            return f"{'ragged ' if self.kind == 'ragged' else ''}{self.dtype} {self.shape}"
        return self.kind

    def encode(self, value: Any) -> tuple[Any, int, int]:
        """Returns the value's bytes, height and width (0 unless they are pixels)."""
        if self.kind in ("image", "mask"):
            pixels = _mask(value) if self.kind == "mask" else _image(value, self.channels)
            return pixels.data.cast("B"), pixels.shape[0], pixels.shape[1]
        if self.kind in ("file", "bytes"):
            if not isinstance(value, bytes | bytearray | memoryview):
                raise Misfit(f"is {type(value).__name__}, expected bytes")
            if self.kind == "bytes" and not self.given and _is_image_file(value):
                raise Misfit(
                    "begins like a JPEG or PNG file, but the first sample does not: repair or remove the first sample, "
                    f"or say what they are: fields={{{self.name!r}: 'file'}}, or 'bytes'"
                )
            return bytes(value), 0, 0
        if self.kind == "text":
            if not isinstance(value, str):
                raise Misfit(f"is {type(value).__name__}, expected str")
            return value.encode(), 0, 0
        array = self._values(value)
        return np.ascontiguousarray(array).tobytes(), 0, 0

    def _values(self, value: Any) -> np.ndarray[Any, Any]:
        name, array = _array(value)
        if self.kind == "ragged" and array.size == 0:
            array = array.reshape(0, *self.shape)
        if not (array.ndim > 0 and array.shape[1:] == self.shape if self.kind == "ragged" else array.shape == self.shape):
            raise Misfit(self._other_shape(array.shape))
        if name == self.dtype:
            return array
        if not self.given or "bfloat16" in (name, self.dtype):
            raise Misfit(f"is {name}, expected {self.dtype}")
        to = np.dtype(self.dtype)
        whole = array.dtype.kind in "iu" and to.kind in "iu"
        if not (whole or array.size == 0 or np.can_cast(array.dtype, to, "same_kind")):
            raise Misfit(f"is {name}, expected {self.dtype}")
        with np.errstate(over="ignore", invalid="ignore"):
            converted = array.astype(to)
            held = _held(array, converted)
        if not held.all():
            raise Misfit(f"has values that {self.dtype} cannot hold, such as {array[~held].flat[0]}")
        return converted

    def _other_shape(self, shape: tuple[int, ...]) -> str:
        if self.kind == "ragged":
            return f"has shape {shape}, expected {('any', *self.shape)}".replace("'any'", "any")
        what = f"has shape {shape}, expected {self.shape}"
        if not self.given and len(shape) == len(self.shape) > 0:
            spelling = f"ragged {self.dtype} {self.shape[1:]}"
            what += f" as in the first sample; if samples differ in length: fields={{{self.name!r}: {spelling!r}}}"
        return what

    def label(self, value: Any, classes: int) -> int:
        """Returns the class. `classes`: the number of classes; 0 if unknown."""
        name, array = _array(value)
        if array.size != 1 or not _integers(name, array):
            raise Misfit(f"is {name} {array.shape}, expected one integer (the class)")
        number = int(array.reshape(()))
        if number < 0 or (classes and number >= classes):
            raise Misfit(f"is {number}, expected a class from 0 to {classes - 1}" if classes else f"is {number}, expected a class of 0 or more")
        return number


def _held(array: np.ndarray[Any, Any], converted: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """For each value, whether the conversion kept it. Whole numbers must be exact; others may be rounded."""
    if array.dtype.kind not in "iu":
        return np.asarray(np.isfinite(converted) | ~np.isfinite(array))
    if converted.dtype.kind != "f":
        return np.asarray(converted == array)
    above = float(np.iinfo(array.dtype).max) + 1  # converting these back is undefined
    return np.asarray((converted.astype(np.float64) < above) & (converted.astype(array.dtype) == array))


def _is_image_file(value: bytes | bytearray | memoryview) -> bool:
    return bytes(value[:3]) == b"\xff\xd8\xff" or bytes(value[:8]) == b"\x89PNG\r\n\x1a\n"


def _picture(value: Any) -> bool:
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(value, module.Image)


def _array(value: Any) -> tuple[str, np.ndarray[Any, Any]]:
    """Returns the dtype's name and the values; for bfloat16 their bits."""
    given = array_given(value, from_devices=True)
    if given is None:
        if not isinstance(value, int | float | list | tuple):
            raise Misfit(f"is {type(value).__name__}, expected a number, array, image, str or bytes")
        try:
            numbers = np.asarray(value)
        except (ValueError, TypeError, OverflowError) as error:
            raise Misfit(f"cannot be made an array: {error}") from None
        given = numbers.dtype.name, numbers
    name, array = given
    if name not in DTYPES:
        raise Misfit(f"is {name}, expected one of {', '.join(DTYPES)}")
    return name, array.astype(array.dtype.newbyteorder("="), copy=False)


def _integers(name: str, array: np.ndarray[Any, Any]) -> bool:
    return array.dtype.kind in "iu" and name != "bfloat16"


def _picture_array(picture: Any) -> np.ndarray[Any, Any]:
    if picture.mode in ("I", "F") or picture.mode.startswith("I;"):
        raise Misfit(f"is an image of mode {picture.mode}, expected 8-bit pixels: give its array as values")
    if picture.mode not in ("L", "RGB"):
        picture = picture.convert("L" if picture.mode == "1" else "RGB")
    return np.asarray(picture)


def _planes(value: Any) -> np.ndarray[Any, Any]:
    """The pixels of an image as H x W or H x W x C."""
    if _picture(value):
        return _picture_array(value)
    name, array = _array(value)
    if is_tensor(value) and array.ndim == 3:
        array = array.transpose(1, 2, 0)
    if name != "uint8" or not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (1, 3))) or not array.size:
        layout = "C x H x W" if is_tensor(value) else "H x W x C"
        raise Misfit(f"is {name} {array.shape}, expected an image: uint8 of H x W, or {layout} with C = 1 or 3")
    return array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array


def _image(value: Any, channels: int) -> np.ndarray[Any, Any]:
    pixels = _planes(value)
    if pixels.ndim == 3 and channels == 1:
        raise Misfit(f"is an image of 3 channels, {pixels.shape}, expected 1 as in the first sample: convert all to RGB")
    if pixels.ndim == 2 and channels == 3:  # as PIL's convert("RGB")
        pixels = np.repeat(pixels[:, :, None], 3, axis=2)
    return np.ascontiguousarray(pixels)


def _mask(value: Any) -> np.ndarray[Any, Any]:
    if _picture(value) and value.mode not in ("P", "L", "1"):
        raise Misfit(f"is an image of mode {value.mode}, expected a mask of mode P or L")
    name, array = _array(np.asarray(value) if _picture(value) else value)
    if array.ndim == 3 and 1 in (array.shape[0], array.shape[2]):
        array = array.reshape(array.shape[1:] if array.shape[0] == 1 else array.shape[:2])
    if array.ndim != 2 or not (name == "bool" or _integers(name, array)) or not array.size:
        raise Misfit(f"is {name} {array.shape}, expected a mask: H x W of integers")
    if array.dtype != np.uint8 and (array.min() < 0 or array.max() > 255):
        raise Misfit(f"has classes from {array.min()} to {array.max()}, expected 0 to 255 in a mask")
    return np.ascontiguousarray(array, np.uint8)


def entries(sample: Any) -> dict[Any, Any]:
    """A sample's values by key or index. A sample that is not a container has the key None."""
    if isinstance(sample, Mapping):
        return dict(sample)
    if isinstance(sample, tuple) and hasattr(sample, "_asdict"):
        return dict(sample._asdict())
    return dict(enumerate(sample)) if isinstance(sample, tuple | list) else {None: sample}


def _given(key: Any, name: str, spelling: Any, value: Any) -> Field:
    found = _SPELLING.fullmatch(spelling) if isinstance(spelling, str) else None
    if found is None:
        raise InvalidArgument(f"fields[{name!r}]={spelling!r}: expected one of: {_SPELLINGS}; None omits the field")
    if found["image"]:
        field = Field(key, name, found["image"], scale=int(found["scale"] or 1), given=True)
        return replace(field, channels=1 if _planes(value).ndim == 2 else 3) if field.kind == "image" else field
    if found["plain"]:
        return Field(key, name, found["plain"], given=True)
    shape = tuple(int(part) for part in (found["shape"] or "").split(",") if part.strip())
    if prod(shape) == 0:
        raise InvalidArgument(f"fields[{name!r}]={spelling!r}: a shape must not contain 0")
    return Field(key, name, "ragged" if found["ragged"] else "values", found["dtype"], shape, given=True)


def _inferred(key: Any, name: str, value: Any) -> Field:
    if isinstance(value, bytes | bytearray):
        return Field(key, name, "file" if _is_image_file(value) else "bytes")
    if isinstance(value, str):
        return Field(key, name, "text")
    if name == "mask" and (_picture(value) or getattr(value, "ndim", 0) == 2):
        return Field(key, name, "mask")
    try:
        return Field(key, name, "image", channels=1 if _planes(value).ndim == 2 else 3)
    except Misfit:
        if _picture(value):
            raise
    dtype, array = _array(value)
    if array.size == 0:
        raise Misfit("is empty in the first sample, so its kind is unknown: give `fields`")
    return Field(key, name, "values", dtype, array.shape)


def _integer(value: Any) -> bool:
    try:
        name, array = _array(value)
    except Misfit:
        return False
    return array.ndim == 0 and _integers(name, array)


def fields_of(sample: Any, spellings: Mapping[Any, Any] | None) -> list[Field]:
    """The fields of a dataset, from its first sample and `spellings` (by key, or in order for a tuple). Raises Misfit or
    InvalidArgument."""
    parts = entries(sample)
    by_order = None in parts or set(parts) == set(range(len(parts)))
    if spellings is not None:
        if by_order and len(spellings) != len(parts):
            have = f"has {len(spellings)} entries, expected {len(parts)} as in a sample"
            raise InvalidArgument(f"fields={dict(spellings)!r} {have}; None omits one")
        missing = [] if by_order else [key for key in spellings if key not in parts]
        if missing:
            raise InvalidArgument(f"fields names {missing[0]!r}, but the first sample has {', '.join(map(repr, parts))}")
        named = list(zip(parts, spellings, strict=True)) if by_order else [(key, key) for key in spellings]
    else:
        named = [(key, key if not by_order else None) for key in parts]
    whole = [key for key in parts if _integer(parts[key])]
    out: list[Field] = []
    for key, name in named:
        spelling = None if spellings is None else spellings[name]
        if spellings is not None and spelling is None:
            continue
        text = re.sub("[^a-z0-9_]", "_", str(name).lower())
        try:
            if spelling is not None:
                out.append(_given(key, text, spelling, parts[key]))
            elif key in whole and (name == "label" or (name is None and len(whole) == 1 and len(parts) > 1)):
                out.append(Field(key, "label", "label"))
            else:
                field = _inferred(key, text, parts[key])
                images = sum(other.kind in ("image", "file") for other in out)
                if name is None:
                    again = f"_{images + 1}" if images else ""
                    field = replace(field, name=f"image{again}" if field.kind in ("image", "file") else f"field_{len(out)}")
                out.append(field)
        except Misfit as error:
            raise Misfit(str(error) if key is None else f"field `{name if name is not None else key}` {error}") from None
    if sum(field.kind == "label" for field in out) > 1 or all(field.kind == "label" for field in out):
        raise InvalidArgument("expected at most one label and at least one other field in a sample")
    return out
