"""Frameworks around a PyTorch loop: Accelerate, torch.compile, DataParallel, and a DataLoader's arguments. (Lightning:
test_lightning.py.)"""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
import torch
from headrace.errors import InvalidArgument
from torch.utils.data import (
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
    default_collate,
)

DEVICES = pytest.mark.parametrize("device", [None, "host"])


def small_model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 3))


@DEVICES
def test_accelerate_takes_a_loader_as_it_is(sharded: str, device: str | None) -> None:
    import accelerate
    accelerator = accelerate.Accelerator(cpu=True)
    loader = headrace.Loader(sharded, stream="train", output="torch", device=device)
    model = small_model()
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01), loader)
    seen = []
    for batch in loader:
        image, label = batch.to(accelerator.device)
        loss = torch.nn.functional.cross_entropy(model(image / 255), label)
        accelerator.backward(loss)
        optimizer.step()
        seen += batch.sample_index.tolist()
    assert sorted(seen) == list(range(60))


def test_what_accelerate_cannot_do_without_a_dataset_says_what_to_use(sharded: str) -> None:
    import accelerate
    with headrace.Loader(sharded, stream="train", output="torch") as loader:
        for wrong in (lambda: accelerate.skip_first_batches(loader, 3), lambda: accelerate.data_loader.prepare_data_loader(loader)):
            with pytest.raises(AttributeError, match=r"no dataset: .*loader.info.samples.*load_state_dict"):
                wrong()
        assert not hasattr(loader, "dataset")
        assert [batch.number for batch in loader] == list(range(8))


def test_accelerate_saves_and_restores_a_registered_loaders_position(sharded: str, tmp_path: Path) -> None:
    import accelerate
    accelerator = accelerate.Accelerator(cpu=True)
    with headrace.Loader(sharded, stream="train", output="torch") as loader:
        accelerator.register_for_checkpointing(accelerator.prepare(loader))
        for batch in loader:
            if batch.number == 2:
                break
        accelerator.save_state(str(tmp_path))
    with headrace.Loader(sharded, stream="train", output="torch") as loader:
        accelerator = accelerate.Accelerator(cpu=True)
        accelerator.register_for_checkpointing(accelerator.prepare(loader))
        accelerator.load_state(str(tmp_path))
        assert [batch.number for batch in loader] == list(range(3, 8))


@DEVICES
def test_compiled_steps_and_data_parallel_take_its_batches(sharded: str, device: str | None) -> None:
    model = torch.nn.DataParallel(small_model())

    @torch.compile(backend="eager")
    def step(image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(image / 255), label)

    with headrace.Loader(sharded, stream="train", output="torch", device=device) as loader:
        for image, label in loader:
            loss = step(image, label)
            loss.backward()
            assert torch.isfinite(loss)


def test_a_moved_batch_keeps_its_row_attributes(sharded: str) -> None:
    with headrace.Loader(sharded, stream="train", output="torch", meta=True) as loader:
        batch = next(iter(loader))
        assert batch.to("cpu") is batch
        moved = batch.to("meta")
        assert type(moved) is type(batch)
        assert [value.device.type for value in moved[:2]] == ["meta", "meta"]
        assert moved[2]["valid"].device.type == "meta"
        assert (moved.epoch, moved.number) == (0, 0)
        assert moved.sample_index.tolist() == batch.sample_index.tolist()
    with headrace.Loader(sharded, stream="train", batch="dict") as loader:
        with pytest.raises(InvalidArgument, match="its fields are numpy arrays; use output='torch'"):
            next(iter(loader)).to("cpu")


def from_args(sharded: str, **arguments: Any) -> headrace.Loader:
    return headrace.from_dataloader_args(stream="train", address=sharded, **arguments)


def test_a_dataloaders_arguments_give_a_loader_and_a_warning_lists_those_without_effect(sharded: str) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with from_args(sharded, dataset=range(60), batch_size=8, shuffle=True, num_workers=8, pin_memory=True) as loader:
            assert isinstance(next(iter(loader))[0], torch.Tensor)
    (warning,) = told
    assert warning.filename == __file__
    assert "num_workers=8 (`server.threads`" in str(warning.message)
    assert "pin_memory=True (device='cuda:N'" in str(warning.message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_args(sharded, batch_size=8, shuffle=True, timeout=5).close()
        from_args(sharded, batch_size=np.int64(8), shuffle=True, collate_fn=default_collate).close()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"batch_size": 32}, "set `batch_size: 32` .it is 8."),
        ({"shuffle": False}, "set `shuffle: false`"),
        ({"drop_last": True}, "set `last: drop` .it is short."),
        ({"dataset": range(61)}, "the dataset has 61 samples, the stream 60"),
        ({"dataset": "/data/photos"}, "expected a dataset, found a path; leave it out"),
        ({"collate_fn": list}, "collate_fn=list: .*`transform=`"),
        ({"collate_fn": partial(list)}, "collate_fn=functools.partial.*: .*`transform=`"),
        ({"batch_size": "8"}, "batch_size='8': expected an int"),
        ({"batch_size": 8.0}, "batch_size=8.0: expected an int"),
        ({"batch_size": True}, "batch_size=True: expected an int"),
        ({"batch_size": 0}, "batch_size=0: expected 1"),
        ({"shuffle": "False"}, "shuffle='False': expected True or False"),
        ({"drop_last": "no"}, "drop_last='no': expected True or False"),
        ({"drop_last": None}, "drop_last=None: expected True or False"),
        ({"pin_memory": "cuda"}, "pin_memory='cuda': expected True or False"),
        ({"num_workers": -1}, "num_workers=-1: expected 0"),
        ({"num_workers": "2"}, "num_workers='2': expected an int"),
        ({"prefetch_factor": 0}, "prefetch_factor=0: expected 1"),
        ({"timeout": -1}, "timeout=-1: expected 0 or more"),
        ({"timeout": "soon"}, "timeout='soon': expected a number"),
        ({"batch_sampler": [[0]]}, "batch_sampler: "),
        ({"batch_size": None}, "batch_size=None"),
        ({"shuffle": None, "sampler": WeightedRandomSampler([1.0], 1)}, "sampler=WeightedRandomSampler: configure the stream's `sampler:`"),
        ({"shuffle": None, "sampler": RandomSampler(range(60), num_samples=8)}, "sampler=RandomSampler: configure the stream's `sampler:`"),
        ({"shuffle": None, "sampler": DistributedSampler(range(60), 1, 0, drop_last=True)}, "set `last: drop`"),
        ({"shuffle": None, "sampler": SequentialSampler(range(60))}, "set `shuffle: false`"),
    ],
)
def test_differences_from_the_stream_are_refused_with_the_line_to_change(
    sharded: str, arguments: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidArgument, match=told):
        from_args(sharded, **{"batch_size": 8, "shuffle": True} | arguments)
    from_args(sharded, batch_size=8, sampler=RandomSampler(range(60))).close()  # nothing of it remains


def test_a_distributed_sampler_gives_rank_and_world_size(sharded: str) -> None:
    seen = []
    for rank in range(2):
        sampler = DistributedSampler(range(60), num_replicas=2, rank=rank)
        with from_args(sharded, batch_size=8, sampler=sampler) as loader:
            for batch in loader:
                seen += batch.sample_index[batch.valid].tolist()
    assert sorted(seen) == list(range(60))


def test_a_distributed_sampler_wants_a_stream_that_is_divided(start_server: Any, quiet_config: dict[str, Any]) -> None:
    address = start_server(quiet_config).address
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InvalidArgument, match="DistributedSampler of 2 replicas, but stream 'train' is broadcast.*`delivery: shard`"):
            from_args(address, batch_size=8, sampler=DistributedSampler(range(60), num_replicas=2, rank=0))
        assert headrace.stats(address)["streams"]["train"]["clients"] == []
        for sampler, more in ((DistributedSampler(range(60), 1, 0), {}), (DistributedSampler(range(60), 2, 0), {"world_size": 1})):
            from_args(address, batch_size=8, sampler=sampler, **more).close()
