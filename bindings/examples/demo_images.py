"""The demo's image folder: about 2,000 JPEGs of 500 x 375, cut from the photographs in Debian's package mate-backgrounds."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import sys
from pathlib import Path

from PIL import Image

PHOTOGRAPHS = Path("/usr/share/backgrounds/mate/nature")
IMAGES = 2000
SIZE = (500, 375)
SUFFIXES = {".jpg", ".jpeg", ".png"}


class Unusable(Exception):
    """The demo cannot use a folder, or the photographs are missing."""


def _cut(task: tuple[Path, Path, int, int]) -> None:
    photograph, folder, count, seed = task
    draw = random.Random(seed)
    with Image.open(photograph) as opened:
        picture = opened.convert("RGB")
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(count):
        width = draw.uniform(0.35, 0.9) * min(picture.width, picture.height * SIZE[0] / SIZE[1])
        height = width * SIZE[1] / SIZE[0]
        left = draw.uniform(0, picture.width - width)
        top = draw.uniform(0, picture.height - height)
        part = picture.resize(SIZE, Image.Resampling.BILINEAR, (left, top, left + width, top + height), reducing_gap=2.0)
        part.save(folder / f"{seed:03d}_{index:04d}.jpg", quality=90)


def _progress(done: int, of: int) -> None:
    if sys.stdout.isatty():
        bar = "#" * (40 * done // of)
        print(f"\r  cutting images [{bar:<40}] {100 * done // of:3d}%", end="\n" if done == of else "", flush=True)
    elif done == of or done % max(1, of // 4) == 0:
        print(f"  cutting images: {100 * done // of}%", flush=True)


def made_folder() -> Path:
    """The folder of images. It is made once, and renamed when complete, so an incomplete one is never used."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace" / "demo"
    folder = cache / f"images-{IMAGES}-v1"
    if folder.is_dir():
        return folder
    photographs = sorted(p for p in PHOTOGRAPHS.glob("*") if p.suffix.lower() in SUFFIXES)
    if len(photographs) < 2:
        raise Unusable(f"no photographs in {PHOTOGRAPHS}: install Debian's package mate-backgrounds (./run demo does)")
    print(f"making {IMAGES} JPEGs from {len(photographs)} photographs in {folder}", flush=True)
    building = cache / f"building-{os.getpid()}"
    chunk = 20
    tasks = []
    for label, photograph in enumerate(photographs):
        wanted = IMAGES // len(photographs) + (label < IMAGES % len(photographs))
        for part, begin in enumerate(range(0, wanted, chunk)):
            count = min(chunk, wanted - begin)
            tasks.append((photograph, building / photograph.stem.lower(), count, 100 * label + part))
    try:
        with multiprocessing.get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool:
            for done, _ in enumerate(pool.imap_unordered(_cut, tasks), 1):
                _progress(done, len(tasks))
        building.rename(folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return folder


def checked_folder(folder: Path) -> Path:
    """Checks a folder of the user's, which must have one sub-folder of images per class."""
    if not folder.is_dir():
        raise Unusable(f"{folder} is not a folder")
    classes = [entry for entry in sorted(folder.iterdir()) if entry.is_dir() and not entry.name.startswith(".")]
    full = [c for c in classes if any(p.suffix.lower() in SUFFIXES for p in c.rglob("*"))]
    if len(full) < 2:
        raise Unusable(
            f"{folder} needs at least two sub-folders with JPEGs or PNGs in them, one per class, such as "
            f"{folder.name}/cat/1.jpg and {folder.name}/dog/2.jpg; it has {len(full)}"
        )
    return folder
