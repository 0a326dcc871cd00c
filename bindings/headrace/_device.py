"""Batches in device memory: as torch's own tensors, or through DLPack for other frameworks.

device     the device's name; `device_of` parses what a caller passes
"host"     the CPU backend: the same threads, pools and copies in host memory, for tests without a GPU
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ._arrays import numpy_dtype
from ._headrace import DeviceBatch as RawDeviceBatch
from .batch import Assembler
from .errors import InvalidArgument
from .types import FieldSpec

OUTPUTS = ("numpy", "torch", "jax", "cupy", "dlpack")


def device_of(device: Any) -> str | None:
    """Returns "cuda:N", "host", or None for tensors in host memory. Accepts a name, a number, and the devices of torch, Accelerate and Lightning."""
    if device is None:
        return None
    if isinstance(device, int) and not isinstance(device, bool) and device >= 0:
        return f"cuda:{device}"
    name = str(device)
    if name == "cuda":
        return f"cuda:{_current_device()}"
    if name in ("cpu", "cpu:0"):
        return None
    if name == "host" or (name.startswith("cuda:") and name[5:].isdigit()):
        return name
    raise InvalidArgument(
        f"device={device!r}: use 'cuda:N' or 'cuda' (the current one); 'cpu' or None for tensors in host memory; 'host' for the CPU backend, to test without a GPU"
    )


def _current_device() -> int:
    if importlib.util.find_spec("torch") is None:
        return 0
    import torch

    return torch.cuda.current_device() if torch.cuda.is_available() else 0


def default_output(device: Any, zero_copy: bool) -> str:
    """torch on a device, or if this process has imported torch. With `zero_copy` numpy, because torch has no read-only tensors."""
    return "torch" if device is not None or (sys.modules.get("torch") is not None and not zero_copy) else "numpy"


def output_of(output: str | None, device: Any, zero_copy: bool = False) -> str:
    """The output to use: `output`, or the default. Raises InvalidArgument if it does not fit `device`."""
    name = device_of(device)
    chosen = output or default_output(device, zero_copy)
    if chosen not in OUTPUTS:
        raise InvalidArgument(f"output={output!r}: use {', '.join(map(repr, OUTPUTS))}")
    on_gpu = name is not None and name != "host"
    package = {"torch": "torch", "jax": "jax", "cupy": "cupy"}.get(chosen)
    if package and importlib.util.find_spec(package) is None:
        chose = f"output={chosen!r}" if output else f"device={device!r} without output="
        others = [each for each in ("torch", "jax", "cupy") if each != chosen] if on_gpu else ["numpy"]
        other = " or ".join(f"output={each!r}" for each in others)
        raise InvalidArgument(f"{chose} needs {package}, which is not installed; pip install {package}, or set {other}")
    if chosen == "numpy" and on_gpu:
        raise InvalidArgument(f"output='numpy' with device={device!r}: numpy has no device memory; use 'torch', 'jax', 'cupy' or 'dlpack'")
    if chosen == "cupy" and not on_gpu:
        raise InvalidArgument(f"output='cupy' with device={device!r}: CuPy has no arrays in host memory; use device='cuda:N'")
    if chosen == "jax" and on_gpu:
        _check_jax(device)
    if chosen == "torch" and on_gpu:
        import torch

        if not torch.cuda.is_available():
            raise InvalidArgument(f"device={device!r}: torch sees no CUDA device (torch.cuda.is_available() is False); use device='cpu' for tensors in host memory, or, for a stream with `device: gpu`, device='host'")
    return chosen


def _check_jax(device: Any) -> None:
    import jax  # type: ignore[import-not-found, import-untyped, unused-ignore]

    try:
        jax.devices("cuda")
    except RuntimeError as error:
        raise InvalidArgument(f"device={device!r}: jax sees no CUDA device ({error}); use device=None for arrays in host memory") from None


def importer(output: str) -> Callable[[Any], Any]:
    """The function that converts an object with __dlpack__ to the framework's array."""
    if output == "numpy":
        return np.from_dlpack
    if output == "dlpack":
        return lambda array: array
    module = importlib.import_module({"jax": "jax.dlpack", "cupy": "cupy"}[output])
    made: Callable[[Any], Any] = module.from_dlpack
    return made


class DeviceArray:
    """A field's values in device memory, for the `from_dlpack` of any framework (https://dmlc.github.io/dlpack).

    `from_dlpack` makes the consumer's stream wait for the batch's copy; the host does not wait. That stream must live as long as the
    batch. When the last reference to the batch is gone, its memory is reused after the work that the stream has queued by then."""

    def __init__(self, raw: RawDeviceBatch, inner: Any, shape: tuple[int, ...]) -> None:
        self._raw = raw
        self._inner = inner
        self.shape = shape

    def __dlpack_device__(self) -> tuple[int, int]:
        place: tuple[int, int] = self._inner.__dlpack_device__()
        return place

    def __dlpack__(self, *, stream: int | None = None, **how: Any) -> Any:
        """`stream`: as in the array API for CUDA. None or 1 is the legacy default stream. With -1 no stream waits, but the host does.
        2, the per-thread default stream, is refused: another thread, where it means another stream, may free the memory."""
        if stream == -1:
            self._raw.wait()
        else:
            self._raw.wait_on(1 if stream is None else stream)
        return self._inner.__dlpack__(**how)

    def __repr__(self) -> str:
        return f"headrace.DeviceArray(shape={self.shape}, device={self.__dlpack_device__()})"


class TorchBlocks:
    """Device memory from torch's caching allocator. It is allocated on the stream of the loader's copies, which write it first. That
    stream is created by torch, because the allocator queries it even after the loader is gone."""

    def __init__(self, device: str) -> None:
        import torch

        self._torch = torch
        self._device = torch.device("cpu" if device == "host" else device)
        # A tensor's new_empty() costs half of torch.empty(), which reads its dtype and device from keyword arguments.
        self._new_bytes = torch.empty(0, dtype=torch.uint8, device=self._device).new_empty
        self._stream: Any = None
        if self._device.type == "cuda":
            self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
            # Created once: creating the context costs as much as entering it.
            self._on_stream = torch.cuda.stream(self._stream)
            # Entered before the stream. When torch leaves a stream, it sets the device that was current before, which creates a CUDA context
            # on that device: on the first GPU for each rank. When it leaves a device, it creates no context.
            self._on_device = torch.cuda.device(self._device)
            self._current: tuple[int, Any] = (-1, None)  # the last handle that was handed over to, and its stream
            # Private, but torch's compiler and Triton call it too. torch.cuda.current_stream() creates an object, which costs as much as
            # the rest of next().
            self._handle_of = getattr(torch._C, "_cuda_getCurrentRawStream", lambda index: torch.cuda.current_stream(index).cuda_stream)

    @property
    def copy_stream(self) -> int:
        """The loader's stream for copies; 0 on the CPU backend, which has no streams."""
        return 0 if self._stream is None else int(self._stream.cuda_stream)

    def __call__(self, size: int) -> tuple[Any, int]:
        if self._stream is None:
            block = self._new_bytes(size)
        else:
            with self._on_device, self._on_stream:
                block = self._new_bytes(size)
        return block, block.data_ptr()

    def current_handle(self) -> int | None:
        """CUDA's handle of the stream that the loop computes on. None on the CPU backend."""
        return None if self._stream is None else self._handle_of(self._device.index)

    def hand_over(self, raw: RawDeviceBatch, handle: int | None) -> None:
        """Hands the batch's block over to the current stream, which has this handle. Work that is queued there from now on begins after
        the copy, and the allocator does not reuse the block before that work has finished."""
        if handle is None:
            raw.wait()
        else:
            if handle != self._current[0]:
                self._current = handle, self._torch.cuda.current_stream(self._device)
            raw.wait_on(handle)
            raw.block(True).record_stream(self._current[1])

    def typed(self, name: str) -> Callable[..., Any]:
        """Returns a function that makes a tensor of this dtype over part of a storage, from the storage, an offset in bytes and a shape. With
        `count` the tensor has a first dimension of that size, and `step` is the distance in bytes between its elements. The tensor is not a
        view: views share a version counter, so changing the label in place would invalidate the image for autograd."""
        dtype: Any = getattr(self._torch, name)
        new_empty: Any = self._torch.empty(0, dtype=dtype, device=self._device).new_empty
        size = dtype.itemsize

        def tensor(storage: Any, offset: int, shape: tuple[int, ...], count: int = 0, step: int = 0) -> Any:
            if count == 0:
                return new_empty(0).set_(storage, offset // size, shape)
            strides = [prod(shape[at + 1 :]) for at in range(len(shape))]
            return new_empty(0).set_(storage, offset // size, (count, *shape), (step // size, *strides))

        return tensor

    def outside_inference(self) -> Any:
        return self._torch.inference_mode(False)

    def send(self, array: Any) -> Any:
        return array.to(self._device, non_blocking=True)


class TorchAssembler(Assembler):
    """Several batches of a dataset in GPU memory may share a memory block. When the loop receives the first of them, the tensors of all are
    made at once: this costs little more than those of one batch."""

    def __init__(self, fields: tuple[FieldSpec, ...], form: str, meta: bool, blocks: TorchBlocks) -> None:
        super().__init__(fields, "torch", form, meta)
        # Labels are cloned: a loop that collects labels must not keep whole batches alive.
        self._fields = [(blocks.typed(field.dtype), not field.shape) for field in fields]
        self._offsets = blocks.typed("int64")
        self._blocks = blocks
        self._block: Any = None  # the memory block from which `_parts` was made
        self._handle: int | None = None  # of the stream that the block was handed over to
        self._parts: list[list[Any]] = []  # the values of each batch of the block; [] once the loop has received it

    def _values(self, raw: RawDeviceBatch) -> list[Any]:  # type: ignore[override]
        index, count, size = raw.part()
        handle, block = self._blocks.current_handle(), raw.block(True)
        if count > 1 and block is not self._block:
            self._blocks.hand_over(raw, handle)
            self._parts = self._split(raw, block, count, size)
            self._block, self._handle = block, handle
        if count == 1 or handle != self._handle or not self._parts[index]:
            self._blocks.hand_over(raw, handle)
            return self._one(raw, block, index * size)
        values, self._parts[index] = self._parts[index], []
        if index == count - 1:
            self.forget()
        return values

    def forget(self) -> None:
        self._block, self._parts = None, []

    def _one(self, raw: RawDeviceBatch, block: Any, begin: int) -> list[Any]:
        storage = block.untyped_storage()
        values: list[Any] = []
        for (tensor, is_label), (at, shape, offsets) in zip(self._fields, raw.layout(), strict=True):
            array = tensor(storage, begin + at, shape)
            if offsets is not None:  # only these need rows(), which is computed for a dataset in GPU memory
                array = (array, self._offsets(storage, begin + offsets, (raw.rows() + 1,)))
            elif is_label:
                array = array.clone()
            values.append(array)
        return values

    def _split(self, raw: RawDeviceBatch, block: Any, count: int, size: int) -> list[list[Any]]:
        storage = block.untyped_storage()
        fields: list[list[Any]] = []
        with self._blocks.outside_inference():  # the loop may enter or leave torch's inference mode before the next batch
            for (tensor, is_label), (at, shape, _) in zip(self._fields, raw.layout(), strict=True):
                together = tensor(storage, at, shape, count, size)
                fields.append([part.data for part in (together.clone() if is_label else together)])  # data: no view, see typed()
        return [list(values) for values in zip(*fields, strict=True)]

    def _beside(self, rows: Any) -> Any:
        return self._blocks.send(rows)


class ArrayAssembler(Assembler):
    """For frameworks that import arrays through DLPack."""

    def __init__(self, fields: tuple[FieldSpec, ...], output: str, form: str, meta: bool, device: str) -> None:
        super().__init__(fields, "numpy", form, meta)
        self._import = importer(output)
        # numpy has no bfloat16: it gets the bits, as without a device.
        self._as_bits = [output == "numpy" and field.dtype == "bfloat16" for field in fields]
        self._device = device
        # XLA does not expose the streams that it computes on. So on a GPU jax gets copies, and the batch is kept until they are ready.
        self._copies = output == "jax" and device != "host"
        self._copied: list[tuple[Any, Any]] = []

    def _values(self, raw: RawDeviceBatch) -> list[Any]:  # type: ignore[override]
        def array(field: int, offsets: bool, shape: tuple[int, ...]) -> Any:
            bits = self._as_bits[field] and not offsets
            taken = self._import(DeviceArray(raw, raw.array(field, offsets, self._device, bits), shape))
            if bits:
                taken = taken.view(numpy_dtype("bfloat16"))
            return self._copy(taken) if self._copies else taken

        values: list[Any] = []
        for field, (_, shape, offsets) in enumerate(raw.layout()):
            made = array(field, False, shape)
            values.append(made if offsets is None else (made, array(field, True, (raw.rows() + 1,))))
        return values

    def _copy(self, taken: Any) -> Any:
        import jax.numpy  # type: ignore[import-not-found, unused-ignore]

        self._copied = [pair for pair in self._copied if not pair[0].is_ready()]
        copy = jax.numpy.array(taken, copy=True)
        self._copied.append((copy, taken))
        return copy
