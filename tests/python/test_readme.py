"""The example on the front page runs unchanged."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from headrace._device import default_output
from images import write_images
from running import ROOT, headrace_binary

README = (ROOT / "README.md").read_text()


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    return str(found)


def test_ten_lines_train_a_model_and_resume(start_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos = write_images(tmp_path / "photos", classes=3, per_class=25)
    text = block("yaml").replace("/data/photos", str(photos))
    (tmp_path / "train.yaml").write_text(text)
    subprocess.run([headrace_binary(), "check", tmp_path / "train.yaml"], check=True, capture_output=True)
    server = start_server(yaml.safe_load(text) | {"server": {"metrics": "off"}})
    monkeypatch.setenv("HEADRACE_ADDRESS", server.address)
    monkeypatch.setattr("headrace._device.default_output", default_output)  # which conftest replaces

    def run(checkpoint: dict[str, Any]) -> list[Any]:
        seen: list[Any] = []

        def model(images: torch.Tensor) -> torch.Tensor:
            seen.append((tuple(images.shape), images.dtype, hashlib.sha256(images.numpy()).digest()))
            return torch.nn.functional.adaptive_avg_pool2d(images, 1).flatten(1)

        scope: dict[str, Any] = {"checkpoint": checkpoint, "model": model, "cross_entropy": torch.nn.functional.cross_entropy}
        exec(block("python"), scope)
        scope["loader"].close()
        assert scope["loss"].isfinite()
        return seen

    checkpoint: dict[str, Any] = {}
    whole = run(checkpoint)
    state = json.loads(json.dumps(checkpoint["data"]))
    assert state["cursor"] == {"epoch": 10, "origin": 0, "batch": 0}
    rest = run({"data": {**state, "cursor": {"epoch": 3, "origin": 0, "batch": 1}}})
    assert [rows[:2] for rows in whole] == [((64, 3, 224, 224), torch.float32), ((11, 3, 224, 224), torch.float32)] * 10
    assert len(set(whole)) == 20
    assert rest == whole[7:]
