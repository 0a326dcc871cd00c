"""A real server under external faults: a second server, kills during the start, signals, broken configurations."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import headrace
import pytest
import yaml
from children import Child
from conftest import ServerFactory
from images import write_images
from running import Server, headrace_binary, http_get, wait_until


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([headrace_binary(), *arguments], capture_output=True, text=True, timeout=60, check=False, **options)


def test_a_second_server_in_one_directory_says_who_holds_it(
    start_server: ServerFactory, basic_config: dict[str, Any], tmp_path: Path
) -> None:
    first = start_server(basic_config)
    second = run("serve", str(first.config))
    assert second.returncode == 3
    assert "DIRECTORY_IN_USE" in second.stderr
    assert f"pid {first.popen.pid}" in second.stderr
    assert "give this one a server.directory and a server.metrics.port of its own" in second.stderr
    assert headrace.streams(first.address), "the first one serves on"


def test_a_metrics_port_in_use_is_named_with_its_key(basic_config: dict[str, Any], tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        config.write_text(json.dumps(basic_config | {"server": {"directory": str(tmp_path / "run"), "metrics": {"port": port}}}))
        refused = run("serve", str(config))
    assert refused.returncode == 3
    assert f"metrics port {port} of 127.0.0.1 is in use, perhaps by another server: set another server.metrics.port" in refused.stderr
    refused = run("serve", str(config), "--set", "server.metrics.address=192.0.2.1")
    assert f"metrics port {port} of 192.0.2.1 cannot be bound (Cannot assign requested address): correct" in refused.stderr


def test_a_server_killed_while_starting_twice_leaves_nothing_to_clean(
    basic_config: dict[str, Any], tmp_path: Path
) -> None:
    folder = write_images(tmp_path / "many", classes=2, per_class=60)
    basic_config["sources"]["images"]["path"] = str(folder)
    basic_config["streams"]["train"]["ring"] = {"prefetch": 8, "max_clients": 16}
    for delay in (0.005, 0.03):
        server = Server(basic_config, tmp_path)
        time.sleep(delay)
        server.popen.send_signal(signal.SIGKILL)
        server.popen.wait()
    server = Server(basic_config, tmp_path).wait_ready()
    try:
        with headrace.Loader(server.address, stream="train") as loader:
            assert sum(1 for _ in loader) == len(loader)
    finally:
        assert server.stop() == 0
    assert sorted(p.name for p in Path(server.address).iterdir()) == ["lock"]


def test_a_server_can_start_right_after_another_one_was_killed(basic_config: dict[str, Any], tmp_path: Path) -> None:
    basic_config["streams"]["train"]["ring"] = {"prefetch": 64, "max_clients": 16}  # many pages, whose release takes a while
    killed = Server(basic_config, tmp_path).wait_ready()
    killed.popen.send_signal(signal.SIGKILL)
    server = Server(basic_config, tmp_path).wait_ready()
    killed.popen.wait()
    assert server.stop() == 0


def test_a_loop_that_continues_after_a_restart_does_not_wait_for_other_clients(
    quiet_config: dict[str, Any], tmp_path: Path
) -> None:
    quiet_config["streams"]["train"]["sharing"] = {"wait_for": 2, "wait_timeout": "1h"}
    server = Server(quiet_config, tmp_path).wait_ready()
    with headrace.Loader(server.address, stream="train", batch_timeout=30) as loader:
        with headrace.Loader(server.address, stream="train", batch_timeout=30) as other, ThreadPoolExecutor() as pool:
            began = pool.submit(lambda: next(iter(other)))
            batches = iter(loader)
            next(batches)
            began.result()
        server.kill()
        server = Server(quiet_config, tmp_path).wait_ready()
        assert sum(1 for _ in batches) == len(loader) - 1
    assert server.stop() == 0
    assert "the stream begins when 2 clients have called next() (0 so far; sharing.wait_for), or 3600 s after the first call" in server.output()


def test_sigterm_with_an_attached_client_drains_and_exits_0_within_5_seconds(
    start_server: ServerFactory, basic_config: dict[str, Any]
) -> None:
    server = start_server(basic_config)
    with headrace.Loader(server.address, stream="train", reconnect_timeout=1) as loader:
        next(iter(loader))
        begin = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begin < 5, "3 s of drain_timeout and a little"


def test_a_terminal_that_closes_drains_the_server_too(start_server: ServerFactory, basic_config: dict[str, Any]) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the server inherits it; under nohup it would inherit SIG_IGN
    try:
        server = start_server(basic_config)
    finally:
        signal.signal(signal.SIGHUP, before)
    server.popen.send_signal(signal.SIGHUP)
    assert server.popen.wait(10) == 0
    assert "draining: no new batches" in server.output()


def test_a_server_under_nohup_serves_on(basic_config: dict[str, Any], tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # which the server inherits
    try:
        server = Server(basic_config, tmp_path).wait_ready()
    finally:
        signal.signal(signal.SIGHUP, before)
    server.popen.send_signal(signal.SIGHUP)
    with headrace.Loader(server.address, stream="train") as loader:
        assert sum(1 for _ in loader) > 0
    assert server.stop() == 0


def test_sigterm_does_not_wait_for_a_loop_that_goes_on(start_server: ServerFactory, basic_config: dict[str, Any]) -> None:
    # Batches so large that the loop's current one is a view on the ring.
    basic_config["server"]["drain_timeout"] = "60s"
    basic_config["streams"]["train"]["transforms"] = [{"random_resized_crop": {"size": 256}}]
    server = start_server(basic_config)
    code = """
loader = headrace.Loader(address, stream="train", reconnect_timeout=1)
while True:
    for batch in loader:
        if batch.number == 3:
            say(epoch=batch.epoch)
"""
    with Child(code, server.address) as child:
        child.receive()
        assert server.stop(seconds=20) == 0


def test_sigterm_with_a_stopped_client_exits_within_the_drain_timeout(
    start_server: ServerFactory, basic_config: dict[str, Any], tmp_path: Path
) -> None:
    basic_config["server"]["drain_timeout"] = "1s"
    server = start_server(basic_config)
    script = (
        "import headrace, sys, time\n"
        f"loader = headrace.Loader({server.address!r}, stream='train', zero_copy=True)\n"
        "kept = next(iter(loader)); print('holding', flush=True); time.sleep(600)\n"
    )
    client = subprocess.Popen([os.sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert client.stdout is not None and client.stdout.readline() == "holding\n"
        client.send_signal(signal.SIGSTOP)
        begin = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begin < 5
    finally:
        client.kill()
        client.wait()


def test_the_server_ends_when_its_parent_is_killed(basic_config: dict[str, Any], tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(yaml.safe_dump({**basic_config, "server": {"directory": str(tmp_path / "run"), "metrics": "off"}}))
    script = (
        "import headrace, time\n"
        f"with headrace.serve({str(config)!r}) as server:\n"
        "    print(server.pid, flush=True); time.sleep(600)\n"
    )
    parent = subprocess.Popen([os.sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    wait_until(lambda: not Path(f"/proc/{pid}").exists() or "Z (zombie)" in Path(f"/proc/{pid}/status").read_text(), "the server to end", 10)


def test_health_ready_and_metrics_answer(start_server: ServerFactory, basic_config: dict[str, Any]) -> None:
    server = start_server(basic_config)
    assert http_get(server.metrics_url + "/healthz") == "ok\n"
    assert http_get(server.metrics_url + "/readyz") == "ready\n", "a stream without clients waits for one: ready"
    assert run("health", "--address", server.address).returncode == 0
    with headrace.Loader(server.address, stream="train") as loader:
        count = sum(1 for _ in loader)
        assert count == len(loader)
        assert http_get(server.metrics_url + "/readyz") == "ready\n"
    metrics = server.metrics()
    assert 'headrace_samples_total{stream="train"}' in metrics
    lint = subprocess.run(["promtool", "check", "metrics"], input=metrics, capture_output=True, text=True, check=False)
    assert lint.returncode == 0, lint.stdout + lint.stderr


@pytest.mark.parametrize("name", ["", "control.sock", "attach.sock"])
def test_a_server_that_nobody_can_reach_says_so_and_serves_on(
    start_server: ServerFactory, basic_config: dict[str, Any], tmp_path: Path, name: str
) -> None:
    server = start_server(basic_config)
    lost, aside = Path(server.address, name), tmp_path / "aside"
    with headrace.Loader(server.address, stream="train") as loader:
        lost.rename(aside)
        wait_until(lambda: f"{lost} was deleted: attached clients continue, but no others can attach" in server.output(), "a warning")
        with pytest.raises(urllib.error.HTTPError) as refused:
            http_get(server.metrics_url + "/readyz")
        assert refused.value.code == 503
        assert refused.value.read().decode() == f"not ready: {lost} was deleted\n"
        with pytest.raises(headrace.Error):
            headrace.Loader(server.address, stream="train", timeout=0.5)
        assert sum(1 for _ in loader) == len(loader)
        lost.touch()
        wait_until(lambda: f"{lost} was replaced" in server.output(), "a warning about the other file")
        lost.unlink()
        aside.rename(lost)
        wait_until(lambda: "clients can attach again" in server.output(), "the server to notice")
    assert http_get(server.metrics_url + "/readyz") == "ready\n"
    assert headrace.streams(server.address)


def test_health_without_a_server_names_the_directory(tmp_path: Path) -> None:
    answer = run("health", "--address", str(tmp_path / "nowhere"), "--timeout", "0.3")
    assert answer.returncode == 3
    assert "SERVER_UNREACHABLE" in answer.stderr and "nowhere" in answer.stderr


def test_the_error_for_a_stopped_server_does_not_say_to_start_it(start_server: ServerFactory, basic_config: dict[str, Any]) -> None:
    server = start_server(basic_config)
    server.popen.send_signal(signal.SIGSTOP)
    try:
        answer = run("ls", "--address", str(server.address), "--timeout", "0.3")
    finally:
        server.popen.send_signal(signal.SIGCONT)
    assert answer.returncode == 3
    assert "SERVER_UNREACHABLE" in answer.stderr and "if it is stopped (state T in `ps`), continue it" in answer.stderr
    assert "headrace serve" not in answer.stderr


def test_an_address_that_cannot_become_valid_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(headrace.errors.ServerUnreachable, match=r"Not a directory: the address must be a server's directory"):
        headrace.streams(tmp_path / "file", timeout=3600)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["frobnicate"], "there is no verb `frobnicate`; verbs: serve, check, "),
        (["serve"], "config is required"),
        (["health", "--timeout", "nan"], "'nan' is not a number of seconds"),
        (["health", "--timeout=-1"], "'-1' is not a number of seconds"),
        (["sample", "--stream", "train", "--index=-1"], "'-1' is not a whole number"),
        (["bench", "x.yaml", "--stream", "train", "--clients", "65"], "65 not in range 0 to 64"),
    ],
    ids=["unknown verb", "no config", "no number", "negative time", "negative index", "more clients than lanes"],
)
def test_wrong_arguments_on_the_command_line_are_named(arguments: list[str], words: str) -> None:
    answer = run(*arguments)
    assert answer.returncode == 2
    assert answer.stderr.startswith("headrace: INVALID_ARGUMENT: ") and words in answer.stderr


def test_bench_measures_a_shard_stream_with_one_rank_for_each_client(basic_config: dict[str, Any], tmp_path: Path) -> None:
    basic_config["streams"]["train"]["delivery"] = "shard"
    path = tmp_path / "shard.yaml"
    path.write_text(yaml.safe_dump(basic_config))
    answer = run("bench", str(path), "--stream", "train", "--seconds", "0.2", "--clients", "1,2", "--json")
    assert answer.returncode == 0, answer.stderr
    assert [entry["clients"] for entry in yaml.safe_load(answer.stdout)["runs"]] == [1, 2]


def test_bad_files_are_named_in_the_log_and_in_stats_and_so_is_the_streams_end(
    start_server: ServerFactory, basic_config: dict[str, Any], tmp_path: Path
) -> None:
    folder = write_images(tmp_path / "some bad", classes=2, per_class=20)
    for name in ("class_0/0003.jpg", "class_1/0007.jpg"):
        (folder / name).write_bytes((folder / name).read_bytes()[:200])
    basic_config["sources"]["images"]["path"] = str(folder)
    strict = basic_config["streams"]["train"] | {"on_error": "fail"}
    basic_config["streams"]["strict"] = strict
    server = start_server(basic_config)
    with headrace.Loader(server.address, stream="train") as loader:
        for _ in range(2):
            assert sum(sum(batch.replaced) for batch in loader) == 2
    with headrace.Loader(server.address, stream="strict") as loader, pytest.raises(headrace.errors.StreamFailed):
        list(loader)
    bad = headrace.stats(server.address)["streams"]["train"]["bad_samples"]
    assert bad["distinct"] == 2
    for name in ("class_0/0003.jpg", "class_1/0007.jpg"):
        assert any(line.startswith(f"{name}: truncated") for line in bad["first"])
        assert server.output().count(f"stream `train`: bad sample, replaced: {name}: truncated") == 1, "once, not each epoch"
    assert "stream `strict` stopped, until the server is restarted: BAD_SAMPLE: class_" in server.output()
    listed = run("ls", "--address", server.address).stdout.splitlines()
    assert [line.split()[0] for line in listed[:3]] == ["strict", "FAILED:", "train"]
    assert "granted to clients" in listed[-1]
    health = run("health", "--address", server.address)
    assert health.returncode == 3
    assert "STREAM_FAILED: stream `strict` stopped, until the server is restarted: BAD_SAMPLE: class_" in health.stderr


def test_drain_ends_the_server(start_server: ServerFactory, basic_config: dict[str, Any]) -> None:
    server = start_server(basic_config)
    assert run("drain", "--address", server.address).returncode == 0
    assert server.popen.wait(10) == 0


def test_stats_and_ls_and_sample_answer(start_server: ServerFactory, basic_config: dict[str, Any], tmp_path: Path) -> None:
    server = start_server(basic_config)
    assert "train" in run("ls", "--address", server.address).stdout
    assert yaml.safe_load(run("stats", "--address", server.address).stdout)["streams"]["train"]["batches"] >= 0
    out = tmp_path / "row.bin"
    shown = run("sample", "--address", server.address, "--stream", "train", "--epoch", "2", "--index", "5", "--out", str(out))
    assert shown.returncode == 0, shown.stderr
    assert "random_resized_crop" in shown.stdout
    assert out.stat().st_size == 3 * 32 * 32 + 8
    beyond = run("sample", "--address", server.address, "--stream", "train", "--index", "60")
    assert beyond.returncode == 2 and "60 samples" in beyond.stderr


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (lambda c: c["streams"]["train"].update(batch_sise=3), 2, ["batch_sise", "batch_size"]),
        (lambda c: c["streams"]["train"].update(batch_size=0), 2, ["batch_size"]),
        (lambda c: c["streams"]["train"].update(last="shrot"), 2, ["shrot", "short"]),
        (lambda c: c["streams"]["train"].update(source="imagse"), 2, ["imagse", "images"]),
        (lambda c: c["sources"]["images"].update(path="/nowhere/at/all"), 3, ["/nowhere/at/all"]),
        (lambda c: c["streams"]["train"].update(batch_size=900_000, last="pad", ring={"max_leases": 64}), 3, ["NOT_ENOUGH_MEMORY", "available"]),
    ],
    ids=["unknown key", "out of range", "unknown word", "unknown source", "no such folder", "more than the memory"],
)
def test_check_names_what_is_wrong_in_a_config(
    basic_config: dict[str, Any], tmp_path: Path, change: Any, code: int, words: list[str]
) -> None:
    change(basic_config)
    path = tmp_path / "broken.yaml"
    path.write_text(yaml.safe_dump(basic_config))
    answer = run("check", str(path))
    assert answer.returncode == code, answer.stdout + answer.stderr
    for word in words:
        assert word in answer.stderr
    if code == 2:
        assert f"{path.name}:" in answer.stderr, "file:line:column"


@pytest.mark.parametrize(("images", "words"), [(10, "all of 10 samples are bad"), (1, "its only sample is bad")])
def test_check_refuses_a_folder_of_which_nothing_can_be_decoded(
    basic_config: dict[str, Any], tmp_path: Path, images: int, words: str
) -> None:
    for i in range(images):
        image = tmp_path / "garbage" / "ab"[i % 2] / f"{i}.jpg"
        image.parent.mkdir(parents=True, exist_ok=True)
        image.write_bytes(b"no image")
    basic_config["streams"]["train"]["last"] = "short"
    basic_config["sources"]["images"]["path"] = str(tmp_path / "garbage")
    path = tmp_path / "garbage.yaml"
    path.write_text(yaml.safe_dump(basic_config))
    answer = run("check", str(path))
    assert answer.returncode == 3
    assert f"DATASET_INVALID: stream `train`: {words}:\n" in answer.stderr


def test_check_counts_samples_and_compares_the_ring_with_the_memory(basic_config: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "good.yaml"
    path.write_text(yaml.safe_dump(basic_config))
    answer = run("check", str(path))
    assert answer.returncode == 0, answer.stderr
    assert "60 samples, 3 classes" in answer.stdout and "available" in answer.stdout
    assert "warning" not in answer.stdout
    larger = run("check", str(path), "--set", "streams.train.batch_size=100")
    assert "each epoch is one incomplete batch" in larger.stdout


def test_output_that_cannot_be_written_is_an_error(basic_config: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "good.yaml"
    path.write_text(yaml.safe_dump(basic_config))
    with open("/dev/full", "w") as full:
        ended = subprocess.run([headrace_binary(), "check", path], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert ended.returncode == 3
    assert "ENVIRONMENT: standard output cannot be written: No space left on device" in ended.stderr
