"""On a machine with a GPU: a Loader with device="cuda:0" against one in host memory, byte for byte, and what a trainer waits for. Needs
torch alone, no pytest. Prints a line of JSON after "[figure] " per figure; ends with 1 on the first thing that is wrong.
`check_torch.py host`: what of it can be without a GPU, on the twin."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import torch

ROWS, SIDE = 4096, 64
DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cuda:0"


def config(folder: Path) -> Path:
    random = np.random.default_rng(0)
    np.save(folder / "images.npy", random.integers(0, 256, (ROWS, SIDE, SIDE, 3), dtype=np.uint8))
    np.save(folder / "labels.npy", random.integers(0, 10, ROWS))
    crop = [{"random_crop": {"size": SIDE, "padding": 4}}, "random_horizontal_flip"]
    normalized = [*crop, {"normalize": {"mean": [0.5] * 3, "std": [0.25] * 3}}]
    written = folder / "config.yaml"
    written.write_text(
        json.dumps(
            {
                "server": {"directory": str(folder / "run"), "metrics": "off"},
                "sources": {"set": {"type": "npy", "fields": {"image": str(folder / "images.npy"), "label": str(folder / "labels.npy")}}},
                "streams": {
                    "large": {"source": "set", "batch_size": 512, "transforms": normalized, "output": {"dtype": "float32"}},
                    "half": {"source": "set", "batch_size": 256, "transforms": normalized, "output": {"dtype": "bfloat16"}},
                    "small": {"source": "set", "batch_size": 4, "transforms": crop},
                },
            }
        )
    )
    return written


def expect(holds: bool, what: str) -> None:
    if not holds:
        sys.exit(f"check_torch: {what}")
    print(f"ok      {what}", flush=True)


def pair(address: str, stream: str, **device: Any) -> tuple[headrace.Loader, headrace.Loader]:
    """The same batches in host memory and on the device."""
    return headrace.Loader(address, stream=stream, output="torch"), headrace.Loader(address, stream=stream, device=DEVICE, **device)


def same_bytes(address: str, stream: str) -> None:
    host, device = pair(address, stream)
    with host, device:
        for epoch in range(2):
            for here, there in zip(host, device, strict=True):
                for values, moved in zip(here, there, strict=True):
                    if moved.device.type != DEVICE.replace("host", "cpu")[: len(moved.device.type)] or not torch.equal(moved.cpu(), values):
                        expect(False, f"{stream}: epoch {epoch}, batch {here.number} differs")
    expect(True, f"{stream}: two epochs on the device are those of the host")


def under_pressure(address: str) -> None:
    """Batches are dropped while kernels still read them: their memory must not be used again before."""
    side = torch.cuda.Stream()
    with headrace.Loader(address, stream="large", output="torch") as host:
        sums = [image.double().sum().item() for image, _ in host]
    with torch.cuda.stream(side), headrace.Loader(address, stream="large", device=DEVICE, prefetch=3) as loader:
        for _ in range(3):
            results = []
            for image, _ in loader:
                torch.cuda._sleep(20_000_000)  # the stream lags: the host is batches ahead of it
                results.append(image.double().sum())
                del image
            side.synchronize()
            expect(np.allclose([r.item() for r in results], sums, rtol=1e-9), "batches that were dropped early were read whole")


def other_frameworks(address: str) -> None:
    host, device = pair(address, "large", output="dlpack")
    with host, device:
        for (image, _), (array, _) in zip(host, device, strict=True):
            if not torch.equal(torch.from_dlpack(array).cpu(), image):
                expect(False, "a batch through DLPack differs")
    expect(True, "batches through DLPack are those of the host")


def wait_share(address: str) -> None:
    """Of a trainer that takes longer than the server."""
    layers = [torch.nn.Conv2d(3, 128, 3), torch.nn.ReLU(), torch.nn.Conv2d(128, 128, 3), torch.nn.Flatten(), torch.nn.Linear(128 * (SIDE - 4) ** 2, 10)]
    model = torch.nn.Sequential(*layers).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with headrace.Loader(address, stream="large", device=DEVICE) as loader:
        for _ in range(4):  # the last one counts
            begun, waited = time.perf_counter(), loader.waited
            for image, label in loader:
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(image), label)
                loss.backward()
                optimizer.step()
                loss.item()
            seconds = time.perf_counter() - begun
            share = (loader.waited - waited) / seconds
        copies = loader._stream.copies()
        expect(copies["direct"] > 0 and copies["staged"] == 0, f"batches were read from the pinned ring: {copies}")
    print("[figure] " + json.dumps({"figure": "trainer wait share", "epoch_s": seconds, "share": share, "aim": 0.01}), flush=True)


def main() -> None:
    print(f"{DEVICE if DEVICE == 'host' else torch.cuda.get_device_name(0)}, torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as folder, headrace.serve(config(Path(folder))) as server:
        for stream in ("large", "half", "small"):
            same_bytes(server.address, stream)
        other_frameworks(server.address)
        if DEVICE != "host":
            under_pressure(server.address)
            wait_share(server.address)


if __name__ == "__main__":
    main()
