#!/usr/bin/env python3
"""Recomputes rows of the pixel engine from file and drawn parameters, with PIL and numpy alone, and compares bit for bit.

  proof.py --tool BUILD/tests/pixel_dump [--rows N] [--folder DIR]... [--odd]

Prints how many rows of how many files were compared and how many pixels differ; fails if any does, if a file that PIL
reads was refused (or the other way round), or if there was nothing to compare.
"""
import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import PIL
from PIL import Image, ImageOps

sys.path.insert(0, str(Path(__file__).parent))
import color_ops  # noqa: E402
import odd_images  # noqa: E402

FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC, "nearest": Image.Resampling.NEAREST}
# The command under which the tool runs, such as "valgrind -q --error-exitcode=9".
UNDER = shlex.split(os.environ.get("HEADRACE_UNDER", ""))
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def pad(image, padding, mode, fill):
    if not any(padding):
        return image
    if mode == "constant":
        return ImageOps.expand(image, border=tuple(padding), fill=tuple(fill))
    left, top, right, bottom = padding
    return Image.fromarray(np.pad(np.asarray(image), ((top, bottom), (left, right), (0, 0)), mode=mode))


def crop(image, p):
    return image.crop((p["left"], p["top"], p["left"] + p["width"], p["top"] + p["height"]))


def replay(image, transforms, parameters):
    """An RGB PIL image through the chain, with the drawn parameters."""
    for t, p in zip(transforms, parameters, strict=True):
        assert t["op"] == p["op"]
        if t["op"] == "resize":
            assert (p["width"], p["height"]) == resized(image.size, t)
            if image.size != (p["width"], p["height"]):
                image = image.resize((p["width"], p["height"]), FILTERS[t.get("interpolation", "bilinear")])
        elif t["op"] == "random_resized_crop":
            image = crop(image, p)
            size = (t["size"][1], t["size"][0])
            if image.size != size:
                image = image.resize(size, FILTERS[t.get("interpolation", "bilinear")])
        elif t["op"] in ("center_crop", "random_crop"):
            image = crop(pad(image, p["padding"], t.get("padding_mode", "constant"), t.get("fill", (0, 0, 0))), p)
        elif t["op"] == "random_horizontal_flip" and p["applied"]:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        elif t["op"] == "random_vertical_flip" and p["applied"]:
            image = image.transpose(Image.Transpose.FLIP_TOP_BOTTOM)
        elif t["op"] in color_ops.REPLAY:
            image = color_ops.REPLAY[t["op"]](image, t, p)
    return image


def resized(size, t):
    """(width, height) of torchvision's Resize, by its rules; None where Pillow refuses a side of zero."""
    width, height = size
    if not isinstance(t["size"], int):
        return t["size"][1], t["size"][0]
    short, long = min(size), max(size)
    new_short, new_long = t["size"], int(t["size"] * long / short)
    if t.get("max_size") and new_long > t["max_size"]:
        new_short, new_long = int(t["max_size"] * new_short / new_long), t["max_size"]
    if new_short < 1:
        return None
    return (new_short, new_long) if width <= height else (new_long, new_short)


def bits_of(array, dtype):
    """float32 to the dtype's bits, round to nearest even."""
    if dtype == "float32":
        return array.view(np.uint32)
    if dtype == "float16":
        return array.astype(np.float16).view(np.uint16)
    bits = array.view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def expected_row(image, config, parameters):
    pixels = np.asarray(replay(image, config["transforms"], parameters))
    dtype = config.get("dtype", "uint8")
    if dtype != "uint8":
        values = pixels.astype(np.float32) / np.float32(255)
        for t in config["transforms"]:
            if t["op"] == "normalize":
                values = (values - np.array(t["mean"], np.float32)) / np.array(t["std"], np.float32)
        assert values.dtype == np.float32
        pixels = bits_of(np.ascontiguousarray(values), dtype)
    pixels = color_ops.erased(pixels, config["transforms"], parameters, lambda v: bits_of(v, dtype) if dtype != "uint8" else v)
    if config.get("mask"):
        pixels = pixels[:, :, :1]
    return pixels.transpose(2, 0, 1) if config.get("layout", "nchw") == "nchw" else pixels


def render(tool, config, files, folder):
    """Yields (line, row) for each row of each file."""
    (Path(folder) / "config.json").write_text(json.dumps(dict(config, pillow=int(PIL.__version__.split(".")[0]))))
    done = subprocess.run([*UNDER, tool, "render", Path(folder) / "config.json", folder], input="\n".join(map(str, files)),
                          text=True, stdout=subprocess.PIPE, check=True)
    dtype = {"uint8": np.uint8, "float32": np.uint32}.get(config.get("dtype", "uint8"), np.uint16)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    good = sum(line["bad"] == "none" for line in lines)
    rows = np.fromfile(Path(folder) / "rows.bin", dtype)
    rows = iter(rows.reshape(good, -1) if good else ())
    for line in lines:
        yield line, next(rows) if line["bad"] == "none" else None


def open_rgb(path):
    with Image.open(path) as image:
        return image.convert("RGB")


def open_mask(path):
    """The stored values of a mask (palette indices, or gray before it is scaled to 255) in all three channels."""
    with Image.open(path) as image:
        depth = Path(path).read_bytes()[24]  # of the header
        values = np.asarray(image if image.mode == "P" else image.convert("L"))
        values = values if image.mode == "P" else values // (255 // (2**depth - 1))
    return Image.fromarray(np.stack([values.astype(np.uint8)] * 3, axis=-1))


def compare(tool, config, files, folder, image_of=open_rgb):
    """Returns (files compared, rows compared, differing pixels, complaints)."""
    seen, rows, different, complaints = set(), 0, 0, []
    last_path, image, problem = None, None, None
    for line, row in render(tool, config, files, folder):
        path = line["file"]
        if path != last_path:
            last_path, image, problem = path, None, None
            try:
                image = image_of(path)
            except Exception as error:  # PIL's errors have many types
                problem = error
        first = config["transforms"][0]
        refused = image is None or (first["op"] == "resize" and resized(image.size, first) is None)
        if row is None or refused:
            if (row is None) != refused:
                complaints.append(f"{path}: server says {line['bad']} {line['detail']!r}, PIL says {problem!r}")
            continue
        want = expected_row(image, config, line["parameters"])
        got = row.reshape(want.shape)
        channel = 0 if config.get("layout", "nchw") == "nchw" else 2
        wrong = int((want != got).any(axis=channel).sum())
        if wrong:
            complaints.append(f"{path} position {line['position']}: {wrong} pixels differ, {line['parameters']}")
        different += wrong
        rows += 1
        seen.add(path)
    return len(seen), rows, different, complaints


def chains():
    rrc = {"op": "random_resized_crop", "size": [224, 224]}
    flip, vflip = {"op": "random_horizontal_flip"}, {"op": "random_vertical_flip"}
    normalize = {"op": "normalize", "mean": MEAN, "std": STD}
    yield "train", {"transforms": [rrc, flip]}
    yield "train float32", {"transforms": [rrc, flip, normalize], "dtype": "float32"}
    yield "train float16 nhwc", {"transforms": [rrc, flip, normalize], "dtype": "float16", "layout": "nhwc"}
    yield "train bfloat16", {"transforms": [rrc, flip, vflip, normalize], "dtype": "bfloat16"}
    yield "float32 nhwc, no normalize", {"transforms": [dict(rrc, size=[33, 65])], "dtype": "float32", "layout": "nhwc"}
    yield "bicubic", {"transforms": [dict(rrc, interpolation="bicubic", size=[96, 130]), flip, vflip], "layout": "nhwc"}
    yield "nearest", {"transforms": [dict(rrc, interpolation="nearest", size=[77, 50]), flip, vflip]}
    yield "validation", {"transforms": [{"op": "resize", "size": 256}, {"op": "center_crop", "size": [224, 224]}]}
    yield "validation bicubic", {"transforms": [{"op": "resize", "size": 80, "max_size": 120, "interpolation": "bicubic"},
                                                {"op": "center_crop", "size": [90, 100]}, vflip]}
    yield "resize to size", {"transforms": [{"op": "resize", "size": [50, 70]}, flip]}
    yield "center crop", {"transforms": [{"op": "center_crop", "size": [65, 48]}, flip, vflip]}
    for mode in ("constant", "edge", "reflect", "symmetric"):
        yield f"random crop, {mode}", {"transforms": [
            {"op": "random_crop", "size": [48, 52], "padding": [4, 5, 6, 7], "pad_if_needed": True, "padding_mode": mode,
             "fill": [9, 200, 31]}, flip, vflip]}
    yield "flip before resize", {"transforms": [flip, vflip, {"op": "resize", "size": [61, 47]}, flip]}
    yield "long chain", {"transforms": [
        {"op": "resize", "size": 90}, flip, {"op": "random_crop", "size": [80, 70], "padding": [3, 0, 0, 9]},
        {"op": "center_crop", "size": [60, 66]}, vflip, {"op": "resize", "size": [40, 51], "interpolation": "bicubic"},
        {"op": "random_crop", "size": [33, 35]}, {"op": "center_crop", "size": [36, 31]}, flip]}
    yield from color_ops.chains(rrc, flip, normalize)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default=os.path.join(os.environ.get("HEADRACE_BUILD", "build"), "tests", "pixel_dump"))
    parser.add_argument("--folder", action="append", default=[], help="JPEG and PNG files, searched in all its folders")
    parser.add_argument("--odd", action="store_true", help="generated files of every odd kind")
    parser.add_argument("--rows", type=int, default=2, help="rows per file and chain")
    parser.add_argument("--limit", type=int, default=0, help="at most so many files of a folder")
    parser.add_argument("--at-least", type=int, default=1, help="fail if fewer files were compared")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        files = odd_images.write_all(Path(temporary) / "odd", arguments.tool) if arguments.odd else []
        for folder in arguments.folder:
            found = sorted(p for p in Path(folder).rglob("*") if p.suffix.lower() in (".jpeg", ".jpg", ".png"))
            files += found[:arguments.limit or None]
        compared, rows, different, complaints = set(), 0, 0, []
        for name, config in chains():
            n_files, n_rows, wrong, problems = compare(arguments.tool, dict(config, rows_per_file=arguments.rows), files,
                                                       temporary)
            print(f"{name}: {n_files} files, {n_rows} rows, {wrong} differing pixels", flush=True)
            compared.add(n_files)
            rows += n_rows
            different += wrong
            complaints += problems
    for line in complaints[:20]:
        print(line)
    fewest = min(compared, default=0)
    print(f"files compared: {fewest} of {len(files)} in every chain; rows: {rows}; differing pixels: {different}; "
          f"other disagreements: {sum('differ' not in c for c in complaints)}")
    return 1 if different or complaints or fewest < arguments.at_least else 0


if __name__ == "__main__":
    sys.exit(main())
