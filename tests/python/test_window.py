"""Rows that the server decoded are kept for clients that are behind and for streams whose transforms begin alike."""

from __future__ import annotations

import json
import re
import subprocess
import time
from typing import Any

import headrace
from running import Server

EPOCH = 60  # images


def digest(loader: headrace.Loader, epochs: int) -> str:
    digest = headrace.Digest()
    for _ in range(epochs):
        for batch in loader:
            digest.add(batch)
    return digest.hexdigest()


def stats(server: Server) -> dict[str, Any]:
    return json.loads(run("stats", "--address", str(server.address)))["streams"]  # type: ignore[no-any-return]


def run(*command: str) -> str:
    return subprocess.run(["headrace", *command], check=True, capture_output=True, text=True).stdout


def sharing_streams(config: dict[str, Any], window: str | None = None) -> dict[str, Any]:
    """`train`, and `floats` with another batch size, more transforms and another dtype."""
    train = config["streams"]["train"]
    more = [*train["transforms"], {"color_jitter": {"brightness": 0.4}}, {"normalize": {"mean": [0.5] * 3, "std": [0.2] * 3}}]
    config["streams"]["floats"] = {**train, "batch_size": 11, "transforms": more, "output": {"dtype": "float32"}}
    if window:
        for stream in config["streams"].values():
            stream["sharing"] = {"window": window}
    return config


def test_streams_that_begin_alike_share_rows_and_keep_their_batches(start_server: Any, quiet_config: dict[str, Any]) -> None:
    alone = start_server(sharing_streams(json.loads(json.dumps(quiet_config)), "0B"))
    wanted = {}
    for name in ("train", "floats"):
        with headrace.Loader(alone.address, stream=name) as loader:
            wanted[name] = digest(loader, 3)
    assert all(stream["shared"] == 0 for stream in stats(alone).values())

    server = start_server(sharing_streams(quiet_config))
    with headrace.Loader(server.address, stream="train") as train, headrace.Loader(server.address, stream="floats") as floats:
        batches = {"train": iter(train), "floats": iter(floats)}
        next(batches["train"]), next(batches["floats"])  # both are attached: from here on rows are kept for the other one
        assert digest(floats, 2) != ""
        assert stats(server)["train"]["window_bytes"] > 0, "kept for `train`, which is behind"
    for name in ("train", "floats"):
        with headrace.Loader(server.address, stream=name) as loader:
            assert digest(loader, 3) == wanted[name]


def test_a_late_trainer_gets_the_rows_that_are_made_from_then_on(start_server: Any, quiet_config: dict[str, Any]) -> None:
    quiet_config["streams"]["train"]["ring"] = {"prefetch": 1, "max_leases": 1}
    server = start_server(quiet_config)
    with headrace.Loader(server.address, stream="train", client="first") as first, headrace.Loader(server.address, stream="train", client="late") as late:
        ahead = digest(first, 1)
        assert next(iter(late)).number == 0
        later = digest(first, 3)
        before = stats(server)["train"]
        late.set_epoch(0)
        assert digest(late, 1) == ahead
        assert digest(late, 3) == later
        after = stats(server)["train"]
    decoded = after["samples"] - after["shared"] - before["samples"] + before["shared"]
    assert decoded < 2 * EPOCH, "only the first epoch, which the first trainer read before the late one came"
    assert after["granted"] >= 8 * EPOCH
    listed = run("ls", "--address", str(server.address))
    assert "sharing factor 1." in listed


def test_check_and_ls_say_what_is_shared(start_server: Any, basic_config: dict[str, Any]) -> None:
    server = start_server(sharing_streams(basic_config))
    with headrace.Loader(server.address, stream="train", client="a") as ahead, headrace.Loader(server.address, stream="train", client="b") as behind:
        next(iter(behind))
        digest(ahead, 1)
        time.sleep(1.1)  # no pace is known in the first second
        listed = run("ls", "--address", str(server.address))
        lag = {one["client"]: one["lag_seconds"] for one in stats(server)["train"]["clients"]}
        assert 'headrace_client_lag_seconds{stream="train",client="b"}' in server.metrics()
    assert lag["a"] == 0 and lag["b"] > 0
    assert "client a: epoch 1, batch" in listed
    assert re.search(r"client b: epoch 0, batch \d+, \d+ batches \(\d+\.\d s\) behind the first", listed), listed
    checked = run("check", str(server.config))
    assert "streams floats, train share their first 2 transforms: their rows are decoded once" in checked
    assert "windows up to" in checked
