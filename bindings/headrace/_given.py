"""Converts arrays and tensors from callers to numpy arrays. bfloat16, which numpy does not have, becomes its bits as uint16."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .errors import InvalidArgument

DTYPES = ("uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "bool")


def is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")  # if it was never imported, there are no tensors
    return torch is not None and isinstance(value, torch.Tensor)


def array_given(value: Any, from_devices: bool) -> tuple[str, np.ndarray[Any, Any]] | None:
    """Returns the dtype's name, which may be one that is not in DTYPES, and the values, without a copy. None if `value` is neither an array
    nor a tensor. A tensor on a device is copied to host memory if `from_devices`, else refused with InvalidArgument."""
    if is_tensor(value):
        tensor = value.detach()
        if tensor.device.type != "cpu" and not from_devices:
            raise InvalidArgument(f"a tensor on {tensor.device}: share batches in host memory")
        tensor, name = tensor.cpu(), str(tensor.dtype).removeprefix("torch.")
        if name != "bfloat16":
            return name, tensor.numpy()
        return name, tensor.view(sys.modules["torch"].int16).numpy().view(np.uint16)
    if not isinstance(value, np.ndarray | np.generic):
        return None
    array = np.asarray(value)
    return array.dtype.name, array.view(np.uint16) if array.dtype.name == "bfloat16" else array
