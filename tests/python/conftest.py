"""Shared fixtures: a small image folder, and servers over any config."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from images import write_images
from running import Server

ServerFactory = Callable[..., Server]

# A shell starts background jobs with SIGINT ignored, and children inherit that, so control-C would not reach them.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def numpy_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some tests import torch, which would change what loaders of all others give."""
    monkeypatch.setattr("headrace._device.default_output", lambda device, zero_copy: "numpy" if device is None else "torch")


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """3 classes of 20 JPEGs. Read only: tests that change files must create their own with write_images."""
    return write_images(tmp_path_factory.mktemp("images"), classes=3, per_class=20)


@pytest.fixture
def basic_config(image_folder: Path) -> dict[str, Any]:
    """One broadcast stream `train` of uint8 images."""
    return {
        "server": {"threads": 1},
        "sources": {"images": {"type": "image_folder", "path": str(image_folder)}},
        "streams": {
            "train": {
                "source": "images",
                "batch_size": 8,
                "seed": 7,
                "transforms": [{"random_resized_crop": {"size": 32}}, "random_horizontal_flip"],
            }
        },
    }


@pytest.fixture
def quiet_config(basic_config: dict[str, Any]) -> dict[str, Any]:
    """The same without metrics, because stopping the HTTP server takes long."""
    return {**basic_config, "server": {**basic_config["server"], "metrics": "off"}}


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[ServerFactory]:
    """start_server(config, env=…): a running server, stopped at the test's end (which must be clean)."""
    running: list[Server] = []

    def start(config: dict[str, Any], **options: Any) -> Server:
        folder = tmp_path / f"server{len(running)}"
        folder.mkdir()
        running.append(Server(config, folder, **options))
        return running[-1].wait_ready()

    yield start
    for server in running:
        server.stop()


@pytest.fixture
def sharded(start_server: ServerFactory, quiet_config: dict[str, Any]) -> str:
    """The address of 60 samples in batches of 8, float32, divided by ranks."""
    quiet_config["streams"]["train"] |= {"output": {"dtype": "float32"}, "delivery": "shard"}
    return start_server(quiet_config).address
