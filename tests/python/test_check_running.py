"""`headrace check` and `headrace doctor` beside a running server: what a checked restart relies on. And the JSON of `check`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ServerFactory
from running import Server, headrace_binary, wait_until


def run(verb: str, path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([headrace_binary(), verb, *options, str(path)], capture_output=True, text=True, timeout=60, check=False)


def told(path: Path, *options: str) -> tuple[int, dict[str, Any]]:
    done = run("check", path, "--json", *options)
    return done.returncode, json.loads(done.stdout)


def rows(path: Path) -> dict[str, dict[str, str]]:
    return {one["check"]: one for one in json.loads(run("doctor", path, "--json").stdout)["checks"]}


def successor(running: Server, tmp_path: Path, **changes: Any) -> Path:
    """The running server's configuration, with other keys."""
    config = yaml.safe_load(running.config.read_text())
    for key, value in changes.items():
        config[key] = {**config[key], **value}
    path = tmp_path / "new.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def cached(image_folder: Path, size: str) -> dict[str, Any]:
    return {"images": {"type": "image_folder", "path": str(image_folder), "cache": {"decoded": size}}}


def test_a_configuration_that_the_machine_cannot_hold_is_no_reload(start_server: ServerFactory, quiet_config: dict[str, Any], tmp_path: Path, image_folder: Path) -> None:
    quiet_config["streams"]["train"]["transforms"] = [{"resize": {"size": [32, 32]}}, "random_horizontal_flip"]
    server = start_server(quiet_config)
    path = successor(server, tmp_path, sources=cached(image_folder, "60TB"))
    done = run("check", path)
    assert done.returncode == 3 and "ok: " not in done.stdout
    assert "NOT_ENOUGH_MEMORY: 60.00 TB may be needed beside the rings (caches 60.00 TB" in done.stderr and "without the running server" in done.stderr
    diagnosis = rows(path)
    assert diagnosis["memory needed"]["result"] == "fail" and "60.00 TB" in diagnosis["memory needed"]["found"]


def test_what_the_running_server_frees_counts_as_available(start_server: ServerFactory, tmp_path: Path) -> None:
    config = {"server": {"threads": 1, "metrics": "off"},
              "sources": {"rows": {"type": "synthetic", "count": 10_000, "bytes": 1_000_000}},
              "streams": {"train": {"source": "rows", "batch_size": 100, "ring": {"max_clients": 1}}}}
    server = start_server(config)
    (ring,) = [one["ring_bytes"] for one in told(successor(server, tmp_path))[1]["streams"]]
    assert ring > 500_000_000

    def more() -> int:
        """What is available to the server's successor, less what is available to one beside it."""
        instead = told(successor(server, tmp_path))[1]["memory_available"]
        return int(instead - told(successor(server, tmp_path, server={"directory": str(tmp_path / "other")}))[1]["memory_available"])
    wait_until(lambda: abs(more() - ring) < ring / 4, "two answers while other processes use the same memory")


def test_a_reload_that_fits_is_good(start_server: ServerFactory, basic_config: dict[str, Any], tmp_path: Path) -> None:
    server = start_server({**basic_config, "server": {"threads": 1, "metrics": {"port": 0}}})
    port = int(server.metrics_url.rsplit(":", 1)[1])
    path = successor(server, tmp_path, server={"metrics": {"port": port}})
    done = run("check", path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "warning: a server runs in" in done.stdout and done.stdout.endswith("will run with 1 worker, once the running server has stopped\n")
    found = rows(path)
    assert found["memory needed"]["result"] == "ok" and found["directory"]["result"] == "note"
    assert found["HTTP port"] == {"check": "HTTP port", "result": "ok", "found": f"{server.metrics_url}, of the server that runs now", "remedy": ""}


def test_a_reload_to_a_port_that_another_process_has_is_refused(start_server: ServerFactory, basic_config: dict[str, Any], tmp_path: Path) -> None:
    server = start_server(basic_config)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        path = successor(server, tmp_path, server={"metrics": {"port": taken.getsockname()[1]}})
        done = run("check", path)
        assert done.returncode == 3 and f"metrics port {taken.getsockname()[1]} of 127.0.0.1 is in use" in done.stderr
        assert rows(path)["HTTP port"]["result"] == "fail"


def test_memory_is_unknown_beside_a_server_that_does_not_answer(start_server: ServerFactory, quiet_config: dict[str, Any], tmp_path: Path, image_folder: Path) -> None:
    quiet_config["streams"]["train"]["transforms"] = [{"resize": {"size": [32, 32]}}, "random_horizontal_flip"]
    server = start_server(quiet_config)
    path = successor(server, tmp_path, sources=cached(image_folder, "60TB"))
    os.kill(server.popen.pid, signal.SIGSTOP)
    try:
        done = run("check", path)
        found = rows(path)
        human = run("doctor", path)
        fitting = run("check", successor(server, tmp_path))
    finally:
        os.kill(server.popen.pid, signal.SIGCONT)
    assert done.returncode == 0 and "warning: not judged: the server in " in done.stdout and "ok: " not in done.stdout
    assert found["memory needed"]["result"] == "note"
    assert human.stdout.endswith("no check failed; uncertain: memory needed\n")
    assert fitting.returncode == 0 and "ok: " in fitting.stdout, "it fits even beside the running server"


# --- check --json


def configured(config: dict[str, Any], tmp_path: Path) -> Path:
    path = tmp_path / "check.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def test_json_has_the_errors_of_samples_directory_memory_and_port(basic_config: dict[str, Any], tmp_path: Path, image_folder: Path) -> None:
    folder = shutil.copytree(image_folder, tmp_path / "copy")
    for image in folder.rglob("*.jpg"):
        image.write_bytes(b"no image")
    basic_config["streams"]["train"]["transforms"] = [{"resize": {"size": [32, 32]}}, "random_horizontal_flip"]
    basic_config["sources"] = cached(folder, "60TB")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        basic_config["server"] = {"directory": str(tmp_path / "open"), "metrics": {"port": taken.getsockname()[1]}}
        status, document = told(configured(basic_config, tmp_path))
    assert status == 3
    assert [error.split(": ")[0] for error in document["errors"]] == ["DATASET_INVALID", "NOT_ENOUGH_MEMORY", "PERMISSION_DENIED", "ENVIRONMENT"]
    assert "stream `train`: all of 32 samples that were tried" in document["errors"][0]
    assert [one["name"] for one in document["streams"]] == ["train"]


def test_samples_are_not_tried_if_the_ring_does_not_fit(basic_config: dict[str, Any], tmp_path: Path, image_folder: Path) -> None:
    folder = shutil.copytree(image_folder, tmp_path / "copy")
    for image in folder.rglob("*.jpg"):
        image.write_bytes(b"no image")
    basic_config["sources"]["images"]["path"] = str(folder)
    basic_config["streams"]["train"] |= {"batch_size": 1_000_000, "last": "pad", "transforms": [{"random_resized_crop": 4096}]}
    status, document = told(configured(basic_config, tmp_path))
    assert status == 3
    assert [error.split(": ")[0] for error in document["errors"]] == ["NOT_ENOUGH_MEMORY"]


@pytest.mark.parametrize(("change", "status", "word"), [
    (lambda c: c["streams"]["train"].update(batch_sise=3), 2, "batch_sise"),
    (lambda c: c["sources"]["images"].update(path="/nowhere/at/all"), 3, "/nowhere/at/all"),
])
def test_json_has_the_error_that_ended_the_check(basic_config: dict[str, Any], tmp_path: Path, change: Any, status: int, word: str) -> None:
    change(basic_config)
    ended, document = told(configured(basic_config, tmp_path))
    assert ended == status and len(document["errors"]) == 1 and word in document["errors"][0] and document["streams"] == []


def test_json_of_a_folder_is_an_error_too(image_folder: Path) -> None:
    status, document = told(image_folder)
    assert status == 2 and "--json needs a configuration" in document["errors"][0]


def test_json_has_each_error_of_a_configuration_as_an_item(basic_config: dict[str, Any], tmp_path: Path) -> None:
    basic_config["streams"]["train"].update(batch_sise=3, max_bad="many")
    basic_config["sauces"] = {}
    path = configured(basic_config, tmp_path)
    status, document = told(path)
    assert status == 2 and len(document["errors"]) == 3
    assert all(error.startswith(f"CONFIG_INVALID: {path}:") and "\n" not in error for error in document["errors"])
    assert [sum(word in error for error in document["errors"]) for word in ("batch_sise", "max_bad", "sauces")] == [1, 1, 1]


def test_json_has_an_item_for_each_source_that_does_not_open(basic_config: dict[str, Any], tmp_path: Path) -> None:
    basic_config["sources"]["other"] = {"type": "image_folder", "path": "/nowhere/b"}
    basic_config["sources"]["images"]["path"] = "/nowhere/a"
    basic_config["streams"]["val"] = {**basic_config["streams"]["train"], "source": "other"}
    status, document = told(configured(basic_config, tmp_path))
    assert status == 3 and len(document["errors"]) == 2
    assert "source `images`: " in document["errors"][0] and "source `other`: " in document["errors"][1]


def test_json_has_the_warnings_that_are_logged(basic_config: dict[str, Any], tmp_path: Path, image_folder: Path) -> None:
    folder = shutil.copytree(image_folder, tmp_path / "copy")
    shutil.copy(next(folder.rglob("*.jpg")), folder / "stray.jpg")
    basic_config["sources"]["images"].update(path=str(folder), io={"delay": "20ms"})
    path = configured(basic_config, tmp_path)
    done = run("check", path, "--json")
    document = json.loads(done.stdout)
    logged = [warning for warning in document["warnings"] if warning.startswith("source `images`: ")]
    assert len(logged) == 2, document
    assert any("io.delay adds 20 ms" in warning for warning in logged) and any("outside the class folders" in warning for warning in logged)
    assert all(warning in done.stderr for warning in logged), "they are logged as well"


def test_json_names_the_stream_of_each_message(basic_config: dict[str, Any], tmp_path: Path, image_folder: Path) -> None:
    folder = shutil.copytree(image_folder, tmp_path / "copy")
    next(folder.rglob("*.jpg")).write_bytes(b"")
    basic_config["sources"]["images"]["path"] = str(folder)
    basic_config["streams"]["train"].update(batch_size=1000)
    basic_config["streams"]["val"] = {**basic_config["streams"]["train"], "on_error": "fail"}
    path = configured(basic_config, tmp_path)
    _, document = told(path, "--all")
    assert [error.split(": ")[1] for error in document["errors"]] == ["stream `val`"]
    assert document["errors"][0].count("stream `val`") == 1
    bad = [warning for warning in document["warnings"] if "samples is bad" in warning]
    assert [warning.split(": ")[0] for warning in bad] == ["stream `train`"]
    small = [warning for warning in document["warnings"] if "batch_size 1000 is larger" in warning]
    assert [warning.split(": ")[0] for warning in small] == ["stream `train`", "stream `val`"]
    for name in ("train", "val"):
        notes = [note.split(": ", 1)[1] for note in document["notes"] if note.startswith(f"stream `{name}`: ")]
        assert any("batches of 1000" in note for note in notes) and any(note.startswith("ring: ") for note in notes), notes
    assert not any(note.startswith(("ring: ", "image ", "label ")) for note in document["notes"])
    assert not any("\nwarning: " in text or "  warning: " in text for text in document["notes"])


@pytest.mark.parametrize("arguments", [[], ["--bogus"], ["a.yaml", "b.yaml"]])
def test_json_of_a_wrong_call_is_a_document_too(arguments: list[str]) -> None:
    done = subprocess.run([headrace_binary(), "check", "--json", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    (error,) = json.loads(done.stdout)["errors"]
    assert error.startswith("INVALID_ARGUMENT: ") and done.stderr == f"headrace: {error}\n"
    plain = subprocess.run([headrace_binary(), "check", "--bogus"], capture_output=True, text=True, timeout=60, check=False)
    assert (plain.returncode, plain.stdout) == (2, "") and plain.stderr.startswith("headrace: INVALID_ARGUMENT: ")
