"""The contract of iteration in bindings/README.md."""

from __future__ import annotations

import signal
import warnings
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from children import Child
from headrace.errors import Closed, InvalidArgument, IteratorBusy, NoSuchStream

SAMPLES, BATCHES = 60, 8


def positions(loader: headrace.Loader) -> list[tuple[int, int]]:
    return [(batch.epoch, batch.number) for batch in loader]


def epoch_of(number: int) -> list[tuple[int, int]]:
    return [(number, index) for index in range(BATCHES)]


@pytest.fixture
def loader(start_server: Any, quiet_config: dict[str, Any]) -> Any:
    with headrace.Loader(start_server(quiet_config).address, stream="train") as opened:
        yield opened


def test_each_for_loop_is_one_epoch_and_epochs_follow_each_other(loader: headrace.Loader) -> None:
    assert len(loader) == BATCHES
    for epoch in range(3):
        assert loader.epoch == epoch
        assert positions(loader) == epoch_of(epoch)


def test_an_epoch_has_each_sample_once_in_a_different_order_from_the_next(loader: headrace.Loader) -> None:
    orders = [np.concatenate([batch.sample_index for batch in loader]) for _ in range(2)]
    for order in orders:
        assert sorted(order) == list(range(SAMPLES))
    assert not np.array_equal(*orders)


def test_a_for_loop_after_a_break_skips_the_rest_of_the_epoch(loader: headrace.Loader) -> None:
    for batch in loader:
        if batch.number == 2:
            break
    assert positions(loader) == epoch_of(1)


def test_a_break_in_the_last_batch_ends_the_epoch_and_skips_no_epoch(loader: headrace.Loader) -> None:
    for batch in loader:
        if batch.number == BATCHES - 1:
            break
    assert positions(loader) == epoch_of(1)


def test_an_unused_iterator_does_not_advance_the_epoch(loader: headrace.Loader) -> None:
    iter(loader)
    iter(loader)
    assert positions(loader) == epoch_of(0)


def test_an_exhausted_iterator_stays_exhausted(loader: headrace.Loader) -> None:
    iterator = iter(loader)
    assert len(list(iterator)) == BATCHES
    assert next(iterator, None) is None
    assert next(iterator, None) is None
    assert loader.epoch == 1


def test_an_older_iterator_raises_iterator_busy(loader: headrace.Loader) -> None:
    with pytest.raises(IteratorBusy, match="ITERATOR_BUSY: a later iter"):
        for _ in zip(loader, loader, strict=True):
            pass
    first = iter(loader)
    next(first)
    second = iter(loader)
    next(second)
    with pytest.raises(IteratorBusy):
        next(first)
    assert next(second).number == 1


def test_set_epoch_makes_that_epoch_the_next_one(loader: headrace.Loader) -> None:
    loader.set_epoch(7)
    assert positions(loader) == epoch_of(7)
    assert positions(loader) == epoch_of(8)
    loader.set_epoch(2)
    assert positions(loader) == epoch_of(2)


def test_set_epoch_after_iter_and_prefetch_discards_what_was_prefetched(loader: headrace.Loader) -> None:
    iterator = iter(loader)
    while loader.ready < 2:
        pass
    loader.set_epoch(5)
    assert [(batch.epoch, batch.number) for batch in iterator] == epoch_of(5)


def test_set_epoch_inside_the_loop_takes_effect_after_the_loop(loader: headrace.Loader) -> None:
    seen = []
    for batch in loader:
        loader.set_epoch(4)
        seen.append((batch.epoch, batch.number))
    assert seen == epoch_of(0)
    assert positions(loader) == epoch_of(4)


def test_set_epoch_in_the_usual_loop_gives_equal_epochs_equal_bytes(loader: headrace.Loader) -> None:
    def digest() -> str:
        state = headrace.Digest()
        for batch in loader:
            state.add(batch)
        return state.hexdigest()

    digests = []
    for epoch in (0, 1, 0, 1):
        loader.set_epoch(epoch)
        digests.append(digest())
    assert digests[:2] == digests[2:]
    assert digests[0] != digests[1]


def test_repeated_validation_gives_the_same_batches(start_server: Any, quiet_config: dict[str, Any]) -> None:
    quiet_config["streams"]["train"] |= {"shuffle": False, "transforms": [{"resize": {"size": [32, 32]}}]}
    with headrace.Loader(start_server(quiet_config).address, stream="train") as loader:
        passes = []
        for _ in range(3):
            digest = headrace.Digest()
            for batch in loader:
                digest.add(batch)
            passes.append(digest.hexdigest())
        assert len(set(passes)) == 1


def test_a_loader_that_joins_late_begins_where_join_says(start_server: Any, quiet_config: dict[str, Any]) -> None:
    quiet_config["streams"]["train"]["sharing"] = {"on_lag": "detach"}
    address = start_server(quiet_config).address
    with headrace.Loader(address, stream="train") as first:
        list(first)
        iterator = iter(first)
        for _ in range(4):
            next(iterator)
        with headrace.Loader(address, stream="train") as late:
            assert positions(late) == epoch_of(0)
        with headrace.Loader(address, stream="train", join="epoch_start") as late:
            assert positions(late) == epoch_of(1)
        with headrace.Loader(address, stream="train", join="now") as late:
            where = next(iter(late))
            assert where.epoch == 1
            assert where.number >= 4


def test_state_counts_the_batches_that_the_loop_received(loader: headrace.Loader) -> None:
    assert loader.state_dict()["cursor"] == {"epoch": 0, "origin": 0, "batch": 0}
    for batch in loader:
        expected = {"epoch": 0, "origin": 0, "batch": batch.number + 1}
        if batch.number == BATCHES - 1:
            expected = {"epoch": 1, "origin": 0, "batch": 0}
        assert loader.state_dict()["cursor"] == expected
    assert loader.state_dict()["cursor"] == {"epoch": 1, "origin": 0, "batch": 0}


def test_next_commits_the_batch_before_it(start_server: Any, quiet_config: dict[str, Any]) -> None:
    address = start_server(quiet_config).address

    def consumed() -> int:
        (lane,) = headrace.cursors(address, "train", "job")["lanes"]
        return int(lane["consumed"]["batch"])

    with headrace.Loader(address, stream="train", group="job") as loader:
        iterator = iter(loader)
        next(iterator)
        assert consumed() == 0
        next(iterator)
        assert consumed() == 1


def test_a_state_is_loaded_before_during_and_after_iteration(loader: headrace.Loader) -> None:
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    state = loader.state_dict()
    assert [batch.number for batch in iterator] == [3, 4, 5, 6, 7]

    loader.load_state_dict(state)  # after
    assert positions(loader) == epoch_of(0)[3:]
    iterator = iter(loader)
    loader.load_state_dict(state)  # before the first batch
    assert next(iterator).number == 3
    next(iterator)
    loader.load_state_dict(state)  # during
    assert [(batch.epoch, batch.number) for batch in iterator] == epoch_of(0)[3:]
    assert positions(loader) == epoch_of(1)


def test_len_is_that_of_a_full_epoch_even_after_a_state_was_loaded(loader: headrace.Loader) -> None:
    next(iter(loader))
    loader.load_state_dict(loader.state_dict())
    assert len(loader) == BATCHES


def test_a_closed_loader_raises_closed(loader: headrace.Loader) -> None:
    iterator = iter(loader)
    next(iterator)
    loader.close()
    loader.close()
    for use in (lambda: next(iterator), lambda: iter(loader), lambda: len(loader), loader.state_dict):
        with pytest.raises(Closed):
            use()


def test_errors_name_the_wrong_argument(start_server: Any, quiet_config: dict[str, Any]) -> None:
    quiet_config["streams"]["shards"] = quiet_config["streams"]["train"] | {"delivery": "shard"}
    address = start_server(quiet_config).address
    with pytest.raises(NoSuchStream, match=r"no stream 'trian'; this server has: shards, train; did you mean `train`\?"):
        headrace.Loader(address, stream="trian")
    with pytest.raises(InvalidArgument, match=r"needs a stream's name: headrace.Loader\(stream='train'\)"):
        headrace.Loader("train")
    with pytest.raises(InvalidArgument, match="needs a stream's name"):
        headrace.Loader(address)
    with headrace.Loader(address, stream="train") as loader:
        assert loader.batch_size == loader.info.batch_size == len(next(iter(loader))[1])
    for wrong in ({"output": "tensors"}, {"batch": "list"}, {"join": "later"}, {"resume": "yes"}):
        with pytest.raises(InvalidArgument, match=next(iter(wrong.values()))):
            headrace.Loader(address, stream="train", **wrong)  # type: ignore[arg-type]
    for name in ("timeout", "batch_timeout", "reconnect_timeout"):
        for value in (float("nan"), -1, "x", None):
            with pytest.raises(InvalidArgument, match=f"^INVALID_ARGUMENT: {name}={value!r}: expected "):
                headrace.Loader(address, stream="train", **{name: value})  # type: ignore[arg-type]
    for wrong in ({"rank": -1}, {"rank": "0"}, {"world_size": 0}, {"world_size": 1.5}, {"client": 7}, {"address": 7}, {"timeout": 0}):
        ((name, value),) = wrong.items()
        with pytest.raises(InvalidArgument, match=f"^INVALID_ARGUMENT: {name}={value!r}: "):
            headrace.Loader(**({"address": address, "stream": "shards"} | wrong))  # type: ignore[arg-type]
    for name in ("zero_copy", "meta"):
        with pytest.raises(InvalidArgument, match=f"^INVALID_ARGUMENT: {name}='no': expected True or False"):
            headrace.Loader(address, stream="train", **{name: "no"})  # type: ignore[arg-type]
    for name in ("stream", "group", "client"):
        with pytest.raises(InvalidArgument, match=rf"^INVALID_ARGUMENT: {name}='a\\nb': contains control characters"):
            headrace.Loader(address, **({"stream": "train"} | {name: "a\nb"}))
    with headrace.Loader(address, stream="train") as loader:
        with pytest.raises(InvalidArgument, match="expected 0 to 281474976710656"):
            loader.set_epoch(2**48 + 1)
        loader.set_epoch(2**48)
        with pytest.raises(InvalidArgument, match="pass what state_dict"):
            loader.load_state_dict({"cursor": object()})
        with pytest.raises(InvalidArgument, match=r"state: expected the dict that state_dict\(\) returned, found NoneType"):
            loader.load_state_dict(None)  # type: ignore[arg-type]
    for state, found in (({}, "an empty dict"), ("ckpt", "str")):
        with pytest.raises(InvalidArgument, match=rf"the dict that state_dict\(\) returned, or None to start anew, found {found}"):
            headrace.Loader(address, stream="train", state=state)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="expected a dict"):
        headrace.serve("none.yaml", set=["a"])  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="stream=None: expected a str"):
        headrace.Loader(address, stream=None)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="rank 2 of world size 2"):
        headrace.Loader(address, stream="shards", rank=2, world_size=2)
    with pytest.raises(InvalidArgument, match="the client name has 1000 bytes, expected at most 200"):
        headrace.Loader(address, stream="train", client="x" * 1000)
    with pytest.raises(InvalidArgument, match="join=cursor needs a state"):
        headrace.Loader(address, stream="train", join="cursor")
    with pytest.raises(InvalidArgument, match="torch has no read-only tensors"):
        headrace.Loader(address, stream="train", output="torch", zero_copy=True)
    with headrace.Loader(Path(address), stream="train") as loader:
        for epoch in (-1, 1.5, "1"):
            with pytest.raises(InvalidArgument, match=f"epoch={epoch!r}: "):
                loader.set_epoch(epoch)  # type: ignore[arg-type]
        state = loader.state_dict()
        with pytest.raises(TypeError, match="iterate over it, without a DataLoader"):
            loader[0]
    for also in ({"join": "now"}, {"resume": "server"}):
        with pytest.raises(InvalidArgument, match="the state says where to begin"):
            headrace.Loader(address, stream="train", state=state, **also)  # type: ignore[arg-type]
    state["cursor"]["batch"] = 10**9
    with pytest.raises(InvalidArgument, match="batch 1000000000 is beyond an epoch of 60 samples"):
        headrace.Loader(address, stream="train", state=state)


def test_an_invalid_rank_or_world_size_in_the_environment_is_named(
    start_server: Any, quiet_config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet_config["streams"]["train"] |= {"delivery": "shard"}
    address = start_server(quiet_config).address
    for variable, value in (("RANK", "x"), ("RANK", ""), ("WORLD_SIZE", "0")):
        with monkeypatch.context() as environment:
            environment.setenv(variable, value)
            with pytest.raises(InvalidArgument, match=f"{variable}={value!r}"):
                headrace.Loader(address, stream="train")


def test_several_ranks_on_a_broadcast_stream_raise_a_warning(
    start_server: Any, quiet_config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = start_server(quiet_config).address
    with pytest.warns(RuntimeWarning, match="^world_size=3, but stream 'train' is broadcast") as seen:
        headrace.Loader(address, stream="train", rank=1, world_size=3).close()
    assert seen[0].filename == __file__, "the caller's line"
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.warns(RuntimeWarning, match="^WORLD_SIZE=2, but stream 'train' is broadcast: every rank gets every batch"):
        headrace.Loader(address, stream="train").close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        headrace.Loader(address, stream="train", rank=0, world_size=1).close()


def test_after_an_error_the_next_for_continues_with_the_undelivered_batch(start_server: Any, quiet_config: dict[str, Any]) -> None:
    quiet_config["server"] |= {"evict_after": "1s"}
    address = start_server(quiet_config).address
    code = """
loader = headrace.Loader(address, stream="train")
seen = []
say(pid=os.getpid())
for attempt in range(2):
    try:
        for batch in loader:
            seen.append((batch.epoch, batch.number))
            if len(seen) == 3:
                say(stop="me")
                sys.stdin.readline()
    except headrace.errors.LeaseFenced as error:
        say(error=str(error))
say(seen=seen)
"""
    with Child(code, address) as child:
        child.receive()
        child.receive()
        child.fence(address)
        child.resume()
        assert "epoch 0, batch 3" in child.receive()["error"]
        assert child.receive()["seen"] == [[0, number] for number in range(8)]


class Interrupted(Exception):
    pass


def test_a_signal_handler_that_raises_loses_no_batch(
    loader: headrace.Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    states = []

    def handler(number: int, frame: object) -> None:
        states.append(loader.state_dict()["cursor"]["batch"])
        raise Interrupted

    def interrupted(raw: Any) -> Any:  # raises a signal while the batch is received but not yet returned to the loop
        signal.raise_signal(signal.SIGUSR1)

    assemble = loader._assemble
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        for at in (0, 3, BATCHES - 1):
            iterator = iter(loader)
            while len(seen) < at:
                batch = next(iterator)
                seen.append((batch.epoch, batch.number))
            monkeypatch.setattr(loader, "_assemble", interrupted)
            with pytest.raises(Interrupted):
                next(iterator)
            monkeypatch.setattr(loader, "_assemble", assemble)
            assert loader.state_dict()["cursor"]["batch"] == at
        seen += positions(loader)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == epoch_of(0)
    assert states == [0, 3, BATCHES - 1]
    assert positions(loader) == epoch_of(1)


def test_a_seek_after_an_error_replaces_the_undelivered_batch(loader: headrace.Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(raw: Any) -> Any:
        raise Interrupted

    assemble = loader._assemble
    loader.set_epoch(5)
    state = loader.state_dict()
    for seek in (lambda: loader.set_epoch(5), lambda: loader.load_state_dict(state)):
        loader.set_epoch(2)
        monkeypatch.setattr(loader, "_assemble", broken)
        with pytest.raises(Interrupted):
            next(iter(loader))
        monkeypatch.setattr(loader, "_assemble", assemble)
        seek()
        assert positions(loader) == epoch_of(5)
