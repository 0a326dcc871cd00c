"""Makes pairs as large as DIV2K's from smaller ones: `python -m peers.large_pairs FROM TO [--count N]`.

If a loader decodes or decompresses whole pictures, the cost of a patch grows with the picture. Super-resolution is usually trained on 2K
pictures. Where only small pictures are available, mosaics of them have the same size and similar content.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from peers import prepare
from peers.workloads import SCALE

SIZE = (2040, 1356)  # the most common size in DIV2K


def _landscape(picture: Image.Image) -> Image.Image:
    return picture if picture.width >= picture.height else picture.transpose(Image.Transpose.ROTATE_90)


def _tiles(folder: Path) -> list[dict[str, Image.Image]]:
    if not folder.is_dir():
        raise SystemExit(f"{folder}: no such folder")
    tiles = []
    for file in sorted(folder.glob("*_HR.png")):
        other = file.with_name(file.name.replace("_HR", "_LR"))
        if not other.exists():
            raise SystemExit(f"{other}: no such file, expected it beside {file.name}")
        tile = {kind: _landscape(Image.open(path).convert("RGB")) for kind, path in (("HR", file), ("LR", other))}
        if tile["HR"].size != (tile["LR"].width * SCALE, tile["LR"].height * SCALE):
            raise SystemExit(f"{file}: found {tile['HR'].size} pixels, expected {SCALE} times the width and height of {other.name} {tile['LR'].size}")
        tiles.append(tile)
    if not tiles:
        raise SystemExit(f"{folder}: expected files NAME_HR.png and NAME_LR.png, found none")
    return tiles


def _mosaics(tiles: list[dict[str, Image.Image]], count: int) -> Iterator[dict[str, Image.Image]]:
    generator = random.Random(0)
    for _ in range(count):
        mosaic = {"HR": Image.new("RGB", SIZE), "LR": Image.new("RGB", (SIZE[0] // SCALE, SIZE[1] // SCALE))}
        top = 0
        while top < SIZE[1]:
            left, height = 0, SIZE[1]
            while left < SIZE[0]:
                tile = generator.choice(tiles)
                mosaic["HR"].paste(tile["HR"], (left, top))
                mosaic["LR"].paste(tile["LR"], (left // SCALE, top // SCALE))
                left, height = left + tile["HR"].width, min(height, tile["HR"].height)
            top += height
        yield mosaic


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m peers.large_pairs", description=__doc__)
    parser.add_argument("source", type=Path, help="a folder with NAME_HR.png, and NAME_LR.png with a quarter of its width and height")
    parser.add_argument("target", type=Path, help="the folder to create")
    parser.add_argument("--count", type=prepare.positive, metavar="N", default=24, help="number of pairs (default 24, which fit decoded into the cache of 256 MB)")
    given = parser.parse_args()
    if given.target.exists():
        parser.error(f"{given.target} exists: give another folder, or remove it")
    tiles = _tiles(given.source)

    def write(folder: Path) -> None:
        folder.mkdir()
        for number, mosaic in enumerate(_mosaics(tiles, given.count)):
            for kind, picture in mosaic.items():
                picture.save(folder / f"{number:03}_{kind}.png")

    prepare.once(given.target, write)


if __name__ == "__main__":
    main()
