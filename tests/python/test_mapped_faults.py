"""Files that are truncated while the server maps them: their streams stop with a named error; the server and all other streams continue."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from running import Server, headrace_binary

# HEADRACE_STRESS: 60 cut files of each kind, over three servers.
ROUNDS, FILES = (3, 20) if os.environ.get("HEADRACE_STRESS") else (1, 5)


@pytest.fixture(scope="module")
def database(image_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("packed") / "images.lmdb"
    subprocess.run([headrace_binary(), "pack", image_folder, out], check=True, capture_output=True, timeout=60)
    return out


class Consumer(threading.Thread):
    """Reads epochs of a stream until it fails or is stopped, and keeps the error."""

    def __init__(self, address: str, stream: str) -> None:
        super().__init__()
        self.address, self.stream = address, stream
        self.batches = 0
        self.stopping = False
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            with headrace.Loader(self.address, stream=self.stream, timeout=60) as loader:
                while not self.stopping:
                    for _ in loader:
                        self.batches += 1
                        if self.stopping:
                            break
        except headrace.errors.Error as error:
            self.error = error


def config_of(folder: Path, images: Path, database: Path) -> tuple[dict[str, Any], dict[str, Path]]:
    """A healthy stream, and one stream for each of FILES databases and arrays. Returns the files by stream."""
    sources: dict[str, Any] = {"healthy": {"type": "image_folder", "path": str(images)}}
    files: dict[str, Path] = {}
    pixels = np.random.default_rng(1).integers(0, 256, (200, 40, 40, 3), dtype=np.uint8)
    for i in range(FILES):
        shutil.copytree(database, folder / f"lmdb{i}")
        sources[f"lmdb{i}"] = {"type": "lmdb", "path": str(folder / f"lmdb{i}")}
        files[f"lmdb{i}"] = folder / f"lmdb{i}" / "data.mdb"
        files[f"npy{i}"] = folder / f"npy{i}.npy"
        np.save(files[f"npy{i}"], pixels)
        sources[f"npy{i}"] = {"type": "npy", "fields": {"image": str(files[f"npy{i}"])}}
    transforms = [{"random_resized_crop": {"size": 32}}]
    streams = {name: {"source": name, "batch_size": 8, "transforms": transforms} for name in sources}
    return {"server": {"threads": 2, "metrics": "off"}, "sources": sources, "streams": streams}, files


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_a_file_that_is_cut_under_load_stops_its_own_stream_alone(
    image_folder: Path, database: Path, tmp_path: Path, round_: int
) -> None:
    config, files = config_of(tmp_path, image_folder, database)
    server = Server(config, tmp_path).wait_ready()
    consumers = {name: Consumer(server.address, name) for name in config["sources"]}
    for consumer in consumers.values():
        consumer.start()
    chance = random.Random(round_)
    for name in chance.sample(list(files), len(files)):
        time.sleep(chance.uniform(0, 0.15))
        os.truncate(files[name], chance.randrange(1, files[name].stat().st_size * 3 // 4))
    for name in files:
        consumers[name].join(60)
        assert not consumers[name].is_alive(), f"{name} goes on"
    server.check_alive()
    batches = consumers["healthy"].batches
    deadline = time.monotonic() + 30
    while consumers["healthy"].batches < batches + 20 and time.monotonic() < deadline:
        time.sleep(0.05)
    consumers["healthy"].stopping = True
    consumers["healthy"].join(30)
    assert consumers["healthy"].error is None
    assert consumers["healthy"].batches >= batches + 20, "the healthy stream continues"
    for name, path in files.items():
        error = consumers[name].error
        assert isinstance(error, headrace.errors.StreamFailed), f"{name}: {error!r}"
        assert f"{path}: byte" in str(error) and "the file was truncated while in use" in str(error)
    assert server.stop() == 0


def test_a_damaged_database_is_refused_by_check_and_serve(database: Path, tmp_path: Path) -> None:
    """Every page of the tree in turn is overwritten: neither command may crash, and each refusal names the folder."""
    whole = (database / "data.mdb").read_bytes()
    folder = tmp_path / "damaged"
    shutil.copytree(database, folder)
    config = tmp_path / "c.yaml"
    config.write_text(
        f"server: {{directory: {tmp_path}/run, metrics: off}}\n"
        f"sources: {{data: {{type: lmdb, path: {folder}}}}}\n"
        "streams: {train: {source: data, batch_size: 4, transforms: [{center_crop: {size: 16}}]}}\n"
    )
    refused = 0
    pages = [at for at in range(0, len(whole), 4096) if whole[at + 10] & 0x03]  # branches and leaves
    assert len(pages) >= 2
    for at in pages:
        for seed in range(3):
            garbage = random.Random(seed).randbytes(4096 - 12)
            (folder / "data.mdb").write_bytes(whole[: at + 12] + garbage + whole[at + 4096 :])
            done = subprocess.run([headrace_binary(), "check", config], capture_output=True, text=True, timeout=60)
            assert done.returncode >= 0, f"page {at // 4096}: check ended by signal {-done.returncode}"
            if done.returncode == 0:
                continue
            refused += 1
            assert f"{folder}: data.mdb is damaged" in done.stderr, done.stderr
            served = subprocess.run([headrace_binary(), "serve", config], capture_output=True, text=True, timeout=60)
            assert served.returncode > 0 and "DATASET_INVALID" in served.stderr, served.stderr
    assert refused >= 3
