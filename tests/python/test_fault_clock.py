"""The system's clock is stepped by a day, for the server and a trainer: nothing depends on it but the log's times."""

from __future__ import annotations

import re
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import headrace
import pytest
from children import Child
from conftest import ServerFactory
from running import Server, wait_until
from shims import WALL_CLOCK, Shared, preload

DAY = 86_400

TRAIN = """
loader = headrace.Loader(address, stream="train", client="trainer", batch_timeout=30)
while sys.stdin.readline():
    numbers = [batch.number for batch in loader]
    say(numbers=numbers, day=time.strftime("%Y-%m-%d", time.gmtime()))
"""


def last_day(server: Server) -> str:
    days: list[str] = re.findall(r'"time":"(\d{4}-\d{2}-\d{2})T', server.output())
    return days[-1]


@pytest.fixture
def shifted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shared:
    """Its value is the offset of the wall clock in the processes that are started from here on, in seconds."""
    offset = Shared(tmp_path / "offset")
    monkeypatch.setenv("CLOCK_OFFSET", str(offset.path))
    monkeypatch.setenv("LD_PRELOAD", preload(tmp_path, WALL_CLOCK))
    return offset


def test_steps_of_the_clock_disturb_nobody(shifted: Shared, start_server: ServerFactory, quiet_config: dict[str, Any]) -> None:
    quiet_config["server"] |= {"evict_after": "5s", "log_format": "json"}
    server = start_server(quiet_config)
    with Child(TRAIN, server.address) as trainer:
        for step, days in enumerate([0, 1, -1, 0, 400, -400, 0]):
            shifted.value = days * DAY
            trainer.go_on()
            heard = trainer.receive(60)
            assert heard["numbers"] == list(range(8)), f"after step {step}"
            expected = {(datetime.now(UTC) + timedelta(days=days, seconds=s)).strftime("%Y-%m-%d") for s in (-60, 0, 60)}
            assert heard["day"] in expected, "the clock was stepped for the trainer"
            (client,) = headrace.stats(server.address)["streams"]["train"]["clients"]
            assert not client["fenced"] and 0 <= client["wait_seconds"] < 600
        shifted.value = DAY
        headrace.Loader(server.address, stream="train", client="late").close()  # attaches, and is logged
        wait_until(lambda: "client `late`" in server.output(), "the log's line")
        assert last_day(server) > datetime.now(UTC).strftime("%Y-%m-%d"), "the clock was stepped for the server, too"
    assert server.stop() == 0


def test_a_clock_that_jumps_evicts_nobody_early_and_delays_no_drain(
    shifted: Shared, start_server: ServerFactory, quiet_config: dict[str, Any]
) -> None:
    quiet_config["server"] |= {"evict_after": "3s"}
    server = start_server(quiet_config)
    with Child(TRAIN, server.address) as trainer:
        trainer.go_on()
        trainer.receive()
        trainer.signal(signal.SIGSTOP)
        stopped = time.monotonic()
        for days in (1, -1, 2):
            shifted.value = days * DAY

        def fenced() -> bool:
            (client,) = headrace.stats(server.address)["streams"]["train"]["clients"]
            return bool(client["fenced"])

        wait_until(fenced, "the eviction", 60)
        assert time.monotonic() - stopped > 2, "not at the jump"
        shifted.value = -DAY
        begun = time.monotonic()
        assert server.stop() == 0, "the drain's limit is not a day"
        assert time.monotonic() - begun < 14
