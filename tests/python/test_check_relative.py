"""`headrace check DATASET` proposes relative paths for a dataset that is given by one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml
from images import write_images
from running import headrace_binary


def check(path: Path | str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([headrace_binary(), "check", str(path)], capture_output=True, text=True, timeout=60, cwd=folder)


@pytest.mark.parametrize(
    ("given", "below", "paths"),
    [
        ("photos", "", ["photos/train", "photos/val"]),
        ("./photos/", "", ["photos/train", "photos/val"]),
        ("train", "photos", ["train"]),
        (".", "photos/train", ["."]),
        ("..", "photos/train", [".", "{}/photos/val"]),
        ("{}/photos", "", ["{}/photos/train", "{}/photos/val"]),
    ],
)
def test_a_proposal_for_a_relative_path_has_relative_paths(tmp_path: Path, given: str, below: str, paths: list[str]) -> None:
    root = tmp_path / 'data "here"'
    for part in ("train", "val"):
        write_images(root / "photos" / part, classes=2, per_class=2)
    proposal = check(given.format(root), root / below)
    sources = yaml.safe_load(proposal.stdout)["sources"].values()
    assert [source["path"].rstrip("/") for source in sources] == [path.format(root) for path in paths]
    config = root / below / "headrace.yaml"
    config.write_text(proposal.stdout)
    assert check(config, tmp_path).returncode == 0
