"""Clients of one stream that are too far apart to share rows come together, if decoding is the bottleneck."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from PIL import Image
from running import wait_until

START_BEHIND = 60  # batches


@pytest.fixture
def address(start_server: Any, quiet_config: dict[str, Any], tmp_path: Path) -> str:
    """A stream that one worker decodes slowly, with batches so large that loops get them without a copy."""
    folder = tmp_path / "photos" / "noise"
    folder.mkdir(parents=True)
    for number in range(16):
        pixels = np.random.default_rng(number).integers(0, 256, (300, 300, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.jpg", quality=95)
    quiet_config["server"]["threads"] = 1
    quiet_config["sources"] = {"photos": {"type": "image_folder", "path": str(folder.parent)}, "long": {"type": "repeat", "of": "photos", "times": 2000}}
    train = {"source": "long", "batch_size": 8, "transforms": [{"random_crop": {"size": 224}}], "sharing": {"window": "0B", "patience": "60s"}}
    quiet_config["streams"] = {"train": train}
    return str(start_server(quiet_config).address)


def client(address: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next((c for c in headrace.stats(address)["streams"]["train"]["clients"] if c["client"] == name), {})
    return found


def begin(address: str, name: str, ended: threading.Event) -> threading.Thread:
    def loop() -> None:
        with headrace.Loader(address, stream="train", client=name) as loader:
            for batch in loader:  # holds the batch while it waits for the next one
                if ended.is_set() or len(batch[0]) == 0:
                    return

    thread = threading.Thread(target=loop)
    thread.start()
    return thread


def seen(holds: Callable[[dict[str, Any]], bool], address: str, name: str) -> Callable[[], bool]:
    return lambda: bool(found := client(address, name)) and holds(found)


@pytest.mark.filterwarnings("ignore:.*client 'late' begins:RuntimeWarning")
def test_a_client_ahead_yields_although_loops_hold_their_batches(address: str) -> None:
    ended = threading.Event()
    threads = [begin(address, "first", ended)]
    try:
        wait_until(seen(lambda found: bool(found["waiting"] and found["leases"] > 0), address, "first"), "a client that waits and holds a batch")
        wait_until(seen(lambda found: found["next"]["batch"] >= START_BEHIND, address, "first"), "the first client's batches")
        threads.append(begin(address, "late", ended))
        wait_until(seen(lambda found: bool(found["waits_for_one_behind"]), address, "first"), "the client ahead yields")
        wait_until(seen(lambda found: found["lag"] <= 2, address, "late"), "the late client has caught up")
    finally:
        ended.set()
        for thread in threads:
            thread.join()
