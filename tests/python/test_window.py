"""Rows that the server decoded are kept for clients that are behind and for streams whose transforms begin alike."""

from __future__ import annotations

import contextlib
import json
import random
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import headrace
import pytest
import yaml
from children import Child
from running import Server, wait_until

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
        digest(floats, 2)
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
    assert after["decoded"] - before["decoded"] < 2 * EPOCH, "it decodes again only the epoch that was delivered before the late trainer attached"
    assert after["granted"] >= 8 * EPOCH
    listed = run("ls", "--address", str(server.address))
    assert "sharing factor 1." in listed
    (group,) = headrace.stats(server.address)["sharing"]
    assert group["streams"] == ["train"] and group["sharing_factor"] == group["granted"] / group["decoded"]
    assert (group["decoded"], group["granted"]) == (after["decoded"], after["granted"])
    assert group["decoded_in_30_s"] is group["interval_ended_seconds_ago"] is None, "no client stayed for 30 s"


@pytest.mark.filterwarnings("ignore:stream 'train'. client:RuntimeWarning")
def test_the_rows_that_a_late_trainer_needs_stay_for_later_ones(start_server: Any, quiet_config: dict[str, Any]) -> None:
    quiet_config["streams"]["train"]["ring"] = {"prefetch": 1, "max_leases": 1}
    server = start_server(quiet_config)
    digests, decoded = [], []
    with contextlib.ExitStack() as attached:
        for client in ("first", "second", "third"):
            loader = attached.enter_context(headrace.Loader(server.address, stream="train", client=client))
            digests.append(digest(loader, 2))
            decoded.append(stats(server)["train"]["decoded"])
    assert digests == [digests[0]] * 3
    assert decoded[1] >= 4 * EPOCH, "the first one's rows were not kept: nobody had begun late"
    assert decoded[2] == decoded[1], "the second one's rows were kept, although it alone needed them"


TRAIN = """
from pathlib import Path

stream, epochs, saved = sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
seen, state = json.loads(saved.read_text()) if saved.exists() else ([], None)
with headrace.Loader(address, stream=stream, state=state) as loader:
    while loader.epoch < epochs:
        for batch in loader:
            seen.append(digest(batch))
            saved.with_suffix(".new").write_text(json.dumps([seen, loader.state_dict()]))
            saved.with_suffix(".new").rename(saved)
            time.sleep(0.05)
say(batches=len(seen))
"""


def test_trainers_that_are_killed_and_resume_get_each_batch_once(start_server: Any, quiet_config: dict[str, Any], tmp_path: Path) -> None:
    epochs, trainers = 8, {"one": "train", "other": "train", "floats": "floats"}
    alone = start_server(sharing_streams(json.loads(json.dumps(quiet_config)), "0B"))
    wanted: dict[str, list[str]] = {"train": [], "floats": []}
    for stream, digests in wanted.items():
        with headrace.Loader(alone.address, stream=stream) as loader:
            for batch in (batch for _ in range(epochs) for batch in loader):
                state = headrace.Digest()
                state.add(batch)
                digests.append(state.hexdigest())

    server = start_server(sharing_streams(quiet_config))

    def start(trainer: str) -> Child:
        return Child(TRAIN, server.address, trainers[trainer], str(epochs), str(tmp_path / f"{trainer}.json"))

    def received(trainer: str) -> int:
        saved = tmp_path / f"{trainer}.json"
        return len(json.loads(saved.read_text())[0]) if saved.exists() else 0

    order = random.Random(25)
    running = {trainer: start(trainer) for trainer in trainers}
    for _ in range(12):
        victim = order.choice([trainer for trainer in trainers if received(trainer) < len(wanted[trainers[trainer]]) - 2])
        before = received(victim)
        wait_until(lambda: received(victim) > before, "a batch")  # noqa: B023
        assert received(victim) < len(wanted[trainers[victim]]), "it is killed in the middle of its training"
        with running[victim]:  # kills it
            pass
        running[victim] = start(victim)
    for trainer, child in running.items():
        with child:
            assert child.receive(60)["batches"] == len(wanted[trainers[trainer]])
        seen = json.loads((tmp_path / f"{trainer}.json").read_text())[0]
        assert seen == wanted[trainers[trainer]], trainer
    assert sum(stream["shared"] for stream in stats(server).values()) > 0


def test_a_late_trainer_on_another_stream_is_warned_and_can_join_the_foremost(start_server: Any, quiet_config: dict[str, Any]) -> None:
    config = sharing_streams(quiet_config)
    server = start_server(config)
    with headrace.Loader(server.address, stream="train", client="first") as first:
        list(first), list(first)
        with headrace.Loader(server.address, stream="floats", client="late") as late:
            with pytest.warns(RuntimeWarning, match=r"client 'late' begins \d+ batches behind the foremost client"):
                assert next(iter(late)).epoch == 0
            listed = run("ls", "--address", str(server.address))
            assert re.search(r"client late: epoch 0, batch \d+, \d+ batches( \(\d+\.\d s\))? behind the foremost client \(`first` of stream `train`\)\n", listed), listed
        with headrace.Loader(server.address, stream="floats", join="now") as joined:
            batch = next(iter(joined))
            assert batch.epoch >= 2
    server.stop()
    assert re.search(r"`late` begins \d+ batches behind the foremost client of the streams that share its rows", server.output())


def test_check_and_ls_say_what_is_shared(start_server: Any, basic_config: dict[str, Any]) -> None:
    server = start_server(sharing_streams(basic_config))
    with headrace.Loader(server.address, stream="train", client="a") as ahead, headrace.Loader(server.address, stream="train", client="b") as behind:
        next(iter(behind))
        digest(ahead, 1)
        time.sleep(1.1)  # the server measures lag four times a second
        listed = run("ls", "--address", str(server.address))
        lag = {one["client"]: one["lag_seconds"] for one in stats(server)["train"]["clients"]}
        (metric,) = re.findall(r'headrace_client_lag_seconds\{stream="train",client="b"\} (\S+)', server.metrics())
    assert lag["a"] == 0 and lag["b"] > 0
    assert float(metric) >= lag["b"], "the metric is read later, so it cannot be smaller"
    assert "client a: epoch 1, batch" in listed
    assert re.search(r"client b: epoch 0, batch \d+, \d+ batches \(\d+\.\d s\) behind the foremost client \(`a`\)\n", listed), listed
    checked = run("check", str(server.config))
    assert "streams floats, train share their first 2 transforms: their rows are decoded once" in checked
    assert re.search(r"^  windows: up to [\d.]+ [MG]B$", checked, re.MULTILINE)


def test_check_says_which_streams_do_not_share_and_why(quiet_config: dict[str, Any], tmp_path: Path) -> None:
    train = quiet_config["streams"]["train"]
    quiet_config["streams"] |= {
        "large": {"extends": "train", "batch_size": 20},
        "other_seed": {"extends": "train", "seed": 8, "shuffle": False},
        "other_crop": {**train, "transforms": [{"center_crop": {"size": 32}}]},
        "no_window": {"extends": "train", "sharing": {"window": "0B"}},
    }
    train["sharing"] = {"window": "40KB"}
    config = tmp_path / "headrace.yaml"
    config.write_text(yaml.safe_dump(quiet_config))
    checked = run("check", str(config))
    assert re.search(r"warning: sharing.window of streams \w+, \w+ has room for \d+ rows only. Set it to at least \d+\.\d KB \(40 rows", checked), checked
    apart = re.findall(r"^streams (\w+) and large share no rows: (.*)$", checked, re.MULTILINE)
    assert dict(apart) == {
        "no_window": "no_window sets `sharing.window: 0B`",
        "other_crop": "their transforms differ from number 1 on",
        "other_seed": "seed, shuffle differ",
    }
    quiet_config["sources"]["images"]["cache"] = {"decoded": "1MB"}
    config.write_text(yaml.safe_dump(quiet_config))
    assert "streams train and large share no rows: their source has a `decoded` cache\n" in run("check", str(config))


def test_check_warns_of_a_window_smaller_than_two_batches(quiet_config: dict[str, Any], tmp_path: Path) -> None:
    train = quiet_config["streams"]["train"] | {"transforms": [{"center_crop": {"size": 32}}, "random_horizontal_flip"], "sharing": {"window": "20KB"}}
    quiet_config["streams"] = {"train": train}
    config = tmp_path / "headrace.yaml"
    config.write_text(yaml.safe_dump(quiet_config))
    assert re.search(r"warning: sharing.window of stream train has room for \d rows only. Set it .*; otherwise rows are decoded again for a client that is behind\n", run("check", str(config)))
    quiet_config["streams"]["other"] = {"extends": "train", "transforms": train["transforms"][:1]}
    config.write_text(yaml.safe_dump(quiet_config))
    assert "streams other, train share their first transform: their rows are decoded once\n" in run("check", str(config))
