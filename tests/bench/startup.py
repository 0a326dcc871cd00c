"""Measures the start of a server with very many samples: seconds until it is ready, and memory per sample.

    python tests/bench/startup.py build/release/server/verbs/headrace --entries 10000000 [--kinds csv list folder shards arrays]

Makes the dataset in --directory first (kept for the next run): a CSV manifest, a list of paths, a class folder of hard links (entries that
cost nothing else), WebDataset shards, an array. Starts the server three times on each, on `shards` first without its cached index. "again" is
the faster of the second and the third start. The memory is the growth of the server's own pages (RssAnon) over a server on 1,000 entries. The
seconds are those until `headrace health` would say ready. `--cold` (for root) lets the kernel forget the names of files before
the first start, which then reads them from the disk.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import yaml
from PIL import Image

CLASSES = 1000
PER_INODE = 60000  # ext4 allows 65,000 links


def jpeg() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 8), (90, 120, 200)).save(file, "JPEG")
    return file.getvalue()


def progress(what: str, done: int, of: int) -> None:
    if sys.stderr.isatty() or done == of:
        print(f"\r{what}: {done} of {of}", end="\n" if done == of else "", file=sys.stderr)


def link_name(index: int, entries: int) -> str:
    return f"class_{index * CLASSES // entries:04d}/image_{index:08d}.jpg"


def make_folder(folder: Path, entries: int) -> dict[str, Any]:
    content = jpeg()
    for label in range(CLASSES):
        (folder / "photos" / f"class_{label:04d}").mkdir(parents=True)
    for i in range(entries):
        source = folder / f"content_{i // PER_INODE}"
        if i % PER_INODE == 0:
            source.write_bytes(content)
            progress("links", i, entries)
        os.link(source, folder / "photos" / link_name(i, entries))
    progress("links", entries, entries)
    return {"type": "image_folder", "path": str(folder / "photos")}


def make_manifest(folder: Path, entries: int, csv: bool) -> dict[str, Any]:
    """Lists the class folder's files."""
    root = dataset("folder", folder.parent, entries)["path"]
    path = folder / ("samples.csv" if csv else "samples.txt")
    with path.open("w") as file:
        if csv:
            file.write("path,label\n")
        for i in range(entries):
            name = link_name(i, entries)
            file.write(f"{name},{i * CLASSES // entries}\n" if csv else f"{name}\n")
    return {"type": "manifest", "path": str(path), "root": root}


def make_shards(folder: Path, entries: int) -> dict[str, Any]:
    content = jpeg()
    shards = max(1, entries // 100_000)
    for shard in range(shards):
        with (folder / f"train-{shard:05d}.tar").open("wb") as file:
            for i in range(entries * shard // shards, entries * (shard + 1) // shards):
                for suffix, body in (("jpg", content), ("cls", str(i % CLASSES).encode())):
                    header = tarfile.TarInfo(f"{i:09d}.{suffix}")
                    header.size = len(body)
                    file.write(header.tobuf(tarfile.USTAR_FORMAT) + body + bytes(-len(body) % 512))
            file.write(bytes(1024))
        progress("shards", shard + 1, shards)
    return {"type": "webdataset", "path": str(folder)}


def make_arrays(folder: Path, entries: int) -> dict[str, Any]:
    array = np.lib.format.open_memmap(folder / "x.npy", mode="w+", dtype=np.uint8, shape=(entries, 16))
    array[:] = 7
    np.save(folder / "label.npy", np.arange(entries) % CLASSES)
    return {"type": "npy", "fields": {"x": str(folder / "x.npy"), "label": str(folder / "label.npy")}}


MAKERS: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    "csv": lambda folder, entries: make_manifest(folder, entries, csv=True),
    "list": lambda folder, entries: make_manifest(folder, entries, csv=False),
    "folder": make_folder,
    "shards": make_shards,
    "arrays": make_arrays,
}


def dataset(kind: str, directory: Path, entries: int) -> dict[str, Any]:
    folder = directory / f"{kind}-{entries}"
    description = folder / "source.yaml"
    if not description.exists():
        folder.mkdir(parents=True, exist_ok=True)
        source = MAKERS[kind](folder, entries)
        description.write_text(yaml.safe_dump(source))
    return dict(yaml.safe_load(description.read_text()))


@dataclass
class Start:
    seconds: float  # until it is ready
    cpu: float  # user + system of all threads
    memory: float  # its own, in bytes
    samples: int


def start(binary: str, kind: str, source: dict[str, Any]) -> Start:
    with tempfile.TemporaryDirectory() as temporary:
        stream: dict[str, Any] = {"source": "data", "batch_size": 8}
        if kind != "arrays":
            stream["transforms"] = [{"resize": {"size": [8, 8]}}]
        config = {
            "server": {"metrics": "off", "directory": temporary},
            "sources": {"data": source},
            "streams": {"train": stream},
        }
        path = Path(temporary) / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        begun = time.monotonic()
        process = subprocess.Popen([binary, "serve", str(path)], stderr=subprocess.PIPE, text=True)
        try:
            while True:
                if process.poll() is not None:
                    raise SystemExit(f"the server ended: {process.stderr.read() if process.stderr else ''}")
                try:
                    samples = headrace.streams(temporary)[0].samples
                    break
                except headrace.Error:
                    time.sleep(0.01)
            seconds = time.monotonic() - begun
            proc = Path(f"/proc/{process.pid}")
            ticks = [int(word) for word in (proc / "stat").read_text().rpartition(")")[2].split()[11:13]]
            own = re.search(r"RssAnon:\s+(\d+) kB", (proc / "status").read_text())
            assert own
            return Start(seconds, sum(ticks) / os.sysconf("SC_CLK_TCK"), int(own[1]) * 1024.0, samples)
        finally:
            process.terminate()
            process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("binary")
    parser.add_argument("--entries", type=int, default=10_000_000)
    parser.add_argument("--kinds", nargs="+", choices=MAKERS, default=list(MAKERS))
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()) / "headrace-startup")
    arguments = parser.parse_args()
    print("| source | samples | first start, s | CPU, s | again, s | CPU, s | bytes per sample |")
    print("|---|---|---|---|---|---|---|")
    for kind in arguments.kinds:
        small = start(arguments.binary, kind, dataset(kind, arguments.directory, 1000)).memory
        source = dataset(kind, arguments.directory, arguments.entries)
        if kind == "shards":
            for cached in Path(source["path"]).glob(".headrace-*.index"):
                cached.unlink()
        if arguments.cold:
            Path("/proc/sys/vm/drop_caches").write_text("2")
        runs = [start(arguments.binary, kind, source) for _ in range(3)]
        first, again = runs[0], min(runs[1:], key=lambda run: run.seconds)
        own = (statistics.median(run.memory for run in runs) - small) / arguments.entries
        times = f"{first.seconds:.2f} | {first.cpu:.2f} | {again.seconds:.2f} | {again.cpu:.2f}"
        print(f"| {kind} | {first.samples} | {times} | {own:.0f} |", flush=True)


if __name__ == "__main__":
    main()
