"""A server that is killed again and again within one epoch, and a trainer that is restarted alone."""

from __future__ import annotations

import os
import random
import re
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import headrace
import pytest
from children import Child
from conftest import ServerFactory
from running import Server, wait_until

KILLS = 200 if os.environ.get("HEADRACE_STRESS") else 40
BATCHES_PER_KILL = 25
AHEAD = 40  # batches that a consumer may get beyond those after which the next kill is due


class Consumer(threading.Thread):
    """One epoch of a stream: its digest, and the batches' numbers. It stops at `limit` until that is raised."""

    def __init__(self, address: str, limit: float, **loader: Any) -> None:
        super().__init__(daemon=True)
        self.arguments, self.limit = {"address": address, "reconnect_timeout": 60, **loader}, limit
        self.digest = headrace.Digest()
        self.numbers: list[int] = []
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            with headrace.Loader(**self.arguments) as loader:
                for batch in loader:
                    self.digest.add(batch)
                    self.numbers.append(batch.number)
                    while len(self.numbers) >= self.limit:
                        time.sleep(0.001)
        except Exception as error:
            self.error = error


def consumers(address: str, limit: float) -> list[Consumer]:
    """Two that each get every batch, and two that divide the epoch."""
    whole = [Consumer(address, limit, stream="all", client=f"all{i}") for i in range(2)]
    all_ = whole + [Consumer(address, limit, stream="divided", rank=rank, world_size=2) for rank in range(2)]
    for each in all_:
        each.start()
    return all_


def results(ran: list[Consumer]) -> list[tuple[str, list[int]]]:
    for consumer in ran:
        consumer.join()
        if consumer.error:
            raise consumer.error
    return [(consumer.digest.hexdigest(), consumer.numbers) for consumer in ran]


@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore:.*batches behind:RuntimeWarning")
def test_a_server_killed_many_times_in_an_epoch_costs_no_consumer_a_sample(tmp_path: Path) -> None:
    """Several streams and consumers; every fourth kill hits a server that is still starting."""
    batches = KILLS * BATCHES_PER_KILL + 2 * AHEAD
    stream = {"source": "rows", "batch_size": 4, "seed": 3}
    config = {
        "server": {"threads": 1, "metrics": "off"},
        "sources": {"rows": {"type": "synthetic", "count": 8 * batches, "bytes": 600}},
        "streams": {"all": {**stream, "batch_size": 8}, "divided": {**stream, "delivery": "shard"}},
    }
    (tmp_path / "calm").mkdir()
    (tmp_path / "killed").mkdir()
    calm = Server(config, tmp_path / "calm").wait_ready()
    expected = results(consumers(calm.address, batches + 1))
    assert [numbers for _, numbers in expected] == [list(range(batches))] * 4
    assert calm.stop() == 0

    moment = random.Random(10)
    server = Server(config, tmp_path / "killed").wait_ready()
    running = consumers(server.address, 0)
    for kill in range(KILLS):
        due = (kill + 1) * BATCHES_PER_KILL
        for each in running:
            each.limit = due + AHEAD
        end = time.monotonic() + 60
        while any(len(each.numbers) < due and each.is_alive() for each in running):
            assert time.monotonic() < end, [len(each.numbers) for each in running]
            time.sleep(0.001)
        time.sleep(moment.uniform(0, 0.03))
        server.kill()
        server = Server(config, tmp_path / "killed")
        if kill % 4 == 3:
            time.sleep(moment.uniform(0, 0.1))
            server.kill()
            server = Server(config, tmp_path / "killed")
    assert all(each.is_alive() for each in running), "all kills were in one epoch"
    for each in running:
        each.limit = batches + 1
    assert results(running) == expected
    assert server.wait_ready().stop() == 0


TRAIN = """
loader = headrace.Loader(address, stream="train", client=sys.argv[2], group=sys.argv[2], resume="server" if sys.argv[3] else None)
say(attached=True)
while True:
    for batch in loader:
        time.sleep(0.01)
"""


def client(address: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next((c for c in headrace.stats(address)["streams"]["train"]["clients"] if c["client"] == name), {})
    return found


def epoch_of(address: str, name: str) -> int:
    found = client(address, name)
    return int(found["next"]["epoch"]) if found else -1


def sharing_later(address: str) -> float:
    """The sharing factor of four epochs, once `one` has come to where `other` is now."""
    there = epoch_of(address, "other") + 1
    wait_until(lambda: epoch_of(address, "one") >= there, "the epochs that were delivered before")
    (before,) = headrace.stats(address)["sharing"]
    wait_until(lambda: epoch_of(address, "one") >= there + 4, "the trainers' epochs")
    (after,) = headrace.stats(address)["sharing"]
    return float((after["granted"] - before["granted"]) / max(1, after["decoded"] - before["decoded"]))


def test_a_trainer_restarted_alone_shares_again_and_the_cost_is_shown(start_server: ServerFactory, quiet_config: dict[str, Any]) -> None:
    address = start_server(quiet_config).address
    with Child(TRAIN, address, "other", "") as other:
        other.receive()
        with Child(TRAIN, address, "one", "") as one:
            one.receive()
            assert sharing_later(address) > 1.5
        left = epoch_of(address, "other")  # `one` was killed
        wait_until(lambda: epoch_of(address, "other") >= left + 3, "the other trainer to go on alone")
        with Child(TRAIN, address, "one", "again") as one:
            one.receive()
            wait_until(lambda: client(address, "one").get("lag", 0) > 8, "the restarted trainer's lag")
            listed = subprocess.run(["headrace", "ls", "--address", address], capture_output=True, text=True, check=True).stdout
            assert re.search(r"client one: epoch \d+, batch \d+, \d+ batches.* behind the foremost client \(`other`\)", listed), listed
            assert re.search(r"sharing factor \d\.", listed), listed
            recovered = sharing_later(address)
    assert recovered > 1.5, f"{recovered:.2f}: both trainers get each row that is decoded"
