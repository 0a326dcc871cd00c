"""Loops whose server is killed: they wait for it, say so, and give up in the end."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import headrace
import pytest
from headrace.errors import ServerLost
from running import Server


@contextmanager
def left_alone(config: dict[str, Any], folder: Path, reconnect_timeout: float) -> Iterator[tuple[headrace.Loader, Iterator[Any]]]:
    """A loop whose server was killed after its first batch."""
    server = Server(config, folder).wait_ready()
    with headrace.Loader(server.address, stream="train", reconnect_timeout=reconnect_timeout) as loader:
        iterator = iter(loader)
        next(iterator)
        server.kill()
        yield loader, iterator


def test_waiting_for_a_dead_server_ends_with_a_named_error(quiet_config: dict[str, Any], tmp_path: Path) -> None:
    with (
        left_alone(quiet_config, tmp_path, 0.5) as (_, iterator),
        pytest.raises(ServerLost, match=r"did not return within 0\.[5-7] s.*no server listens"),
    ):
        for _ in iterator:
            pass


def test_a_stream_attaches_to_its_server_even_after_it_gave_up(quiet_config: dict[str, Any], tmp_path: Path) -> None:
    with left_alone(quiet_config, tmp_path, 0.3) as (loader, iterator):
        for _ in range(2):
            with pytest.raises(ServerLost, match="did not return within 0.3"):
                while True:
                    next(iterator)
        at = loader.state_dict()["cursor"]["batch"]
        server = Server(quiet_config, tmp_path).wait_ready()
        assert next(iterator).number == at
    assert server.stop() == 0


def test_a_loop_says_that_its_server_is_away_and_that_it_is_back(quiet_config: dict[str, Any], tmp_path: Path) -> None:
    with left_alone(quiet_config, tmp_path, 60) as (_, iterator), pytest.warns(RuntimeWarning) as said:
        started: list[Server] = []
        thread = threading.Timer(3.5, lambda: started.append(Server(quiet_config, tmp_path)))
        thread.start()
        assert [batch.number for batch in iterator] == list(range(1, 8))
        thread.join()
        texts = [str(warning.message) for warning in said]
    assert len(texts) == 2
    assert "waiting up to 60 s for it to come back" in texts[0]
    assert texts[1] == f"stream 'train': the server in {tmp_path / 'run'} is back"
    assert started[0].stop() == 0


def test_a_warning_that_is_an_error_leaves_a_loop_where_it_moves_to(quiet_config: dict[str, Any], tmp_path: Path) -> None:
    with left_alone(quiet_config, tmp_path, 60) as (loader, _), warnings.catch_warnings():
        warnings.filterwarnings("error", message=".* is back")
        warnings.filterwarnings("ignore", message=".* waiting up to")
        started: list[Server] = []
        thread = threading.Timer(3.5, lambda: started.append(Server(quiet_config, tmp_path)))
        thread.start()
        with pytest.raises(RuntimeWarning, match="is back"):
            loader.set_epoch(2)
            next(iter(loader))
        thread.join()
        assert loader.state_dict()["cursor"]["epoch"] == 2
        assert [(batch.epoch, batch.number) for batch in loader] == [(2, number) for number in range(8)]
    assert started[0].stop() == 0
