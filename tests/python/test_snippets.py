"""The start pages and recipes run as they are printed (snippets.py), on small data."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import snippets
from running import ROOT

PAGES = sorted(
    str(file.relative_to(ROOT)) for pattern in ("*/start-*.md", "bindings/recipes/*.md") for file in ROOT.glob(pattern)
)
RESNET = {"resnet50": "resnet18", "epochs = 90": "epochs = 1", "--nproc-per-node 8": "--nproc-per-node 2", "batch_size: 256": "batch_size: 8"}
CHANGES = {
    "bindings/recipes/imagenet.md": RESNET | {"random_resized_crop: 224": "random_resized_crop: 64", "center_crop: 224": "center_crop: 64"},
    "bindings/recipes/cifar.md": {"range(10)": "range(3)", "batch_size: 512": "batch_size: 64"},
    "bindings/recipes/super-resolution.md": {"range(100)": "range(3)", "8 GiB": "64 MiB"},
    "bindings/start-pytorch.md": {"random_resized_crop: 224": "random_resized_crop: 64"},
    "docker/start-compose.md": {"path: /data}": "path: /data/photos}", "/run/headrace": "run", "address: 0.0.0.0, port: 9464": "port: 0"},
}
SAID = {
    "bindings/recipes/imagenet.md": ["accuracy", " on 15 images"],
    "bindings/recipes/cifar.md": ["epoch 2: accuracy"],
    "bindings/recipes/super-resolution.md": ["epoch 2: PSNR"],
    "bindings/recipes/several-trainers.md": ["narrow: loss", "wide: loss", "sharing factor"],
    "bindings/recipes/sweep.md": ["base, rate", "large, rate", "colors, rate", "sharing factor"],
    "bindings/recipes/validation.md": [" of 15 right"],
    "bindings/recipes/resume.md": ["dies after 15 batches"],
    "bindings/recipes/lightning.md": ["4 steps", "8 steps"],
    "bindings/start-pytorch.md": ["epoch 2: loss"],
    "clientlib/start-cpp.md": ["epoch 1: 75 images"],
}


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C++ package of the release build, installed."""
    build = ROOT / "build/release"
    if not (build / "cmake_install.cmake").exists():
        pytest.skip("no release build: ./run build")
    prefix = tmp_path_factory.mktemp("prefix")
    subprocess.run(["cmake", "--install", build, "--prefix", prefix, "--component", "development"], check=True, capture_output=True)
    return prefix


@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", PAGES)
def test_the_page_runs(page: str, request: pytest.FixtureRequest) -> None:
    env = {}
    if page == "clientlib/start-cpp.md":
        if shutil.which("cmake") is None:
            pytest.skip("no cmake here")
        env["CMAKE_PREFIX_PATH"] = str(request.getfixturevalue("installed"))
    said = snippets.run(page, CHANGES.get(page), env)
    assert [text for text in SAID.get(page, []) if text not in said] == [], said
