"""What PyTorch users run their loops with: Lightning, Accelerate, torch.compile, DataParallel; a DataLoader's arguments."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import headrace
import pytest
import torch
from headrace.errors import InvalidArgument, RankTaken
from torch.utils.data import DistributedSampler, RandomSampler, SequentialSampler, WeightedRandomSampler

DEVICES = pytest.mark.parametrize("device", [None, "host"])


@pytest.fixture
def address(start_server: Any, quiet_config: dict[str, Any]) -> str:
    """60 samples in batches of 8, float32, divided by ranks."""
    quiet_config["streams"]["train"] |= {"output": {"dtype": "float32"}, "delivery": "shard"}
    served: str = start_server(quiet_config).address
    return served


def small_model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 3))


def lightning_run(address: str, device: str | None, folder: Path, **how: Any) -> tuple[list[Any], Any]:
    """What a Trainer's steps saw (sample by sample, with the bytes), and the weights."""
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = small_model()
            self.seen: list[Any] = []

        def training_step(self, batch: Any, index: int) -> Any:
            image, label = batch
            self.seen.append((batch.epoch, batch.number, index, batch.sample_index.tolist(), image.numpy().tobytes()))
            return torch.nn.functional.cross_entropy(self.model(image / 255), label)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)

        def train_dataloader(self) -> Any:
            return headrace.Loader(address, stream="train", output="torch", device=device)

    checkpoint = how.pop("ckpt_path", None)
    module = Module()
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lightning.Trainer(default_root_dir=folder, **quiet, **how).fit(module, ckpt_path=checkpoint)
    return module.seen, module.model[1].weight.detach()


@DEVICES
def test_lightning_resumes_inside_an_epoch_byte_for_byte(address: str, device: str | None, tmp_path: Path) -> None:
    from lightning.pytorch import callbacks
    whole, weights = lightning_run(address, device, tmp_path, max_epochs=3, enable_checkpointing=False)
    assert [len(rows[3]) for rows in whole] == ([8] * 7 + [4]) * 3
    saver = callbacks.ModelCheckpoint(tmp_path / "saved", every_n_train_steps=11, save_top_k=-1)
    first, _ = lightning_run(address, device, tmp_path, max_steps=11, max_epochs=-1, callbacks=[saver])
    (saved,) = (tmp_path / "saved").iterdir()
    rest, resumed = lightning_run(address, device, tmp_path, max_epochs=3, enable_checkpointing=False, ckpt_path=str(saved))
    assert (len(first), len(rest)) == (11, 13)
    assert first + rest == whole
    assert torch.equal(resumed, weights)


@DEVICES
def test_accelerate_takes_a_loader_as_it_is(address: str, device: str | None) -> None:
    import accelerate
    accelerator = accelerate.Accelerator(cpu=True)
    loader = headrace.Loader(address, stream="train", output="torch", device=device)
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


@DEVICES
def test_compiled_steps_and_data_parallel_take_its_batches(address: str, device: str | None) -> None:
    model = torch.nn.DataParallel(small_model())

    @torch.compile(backend="eager")
    def step(image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(image / 255), label)

    with headrace.Loader(address, stream="train", output="torch", device=device) as loader:
        for image, label in loader:
            loss = step(image, label)
            loss.backward()
            assert torch.isfinite(loss)


def test_a_moved_batch_still_tells_of_its_rows(address: str) -> None:
    with headrace.Loader(address, stream="train", output="torch", meta=True) as loader:
        batch = next(iter(loader))
        assert batch.to("cpu") is batch
        moved = batch.to("meta")
        assert type(moved) is type(batch)
        assert [value.device.type for value in moved[:2]] == ["meta", "meta"]
        assert moved[2]["valid"].device.type == "meta"
        assert (moved.epoch, moved.number) == (0, 0)
        assert moved.sample_index.tolist() == batch.sample_index.tolist()
    with headrace.Loader(address, stream="train", batch="dict") as loader:
        with pytest.raises(InvalidArgument, match="arrays of numpy; use output='torch'"):
            next(iter(loader)).to("cpu")


def test_an_idle_loader_leaves_its_rank_to_the_next_of_its_process(address: str) -> None:
    """A notebook's cell that is run twice."""
    first = headrace.Loader(address, stream="train")
    iterator = iter(first)
    kept = [next(iterator), next(iterator)]
    with pytest.raises(RankTaken):  # it is in a loop
        headrace.Loader(address, stream="train", timeout=3)
    del iterator
    with headrace.Loader(address, stream="train") as second:
        assert next(iter(second)).number == 0
    assert first.state_dict()["cursor"] == {"epoch": 0, "origin": 0, "batch": 2}
    assert [(batch.epoch, batch.number) for batch in first] == [(1, number) for number in range(8)], "its `break` left epoch 0"
    assert [batch.number for batch in kept] == [0, 1]


@DEVICES
def test_a_loader_that_left_its_rank_behind_an_exception_comes_back_to_the_batch_that_was_due(address: str, device: str | None) -> None:
    failing = [3]

    def once(batch: Any) -> Any:
        if batch.number in failing:
            raise ValueError("not this one")
        return batch

    first = headrace.Loader(address, stream="train", device=device, output="torch", transform=once)
    with pytest.raises(ValueError, match="not this one"):
        list(first)
    with headrace.Loader(address, stream="train") as second:
        next(iter(second))
    assert first.state_dict()["cursor"] == {"epoch": 0, "origin": 0, "batch": 3}
    failing.clear()
    assert [batch.number for batch in first] == [3, 4, 5, 6, 7]


def from_args(address: str, **arguments: Any) -> headrace.Loader:
    return headrace.from_dataloader_args(stream="train", address=address, **arguments)


def test_a_dataloaders_arguments_give_a_loader_and_are_told_where_they_mean_nothing(address: str) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with from_args(address, dataset=range(60), batch_size=8, shuffle=True, num_workers=8, pin_memory=True) as loader:
            assert isinstance(next(iter(loader))[0], torch.Tensor)
    (warning,) = told
    assert warning.filename == __file__
    assert "num_workers=8 (`server.threads`" in str(warning.message)
    assert "pin_memory=True (device='cuda:N'" in str(warning.message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_args(address, batch_size=8, shuffle=True, timeout=5).close()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"batch_size": 32}, "set `batch_size: 32` .it is 8."),
        ({"shuffle": False}, "set `shuffle: false`"),
        ({"drop_last": True}, "set `last: drop` .it is short."),
        ({"dataset": range(61)}, "the dataset has 61 samples, the stream 60"),
        ({"collate_fn": list}, "collate_fn: .*`transform=`"),
        ({"batch_sampler": [[0]]}, "batch_sampler: "),
        ({"batch_size": None}, "batch_size=None"),
        ({"shuffle": None, "sampler": WeightedRandomSampler([1.0], 1)}, "sampler=WeightedRandomSampler: say it in"),
        ({"shuffle": None, "sampler": RandomSampler(range(60), num_samples=8)}, "sampler=RandomSampler: say it in"),
        ({"shuffle": None, "sampler": DistributedSampler(range(60), 1, 0, drop_last=True)}, "set `last: drop`"),
        ({"shuffle": None, "sampler": SequentialSampler(range(60))}, "set `shuffle: false`"),
    ],
)
def test_what_a_dataloader_would_do_otherwise_is_refused_with_the_line_to_change(
    address: str, arguments: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidArgument, match=told):
        from_args(address, **{"batch_size": 8, "shuffle": True} | arguments)
    from_args(address, batch_size=8, sampler=RandomSampler(range(60))).close()  # nothing is left of it


def test_a_distributed_sampler_gives_the_place(address: str) -> None:
    seen = []
    for rank in range(2):
        sampler = DistributedSampler(range(60), num_replicas=2, rank=rank)
        with from_args(address, batch_size=8, sampler=sampler) as loader:
            for batch in loader:
                seen += batch.sample_index[batch.valid].tolist()
    assert sorted(seen) == list(range(60))
