"""Ranks of a torch job, and one process with several devices."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
import torch
from children import Child
from running import ROOT


@pytest.fixture
def sharded(quiet_config: dict[str, Any]) -> dict[str, Any]:
    quiet_config["streams"]["train"] |= {"delivery": "shard", "ring": {"max_clients": 4}}
    return quiet_config


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_over_gloo_train_on_each_sample_once(
    start_server: Any, sharded: dict[str, Any], ranks: int
) -> None:
    """60 samples in batches of 8: not a multiple of 16 or 32, so the ranks share the remaining samples."""
    address = start_server(sharded).address
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    job = subprocess.run(
        [*command, str(ROOT / "tests" / "python" / "ddp_trainer.py"), address],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert job.returncode == 0, job.stderr
    first, second = json.loads(job.stdout)
    for epoch in (first, second):
        assert sorted(index for rank in epoch["ranks"] for index in rank["seen"]) == list(range(60))
        assert {rank["batches"] for rank in epoch["ranks"]} == {epoch["len"]}, (
            "a rank with fewer batches would hang the others"
        )
        assert all(rank["weights"] == epoch["ranks"][0]["weights"] for rank in epoch["ranks"])
    assert first["ranks"][0]["seen"] != second["ranks"][0]["seen"]
    assert first["ranks"][0]["weights"] != second["ranks"][0]["weights"], "it learns"


def test_ranks_are_those_of_torch_distributed_where_the_environment_names_none(start_server: Any, sharded: dict[str, Any], tmp_path: Path) -> None:
    """The same as after multiprocessing.spawn() with init_process_group(rank=…), and with Lightning's launcher."""
    address = start_server(sharded).address
    code = """
import torch.distributed as dist
dist.init_process_group("gloo", init_method=f"file://{sys.argv[3]}", rank=int(sys.argv[2]), world_size=2)
with headrace.Loader(address, stream="train") as loader:
    say(seen=[int(i) for batch in loader for i in batch.sample_index[batch.valid]], world_size=loader.world_size)
dist.barrier()
dist.destroy_process_group()
"""
    with Child(code, address, "0", str(tmp_path / "meet")) as one, Child(code, address, "1", str(tmp_path / "meet")) as other:
        heard = [child.receive(60) for child in (one, other)]
    assert sorted(index for line in heard for index in line["seen"]) == list(range(60))
    assert [line["world_size"] for line in heard] == [2, 2]


def test_a_loader_per_device_in_one_process(start_server: Any, sharded: dict[str, Any]) -> None:
    address = start_server(sharded).address
    with ExitStack() as stack:
        loaders = [
            stack.enter_context(
                headrace.Loader(address, stream="train", rank=device, world_size=2, group="job")
            )
            for device in range(2)
        ]
        seen = [
            int(i)
            for pair in zip(*loaders, strict=True)
            for batch in pair
            for i in batch.sample_index[batch.valid]
        ]
    assert sorted(seen) == list(range(60))


@pytest.mark.parametrize("form", ["tuple", "dict"])
@pytest.mark.parametrize("parts", [1, 3, 8, 11])
def test_a_scattered_batch_has_every_row_once_in_order(
    start_server: Any, quiet_config: dict[str, Any], form: str, parts: int
) -> None:
    address = start_server(quiet_config).address
    with headrace.Loader(address, stream="train", batch=form, meta=True) as loader:
        batch = next(iter(loader))
        cut = headrace.scatter(batch, parts)
        assert [type(part) for part in cut] == [type(batch)] * parts
        sizes = [len(part.valid) for part in cut]
        assert sum(sizes) == 8 and max(sizes) - min(sizes) <= 1
        names = batch.keys() if form == "dict" else range(2)
        for name in names:
            np.testing.assert_array_equal(np.concatenate([part[name] for part in cut]), batch[name])
        for name in ("valid", "sample_index", "replaced"):
            np.testing.assert_array_equal(
                np.concatenate([getattr(part, name) for part in cut]), getattr(batch, name)
            )
        image = "image" if form == "dict" else 0
        assert all(np.shares_memory(part[image], batch[image]) for part in cut if len(part.valid)), (
            "views, not copies"
        )
        assert cut[0].epoch == batch.epoch and cut[0].number == batch.number


def test_a_scattered_ragged_field_keeps_its_rows() -> None:
    batch = headrace.TupleBatch([(np.arange(12).reshape(6, 2), np.array([0, 2, 2, 5, 6]))])
    batch.valid = np.array([True, True, True, False])
    batch.sample_index, batch.replaced = np.arange(4), np.zeros(4, bool)
    batch.epoch, batch.number, batch.private_copy = 1, 2, True
    (values, offsets), (later, its_offsets) = (part[0] for part in headrace.scatter(batch, 2))
    assert values.tolist() == [[0, 1], [2, 3]] and offsets.tolist() == [0, 2, 2]
    assert later.tolist() == [[4, 5], [6, 7], [8, 9], [10, 11]] and its_offsets.tolist() == [0, 3, 4]


def test_scattered_to_torch_devices(start_server: Any, quiet_config: dict[str, Any]) -> None:
    address = start_server(quiet_config).address
    with headrace.Loader(address, stream="train", output="torch") as loader:
        batch = next(iter(loader))
        first, second = headrace.scatter(batch, ["cpu", torch.device("meta")])
        assert first[0].device.type == "cpu" and second[0].device.type == "meta"
        assert torch.equal(first[0], batch[0][:4]) and second[1].shape == (4,)


@pytest.mark.parametrize("devices", [0, [], "cuda:0", True, 1.5])
def test_what_cannot_be_scattered_to_is_named(devices: Any) -> None:
    batch = headrace.TupleBatch([np.zeros((2, 3))])
    batch.valid = np.ones(2, bool)
    with pytest.raises(headrace.errors.InvalidArgument, match="devices="):
        headrace.scatter(batch, devices)


def test_numpy_batches_stay_on_the_host(start_server: Any, quiet_config: dict[str, Any]) -> None:
    address = start_server(quiet_config).address
    with (
        headrace.Loader(address, stream="train") as loader,
        pytest.raises(headrace.errors.InvalidArgument, match="output='torch'"),
    ):
        headrace.scatter(next(iter(loader)), ["cpu", "cpu"])
