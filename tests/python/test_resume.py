"""Checkpoints: byte-identical at the same sizes, each remaining sample once at others, refused when the data changed."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from children import Child
from headrace.errors import FingerprintMismatch, GroupMismatch, InvalidArgument
from images import write_images
from running import Server


def digests(batches: Any) -> Iterator[str]:
    for batch in batches:
        state = headrace.Digest()
        state.add(batch)
        yield state.hexdigest()


def indices(batches: Any) -> list[int]:
    return [int(i) for batch in batches for i in batch.sample_index[np.asarray(batch.valid)]]


@pytest.fixture
def shard_config(quiet_config: dict[str, Any]) -> dict[str, Any]:
    quiet_config["streams"]["train"] |= {"delivery": "shard", "batch_size": 4, "ring": {"max_clients": 8}}
    return quiet_config


def test_all_killed_and_resumed_from_the_checkpoint_goes_on_byte_identically(
    start_server: Any, quiet_config: dict[str, Any], tmp_path: Path
) -> None:
    server = start_server(quiet_config)
    with headrace.Loader(server.address, stream="train") as loader:
        undisturbed = list(digests(loader)) + list(digests(loader))
    code = """
loader = headrace.Loader(address, stream="train")
for batch in loader:
    say(digest=digest(batch), state=loader.state_dict())
"""
    with Child(code, server.address) as trainer:
        heard = [trainer.receive() for _ in range(5)]
        trainer.kill()
    server.kill()
    checkpoint = json.loads(json.dumps(heard[-1]["state"]))

    again = start_server(quiet_config)
    with headrace.Loader(again.address, stream="train", state=checkpoint) as loader:
        resumed = list(digests(loader)) + list(digests(loader))
    assert [line["digest"] for line in heard] + resumed == undisturbed
    with headrace.Loader(again.address, stream="train") as loader:
        loader.load_state_dict(checkpoint)
        assert list(digests(loader)) == undisturbed[5:8]


@pytest.mark.parametrize("ranks", [1, 3, 4])
def test_at_another_world_size_each_remaining_sample_comes_once(
    start_server: Any, shard_config: dict[str, Any], ranks: int
) -> None:
    address = start_server(shard_config).address
    with ExitStack() as stack:
        pair = [
            stack.enter_context(headrace.Loader(address, stream="train", rank=rank, world_size=2, group="before"))
            for rank in range(2)
        ]
        seen = []
        states = []
        for loader in pair:
            for batch in loader:
                seen += indices([batch])
                if batch.number == 2:
                    break
            states.append(loader.state_dict())
    assert len(seen) == 3 * 4 * 2
    assert states[0] == states[1]

    with ExitStack() as stack:
        after = [
            stack.enter_context(
                headrace.Loader(address, stream="train", rank=rank, world_size=ranks, state=states[0], group="after")
            )
            for rank in range(ranks)
        ]
        assert len({len(loader) for loader in after}) == 1
        rest = [index for loader in after for index in indices(loader)]
        assert sorted(seen + rest) == list(range(60))
        whole = [index for loader in after for index in indices(loader)]
        assert sorted(whole) == list(range(60))


@pytest.mark.parametrize("last", ["short", "pad", "drop"])
@pytest.mark.parametrize("ranks", [1, 3, 4])
def test_before_the_last_incomplete_batch_the_rest_comes_once_at_another_world_size(
    start_server: Any, shard_config: dict[str, Any], last: str, ranks: int
) -> None:
    shard_config["streams"]["train"] |= {"last": last}
    address = start_server(shard_config).address
    taken = 6 if last == "drop" else 7  # of 60 samples: 7 global batches of 8, and 4 samples
    seen, states = [], []
    with ExitStack() as stack:
        for rank in range(2):
            loader = stack.enter_context(headrace.Loader(address, stream="train", rank=rank, world_size=2, group="before"))
            assert len(loader) == (7 if last == "drop" else 8)
            for batch in loader:
                seen += indices([batch])
                if batch.number == taken - 1:
                    break
            states.append(loader.state_dict())
    assert len(set(seen)) == taken * 8 and states[0] == states[1]
    with ExitStack() as stack:
        after = [
            stack.enter_context(
                headrace.Loader(address, stream="train", rank=rank, world_size=ranks, state=states[0], group="after")
            )
            for rank in range(ranks)
        ]
        batches = [list(loader) for loader in after]
        assert len({len(of_rank) for of_rank in batches}) == 1
        rest = [index for of_rank in batches for index in indices(of_rank)]
        if last == "drop" and ranks == 4:  # 12 samples are no batch of 16: the next epoch
            assert batches[0][0].epoch == 1 and len(set(rest)) == len(rest) == 48
        else:
            assert sorted(seen + rest) == list(range(60))
        whole = [index for loader in after for index in indices(loader)]
        assert len(whole) == len(set(whole)) == (60 // (4 * ranks) * 4 * ranks if last == "drop" else 60)


def test_at_another_batch_size_each_remaining_sample_comes_once(start_server: Any, quiet_config: dict[str, Any]) -> None:
    with headrace.Loader(start_server(quiet_config).address, stream="train") as loader:
        iterator = iter(loader)
        seen = indices([next(iterator) for _ in range(3)])
        state = loader.state_dict()
    quiet_config["streams"]["train"]["batch_size"] = 5
    with headrace.Loader(start_server(quiet_config).address, stream="train", state=state) as loader:
        assert len(loader) == 8  # 36 samples in batches of 5
        assert sorted(seen + indices(loader)) == list(range(60))
        assert len(loader) == 12


@pytest.mark.parametrize("change", [{"batch_size": 7}, {"last": "drop"}])
def test_a_loop_does_not_go_on_in_other_batches_but_its_state_does(
    start_server: Any, quiet_config: dict[str, Any], change: dict[str, Any]
) -> None:
    quiet_config["streams"]["train"]["batch_size"] = 8
    first = start_server(quiet_config)
    with headrace.Loader(first.address, stream="train") as loader:
        iterator = iter(loader)
        seen = indices([next(iterator), next(iterator)])
        first.kill()
        quiet_config["streams"]["train"] |= change
        server = Server(quiet_config, first.config.parent).wait_ready()
        try:
            for _ in range(2):
                with pytest.raises(FingerprintMismatch, match=r"this loop counts in batches of 8 \(last: short\)"):
                    next(iterator)
            with headrace.Loader(server.address, stream="train", state=loader.state_dict()) as another:
                seen += indices(another)
        finally:
            server.kill()
    assert len(set(seen)) == len(seen) == (60 if "batch_size" in change else 56)


@pytest.mark.parametrize("part", ["dataset", "plan", "seed"])
def test_what_changed_since_the_checkpoint_is_named(
    start_server: Any, quiet_config: dict[str, Any], tmp_path: Path, part: str
) -> None:
    with headrace.Loader(start_server(quiet_config).address, stream="train") as loader:
        next(iter(loader))
        state = loader.state_dict()
    stream = quiet_config["streams"]["train"]
    if part == "dataset":
        quiet_config["sources"]["images"]["path"] = str(write_images(tmp_path / "other", classes=3, per_class=19))
    elif part == "plan":
        stream["transforms"] = stream["transforms"][:1]
    else:
        stream["seed"] = 8
    address = start_server(quiet_config).address
    with pytest.raises(FingerprintMismatch, match=f"the {part} .*changed"):
        headrace.Loader(address, stream="train", state=state)
    with headrace.Loader(address, stream="train") as loader, pytest.raises(FingerprintMismatch, match=f"the {part} "):
        loader.load_state_dict(state)


def test_something_else_than_a_state_is_refused(start_server: Any, quiet_config: dict[str, Any]) -> None:
    address = start_server(quiet_config).address
    with headrace.Loader(address, stream="train") as loader:
        good = loader.state_dict()
        for wrong in ({}, {**good, "cursor": {"epoch": -1, "origin": 0, "batch": 0}}, {**good, "batch_size": "8"}):
            with pytest.raises(InvalidArgument, match="state"):
                loader.load_state_dict(wrong)
        with pytest.raises(InvalidArgument, match=r'state: unknown member "step"; .* save values of your own beside it'):
            loader.load_state_dict({**good, "step": 7})


def test_ranks_that_disagree_get_an_error_with_both_values(start_server: Any, shard_config: dict[str, Any]) -> None:
    address = start_server(shard_config).address
    with headrace.Loader(address, stream="train", rank=0, world_size=2) as first:
        with pytest.raises(GroupMismatch, match="world size 2, rank 1 has 3"):
            headrace.Loader(address, stream="train", rank=1, world_size=3)
        next(iter(first))
        with pytest.raises(GroupMismatch, match=r"epoch 0, batch 0.*epoch 0, batch 1"):
            headrace.Loader(address, stream="train", rank=1, world_size=2, state=first.state_dict())


def test_rank_and_world_size_come_from_the_environment(
    start_server: Any, shard_config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = start_server(shard_config).address
    seen = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "2")
        with headrace.Loader(address, stream="train") as loader:
            assert loader.state_dict()["world_size"] == 2
            seen += indices(loader)
    assert sorted(seen) == list(range(60))


def test_resume_from_the_servers_memory_goes_on_with_the_uncommitted_batch(
    start_server: Any, quiet_config: dict[str, Any]
) -> None:
    address = start_server(quiet_config).address
    with headrace.Loader(address, stream="train", group="job") as loader:
        iterator = iter(loader)
        first = [(batch.number, digest) for batch, digest in ((b, next(digests([b]))) for b in (next(iterator), next(iterator)))]
    with headrace.Loader(address, stream="train", group="job", resume="server") as loader:
        batch = next(iter(loader))
        assert (batch.number, next(digests([batch]))) == first[1]
    with headrace.Loader(address, stream="train", group="job") as loader:
        assert next(iter(loader)).number == 0


def test_ranks_that_were_killed_at_different_batches_come_back_to_one_cursor(
    start_server: Any, shard_config: dict[str, Any]
) -> None:
    address = start_server(shard_config).address
    with ExitStack() as stack:
        for rank, batches in ((0, 4), (1, 3)):
            loader = stack.enter_context(headrace.Loader(address, stream="train", rank=rank, world_size=2, group="job"))
            iterator = iter(loader)
            for _ in range(batches):
                next(iterator)
    with ExitStack() as stack:
        pair = [
            stack.enter_context(
                headrace.Loader(address, stream="train", rank=rank, world_size=2, group="job", resume="server")
            )
            for rank in range(2)
        ]
        assert [loader.state_dict()["cursor"]["batch"] for loader in pair] == [2, 2]
        batches = [list(loader) for loader in pair]
        assert [len(of_rank) for of_rank in batches] == [6, 6]


def test_the_usual_loop_goes_on_behind_its_checkpoint(start_server: Any, quiet_config: dict[str, Any]) -> None:
    def numbers(loader: headrace.Loader, first: int) -> list[tuple[int, int]]:
        seen = []
        for epoch in range(first, 3):
            loader.set_epoch(epoch)
            seen += [(batch.epoch, batch.number) for batch in loader]
        return seen

    address = start_server(quiet_config).address
    with headrace.Loader(address, stream="train") as loader:
        whole = numbers(loader, 0)
        loader.set_epoch(1)
        iterator = iter(loader)
        for _ in range(3):
            next(iterator)
        state = loader.state_dict()
    with headrace.Loader(address, stream="train", state=state) as loader:
        assert numbers(loader, loader.epoch) == whole[8 + 3 :]
    with headrace.Loader(address, stream="train") as loader:
        loader.load_state_dict(state)
        assert numbers(loader, loader.epoch) == whole[8 + 3 :]
        loader.load_state_dict(state)
        next(iter(loader))
        loader.set_epoch(1)
        assert next(iter(loader)).number == 0, "set_epoch to an epoch that was begun restarts it"


def test_a_loop_that_goes_back_from_where_it_joined_is_warned(start_server: Any, quiet_config: dict[str, Any]) -> None:
    address = start_server(quiet_config).address
    with headrace.Loader(address, stream="train") as first:
        list(first), list(first)
        with headrace.Loader(address, stream="train", join="now") as joined:
            begins = joined.epoch
            with pytest.warns(RuntimeWarning, match=rf"set_epoch\(0\) goes back: this loader begins in epoch {begins}, because of join, resume or a state"):
                joined.set_epoch(0)
        with headrace.Loader(address, stream="train", join="now") as joined, warnings.catch_warnings():
            warnings.simplefilter("error")
            joined.set_epoch(joined.epoch)


def test_resume_from_the_server_needs_a_name_on_a_broadcast_stream(start_server: Any, quiet_config: dict[str, Any]) -> None:
    address = start_server(quiet_config).address
    with pytest.raises(headrace.errors.InvalidArgument, match=r"resume='server' on a broadcast stream: .* pass client='NAME'"):
        headrace.Loader(address, stream="train", resume="server")
    with headrace.Loader(address, stream="train", resume="server", client="same") as loader:
        assert next(iter(loader)).number == 0


@pytest.mark.parametrize("join", ["now", "epoch_start"])
def test_a_loader_resumes_from_the_server_or_joins_others_but_not_both(
    start_server: Any, quiet_config: dict[str, Any], join: str
) -> None:
    address = start_server(quiet_config).address
    with pytest.raises(InvalidArgument, match=rf"\(Python: resume='server'\) and join={join} both say where to begin; set only one of them"):
        headrace.Loader(address, stream="train", client="same", resume="server", join=join)
