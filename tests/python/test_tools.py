"""Verbs that help people: preview, doctor, bench --advise."""

from __future__ import annotations

import functools
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
import yaml
from conftest import ServerFactory
from PIL import Image
from running import headrace_binary, wait_until
from terminal import Terminal
from training_sets import digits, write_mnist


def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([headrace_binary(), *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False, **options)


@pytest.fixture
def config(basic_config: dict[str, Any]) -> dict[str, Any]:
    return {**basic_config, "server": {"threads": 1, "metrics": {"port": 0}}}


def written(folder: Path, config: dict[str, Any]) -> Path:
    path = folder / "preview.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


# --- preview

SIDE, MARGIN = 64, 8


def cell(sheet: np.ndarray, top: int, column: int) -> np.ndarray:
    left = MARGIN + column * (SIDE + MARGIN)
    return sheet[top : top + SIDE, left : left + SIDE]


def test_a_preview_shows_the_rows_of_several_epochs(start_server: ServerFactory, config: dict[str, Any], tmp_path: Path) -> None:
    config["streams"]["train"]["transforms"] = [{"random_resized_crop": {"size": SIDE}}, "random_horizontal_flip",
                                               {"normalize": {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]}}]
    out = tmp_path / "sheet.png"
    done = run("preview", written(tmp_path, config), "-o", out, "--samples", 1, "--epochs", 3, "--side", SIDE)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(rf"{re.escape(str(out))}: 1 sample of stream train in 3 epochs, 296 x \d+ pixels\n", done.stdout)
    sheet = np.asarray(Image.open(out))
    assert sheet.shape[1:] == (MARGIN + 4 * (SIDE + MARGIN), 3)
    server = start_server(config)
    with headrace.Loader(server.address, stream="train", output="numpy") as loader:
        first: int | None = None
        for epoch in range(3):
            loader.set_epoch(epoch)
            rows = {}
            for batch in loader:
                for index, row in zip(batch.sample_index, batch[0], strict=True):
                    rows[int(index)] = np.array(row)
                    first = int(index) if first is None else first
            assert first is not None
            pixels = np.clip(np.rint((rows[first].transpose(1, 2, 0) * [0.2, 0.3, 0.4] + [0.5, 0.4, 0.3]) * 255), 0, 255)
            assert np.abs(cell(sheet, MARGIN, 1 + epoch).astype(int) - pixels).max() <= 1, epoch
    below = sheet[MARGIN + SIDE + 2 :]
    assert (below.max(axis=2) == 0).sum() > 200 and set(np.unique(below)) == {0, 255}, "black captions on white"


def test_small_images_are_enlarged_by_whole_factors(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist", "train", *digits(20, np.random.default_rng(1)))
    raw = tmp_path / "mnist/MNIST/raw"
    config = {"sources": {"digits": {"type": "idx", "images": str(raw / "train-images-idx3-ubyte"), "labels": str(raw / "train-labels-idx1-ubyte")}},
              "streams": {"train": {"source": "digits", "batch_size": 4, "shuffle": False}}}
    out = tmp_path / "sheet.png"
    done = run("preview", written(tmp_path, config), "-o", out, "--samples", 2, "--epochs", 1)
    assert done.returncode == 0, done.stderr
    sheet = np.asarray(Image.open(out))
    factor = 192 // 28
    digit = sheet[MARGIN + 192 - 28 * factor :, MARGIN : MARGIN + 28 * factor][: 28 * factor]
    blocks = digit.reshape(28, factor, 28, factor, 3)
    assert (blocks == blocks[:, :1, :, :1]).all() and digit.std() > 10


@pytest.mark.parametrize(("arguments", "why"), [
    (["--stream", "none"], "NO_SUCH_STREAM: no stream `none`; expected one of: train"),
    (["-o", "/nowhere/sheet.png"], "ENVIRONMENT: cannot write /nowhere/sheet.png: No such file or directory"),
    (["--samples", "0"], "--samples: Value 0 not in range"),
])
def test_a_preview_that_cannot_be_made_says_why(config: dict[str, Any], tmp_path: Path, arguments: list[str], why: str) -> None:
    done = run("preview", written(tmp_path, config), *arguments)
    assert done.returncode in (2, 3) and why in done.stderr


def test_a_preview_of_several_streams_asks_for_one(config: dict[str, Any], tmp_path: Path) -> None:
    config["streams"] = {"base": config["streams"]["train"], "large": config["streams"]["train"]}
    path = written(tmp_path, config)
    done = run("preview", path)
    assert (done.returncode, done.stderr) == (2, "headrace: INVALID_ARGUMENT: several streams, and none is named `train`: name one of them: base, large\n")
    assert "no stream `train`; expected one of: base, large" in run("preview", path, "--stream", "train").stderr


def test_sample_and_bench_choose_a_stream_as_preview_does(start_server: ServerFactory, config: dict[str, Any], tmp_path: Path) -> None:
    only = config["streams"].pop("train")
    bench = ("--seconds", 0.1, "--clients", 0, "--json")
    config["streams"] = {"shown": only}
    server = start_server(config)
    shown = run("sample", "--address", server.address)
    assert shown.returncode == 0 and "\nfield: label int64\n" in shown.stdout, shown.stdout
    assert json.loads(run("bench", written(tmp_path, config), *bench).stdout)["stream"] == "shown"
    server.stop()
    config["streams"] = {"base": only, "large": only}
    server = start_server(config)
    for verb in (("sample", "--address", server.address), ("bench", written(tmp_path, config), *bench)):
        done = run(*verb)
        assert (done.returncode, done.stderr) == (2, "headrace: INVALID_ARGUMENT: several streams, and none is named `train`: name one of them: base, large\n")
        assert "NO_SUCH_STREAM: no stream `train`; expected one of: base, large" in run(*verb, "--stream", "train").stderr


def test_a_picture_that_cannot_be_written_leaves_the_old_one(config: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "sheet.png").write_text("old")
    limit = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))}
    done = run("preview", written(tmp_path, config), "-o", folder / "sheet.png", **limit)
    assert done.returncode == 3 and "sheet.png: File too large; make room there, or name a file elsewhere" in done.stderr
    assert [path.name for path in folder.iterdir()] == ["sheet.png"] and (folder / "sheet.png").read_text() == "old"
    (folder / "link.png").symlink_to("sheet.png")
    assert run("preview", written(tmp_path, config), "-o", folder / "link.png").returncode == 0
    assert (folder / "link.png").is_symlink() and Image.open(folder / "sheet.png").format == "PNG"


# --- doctor


def findings(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    return {line[6:20].strip(): line[:4].strip() for line in done.stdout.splitlines() if re.match(r"(ok|note|FAIL)\b", line)}


def test_doctor_finds_a_machine_and_its_data_fit(config: dict[str, Any], tmp_path: Path) -> None:
    config["server"]["directory"] = str(tmp_path / "run")
    done = run("doctor", written(tmp_path, config))
    found = findings(done)
    assert done.returncode == 0 and done.stdout.endswith("a server can run here\n"), done.stdout
    assert found["stream train"] == found["memory needed"] == found["kernel"] == found["directory"] == "ok"
    assert "60 samples; 32 were tried" in done.stdout


def test_doctor_names_what_is_wrong_and_what_to_do(config: dict[str, Any], tmp_path: Path, image_folder: Path) -> None:
    folder = shutil.copytree(image_folder, tmp_path / "copy")
    for image in folder.rglob("*.jpg"):
        image.write_bytes(b"no image")
    config["sources"]["images"]["path"] = str(folder)
    (tmp_path / "open").mkdir(mode=0o777)
    os.chmod(tmp_path / "open", 0o777)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config["server"] = {"directory": str(tmp_path / "open"), "metrics": {"port": taken.getsockname()[1]}}
        done = run("doctor", written(tmp_path, config), preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512)))
    found = findings(done)
    assert done.returncode == 3 and "checks failed" in done.stdout
    assert found["directory"] == found["HTTP port"] == found["stream train"] == "FAIL" and found["open files"] == "note"
    assert "ulimit -Hn" in done.stdout and "chmod go-w" in done.stdout and "set another server.metrics.port" in done.stdout and "check --all" in done.stdout


@pytest.mark.parametrize(("changes", "row", "why"), [
    (["server.directory=/proc/headrace/run"], "directory", "server directory /proc/headrace/run: "),
    (["streams.train.batch_size=many"], "configuration", "streams.train.batch_size"),
])
def test_doctor_fails_for_what_serve_would_refuse(config: dict[str, Any], tmp_path: Path, changes: list[str], row: str, why: str) -> None:
    done = run("doctor", written(tmp_path, config), *(part for change in changes for part in ("--set", change)))
    assert done.returncode == 3 and findings(done)[row] == "FAIL" and why in done.stdout
    found = findings(done)
    assert found["kernel"] == "ok", "the machine is checked as well"
    assert row == "directory" or not {"directory", "HTTP port"} & set(found), "nothing is said of keys that are unknown"


def test_doctor_judges_the_memory_of_rings_as_check_does(tmp_path: Path) -> None:
    config = {"server": {"directory": str(tmp_path / "run"), "metrics": "off"},
              "sources": {"rows": {"type": "synthetic", "count": 1_000_000, "bytes": 1_000_000}},
              "streams": {"train": {"source": "rows", "batch_size": 60_000}}}
    path = written(tmp_path, config)
    said = "lower batch_size, ring.prefetch or ring.max_leases"
    done = run("doctor", path)
    assert findings(done)["memory needed"] == "FAIL" and said in done.stdout and said in run("check", path).stderr


def test_doctor_notes_a_running_server(start_server: ServerFactory, config: dict[str, Any], tmp_path: Path) -> None:
    server = start_server(config)
    config["server"] = {"directory": str(server.address)}
    path = written(tmp_path, config)
    done = run("doctor", path)
    assert findings(done)["directory"] == "note" and "stop it first (`headrace drain`)" in done.stdout
    assert done.stdout.endswith("a server can run here, once the running server has stopped\n")


def test_names_of_files_cannot_forge_lines_or_colors(config: dict[str, Any], tmp_path: Path, image_folder: Path) -> None:
    folder = shutil.copytree(image_folder, tmp_path / "copy")
    (folder / "class_0" / "x\x1b[31mred\nok    forged.jpg").write_bytes(b"no image")
    config["sources"]["images"]["path"] = str(folder)
    path = written(tmp_path, config)
    for done in (run("doctor", path), run("check", "--all", path)):
        assert "\x1b" not in done.stdout + done.stderr and "x\\x1B[31mred\\x0Aok    forged.jpg" in done.stdout + done.stderr
        assert not re.search(r"^ok    forged", done.stdout + done.stderr, re.MULTILINE)


def test_doctor_needs_no_configuration(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    variables = {"HEADRACE_SERVER__DIRECTORY": str(tmp_path / "file" / "run"), "HEADRACE_SERVER__METRICS__PORT": "0"}
    done = run("doctor", env={**os.environ, **variables, "HEADRACE_STREAMS__TRAIN__BATCH_SIZE": "3"})
    found = findings(done)
    assert set(found) >= {"kernel", "CPUs", "CPU load", "memory", "open files", "threads", "huge pages", "GPU"}
    assert (done.returncode, found["directory"], found["HTTP port"]) == (3, "FAIL", "ok"), "the server's keys come from the environment"
    assert str(tmp_path / "file") in done.stdout and "127.0.0.1:9464" not in done.stdout
    wrong = findings(run("doctor", env={**os.environ, "HEADRACE_SERVER__METRICS__PORT": "many"}))
    assert wrong["configuration"] == "FAIL" and "HTTP port" not in wrong


# --- bench --advise


def advised(path: Path) -> dict[str, Any]:
    """`bench --advise --json`, again if other tests had the CPUs."""
    for _ in range(5):
        done = run("bench", path, "--stream", "train", "--clients", "0", "--seconds", "0.5", "--advise", "--json")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        if "The bottleneck is the CPUs" not in found["advice"]:
            return found
    pytest.skip("other programs use the CPUs")


def test_bench_says_what_limits_a_stream(config: dict[str, Any], tmp_path: Path) -> None:
    config["streams"]["train"]["transforms"] = [{"random_resized_crop": {"size": 256}}, {"gaussian_blur": {"kernel_size": 23, "sigma": 5.0}}]
    found = advised(written(tmp_path, config))
    assert re.search(r"Stream train makes \d+ samples/s with 1 worker\.", found["advice"])
    assert re.search(r"The bottleneck is transforming: it takes \d+% of the workers' time\. Without it, the stream could make up to \d+ samples/s\. (Give the server more CPUs|Raise `server.threads`: 1 of)", found["advice"])
    assert re.search(r"\nLeaving out gaussian_blur saves \d+.* of \d+ us of CPU time per sample\.\n", found["advice"])
    assert found["transforms"][0]["name"] == "gaussian_blur" and found["transforms"][0]["cpu_us_per_sample"] > 0.3 * found["runs"][0]["cpu_us_per_sample"]
    # 60 images of 3 bytes a pixel
    sizes = [Image.open(image).size for image in Path(config["sources"]["images"]["path"]).rglob("*.jpg")]
    assert found["runs"][0]["decoded_cache_bytes"] == pytest.approx(3 * sum(w * h for w, h in sizes), rel=0.25)


def test_bench_notices_programs_that_take_the_cpus(config: dict[str, Any], tmp_path: Path) -> None:
    on_one_cpu = {"preexec_fn": functools.partial(os.sched_setaffinity, 0, {min(os.sched_getaffinity(0))})}
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"], **on_one_cpu) for _ in range(3)]
    bench = "bench", written(tmp_path, config), "--stream", "train", "--clients", "0", "--seconds", "1"
    try:
        done = run(*bench, "--advise", **on_one_cpu)
        figures = run(*bench, **on_one_cpu)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    assert done.returncode == 0, done.stderr
    assert re.search(r"The bottleneck is the CPUs: for \d+% of their time, the workers waited for a CPU, because other threads used it or a CPU limit applied\. Stop other programs, ", done.stdout)
    assert done.stdout.count("The bottleneck is") == 1
    assert figures.returncode == 0
    assert re.fullmatch(r"headrace: for \d+% of their time, the workers waited for a CPU, .* These figures are too low: .*\n", figures.stderr)


def test_bench_does_not_blame_workers_that_wait_for_reads(config: dict[str, Any], tmp_path: Path) -> None:
    config["sources"]["images"]["io"] = {"threads": 2, "delay": "50ms"}
    done = run("bench", written(tmp_path, config), "--stream", "train", "--clients", "0", "--seconds", "0.5", "--advise")
    assert done.returncode == 0, done.stderr
    assert re.search(r"The workers were busy for only \d+% of the time: they wait for reads\. Raise `io\.threads` of the stream's source", done.stdout)
    assert "The bottleneck is" not in done.stdout


# --- JSON


def test_verbs_print_json(start_server: ServerFactory, config: dict[str, Any], tmp_path: Path, image_folder: Path) -> None:
    def asked(*arguments: object) -> dict[str, Any]:
        done = run(*arguments, "--json")
        assert done.returncode == 0 and done.stderr == "", done.stderr
        parsed: dict[str, Any] = json.loads(done.stdout)
        return parsed
    path = written(tmp_path, config)
    checked = asked("check", path)
    assert [(one["name"], one["samples"], one["batch_size"]) for one in checked["streams"]] == [("train", 60, 8)] and checked["warnings"] == []
    packed = asked("pack", image_folder, tmp_path / "packed", "--quiet")
    assert (packed["packed"], packed["complete"], packed["undecodable"]) == (60, True, 0)
    verified = asked("verify", tmp_path / "packed")
    assert (verified["checked"], verified["bad"], verified["first_bad"]) == (60, 0, [])
    assert {one["check"] for one in asked("doctor", path)["checks"]} >= {"memory", "GPU", "stream train"}
    server = start_server(config)
    here = ("--address", server.address)
    assert asked("health", *here) == {"address": str(server.address), "healthy": True}
    assert asked("top", *here)["streams"]["train"]["finding"]["text"] == "No trainer is attached."
    sample = asked("sample", *here, "--stream", "train")
    assert sample["fields"][0]["name"] == "image" and sample["fields"][0]["dtype"] == "uint8"
    assert [step["op"] for step in sample["parameters"]] == ["random_resized_crop", "random_horizontal_flip"]


# --- the log of serve


def served(tmp_path: Path, config: dict[str, Any], **keys: Any) -> Path:
    config["server"] = {"threads": 1, "metrics": "off", "directory": str(tmp_path / "run"), **keys}
    return written(tmp_path, config)


def test_serve_shows_one_live_line_in_a_terminal(config: dict[str, Any], tmp_path: Path) -> None:
    with Terminal(24, 100, "serve", str(served(tmp_path, config))) as server:
        wait_until(lambda: b"serving in" in server.read() and b"0 trainers | workers" in server.seen, "the live line")
        with headrace.Loader(str(tmp_path / "run"), stream="train", client="a") as loader:
            wait_until(lambda: (next(iter(loader)), re.search(rb"train: epoch \d+ \d+%, \d+ samples/s, 1 trainer \| workers \d+% busy", server.read()))[1] is not None, "the trainer")
        wait_until(lambda: b"disconnected" in server.read(), "the log")
        server.resize(24, 40)
        wait_until(lambda: re.search(rb"\r\x1b\[Ktrain: epoch \d+ \d+%, \d+ samples/s, 0 tr[^\r\n]*$", server.read()) is not None, "a shorter line")
        assert len(server.seen.rsplit(b"\x1b[K", 1)[-1]) == 39, "a full line would be wrapped"
        logged = [line for line in server.seen.split(b"\n") if b"attached to stream" in line]
        assert logged and logged[0].startswith(b"\r\x1b[K"), "the log's lines replace the live line, which is drawn again below"
        server.process.terminate()
        assert server.process.wait(10) == 0
        assert server.read().rstrip().endswith(b"stopped"), "the live line is gone"


def test_a_server_in_the_background_leaves_the_terminal_to_others(config: dict[str, Any], tmp_path: Path) -> None:
    path = served(tmp_path, config)
    shell = f"set -m; {headrace_binary()} serve {path} & sleep 3.5; echo done; kill %1; wait"
    done = subprocess.run(["script", "-qec", f"bash -c '{shell}'", "/dev/null"], capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL, check=False)
    assert "serving in" in done.stdout and "done" in done.stdout and "stopped" in done.stdout
    assert "\x1b[K" not in done.stdout and "% busy" not in done.stdout


def test_a_failed_start_is_logged_as_json_as_well(config: dict[str, Any], tmp_path: Path) -> None:
    config["sources"]["images"]["path"] = "/nowhere"
    done = run("serve", served(tmp_path, config, log_format="json"))
    assert done.returncode == 3
    line = json.loads(done.stderr)
    assert line["level"] == "error" and "/nowhere" in line["message"]


def test_a_start_that_fails_for_lack_of_memory_warns_of_nothing_else(config: dict[str, Any], tmp_path: Path) -> None:
    config["sources"]["images"]["cache"] = {"decoded": "60TB"}
    config["streams"]["train"]["transforms"] = [{"resize": {"size": [32, 32]}}, "random_horizontal_flip"]
    done = run("serve", served(tmp_path, config))
    assert done.returncode == 3 and "NOT_ENOUGH_MEMORY: 60.00 TB may be needed beside the rings (caches 60.00 TB" in done.stderr
    assert "further clients would be refused" not in done.stderr


def test_long_messages_are_cut_in_json(config: dict[str, Any], tmp_path: Path, image_folder: Path) -> None:
    config["sources"]["images"]["path"] = "/nowhere/" + "\u00fc\"" * 3000
    done = run("serve", served(tmp_path, config, log_format="json"))
    assert 3800 < len(done.stderr.encode()) <= 4096 and json.loads(done.stderr)["message"].endswith("\" ...")


def test_serve_logs_json_elsewhere(config: dict[str, Any], tmp_path: Path) -> None:
    path = served(tmp_path, config, log_format="json")
    server = subprocess.Popen([headrace_binary(), "serve", str(path)], stderr=subprocess.PIPE, text=True)
    with headrace.Loader(str(tmp_path / "run"), stream="train", client='a "quoted" name') as loader:
        next(iter(loader))
    server.terminate()
    _, log = server.communicate(timeout=10)
    lines = [json.loads(line) for line in log.splitlines()]
    assert all(list(line) == ["time", "level", "message"] for line in lines)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"]) for line in lines)
    assert any("attached to stream `train`" in line["message"] and '"quoted"' in line["message"] for line in lines)
    assert {line["level"] for line in lines} <= {"info", "warning"}


# --- sample


def test_a_sample_is_written_as_png(start_server: ServerFactory, config: dict[str, Any], tmp_path: Path) -> None:
    config["streams"]["train"]["transforms"].append({"normalize": {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]}})
    server = start_server(config)
    ask = ("sample", "--address", server.address, "--stream", "train", "--index", 3)
    assert run(*ask, "--png", tmp_path / "one.png").returncode == 0
    assert run(*ask, "--out", tmp_path / "one.bytes").returncode == 0
    row = np.frombuffer((tmp_path / "one.bytes").read_bytes()[: 4 * 3 * 32 * 32], np.float32).reshape(3, 32, 32).transpose(1, 2, 0)
    expected = np.rint((row * [0.2, 0.3, 0.4] + [0.5, 0.4, 0.3]) * 255)
    assert np.abs(np.asarray(Image.open(tmp_path / "one.png")).astype(int) - expected).max() <= 1
    wrong = run(*ask, "--png", tmp_path / "no.png", "--field", "mask")
    assert wrong.returncode == 2 and "no image field `mask`; image fields: image" in wrong.stderr
