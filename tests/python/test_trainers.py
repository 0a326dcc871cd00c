"""The example trainers: C++ and Python are given the same bytes, and their losses agree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from running import ROOT


def cpp_trainer(name: str = "demo_trainer") -> str:
    path = os.environ.get(f"HEADRACE_{name.upper()}", str(ROOT / "build" / "release" / "bin" / name))
    assert Path(path).exists(), f"{path} is not there: build the target {name}, or set HEADRACE_{name.upper()}"
    return path


@pytest.mark.parametrize("last", ["short", "pad"])
def test_cpp_and_python_see_the_same_bytes_and_learn_the_same(start_server: Any, quiet_config: dict[str, Any], last: str) -> None:
    stream = quiet_config["streams"]["train"]
    stream |= {"output": {"dtype": "float32"}, "last": last, "sharing": {"wait_for": 2, "on_lag": "wait"}}
    stream["transforms"] = [*stream["transforms"], {"normalize": {"mean": [0.5] * 3, "std": [0.25] * 3}}]
    address = start_server(quiet_config).address
    commands = [[cpp_trainer()], [sys.executable, str(ROOT / "bindings" / "examples" / "trainer.py")]]
    running = [
        subprocess.Popen([*command, "--address", address, "--epochs", "3"], stdout=subprocess.PIPE) for command in commands
    ]
    heard = []
    for process in running:
        output = process.communicate(timeout=60)[0]
        assert process.returncode == 0
        heard.append([json.loads(line) for line in output.splitlines()])
    epochs = [[line for line in lines if line["event"] == "epoch"] for lines in heard]
    assert [len(e) for e in epochs] == [3, 3]
    assert [e["digest"] for e in epochs[0]] == [e["digest"] for e in epochs[1]]
    assert len({e["digest"] for e in epochs[0]}) == 3
    assert [e["loss"] for e in epochs[0]] == pytest.approx([e["loss"] for e in epochs[1]], rel=1e-3)
    assert epochs[0][-1]["loss"] < epochs[0][0]["loss"]
    assert [lines[-1]["images"] for lines in heard] == [180, 180]


def test_the_cpp_trainer_on_a_device_learns_what_the_one_on_the_host_does(start_server: Any, quiet_config: dict[str, Any]) -> None:
    stream = quiet_config["streams"]["train"]
    stream |= {"output": {"dtype": "float32"}, "sharing": {"wait_for": 2, "on_lag": "wait"}}
    stream["transforms"] = [*stream["transforms"], {"normalize": {"mean": [0.5] * 3, "std": [0.25] * 3}}]
    address = start_server(quiet_config).address
    commands = [[cpp_trainer()], [cpp_trainer("device_trainer"), "--device", "host"]]
    running = [subprocess.Popen([*command, "--address", address], stdout=subprocess.PIPE) for command in commands]
    heard = [[json.loads(line) for line in process.communicate(timeout=60)[0].splitlines()] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    losses = [[line["loss"] for line in lines if line["event"] == "epoch"] for lines in heard]
    assert len(losses[0]) == 3
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    assert heard[1][-1]["images"] == 180
    assert heard[1][-1]["device"] == "host"


def test_a_trainer_without_its_gpu_says_so(start_server: Any, quiet_config: dict[str, Any]) -> None:
    address = start_server(quiet_config).address
    done = subprocess.run([cpp_trainer("device_trainer"), "--address", address, "--device", "cuda:77"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "device_trainer: " in done.stderr
    assert "cuda" in done.stderr
