"""Loaders with a device, on the CPU backend: the arrays of batches, the ownership of their memory, and refused arguments."""

from __future__ import annotations

import gc
import importlib.util
import pickle
import threading
import time
import weakref
from types import SimpleNamespace
from typing import Any

import headrace
import numpy as np
import pytest
import torch
from headrace import _device
from headrace.errors import InvalidArgument
from running import wait_until

DTYPES = ["uint8", "float32", "float16", "bfloat16"]


def same(one: Any, other: Any) -> None:
    assert torch.equal(torch.as_tensor(np.asarray(one)), torch.as_tensor(np.asarray(other)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch_size", [8, 1])
def test_tensors_on_a_device_equal_those_of_the_host(
    start_server: Any, quiet_config: dict[str, Any], dtype: str, batch_size: int
) -> None:
    quiet_config["streams"]["train"] |= {"output": {"dtype": dtype}, "batch_size": batch_size}
    address = start_server(quiet_config).address
    with (
        headrace.Loader(address, stream="train", output="torch", batch="dict", meta=True) as host,
        headrace.Loader(address, stream="train", device="host", batch="dict", meta=True) as device,
    ):
        for _ in range(2):
            for on_device, on_host in zip(device, host, strict=True):
                assert list(on_device) == list(on_host) == ["image", "label", "valid", "sample_index", "replaced"]
                for name in on_host:
                    assert isinstance(on_device[name], torch.Tensor)
                    assert on_device[name].dtype == on_host[name].dtype
                    assert torch.equal(on_device[name], on_host[name]), name
                assert (on_device.epoch, on_device.number, on_device.private_copy) == (on_host.epoch, on_host.number, True)


def test_a_short_last_batch_is_short_on_the_device(start_server: Any, quiet_config: dict[str, Any]) -> None:
    with headrace.Loader(start_server(quiet_config).address, stream="train", device="host") as loader:
        sizes = [(image.shape, label.shape) for image, label in loader]
    assert sizes == [((8, 3, 32, 32), (8,))] * 7 + [((4, 3, 32, 32), (4,))]


def test_kept_batches_are_never_overwritten(start_server: Any, quiet_config: dict[str, Any]) -> None:
    address = start_server(quiet_config).address
    with headrace.Loader(address, stream="train", output="torch") as host:
        expected = [image.clone() for image, _ in host]
    with headrace.Loader(address, stream="train", device="host") as loader:
        kept = [image for image, _ in loader]
        for image in loader:
            image[0].zero_()
    for image, right in zip(kept, expected, strict=True):
        assert torch.equal(image, right)


def test_memory_returns_to_its_allocator_when_the_last_reference_is_dropped(
    start_server: Any, quiet_config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks: list[weakref.ref[Any]] = []
    allocate = _device.TorchBlocks.__call__

    def counted(self: _device.TorchBlocks, size: int) -> tuple[Any, int]:
        block, address = allocate(self, size)
        blocks.append(weakref.ref(block))
        return block, address

    monkeypatch.setattr(_device.TorchBlocks, "__call__", counted)
    with headrace.Loader(start_server(quiet_config).address, stream="train", device="host") as loader:
        for _ in range(3):
            for batch in loader:
                assert batch[0].dtype == torch.uint8
                assert sum(block() is not None for block in blocks) <= 6, "prefetched batches, the current one, and one that a thread is releasing"
    del batch
    gc.collect()
    wait_until(lambda: not any(block() for block in blocks), "all blocks to be released")
    assert len(blocks) >= 12


@pytest.mark.parametrize("output", ["numpy", "dlpack", "jax"])
def test_other_frameworks_import_batches_through_dlpack(start_server: Any, quiet_config: dict[str, Any], output: str) -> None:
    address = start_server(quiet_config).address
    with headrace.Loader(address, stream="train") as plain:
        expected = [[np.array(field) for field in batch] for batch in plain]
    for device in ("host", None):
        with headrace.Loader(address, stream="train", device=device, output=output) as loader:
            kept = list(loader)
        for batch, right in zip(kept, expected, strict=True):
            for array, values in zip(batch, right, strict=True):
                imported = np.from_dlpack(array) if output == "dlpack" else np.asarray(array)
                assert tuple(array.shape) == values.shape
                np.testing.assert_array_equal(imported, values)
            if output == "jax":
                import jax

                assert all(isinstance(array, jax.Array) for array in batch)
            if output == "dlpack" and device:
                assert all(torch.equal(torch.from_dlpack(array), torch.as_tensor(values)) for array, values in zip(batch, right, strict=True))
                assert repr(batch[0]) == f"headrace.DeviceArray(shape={values_shape(batch[0])}, device=(1, 0))"


@pytest.mark.parametrize("stream", [{"device": "gpu"}, {"residence": "gpu"}, {}])
def test_numpy_gets_bfloat16_as_it_does_without_a_device(start_server: Any, quiet_config: dict[str, Any], stream: dict[str, str]) -> None:
    config = quiet_config | {"streams": {"train": quiet_config["streams"]["train"] | {"transforms": [{"center_crop": {"size": 8}}], "output": {"dtype": "bfloat16"}}}}
    with headrace.Loader(start_server(config).address, stream="train") as plain:
        expected = [image.copy() for image, _ in plain]
    config["streams"]["train"] |= stream
    with headrace.Loader(start_server(config).address, stream="train", device="host", output="numpy") as loader:
        for image, right in zip([image for image, _ in loader], expected, strict=True):
            assert image.dtype == right.dtype
            np.testing.assert_array_equal(image, right)


def values_shape(array: headrace.DeviceArray) -> tuple[int, ...]:
    return tuple(np.from_dlpack(array).shape)


@pytest.mark.parametrize("output", ["torch", "numpy", "jax", "dlpack"])
def test_ragged_fields_on_a_device_have_the_shared_values(output: str) -> None:
    texts = [["one", "", "three"], ["many words", "x", ""]]
    with headrace.share([{"text": text} for text in texts], "texts", ragged={"text": 30}, epochs=1) as share:
        with headrace.Loader(share.address, stream="texts", device="host", output=output) as loader:
            seen = [tuple(np.from_dlpack(part) if output == "dlpack" else np.asarray(part) for part in batch[0]) for batch in loader]
    for (values, offsets), text in zip(seen, texts, strict=True):
        assert (values.dtype, offsets.dtype) == (np.uint8, np.int32 if output == "jax" else np.int64)  # JAX's own default
        assert [bytes(values[begin:end]).decode() for begin, end in zip(offsets, offsets[1:], strict=False)] == text


def test_device_cpu_is_the_same_as_no_device(start_server: Any, quiet_config: dict[str, Any]) -> None:
    for device in ("cpu", "cpu:0", torch.device("cpu")):
        with headrace.Loader(start_server(quiet_config).address, stream="train", device=device) as loader:
            image, label = next(iter(loader))
            assert isinstance(image, torch.Tensor)
            assert isinstance(label, torch.Tensor)


def test_a_transform_sees_each_batch_and_the_loop_gets_what_it_returns(start_server: Any, quiet_config: dict[str, Any]) -> None:
    def halves(batch: Any) -> tuple[Any, list[int]]:
        return batch[0].float() / 2, batch.sample_index.tolist()

    for device in ("host", None):
        with headrace.Loader(start_server(quiet_config).address, stream="train", output="torch", device=device, transform=halves) as loader:
            seen = [index for image, indices in loader for index in indices if image.dtype == torch.float32]
        assert sorted(seen) == list(range(60))


def test_a_transform_that_raises_stop_iteration_does_not_end_the_epoch(start_server: Any, quiet_config: dict[str, Any]) -> None:
    with headrace.Loader(start_server(quiet_config).address, stream="train", transform=lambda batch: next(iter(()))) as loader:
        with pytest.raises(RuntimeError, match="transform raised StopIteration"):
            list(loader)


def test_a_transform_that_returns_none_does_not_end_the_epoch(start_server: Any, quiet_config: dict[str, Any]) -> None:
    with headrace.Loader(start_server(quiet_config).address, stream="train", transform=lambda batch: None) as loader:
        assert list(loader) == [None] * 8


def test_writing_to_one_field_does_not_invalidate_another_for_autograd(start_server: Any, quiet_config: dict[str, Any]) -> None:
    quiet_config["streams"]["train"]["output"] = {"dtype": "float32"}
    with headrace.Loader(start_server(quiet_config).address, stream="train", device="host") as loader:
        image, label = next(iter(loader))
        weights = torch.ones(32, requires_grad=True)
        out = image @ weights
        label[label == 2] = -100
        image_sum = image.sum(dim=(0, 1, 2))
        out.sum().backward()
        assert weights.grad is not None
        assert torch.allclose(weights.grad, image_sum)


def test_kept_labels_do_not_keep_images_in_memory(start_server: Any, quiet_config: dict[str, Any]) -> None:
    with headrace.Loader(start_server(quiet_config).address, stream="train", device="host") as loader:
        labels = [label for _, label in loader]
    assert sum(label.untyped_storage().nbytes() for label in labels) == 60 * 8


@pytest.mark.parametrize("device", ["host", None])
def test_a_transform_that_raises_loses_no_batch(start_server: Any, quiet_config: dict[str, Any], device: str | None) -> None:
    failing = True

    def once(batch: Any) -> Any:
        if failing and batch.number == 2:
            raise ValueError("not this one")
        return batch

    with headrace.Loader(start_server(quiet_config).address, stream="train", device=device, transform=once) as loader:
        seen = []
        with pytest.raises(ValueError, match="not this one"):
            for batch in loader:
                seen.append(batch.number)
        assert loader.state_dict()["cursor"]["batch"] == 2
        failing = False
        seen += [batch.number for batch in loader]
    assert seen == list(range(8))


def test_invalid_arguments_are_refused_with_the_valid_ones(start_server: Any, quiet_config: dict[str, Any]) -> None:
    address = start_server(quiet_config).address
    refused: list[tuple[dict[str, Any], str]] = [
        ({"device": "tpu"}, "device='tpu': use 'cuda:N'"),
        ({"device": "cuda:x"}, "device='cuda:x': use 'cuda:N'"),
        ({"device": "cpu:1"}, "device='cpu:1': .*'cpu' or None for tensors in host memory; 'host' for the CPU backend"),
        ({"device": -1}, "device=-1: use"),
        ({"device": "cuda:0", "output": "numpy"}, "numpy has no device memory"),
        ({"device": "host", "zero_copy": True, "output": "numpy"}, "zero_copy=True with device='host'"),
        ({"prefetch": 0}, "prefetch=0: expected 1"),
        ({"transform": 7}, "transform=7: expected a function"),
        ({"output": "tensorflow"}, "output='tensorflow': use 'numpy', 'torch'"),
    ]
    if not torch.cuda.is_available():
        refused += [({"device": name}, "torch sees no CUDA device") for name in ("cuda", "cuda:0", 0)]
        refused += [({"device": "cuda:0", "output": "dlpack"}, 'device "cuda:0" (cannot be used .does nvidia-smi show it|does not exist: this process sees 0)')]
    for arguments, message in refused:
        with pytest.raises((InvalidArgument, headrace.Error), match=message):
            headrace.Loader(address, stream="train", **arguments)


def test_a_pickled_loader_opens_again_with_the_same_arguments(start_server: Any, quiet_config: dict[str, Any]) -> None:
    with headrace.Loader(start_server(quiet_config).address, stream="train", device="host") as loader:
        first = next(iter(loader))[0]
        with pickle.loads(pickle.dumps(loader)) as copy:
            assert torch.equal(next(iter(copy))[0], first)


def test_the_server_counts_waits_of_the_loop_and_not_of_prefetching(start_server: Any, quiet_config: dict[str, Any]) -> None:
    address = start_server(quiet_config).address
    with headrace.Loader(address, stream="train", device="host", client="gpu") as loader:
        for _ in loader:
            time.sleep(0.02)
        next(iter(loader))
        (client,) = headrace.stats(address)["streams"]["train"]["clients"]
        assert client["wait_seconds"] <= loader.waited + 0.001


class FakeDevices:
    """Replaces the torch.cuda functions that torch's context managers call. It records the current device, and the devices with a CUDA context."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.current, self.contexts = 0, set[int]()
        self.streams: dict[int, Any] = {device: self.stream(device) for device in range(2)}
        changed = {"is_available": lambda: True, "current_device": lambda: self.current, "Stream": lambda device: self.stream(device.index, 7)}
        changed |= {"current_stream": lambda device=None: self.streams[self.current if device is None else device.index]}
        changed |= {"set_stream": self.set_stream, "_exchange_device": self.exchange, "_maybe_exchange_device": self.maybe_exchange}
        for name, call in changed.items():
            monkeypatch.setattr(torch.cuda, name, call)

    @staticmethod
    def stream(device: int, handle: int = 0) -> Any:
        return SimpleNamespace(device=torch.device("cuda", device), cuda_stream=handle)

    def exchange(self, device: int) -> int:
        before, self.current = self.current, device
        self.contexts.add(device)
        return before

    def maybe_exchange(self, device: int) -> int:
        before, self.current = self.current, device  # creates no context on a device that has none
        return before

    def set_stream(self, stream: Any) -> None:
        if stream.device.index != self.current:
            self.exchange(stream.device.index)
        self.streams[stream.device.index] = stream

    def empty(self, size: int, dtype: torch.dtype, device: torch.device) -> Any:
        assert size == 0, "torch.empty may only create the empty tensor whose new_empty() allocates blocks"
        self.contexts.add(device.index)
        return SimpleNamespace(new_empty=lambda size: self.allocate(size, dtype, device))

    def allocate(self, size: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        assert (self.current, self.streams[1].cuda_stream) == (1, 7), "blocks must be allocated on the stream of the copies"
        self.contexts.add(device.index)
        return torch.zeros(size, dtype=dtype)


def test_blocks_create_no_context_on_the_threads_current_device(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeDevices(monkeypatch)
    monkeypatch.setattr(torch, "empty", fake.empty)
    blocks = _device.TorchBlocks("cuda:1")
    for _ in range(3):
        assert blocks(100)[0].numel() == 100
        assert (fake.current, fake.contexts) == (0, {1})
        assert [stream.cuda_stream for stream in fake.streams.values()] == [0, 0]


@pytest.mark.parametrize("older_torch", [False, True])
def test_a_block_is_handed_over_to_the_stream_that_is_current(monkeypatch: pytest.MonkeyPatch, older_torch: bool) -> None:
    fake = FakeDevices(monkeypatch)
    monkeypatch.setattr(torch, "empty", fake.empty)
    if older_torch:
        monkeypatch.delattr(torch._C, "_cuda_getCurrentRawStream", raising=False)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: fake.streams[getattr(device, "index", device)])
    else:
        monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: fake.streams[index].cuda_stream, raising=False)
    blocks = _device.TorchBlocks("cuda:1")
    done: list[tuple[str, int]] = []
    block = SimpleNamespace(record_stream=lambda stream: done.append(("recorded", stream.cuda_stream)))
    raw: Any = SimpleNamespace(wait_on=lambda handle: done.append(("waits", handle)), block=lambda _: block)
    for handle in (0, 0, 9, 0):
        fake.streams[1] = fake.stream(1, handle)
        assert blocks.current_handle() == handle
        blocks.hand_over(raw, blocks.current_handle())
    assert done == [(what, handle) for handle in (0, 0, 9, 0) for what in ("waits", "recorded")]


def test_loaders_can_be_closed_or_dropped_while_they_prefetch(start_server: Any, quiet_config: dict[str, Any]) -> None:
    """The blocks belong to torch, so a thread that drops one needs the GIL, even while close() waits for that thread."""
    address = start_server(quiet_config).address

    def use(close: bool) -> None:
        for turn in range(10):
            loader = headrace.Loader(address, stream="train", device="host", prefetch=1 + turn % 4)
            iterator = iter(loader)
            kept = [next(iterator) for _ in range(turn % 3)]
            if close:
                loader.close()
            del loader, iterator, kept

    threads = [threading.Thread(target=use, args=(close,), daemon=True) for close in (True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    gc.collect()
    wait_until(lambda: not headrace.stats(address)["streams"]["train"]["clients"], "all clients to detach")


@pytest.mark.parametrize(
    ("output", "device", "others"),
    [
        (None, "cpu", "or set output='numpy'"),
        (None, "host", "or set output='numpy'"),
        ("torch", None, "or set output='numpy'"),
        (None, "cuda:0", "or set output='jax' or output='cupy'"),
        ("jax", "cuda:0", "or set output='torch' or output='cupy'"),
    ],
)
def test_a_package_that_is_missing_is_named_with_outputs_that_the_device_has(
    monkeypatch: pytest.MonkeyPatch, output: str | None, device: str | None, others: str
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InvalidArgument, match="is not installed") as refused:
        _device.output_of(output, device)
    assert str(refused.value).endswith(others)
