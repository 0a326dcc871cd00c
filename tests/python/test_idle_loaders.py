"""Loaders of one process that need the same rank, name or lane: idle ones detach, others are named in an error."""

from __future__ import annotations

from typing import Any

import headrace
import pytest
from children import Child
from headrace._ranks import Claim, claim_rank
from headrace.errors import ClientNameTaken, Error, RankTaken, RingFull


@pytest.fixture
def address(start_server: Any, quiet_config: dict[str, Any]) -> str:
    """60 samples in batches of 8, divided by ranks; two lanes."""
    quiet_config["streams"]["train"] |= {"delivery": "shard", "ring": {"max_clients": 2}}
    served: str = start_server(quiet_config).address
    return served


def test_an_idle_loader_frees_its_rank_for_the_next_one_of_its_process(address: str) -> None:
    """A notebook's cell that is run twice."""
    first = headrace.Loader(address, stream="train")
    iterator = iter(first)
    kept = [next(iterator), next(iterator)]
    with pytest.raises(RankTaken):  # `first` is in a loop
        headrace.Loader(address, stream="train", timeout=3)
    del iterator
    with headrace.Loader(address, stream="train") as second:
        assert next(iter(second)).number == 0
    assert first.state_dict()["cursor"] == {"epoch": 0, "origin": 0, "batch": 2}
    assert [(batch.epoch, batch.number) for batch in first] == [(1, number) for number in range(8)], "its `break` ended epoch 0"
    assert [batch.number for batch in kept] == [0, 1]


@pytest.mark.parametrize("device", [None, "host"])
def test_a_loader_that_was_detached_after_an_exception_resumes_at_the_undelivered_batch(address: str, device: str | None) -> None:
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


def test_the_error_names_a_holder_in_this_process_and_says_what_to_do(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = headrace.Loader(address, stream="train")
    with pytest.raises(RankTaken, match=r"rank 0 .*The holder is a Loader of this process, which has not been iterated over yet: close\(\) it first.*`group`"):
        headrace.Loader(address, stream="train")
    iterator = iter(first)
    next(iterator)
    monkeypatch.setenv("HEADRACE_ADDRESS", address)
    with pytest.raises(RankTaken, match=r"of this process, which is in a loop"):
        headrace.Loader(stream="train", rank=0, group="default")  # the same rank, spelled differently
    first.close()
    headrace.Loader(stream="train").close()


def test_a_holder_in_another_process_gives_the_servers_message(address: str) -> None:
    with Child("loader = headrace.Loader(address, stream='train', client='far')\nsay()\nsys.stdin.readline()", address) as child:
        child.receive()
        with pytest.raises(RankTaken, match=rf"held by `far` .pid {child.pid}.: give each process of a job its own rank"):
            headrace.Loader(address, stream="train")


def test_a_client_name_is_freed_by_an_idle_loader_and_otherwise_the_error_names_the_holder(address: str) -> None:
    first = headrace.Loader(address, stream="train", client="notebook")
    with pytest.raises(ClientNameTaken, match=r"`notebook` .*a name of its own \(Loader\(client=\.\.\.\)\)\. The holder is a Loader of this process.*`client`"):
        headrace.Loader(address, stream="train", client="notebook")
    assert len(list(first)) == 8
    with headrace.Loader(address, stream="train", client="notebook") as second:
        assert len(list(second)) == 8
    assert {batch.epoch for batch in first} == {1}


def test_idle_loaders_detach_when_the_ring_is_full(address: str) -> None:
    """Three loaders of one process on two lanes: each pass continues where its loader was."""
    loaders = [headrace.Loader(address, stream="train", group=f"job{index}") for index in range(2)]
    with pytest.raises(RingFull, match=r"has 2 clients.*this process has 2 of the clients, each in a loop or not yet begun"):
        headrace.Loader(address, stream="train", group="job2")
    for loader in loaders:
        assert len(list(loader)) == 8
    loaders.append(headrace.Loader(address, stream="train", group="job2"))
    seen = [[(batch.epoch, batch.number) for batch in loader] for _ in range(2) for loader in loaders]
    assert [passes[0][0] for passes in seen] == [1, 1, 0, 2, 2, 1]
    assert all([number for _, number in passes] == list(range(8)) for passes in seen)


def test_a_ring_full_of_other_processes_is_reported_at_once(address: str) -> None:
    code = "loaders = [headrace.Loader(address, stream='train', group=name) for name in 'ab']\nsay()\nsys.stdin.readline()"
    with Child(code, address) as child:
        child.receive()
        with pytest.raises(RingFull, match="the most that ring.max_clients allows; `headrace ls` shows them"):
            headrace.Loader(address, stream="train")


class IdleLoader:
    """A loader that is idle after its first loop."""

    def __init__(self) -> None:
        self._claim: Claim
        self.attached = True

    def _is_attached(self) -> bool:
        return self.attached

    def _running(self) -> object | None:
        return None

    def _park(self) -> bool:
        self.attached = False
        return True

    def close(self) -> None:
        self.attached = False


@pytest.mark.parametrize("kind", [RankTaken, ClientNameTaken])
def test_an_idle_loader_detaches_for_each_kind_of_refusal(kind: type[Error]) -> None:
    first, second = IdleLoader(), IdleLoader()
    claim = Claim("/run/server", "train", "default", 0, "notebook")
    assert claim_rank(first, claim, lambda: 1) == 1

    def attach() -> int:
        if first.attached:
            raise kind("another loader has it")
        return 2

    assert claim_rank(second, claim, attach) == 2


def test_a_refusal_is_passed_on_if_no_loader_of_this_process_has_the_rank() -> None:
    first, second = IdleLoader(), IdleLoader()
    claim_rank(first, Claim("/run/server", "train", "default", 0, "notebook"), lambda: 1)

    def attach() -> int:
        raise RankTaken("another loader has it")

    with pytest.raises(RankTaken, match="^RANK_TAKEN: another loader has it$"):
        claim_rank(second, Claim("/run/server", "train", "default", 1, "notebook"), attach)
    assert first.attached
