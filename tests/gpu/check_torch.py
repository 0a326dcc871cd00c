"""On a machine with a GPU: a Loader with device="cuda:0" against one in host memory, byte for byte, streams that leave their transforms to
the device (`device: gpu`) against the server's own, and what a trainer waits for. Needs torch, no pytest; Pillow makes the pictures. Prints a line of JSON after "[figure] " per figure; ends with 1 on the first thing that is wrong.
`check_torch.py host`: what of it can be without a GPU, on the twin."""

from __future__ import annotations

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

DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cuda:0"
ROWS, SIDE = 4096 if DEVICE != "host" else 1536, 64


NORMALIZE = {"normalize": {"mean": [0.5] * 3, "std": [0.25] * 3}}
COLOURS: list[Any] = [
    {"random_resized_crop": {"size": 96}},
    "random_horizontal_flip",
    {"color_jitter": {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}},
    {"random_grayscale": {"p": 0.2}},
]


def pictures(folder: Path) -> bool:
    """JPEGs of many sizes in two classes; False: there is nothing to make them with."""
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
    """The configuration, and its streams that are there a second time with `device: gpu`, as NAME_gpu."""
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
        streams["colours"] = {**plan, "transforms": [*COLOURS, NORMALIZE], "output": {"dtype": "float16"}}
        streams["bytes"] = {**plan, "transforms": COLOURS, "output": {"dtype": "uint8", "layout": "NHWC"}}
        left += ["colours", "bytes"]
    else:
        print("[not run] streams of pictures: there is no Pillow to make them", flush=True)
    for stream in streams.values():
        stream["seed"] = 7
    streams |= {f"{name}_gpu": streams[name] | {"device": "gpu"} for name in left}
    # Sets that live there.
    streams["half_float"] = {"source": "set", "seed": 7, "batch_size": 256, "transforms": normalized, "output": {"dtype": "float16"}}
    streams |= {f"{name}_resident": streams[name] | {"residence": "gpu"} for name in ("large", "small")}
    streams["half_float_resident"] = streams["half_float"] | {"residence": "gpu"}
    written = folder / "config.yaml"
    server = {"directory": str(folder / "run"), "metrics": "off"}
    written.write_text(json.dumps({"server": server, "sources": sources, "streams": streams}))
    return written, left


def expect(holds: bool, what: str) -> None:
    if not holds:
        sys.exit(f"check_torch: {what}")
    print(f"ok      {what}", flush=True)


def pair(address: str, stream: str, moved: str = "", **device: Any) -> tuple[headrace.Loader, headrace.Loader]:
    """The same batches in host memory and on the device; of a stream of its own, if `moved` names it."""
    return headrace.Loader(address, stream=stream, output="torch"), headrace.Loader(address, stream=moved or stream, device=DEVICE, **device)


def same_bytes(address: str, stream: str, moved: str = "") -> None:
    host, device = pair(address, stream, moved)
    with host, device:
        for epoch in range(2):
            for here, there in zip(host, device, strict=True):
                for values, got in zip(here, there, strict=True):
                    at = got.device.type == DEVICE.replace("host", "cpu").split(":")[0]
                    if not at or got.dtype != values.dtype or not torch.equal(got.cpu(), values):
                        expect(False, f"{moved or stream}: epoch {epoch}, batch {here.number} differs")
    made = "made on the device are those of the server" if moved else "on the device are those of the host"
    expect(True, f"{moved or stream}: two epochs {made}")


def under_pressure(address: str, moved: str) -> None:
    """Batches are dropped while kernels still read them: their memory must not be used again before."""
    side = torch.cuda.Stream() if DEVICE != "host" else None
    with headrace.Loader(address, stream="large", output="torch") as host:
        sums = [[image.double().sum().item() for image, _ in host] for _ in range(3)]  # in another order each epoch
    with torch.cuda.stream(side), headrace.Loader(address, stream=moved, device=DEVICE, prefetch=3) as loader:
        for epoch, expected in enumerate(sums):
            results = []
            for image, _ in loader:
                if side:
                    torch.cuda._sleep(20_000_000)  # the stream lags: the host is batches ahead of it
                results.append(image.double().sum())
                del image
            if side:
                side.synchronize()
            if len(results) != len(expected) or not np.allclose([r.item() for r in results], expected, rtol=1e-9):
                expect(False, f"{moved}: epoch {epoch}: batches that were dropped early differ")
        expect(True, f"{moved}: batches that were dropped early were read whole")


# A process of its own: this one has a context on the first GPU. Exit code 3: torch alone makes one.
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
    """Hundreds of megabytes on the first GPU for each rank, if it were otherwise."""
    if torch.cuda.device_count() < 2:
        print(f"[not run] {stream} on the second GPU: there is none", flush=True)
        return
    done = subprocess.run([sys.executable, "-c", ON_THE_SECOND, address, stream], capture_output=True, text=True, check=False)
    if done.returncode == 3:
        print(f"[not run] {stream} on the second GPU: torch itself makes a context on the first", flush=True)
        return
    expect(done.returncode == 0, f"{stream}: on the second GPU it makes no context on the first{': ' * bool(done.stderr)}{done.stderr}")


def other_frameworks(address: str) -> None:
    host, device = pair(address, "large", output="dlpack")
    with host, device:
        for (image, _), (array, _) in zip(host, device, strict=True):
            if not torch.equal(torch.from_dlpack(array).cpu(), image):
                expect(False, "a batch through DLPack differs")
    expect(True, "batches through DLPack are those of the host")


def wait_share(address: str, stream: str) -> None:
    """Of a trainer that takes longer than the server."""
    layers = [torch.nn.Conv2d(3, 128, 3), torch.nn.ReLU(), torch.nn.Conv2d(128, 128, 3), torch.nn.Flatten(), torch.nn.Linear(128 * (SIDE - 4) ** 2, 10)]
    model = torch.nn.Sequential(*layers).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with headrace.Loader(address, stream=stream, device=DEVICE) as loader:
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
        expect(copies["direct"] > 0 and copies["staged"] == 0, f"{stream}: batches were read from the pinned ring: {copies}")
    print("[figure] " + json.dumps({"figure": "trainer wait share", "stream": stream, "epoch_s": seconds, "share": share, "aim": 0.01}), flush=True)


def main() -> None:
    print(f"{DEVICE if DEVICE == 'host' else torch.cuda.get_device_name(0)}, torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        written, left = config(Path(folder))
        with headrace.serve(written) as server:
            for stream in ("large", "half", "small"):
                same_bytes(server.address, stream)
            on_device = {stream.name: stream.on_device for stream in headrace.streams(server.address)}
            expect(all(on_device[f"{stream}_gpu"] == ("image",) for stream in left), f"images of {', '.join(left)} are left to the device")
            for stream in left:
                same_bytes(server.address, stream, f"{stream}_gpu")
            for stream in ("large", "small", "half_float"):
                same_bytes(server.address, stream, f"{stream}_resident")
            other_frameworks(server.address)
            for stream in ("large", "large_gpu", "large_resident"):
                under_pressure(server.address, stream)
            if DEVICE != "host":
                for stream in ("large_gpu", "large_resident"):
                    on_the_second_gpu(server.address, stream)
                for stream in ("large", "large_gpu"):
                    wait_share(server.address, stream)


if __name__ == "__main__":
    main()
