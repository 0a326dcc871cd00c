"""Checks batches in GPU memory against batches in host memory.

  check_torch.py [DEVICE]

It compares a Loader with a device with one in host memory, byte for byte: for batches that are copied, for transforms on the device
(`device: gpu`) and for datasets in GPU memory (`residence: gpu`). It also measures how long a trainer waits for batches. It needs torch, and
Pillow for streams of JPEGs; it does not need pytest. It prints a line of JSON after "[figure] " per figure, and exits with status 1 at the
first error.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import torch

SIDE = 64


def device_to_check() -> str:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device", nargs="?", default="cuda:0", help='"cuda:N", or "host" for the checks that the CPU backend can run without a GPU (default: cuda:0)')
    device: str = parser.parse_args().device
    return device


DEVICE = device_to_check()
ROWS = 4096 if DEVICE != "host" else 1536  # the CPU backend computes rows slowly
NORMALIZE = {"normalize": {"mean": [0.5] * 3, "std": [0.25] * 3}}
COLORS: list[Any] = [
    {"random_resized_crop": {"size": 96}},
    "random_horizontal_flip",
    {"color_jitter": {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}},
    {"random_grayscale": {"p": 0.2}},
]


def pictures(folder: Path) -> bool:
    """Writes JPEGs of many sizes in two classes. False: Pillow is not installed."""
    try:
        from PIL import Image
    except ImportError:
        return False
    random = np.random.default_rng(1)
    for i in range(192):
        height, width = (int(side) for side in random.integers(40, 400, 2))
        coarse = random.integers(0, 256, (height // 8 + 2, width // 8 + 2, 3), dtype=np.uint8)
        file = folder / f"class{i % 2}" / f"{i:03}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC).save(file, quality=90)
    return True


def config(folder: Path) -> tuple[Path, list[str]]:
    """The configuration file, and the names of the streams that also exist with `device: gpu`, as NAME_gpu."""
    random = np.random.default_rng(0)
    np.save(folder / "images.npy", random.integers(0, 256, (ROWS, SIDE, SIDE, 3), dtype=np.uint8))
    np.save(folder / "labels.npy", random.integers(0, 10, ROWS))
    sources: dict[str, Any] = {"set": {"type": "npy", "fields": {"image": str(folder / "images.npy"), "label": str(folder / "labels.npy")}}}
    crop: list[Any] = [{"random_crop": {"size": SIDE, "padding": 4}}, "random_horizontal_flip"]
    normalized = [*crop, NORMALIZE]
    streams: dict[str, Any] = {
        "large": {"source": "set", "batch_size": 512, "transforms": normalized, "output": {"dtype": "float32"}},
        "half": {"source": "set", "batch_size": 256, "transforms": normalized, "output": {"dtype": "bfloat16"}},
        "small": {"source": "set", "batch_size": 4, "transforms": crop},
    }
    left = ["large", "half"]
    if pictures(folder / "pictures"):
        sources["pictures"] = {"type": "image_folder", "path": str(folder / "pictures")}
        plan = {"source": "pictures", "batch_size": 64}
        streams["colors"] = {**plan, "transforms": [*COLORS, NORMALIZE], "output": {"dtype": "float16"}}
        streams["bytes"] = {**plan, "transforms": COLORS, "output": {"dtype": "uint8", "layout": "NHWC"}}
        left += ["colors", "bytes"]
    else:
        print("[not run] streams of JPEGs: Pillow, which writes the JPEGs, is not installed", flush=True)
    for stream in streams.values():
        stream["seed"] = 7
    streams |= {f"{name}_gpu": streams[name] | {"device": "gpu"} for name in left}
    # Datasets in GPU memory.
    streams["half_float"] = {"source": "set", "seed": 7, "batch_size": 256, "transforms": normalized, "output": {"dtype": "float16"}}
    streams |= {f"{name}_resident": streams[name] | {"residence": "gpu"} for name in ("large", "small")}
    streams["half_float_resident"] = streams["half_float"] | {"residence": "gpu"}
    written = folder / "config.yaml"
    server = {"directory": str(folder / "run"), "metrics": "off"}
    written.write_text(json.dumps({"server": server, "sources": sources, "streams": streams}))
    return written, left


def expect(holds: bool, what: str) -> None:
    if not holds:
        sys.exit(f"check_torch: expected this to hold: {what}")
    print(f"ok      {what}", flush=True)


def pair(address: str, stream: str, moved: str = "", **device: Any) -> tuple[headrace.Loader, headrace.Loader]:
    """A loader of `stream` in host memory, and one of `moved` (default: the same stream) on the device."""
    return headrace.Loader(address, stream=stream, output="torch"), headrace.Loader(address, stream=moved or stream, device=DEVICE, **device)


def same_bytes(address: str, stream: str, moved: str = "") -> None:
    host, device = pair(address, stream, moved)
    with host, device:
        for epoch in range(2):
            for here, there in zip(host, device, strict=True):
                for values, got in zip(here, there, strict=True):
                    at = got.device.type == DEVICE.replace("host", "cpu").split(":")[0]
                    if not at or got.dtype != values.dtype or not torch.equal(got.cpu(), values):
                        expected, found = f"{values.dtype} on {DEVICE}", f"{got.dtype} on {got.device}"
                        sys.exit(
                            f"check_torch: {moved or stream}: epoch {epoch}, batch {here.number}: expected the values of the batch in host "
                            f"memory, {expected}; found others, {found}"
                        )
    made = "computed on the device equal the server's" if moved else "copied to the device equal those in host memory"
    expect(True, f"{moved or stream}: batches of two epochs {made}")


def under_pressure(address: str, moved: str, stream: str = "large") -> None:
    """Drops batches while kernels still read them: their memory must not be reused before the kernels end. `stream` has the same batches."""
    side = torch.cuda.Stream() if DEVICE != "host" else None
    with headrace.Loader(address, stream=stream, output="torch") as host:
        sums = [[image.double().sum().item() for image, _ in host] for _ in range(3)]  # each epoch has another order
    with torch.cuda.stream(side), headrace.Loader(address, stream=moved, device=DEVICE, prefetch=3) as loader:
        for epoch, expected in enumerate(sums):
            results = []
            for image, _ in loader:
                if side:
                    torch.cuda._sleep(20_000_000)  # makes the stream lag, so that the host is several batches ahead
                results.append(image.double().sum())
                del image
            if side:
                side.synchronize()
            if len(results) != len(expected) or not np.allclose([r.item() for r in results], expected, rtol=1e-9):
                expect(False, f"{moved}: epoch {epoch}: batches dropped early equal those in host memory")
        expect(True, f"{moved}: batches dropped early were not overwritten before they were read")


# Runs in a new process, because this one already has a CUDA context on the first GPU. Exit status 3: torch alone creates one there.
ON_THE_SECOND = """
import ctypes, sys
import headrace, torch
def has_context(gpu):
    flags, active = ctypes.c_uint(), ctypes.c_int()
    if ctypes.CDLL("libcuda.so.1").cuDevicePrimaryCtxGetState(gpu, ctypes.byref(flags), ctypes.byref(active)):
        sys.exit("cuDevicePrimaryCtxGetState failed")
    return bool(active.value)
torch.empty(1, device="cuda:1")
if has_context(0):
    sys.exit(3)
with headrace.Loader(sys.argv[1], stream=sys.argv[2], device="cuda:1") as loader:
    sums = [image.double().sum() for image, _ in loader]
    sums[-1].item()
sys.exit(has_context(0))
"""


def on_the_second_gpu(address: str, stream: str) -> None:
    """Checks that a loader on the second GPU creates no CUDA context on the first: it would take hundreds of megabytes for each rank."""
    if torch.cuda.device_count() < 2:
        print(f"[not run] {stream} on the second GPU: this machine has only one", flush=True)
        return
    done = subprocess.run([sys.executable, "-c", ON_THE_SECOND, address, stream], capture_output=True, text=True, check=False)
    if done.returncode == 3:
        print(f"[not run] {stream} on the second GPU: torch itself creates a CUDA context on the first", flush=True)
        return
    expect(done.returncode == 0, f"{stream}: a loader on the second GPU creates no CUDA context on the first{': ' * bool(done.stderr)}{done.stderr}")


def other_frameworks(address: str) -> None:
    host, device = pair(address, "large", output="dlpack")
    with host, device:
        for number, ((image, _), (array, _)) in enumerate(zip(host, device, strict=True)):
            if not torch.equal(torch.from_dlpack(array).cpu(), image):
                sys.exit(f"check_torch: large: batch {number} through DLPack differs from the batch in host memory")
    expect(True, "large: batches through DLPack equal those in host memory")


def wait_share(address: str, stream: str) -> None:
    """Measures the fraction of an epoch that a trainer waits for batches, when it is slower than the server."""
    layers = [torch.nn.Conv2d(3, 128, 3), torch.nn.ReLU(), torch.nn.Conv2d(128, 128, 3), torch.nn.Flatten(), torch.nn.Linear(128 * (SIDE - 4) ** 2, 10)]
    model = torch.nn.Sequential(*layers).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with headrace.Loader(address, stream=stream, device=DEVICE) as loader:
        for _ in range(4):  # the last epoch counts
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
        expect(copies["direct"] > 0 and copies["staged"] == 0, f"{stream}: all batches were read from the pinned ring, none was staged: {copies}")
    print("[figure] " + json.dumps({"figure": "trainer wait share", "stream": stream, "epoch_s": seconds, "share": share, "aim": 0.01}), flush=True)


def main() -> None:
    print(f"{DEVICE if DEVICE == 'host' else torch.cuda.get_device_name(0)}, torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        written, left = config(Path(folder))
        with headrace.serve(written) as server:
            for stream in ("large", "half", "small"):
                same_bytes(server.address, stream)
            on_device = {stream.name: stream.on_device for stream in headrace.streams(server.address)}
            expect(all(on_device[f"{stream}_gpu"] == ("image",) for stream in left), f"the device computes the images of {', '.join(f'{stream}_gpu' for stream in left)}")
            for stream in left:
                same_bytes(server.address, stream, f"{stream}_gpu")
            for stream in ("large", "small", "half_float"):
                same_bytes(server.address, stream, f"{stream}_resident")
            other_frameworks(server.address)
            for stream in ("large", "large_gpu", "large_resident"):
                under_pressure(server.address, stream)
            under_pressure(server.address, "small_resident", "small")  # several batches in a block
            if DEVICE != "host":
                for stream in ("large_gpu", "large_resident"):
                    on_the_second_gpu(server.address, stream)
                for stream in ("large", "large_gpu"):
                    wait_share(server.address, stream)


if __name__ == "__main__":
    main()
