"""Image files of every odd kind that the server must read as PIL does."""
import json
import struct
import subprocess
import zlib
from pathlib import Path

import numpy as np
from PIL import Image


def picture(height, width, channels=3, seed=0):
    rng = np.random.default_rng(seed)
    y, x, c = np.mgrid[0:height, 0:width, 0:channels]
    base = x * (c + 1) * 2 + y * 3 + ((x // 5 + y // 3 + c) % 3) * 60
    return ((base + rng.integers(0, 32, base.shape)) % 256).astype(np.uint8)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, depth, color, rows, *extra):
    """A PNG from packed rows (bytes each), not interlaced; extra: chunks before IDAT."""
    raw = b"".join(b"\0" + r for r in rows)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0))
            + b"".join(extra) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))


def interlaced_png(pixels, depth=8, color=2):
    """Adam7, 8-bit channels."""
    height, width, _ = pixels.shape
    raw = b""
    for x0, y0, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)):
        part = pixels[y0::dy, x0::dx]
        if part.size:
            raw += b"".join(b"\0" + row.tobytes() for row in part)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 1))
            + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))


def write_all(folder, pixel_dump):
    """Returns the paths of the files written."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = []

    def save(name, image, **options):
        image.save(folder / name, **options)
        written.append(folder / name)

    def write(name, data):
        (folder / name).write_bytes(data)
        written.append(folder / name)

    for name, height, width in (("one", 1, 1), ("row", 1, 300), ("column", 300, 1), ("wide", 3, 5000),
                                ("tall", 2100, 4), ("odd", 37, 53), ("square", 64, 64)):
        image = Image.fromarray(picture(height, width, seed=len(name)))
        save(f"{name}.png", image)
        for sampling in (0, 1, 2):
            save(f"{name}_{sampling}.jpg", image, quality=88, subsampling=sampling)
        save(f"{name}_progressive.jpg", image, quality=80, progressive=True)
        save(f"{name}_gray.jpg", image.convert("L"))
        save(f"{name}_cmyk.jpg", image.convert("CMYK"))

    kinds = {"441": dict(horizontal=4, vertical=1), "440": dict(horizontal=1, vertical=2),
             "410": dict(horizontal=4, vertical=2), "1x4": dict(horizontal=1, vertical=4),
             "3x1": dict(horizontal=3, vertical=1), "444p": dict(horizontal=1, vertical=1, progressive=True),
             "422p": dict(horizontal=2, vertical=1, progressive=True), "440p": dict(horizontal=1, vertical=2, progressive=True),
             "restart": dict(restart_interval=3), "arithmetic": dict(arithmetic=True), "rgb": dict(rgb=True),
             "cmyk": dict(components=4), "ycck": dict(components=4, ycck=True),
             "ycck444": dict(components=4, ycck=True, horizontal=1, vertical=1),
             "gray22": dict(components=1, progressive=True)}
    for name, kind in kinds.items():
        path = folder / f"libjpeg_{name}.jpg"
        kind = dict(width=203, height=151, seed=len(name)) | kind
        subprocess.run([pixel_dump, "jpeg", path, json.dumps(kind)], check=True)
        written.append(path)

    rng = np.random.default_rng(5)
    rgba = Image.fromarray(picture(45, 61, 4, seed=3), "RGBA")
    save("rgba.png", rgba)
    save("la.png", rgba.convert("LA"))
    save("l.png", rgba.convert("L"))
    save("bit.png", rgba.convert("1"))
    save("palette.png", rgba.convert("RGB").quantize(200))
    save("palette16.png", rgba.convert("RGB").quantize(13))
    save("palette4.png", rgba.convert("RGB").quantize(4))
    save("palette2.png", rgba.convert("RGB").quantize(2))
    save("palette_trns.png", rgba.convert("RGB").quantize(50), transparency=3)
    save("rgb_trns.png", rgba.convert("RGB"), transparency=(10, 20, 30))
    save("l_trns.png", rgba.convert("L"), transparency=40)
    save("i16.png", Image.fromarray(rng.integers(0, 600, (30, 40)).astype(np.uint16)))
    for name, depth, color, channels in (("g1", 1, 0, 1), ("g2", 2, 0, 1), ("g4", 4, 0, 1), ("g16", 16, 0, 1),
                                         ("rgb16", 16, 2, 3), ("ga8", 8, 4, 2), ("ga16", 16, 4, 2), ("rgba16", 16, 6, 4)):
        width, height = 43, 29
        row_bytes = (width * channels * depth + 7) // 8
        write(f"raw_{name}.png", png(width, height, depth, color, [rng.bytes(row_bytes) for _ in range(height)]))
    short = chunk(b"PLTE", rng.bytes(3 * 5))
    write("short_palette.png", png(16, 16, 8, 3, [bytes(range(i, i + 16)) for i in range(16)], short))
    write("gamma.png", png(20, 20, 8, 2, [rng.bytes(60) for _ in range(20)], chunk(b"gAMA", struct.pack(">I", 220000))))
    for height, width in ((1, 1), (5, 3), (33, 50)):
        write(f"interlaced_{height}x{width}.png", interlaced_png(picture(height, width, 3, seed=9)))
    write("interlaced_rgba.png", interlaced_png(picture(19, 23, 4, seed=9), color=6))
    write("no_end.png", (folder / "odd.png").read_bytes()[:-12])
    write("trailing.jpg", (folder / "odd_2.jpg").read_bytes() + b"\0" * 100)
    return written
