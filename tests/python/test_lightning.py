"""Lightning's Trainer over a Loader: the batches of its steps, also when it resumes from its checkpoints."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import headrace
import pytest
import torch

lightning = pytest.importorskip("lightning")

from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: E402

DEVICES = pytest.mark.parametrize("device", [None, "host"])


class Module(lightning.LightningModule):
    def __init__(self, loader: Any, val: Any = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 3))
        self.loader, self.val = loader, val
        self.seen: list[Any] = []
        self.validated: list[Any] = []

    def training_step(self, batch: Any, index: int) -> Any:
        image, label = batch
        self.seen.append((batch.epoch, batch.number, index, batch.sample_index.tolist(), image.numpy().tobytes()))
        return torch.nn.functional.cross_entropy(self.model(image / 255), label)

    def validation_step(self, batch: Any, index: int) -> None:
        self.validated.append((batch.epoch, batch.number))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)

    def train_dataloader(self) -> Any:
        return self.loader

    def val_dataloader(self) -> Any:
        return [] if self.val is None else self.val


def fit(module: Module, folder: Path, **how: Any) -> Module:
    checkpoint = how.pop("ckpt_path", None)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    how.setdefault("enable_checkpointing", "callbacks" in how)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lightning.Trainer(default_root_dir=folder, **quiet, **how).fit(module, ckpt_path=checkpoint)
    return module


def run(sharded: str, device: str | None, folder: Path, **how: Any) -> tuple[list[Any], Any]:
    """The samples and bytes that a Trainer's steps received, and the weights."""
    with headrace.Loader(sharded, stream="train", output="torch", device=device) as loader:
        module = fit(Module(loader), folder, **how)
    return module.seen, module.model[1].weight.detach()


def saved_by(folder: Path, **when: Any) -> ModelCheckpoint:
    return ModelCheckpoint(folder / "saved", save_top_k=-1, **when)


def the_checkpoint(folder: Path) -> str:
    (saved,) = (folder / "saved").iterdir()
    return str(saved)


@DEVICES
def test_it_resumes_inside_an_epoch_byte_for_byte(sharded: str, device: str | None, tmp_path: Path) -> None:
    whole, weights = run(sharded, device, tmp_path, max_epochs=3)
    assert [len(rows[3]) for rows in whole] == ([8] * 7 + [4]) * 3
    saver = saved_by(tmp_path, every_n_train_steps=11)
    first, _ = run(sharded, device, tmp_path, max_steps=11, max_epochs=-1, callbacks=[saver])
    rest, resumed = run(sharded, device, tmp_path, max_epochs=3, ckpt_path=the_checkpoint(tmp_path))
    assert (len(first), len(rest)) == (11, 13)
    assert first + rest == whole
    assert torch.equal(resumed, weights)


@DEVICES
@pytest.mark.parametrize("limit", [None, 5])
def test_it_resumes_behind_an_epoch_byte_for_byte(sharded: str, device: str | None, tmp_path: Path, limit: int | None) -> None:
    """A Trainer passes no state from such a checkpoint to the loader. `limit`: the Trainer's epoch ends before the stream's."""
    limits = {} if limit is None else {"limit_train_batches": limit}
    whole, weights = run(sharded, device, tmp_path, max_epochs=3, **limits)
    length = limit or 8
    assert [rows[:2] for rows in whole] == [(epoch, number) for epoch in range(3) for number in range(length)]
    saver = saved_by(tmp_path, every_n_epochs=1, save_on_train_epoch_end=True)
    first, _ = run(sharded, device, tmp_path, max_epochs=1, callbacks=[saver], **limits)
    rest, resumed = run(sharded, device, tmp_path, max_epochs=3, ckpt_path=the_checkpoint(tmp_path), **limits)
    assert (len(first), len(rest)) == (length, 2 * length)
    assert first + rest == whole
    assert torch.equal(resumed, weights)


@DEVICES
def test_it_resumes_from_the_step_at_its_limit(sharded: str, device: str | None, tmp_path: Path) -> None:
    """The Trainer treats the epoch as unfinished, and passes the state to the loader; the next batch still is the next epoch's first."""
    whole, _ = run(sharded, device, tmp_path, max_epochs=3, limit_train_batches=5)
    saver = saved_by(tmp_path, every_n_train_steps=5, save_on_train_epoch_end=False)
    first, _ = run(sharded, device, tmp_path, max_epochs=1, callbacks=[saver], limit_train_batches=5)
    rest, _ = run(sharded, device, tmp_path, max_epochs=3, ckpt_path=the_checkpoint(tmp_path), limit_train_batches=5)
    assert first + rest == whole


def test_validation_is_over_the_epochs_order_each_time(sharded: str, tmp_path: Path) -> None:
    """As with a DistributedSampler: two batches of the sanity check, then validation in the middle and at the end of each epoch."""
    with (
        headrace.Loader(sharded, stream="train", output="torch") as loader,
        headrace.Loader(sharded, stream="train", output="torch", group="val") as val,
    ):
        module = fit(Module(loader, val), tmp_path, max_epochs=2, val_check_interval=0.5, limit_val_batches=3)
    assert module.validated == [(0, 0), (0, 1)] + [(epoch, number) for epoch in (0, 0, 1, 1) for number in range(3)]


def test_a_second_fit_begins_at_the_first_epoch_again(sharded: str, tmp_path: Path) -> None:
    with headrace.Loader(sharded, stream="train", output="torch") as loader:
        seen = [fit(Module(loader), tmp_path, max_epochs=2).seen for _ in range(2)]
    assert seen[0] == seen[1]


def test_batches_of_loaders_of_unequal_length_are_resumed(sharded: str, tmp_path: Path) -> None:
    """The shorter loader is iterated repeatedly, so it is an epoch ahead of the Trainer when the state is saved."""

    class Two(Module):
        def training_step(self, batch: Any, index: int) -> Any:
            self.validated.append([(part.epoch, part.number, part.sample_index.tolist()) for part in batch])
            return super().training_step(batch[1], index)

    def run_two(**how: Any) -> list[Any]:
        with (
            headrace.Loader(sharded, stream="train", output="torch", rank=0, world_size=2, group="short") as short,
            headrace.Loader(sharded, stream="train", output="torch") as loader,
        ):
            return fit(Two([short, loader]), tmp_path, **how).validated

    whole = run_two(max_epochs=2)
    assert [parts[0][0] for parts in whole[:8]] == [0] * 4 + [1] * 4
    first = run_two(max_steps=6, max_epochs=-1, callbacks=[saved_by(tmp_path, every_n_train_steps=6)])
    rest = run_two(max_epochs=2, ckpt_path=the_checkpoint(tmp_path))
    assert first + rest == whole


@pytest.mark.parametrize(("last", "world_size", "length"), [("short", 1, 60), ("short", 7, 9), ("pad", 2, 30), ("drop", 2, 24)])
def test_a_sampler_is_as_long_as_the_ranks_part(start_server: Any, quiet_config: dict[str, Any], last: str, world_size: int, length: int) -> None:
    quiet_config["streams"]["train"] |= {"last": last, "delivery": "shard"}
    with headrace.Loader(start_server(quiet_config).address, stream="train", rank=0, world_size=world_size) as loader:
        assert len(loader.sampler) == len(loader.batch_sampler.sampler) == length
        assert (loader.batch_sampler.batch_size, loader.batch_sampler.drop_last) == (8, last == "drop")
        assert len(loader.batch_sampler) == len(loader)
        if last == "short" and world_size == 7:
            assert sum(len(batch.valid) for batch in loader) == length


def test_a_state_ahead_of_the_trainers_epoch_is_used_with_a_warning(sharded: str) -> None:
    with headrace.Loader(sharded, stream="train") as loader:
        loader.set_epoch(2)
        next(iter(loader))
        state = loader.state_dict()
    with headrace.Loader(sharded, stream="train", state=state) as loader:
        with pytest.warns(RuntimeWarning, match=r"sampler.set_epoch\(0\).*begins in epoch 2.*ckpt_path"):
            loader.sampler.set_epoch(0)
        assert [(batch.epoch, batch.number) for batch in loader] == [(2, number) for number in range(1, 8)]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            loader.sampler.set_epoch(0)  # its own epochs from here on, as a DistributedSampler's
            assert next(iter(loader)).epoch == 0
            loader.sampler.set_epoch(3)
            assert next(iter(loader)).epoch == 3


def test_a_live_streams_epochs_are_its_feeders() -> None:
    rows = [(torch.arange(4), torch.arange(4))] * 3
    with headrace.share(rows, "live", epochs=2) as share, headrace.Loader(share.address, stream="live", output="torch") as loader:
        seen = []
        for epoch in (5, 0):
            loader.sampler.set_epoch(epoch)
            seen += [(batch.epoch, batch.number) for batch in loader]
    assert seen == [(epoch, number) for epoch in range(2) for number in range(3)]
