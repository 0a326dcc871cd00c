"""Clients that are killed thousands of times or stop for long: they leave nothing behind, and use only what is theirs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import headrace
import pytest
from children import Child
from conftest import ServerFactory
from running import Server, wait_until
from test_endless_messages import resident

STRESS = bool(os.environ.get("HEADRACE_STRESS"))
CYCLES = 10_000 if STRESS else 500
STOPPED = 30.0 if STRESS else 3.0  # seconds


def churn(server: Server, cycles: int) -> None:
    """A program without headrace and its threads, because it forks once for each cycle."""
    program = Path(__file__).with_name("raw_client.py")
    done = subprocess.run([sys.executable, program, server.address, "train", str(cycles)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def held(server: Server) -> dict[str, int]:
    """What a server could leak, in numbers that do not vary while it is idle."""
    process = Path(f"/proc/{server.popen.pid}")
    stream = headrace.stats(server.address)["streams"]["train"]
    return {
        "descriptors": len(list((process / "fd").iterdir())),
        "threads": len(list((process / "task").iterdir())),
        "mappings": len((process / "maps").read_text().splitlines()),
        "leased slots": stream["slots"]["leased"],
        "clients": len(stream["clients"]),
    }


def epoch_digest(address: str) -> str:
    digest = headrace.Digest()
    with headrace.Loader(address, stream="train") as loader:
        for batch in loader:
            digest.add(batch)
    return digest.hexdigest()


@pytest.mark.timeout(1800)
def test_thousands_of_killed_clients_leave_nothing_behind(start_server: ServerFactory, quiet_config: dict[str, Any]) -> None:
    server = start_server(quiet_config)
    expected = epoch_digest(server.address)
    churn(server, 100)  # by then the server has allocated what it keeps
    wait_until(lambda: held(server)["clients"] == 0, "the killed clients' end")
    before, memory = held(server), resident(server)
    reclaimed = headrace.stats(server.address)["streams"]["train"]["leases_reclaimed"]
    churn(server, CYCLES)

    def difference() -> dict[str, tuple[int, int]]:
        after = held(server)
        return {name: (before[name], after[name]) for name in before if name != "mappings" and after[name] > before[name]}

    wait_until(lambda: not difference(), f"the server to have no more than before: {difference()}")
    assert held(server)["mappings"] < before["mappings"] + 20, "the allocator's vary; one for each client would be hundreds"
    assert (grown := resident(server) - memory) < 16_000_000, f"the server grew by {grown} bytes"
    stream = headrace.stats(server.address)["streams"]["train"]
    assert stream["leases_reclaimed"] > reclaimed, "clients were killed that held batches"
    assert stream["slots"]["free"] + stream["slots"]["filling"] + stream["slots"]["ready"] > 0
    assert epoch_digest(server.address) == expected


STUCK = """
loader = headrace.Loader(address, stream="train", zero_copy=True, client="stuck", rank=int(sys.argv[2]), world_size=2, group=sys.argv[3])
iterator = iter(loader)
batch = next(iterator)
before = digest(batch)
say(number=batch.number)
sys.stdin.readline()
say(unchanged=digest(batch) == before, rest=[batch.number for batch in iterator])
"""


def client(address: str, name: str) -> dict[str, Any]:
    (found,) = (one for one in headrace.stats(address)["streams"]["train"]["clients"] if one["client"] == name)
    value: dict[str, Any] = found
    return value


@pytest.mark.parametrize("delivery", ["broadcast", "shard"])
def test_a_stopped_client_uses_its_own_budget_and_costs_the_others_no_speed(
    start_server: ServerFactory, quiet_config: dict[str, Any], delivery: str
) -> None:
    quiet_config["server"] |= {"evict_after": "10m"}
    shard = delivery == "shard"
    quiet_config["streams"]["train"] |= {"delivery": delivery, "batch_size": 4, "ring": {"max_leases": 2}}
    if not shard:
        quiet_config["streams"]["train"]["sharing"] = {"max_lag": 4}
    address = start_server(quiet_config).address

    def epochs_per_second(loader: headrace.Loader, seconds: float) -> float:
        begin, epochs = time.monotonic(), 0
        while epochs < 3 or time.monotonic() - begin < seconds:
            assert sum(1 for _ in loader) == len(loader)
            epochs += 1
        return epochs / (time.monotonic() - begin)

    job: dict[str, Any] = {"rank": 0, "world_size": 2, "group": "job"} if shard else {}
    with headrace.Loader(address, stream="train", client="healthy", **job) as healthy:
        alone = epochs_per_second(healthy, 1.0)
        with Child(STUCK, address, "1", "job" if shard else "other") as stuck:
            assert stuck.receive()["number"] == 0
            stuck.signal(signal.SIGSTOP)
            beside = epochs_per_second(healthy, STOPPED)
            stopped, stream = client(address, "stuck"), headrace.stats(address)["streams"]["train"]
            assert not stopped["fenced"], "it was not evicted, so all of this was its own budget"
            assert stopped["leases"] <= 2 + 1, "ring.max_leases, and the batch that is granted next"
            assert beside > alone / 4, f"{alone:.1f} epochs a second alone, {beside:.1f} beside a stopped client"
            if not shard:
                assert stopped["lag"] > 4 and stream["detachments"] == 1, "it is behind more than sharing.max_lag allows"
            stuck.resume()
            heard = stuck.receive(60)
            assert heard["unchanged"], "the batch that it held"
            assert heard["rest"] == list(range(1, len(healthy)))
