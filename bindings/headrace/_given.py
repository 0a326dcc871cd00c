"""Arrays and tensors that callers give, as numpy arrays. Numpy has no bfloat16: of those, their bits."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .errors import InvalidArgument

DTYPES = ("uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "bool")


def is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")  # where nobody has imported it there are no tensors
    return torch is not None and isinstance(value, torch.Tensor)


def array_given(value: Any, from_devices: bool) -> tuple[str, np.ndarray[Any, Any]] | None:
    """Its dtype's name, which need not be one of DTYPES, and its values, not copied (uint16: bfloat16's bits). None for what is
    neither array nor tensor. A tensor on a device is copied to main memory, or refused: InvalidArgument."""
    if is_tensor(value):
        tensor = value.detach()
        if tensor.device.type != "cpu" and not from_devices:
            raise InvalidArgument(f"a tensor on {tensor.device}: share batches in main memory")
        tensor, name = tensor.cpu(), str(tensor.dtype).removeprefix("torch.")
        if name != "bfloat16":
            return name, tensor.numpy()
        return name, tensor.view(sys.modules["torch"].int16).numpy().view(np.uint16)
    if not isinstance(value, np.ndarray | np.generic):
        return None
    array = np.asarray(value)
    return array.dtype.name, array.view(np.uint16) if array.dtype.name == "bfloat16" else array
