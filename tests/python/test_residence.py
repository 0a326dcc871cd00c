"""`residence: gpu`: a dataset that is uploaded once and batched on the device, here the CPU backend. Everything is compared with the
same stream without a device, byte for byte."""

from __future__ import annotations

import gc
import re
import subprocess
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
import torch
import yaml
from headrace.errors import InvalidArgument, RankTaken
from running import headrace_binary, wait_until
from training_sets import write_sets

MNIST = [{"normalize": {"mean": [0.1307], "std": [0.3081]}}]
CIFAR = [
    {"random_crop": {"size": 32, "padding": 4, "padding_mode": "reflect"}},
    "random_horizontal_flip",
    {"normalize": {"mean": [0.4914, 0.4822, 0.4465], "std": [0.247, 0.2435, 0.2616]}},
]


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sets(tmp_path_factory.mktemp("sets"), mnist=(130, 10), cifar=(107, 10), pairs=(1, 1))


@pytest.fixture
def config(sets: Path) -> dict[str, Any]:
    def stream(source: str, **more: Any) -> dict[str, Any]:
        return {"source": source, "batch_size": 16, "seed": 3, "residence": "gpu", **more}

    gray = {"images": str(sets / "MNIST/raw/train-images-idx3-ubyte"), "labels": str(sets / "MNIST/raw/train-labels-idx1-ubyte")}
    return {
        "server": {"threads": 1, "metrics": "off"},
        "sources": {"gray": {"type": "idx", **gray}, "color": {"type": "cifar", "path": str(sets / "cifar-10-batches-bin")}},
        "streams": {
            "mnist": stream("gray", transforms=MNIST, output={"dtype": "float32"}),
            "cifar": stream("color", transforms=CIFAR, output={"dtype": "float16"}),
            "bytes": stream("color", transforms=CIFAR[:2], output={"layout": "NHWC"}, last="pad", shuffle=False),
            "ranks": stream("color", transforms=CIFAR[:2], delivery="shard", batch_size=10),
        },
    }


def loader(server: Any, stream: str, device: str | None = "host", **more: Any) -> headrace.Loader:
    return headrace.Loader(server.address, stream=stream, device=device, output="torch", batch="dict", meta=True, **more)


def same(one: Any, other: Any) -> None:
    assert list(one) == list(other)
    assert (one.epoch, one.number) == (other.epoch, other.number)
    for name, values in one.items():
        assert values.dtype == other[name].dtype, name
        assert torch.equal(values, other[name]), name


@pytest.mark.parametrize("stream", ["mnist", "cifar", "bytes"])
def test_batches_are_those_of_the_stream_in_every_epoch(start_server: Any, config: dict[str, Any], stream: str) -> None:
    server = start_server(config)
    with loader(server, stream) as resident, loader(server, stream, None) as ordinary:
        assert resident.info.residence == ordinary.info.residence == "gpu"
        for epoch in range(3):
            assert resident.epoch == ordinary.epoch == epoch
            assert len(resident) == len(ordinary)
            for made, sent in zip(resident, ordinary, strict=True):
                same(made, sent)
            assert resident.state_dict() == ordinary.state_dict()
        resident.set_epoch(40)
        ordinary.set_epoch(40)
        same(next(iter(resident)), next(iter(ordinary)))


def test_a_shuffled_set_has_another_order_in_each_epoch_and_all_of_it_in_each(start_server: Any, config: dict[str, Any]) -> None:
    with loader(start_server(config), "mnist") as resident:
        orders = [torch.cat([batch["sample_index"] for batch in resident]).tolist() for _ in range(3)]
    assert all(sorted(order) == list(range(130)) for order in orders)
    assert orders[0] != orders[1] != orders[2] != orders[0]


@pytest.mark.parametrize(("first", "then"), [("host", None), (None, "host"), ("host", "host")])
def test_a_checkpoint_in_the_middle_of_an_epoch_resumes_on_either_side(
    start_server: Any, config: dict[str, Any], first: str | None, then: str | None
) -> None:
    server = start_server(config)
    with loader(server, "cifar", None) as ordinary:
        whole = [list(ordinary) for _ in range(3)]
    with loader(server, "cifar", first) as saved:
        list(saved)
        batches = iter(saved)
        for sent in whole[1][:3]:
            same(next(batches), sent)
        state = saved.state_dict()
    with loader(server, "cifar", then, state=state) as resumed:
        assert resumed.epoch == 1
        for epoch in range(1, 3):
            resumed.set_epoch(epoch)
            for made, sent in zip(resumed, whole[epoch][3 if epoch == 1 else 0 :], strict=True):
                same(made, sent)
    # At half the batch size each remaining sample comes once.
    config["streams"]["cifar"]["batch_size"] = 8
    with loader(start_server(config), "cifar", then, state=state) as resumed:
        rest = torch.cat([batch["sample_index"] for batch in resumed]).tolist()
    assert rest == torch.cat([batch["sample_index"] for batch in whole[1][3:]]).tolist()


def test_a_loop_continues_after_a_break_as_on_any_stream(start_server: Any, config: dict[str, Any]) -> None:
    server = start_server(config)
    with loader(server, "cifar") as resident, loader(server, "cifar", None) as ordinary:
        for _ in range(2):
            for made, sent in zip(resident, ordinary, strict=False):
                same(made, sent)
                if made.number == 2:
                    break
        same(next(iter(resident)), next(iter(ordinary)))
        state = ordinary.state_dict()
        for each in (resident, ordinary):
            each.load_state_dict(state)
        for made, sent in zip(resident, ordinary, strict=True):
            same(made, sent)


@pytest.mark.parametrize("last", ["short", "pad", "drop"])
def test_two_ranks_cover_each_epoch_exactly_once(start_server: Any, config: dict[str, Any], last: str) -> None:
    config["streams"]["ranks"]["last"] = last
    server = start_server(config)
    for epoch in range(2):
        seen: list[int] = []
        lengths = set()
        for rank in range(2):
            where = {"rank": rank, "world_size": 2}
            with loader(server, "ranks", group="one", **where) as resident, loader(server, "ranks", None, group="other", **where) as ordinary:
                resident.set_epoch(epoch)
                ordinary.set_epoch(epoch)
                lengths.add(len(resident))
                for made, sent in zip(resident, ordinary, strict=True):
                    same(made, sent)
                    seen += made["sample_index"][made["valid"]].tolist()
        assert len(lengths) == 1
        assert sorted(seen) == list(range(107)) if last != "drop" else len(seen) == len(set(seen)) == 100


def test_batches_are_the_loops_own_in_every_framework(start_server: Any, config: dict[str, Any]) -> None:
    server = start_server(config)
    with loader(server, "cifar", None) as ordinary:
        expected = list(ordinary)
    with loader(server, "cifar") as resident:
        kept = list(resident)
        for batch in resident:
            batch["image"].zero_()
    for made, sent in zip(kept, expected, strict=True):
        same(made, sent)
    with headrace.Loader(server.address, stream="mnist", device="host", output="numpy") as arrays, loader(server, "mnist", None) as ordinary:
        for (image, label), sent in zip(arrays, ordinary, strict=True):
            np.testing.assert_array_equal(np.asarray(image), sent["image"].numpy())
            np.testing.assert_array_equal(np.asarray(label), sent["label"].numpy())


def test_a_loop_goes_on_without_its_server(start_server: Any, config: dict[str, Any]) -> None:
    server = start_server(config)
    with loader(server, "mnist") as resident:
        before = torch.cat([batch["sample_index"] for batch in resident])
        server.kill()
        after = torch.cat([batch["sample_index"] for batch in resident])
        assert sorted(after.tolist()) == sorted(before.tolist())


def test_a_broadcast_stream_has_no_client_after_the_upload(start_server: Any, config: dict[str, Any]) -> None:
    server = start_server(config)

    def clients() -> list[Any]:
        return [client for stream in headrace.stats(server.address)["streams"].values() for client in stream["clients"]]

    with loader(server, "mnist") as resident, loader(server, "ranks", rank=0, world_size=1) as rank:
        next(iter(resident))
        running = iter(rank)
        next(running)
        # The rank is claimed, and its dataset is uploaded.
        wait_until(lambda: len(clients()) == 1, "the others to leave")
        assert len(list(resident)) == 9
        with pytest.raises(RankTaken):
            loader(server, "ranks", rank=0, world_size=1)


def test_errors_name_what_cannot_be_resident(start_server: Any, config: dict[str, Any]) -> None:
    server = start_server(config)
    with pytest.raises(InvalidArgument, match=re.escape("resume from a saved state (Python: state_dict())")):
        loader(server, "ranks", resume="server", rank=0, world_size=1)


@pytest.mark.parametrize(
    ("source", "stream", "why"),
    [
        ("photos", {"transforms": [{"random_crop": {"size": 32, "pad_if_needed": True}}]}, "images may differ in size before the first random transform"),
        ("photos", {"transforms": [{"random_resized_crop": {"size": 32}}]}, "use `device: gpu`"),
        ("photos", {"transforms": [{"resize": {"size": [5000, 5000]}}]}, "expected at most 4096 pixels a side"),
        ("pairs", {"transforms": [{"random_crop": {"size": 8}}]}, "not pairs or masks"),
        ("words", {"transforms": [{"resize": {"size": [8, 8]}}]}, "field `tokens` is ragged"),
    ],
)
def test_a_set_that_cannot_be_resident_is_refused_by_check(
    config: dict[str, Any], sets: Path, image_folder: Path, tmp_path: Path, source: str, stream: dict[str, Any], why: str
) -> None:
    (tmp_path / "words.jsonl").write_text('{"image": "class_0/0000.jpg", "tokens": [1, 2]}\n{"image": "class_1/0000.jpg", "tokens": [3]}\n')
    words = {"image": {"column": "image"}, "tokens": {"kind": "ragged", "dtype": "int32"}}
    config["sources"] = {
        "photos": {"type": "image_folder", "path": str(image_folder)},
        "pairs": {"type": "paired_folders", "fields": {"a": str(sets / "pairs/train/hr"), "b": str(sets / "pairs/train/lr")}},
        "words": {"type": "manifest", "path": str(tmp_path / "words.jsonl"), "root": str(image_folder), "fields": words},
    }
    config["streams"] = {"train": {"source": source, "residence": "gpu"} | stream}
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config))
    told = subprocess.run([headrace_binary(), "check", str(file)], capture_output=True, text=True, timeout=60)
    assert told.returncode == 2, told.stdout + told.stderr
    assert why in told.stderr
    assert f"{file}:" in told.stderr


def test_more_streams_than_a_server_can_hold_are_refused(config: dict[str, Any], tmp_path: Path) -> None:
    """Each resident stream counts as two: the stream itself and its upload stream."""
    path = tmp_path / "c.yaml"
    stream = config["streams"]["mnist"]
    for count, refused in ((32, False), (33, True)):
        path.write_text(yaml.safe_dump({**config, "streams": {f"s{i}": stream for i in range(count)}}))
        done = subprocess.run([headrace_binary(), "check", path], capture_output=True, text=True, timeout=60)
        assert (done.returncode != 0) == refused, done.stderr
    assert "streams: expected at most 64, found 66: 33 configured, and 33 upload streams" in done.stderr


@pytest.fixture
def small(start_server: Any, config: dict[str, Any]) -> Any:
    """A server whose batches are so small that many share a block."""
    config["streams"]["cifar"]["batch_size"] = config["streams"]["ranks"]["batch_size"] = 2
    return start_server(config)


@pytest.mark.parametrize("prefetch", [1, 40])
def test_batches_that_share_a_block_are_those_of_the_stream(small: Any, prefetch: int) -> None:
    with loader(small, "cifar", prefetch=prefetch) as resident, loader(small, "cifar", None) as ordinary:
        for _ in range(2):
            for made, sent in zip(resident, ordinary, strict=True):  # 53 full batches, then one row
                same(made, sent)
    for rank in range(3):
        with loader(small, "ranks", None, group="other", rank=rank, world_size=3) as ordinary:
            expected = list(ordinary)
        with loader(small, "ranks", rank=rank, world_size=3, prefetch=prefetch) as resident:
            for made, sent in zip(resident, expected, strict=True):
                same(made, sent)


def test_a_loop_that_raises_and_moves_inside_a_block_gets_the_same_batches(small: Any) -> None:
    with loader(small, "cifar", None) as ordinary:
        expected = list(ordinary)
    failed: list[int] = []

    def transform(batch: Any) -> Any:
        if batch.number in (1, 7, 16) and batch.number not in failed:
            failed.append(batch.number)
            raise KeyError(batch.number)
        return batch

    with loader(small, "cifar", transform=transform) as resident:
        number = 0
        while number < 20:
            try:
                for batch in resident:
                    same(batch, expected[number])
                    number += 1
                    if number == 20:
                        break
            except KeyError:
                pass
        assert failed == [1, 7, 16]
        state = resident.state_dict()
        resident.load_state_dict(state)  # the loop's own position, in the middle of a block
        batches = iter(resident)
        for sent in expected[20:23]:
            same(next(batches), sent)
        resident.load_state_dict(state)  # back, inside the same block
        same(next(iter(resident)), expected[20])


def test_each_batch_of_a_block_is_the_loops_own(small: Any) -> None:
    weight = torch.ones((), requires_grad=True)
    with loader(small, "cifar") as resident, loader(small, "cifar", None) as ordinary:
        expected = list(ordinary)
        batches = iter(resident)
        with torch.inference_mode():
            same(next(batches), expected[0])
        second = next(batches)
        loss = (second["image"].float() * weight).sum() * second["label"].sum()
        second["label"].add_(1)  # has its own version counter, as the next batch has
        third = next(batches)
        third["image"].zero_()
        loss.backward()
        assert weight.grad is not None
        same(next(batches), expected[3])
        assert torch.equal(second["image"], expected[1]["image"]), "another batch was written to"


def test_a_closed_loader_keeps_no_batches(small: Any) -> None:
    def alive(block: int) -> int:
        gc.collect()
        return sum(type(each) is torch.Tensor and each.untyped_storage().data_ptr() == block for each in gc.get_objects())

    with loader(small, "cifar") as resident:
        image = next(iter(resident))["image"]
        block = image.untyped_storage().data_ptr()
        assert alive(block) > 2
    assert alive(block) == 1
