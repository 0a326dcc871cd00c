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


ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


def filtered(rows, kind, pixel_bytes):
    """Scan lines (bytes each) of one pass with PNG filter `kind` (0 to 4), or each row with the next kind (5)."""
    out, above = b"", bytes(len(rows[0])) if rows else b""
    for y, row in enumerate(rows):
        use = y % 5 if kind == 5 else kind
        left = bytes(pixel_bytes) + row[:-pixel_bytes]
        corner = bytes(pixel_bytes) + above[:-pixel_bytes]
        predicted = (bytes(len(row)), left, above, [(a + b) // 2 for a, b in zip(left, above, strict=False)],
                     [paeth(a, b, c) for a, b, c in zip(left, above, corner, strict=False)])[use]
        out += bytes([use]) + bytes((x - p) % 256 for x, p in zip(row, predicted, strict=False))
        above = row
    return out


def paeth(left, above, corner):
    guess = left + above - corner
    return min((left, above, corner), key=lambda value: abs(guess - value))


def packed(samples, depth):
    """Rows of samples (height x width x channels) as PNG packs them: most significant bits first."""
    if depth == 16:
        return [row.astype(">u2").tobytes() for row in samples]
    if depth == 8:
        return [row.astype(np.uint8).tobytes() for row in samples]
    bits = (samples.reshape(len(samples), -1, 1) >> np.arange(depth - 1, -1, -1)) & 1
    return [np.packbits(row.reshape(-1)).tobytes() for row in bits]


def png_of(samples, depth, color, *extra, interlaced=False, row_filter=0):
    """A PNG of samples (height x width x channels); extra: chunks before IDAT."""
    height, width, channels = samples.shape
    passes = ADAM7 if interlaced else ((0, 0, 1, 1),)
    parts = [samples[y0::dy, x0::dx] for x0, y0, dx, dy in passes]
    pixel_bytes = max(1, channels * depth // 8)
    raw = b"".join(filtered(packed(part, depth), row_filter, pixel_bytes) for part in parts if part.size)
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, int(interlaced))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(extra) + chunk(b"IDAT", zlib.compress(raw))
            + chunk(b"IEND", b""))


GRAY, RGB, PALETTE, GRAY_ALPHA, RGBA = 0, 2, 3, 4, 6
PNG_KINDS = ([(GRAY, 1, d) for d in (1, 2, 4, 8, 16)] + [(RGB, 3, d) for d in (8, 16)] + [(PALETTE, 1, d) for d in (1, 2, 4, 8)]
             + [(GRAY_ALPHA, 2, d) for d in (8, 16)] + [(RGBA, 4, d) for d in (8, 16)])


def write_png_matrix(folder, height=29, width=43):
    """Every depth, color type, interlacing, transparency and filter that PNG has: paths by whether a mask can be one."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(66)
    masks, others = [], []
    for color, channels, depth in PNG_KINDS:
        samples = rng.integers(0, 2**depth, (height, width, channels))
        colors = 2**depth if color == PALETTE else 0
        palette = [chunk(b"PLTE", rng.bytes(3 * colors))] if colors else []
        transparency = {GRAY: struct.pack(">H", int(samples[0, 0, 0])), RGB: samples[0, 0].astype(">u2").tobytes(),
                        PALETTE: rng.bytes(colors)}.get(color)
        for trns in ([], [chunk(b"tRNS", transparency)]) if transparency else ([],):
            for interlaced in (False, True):
                for row_filter in range(6):
                    path = folder / f"c{color}_{depth}_t{len(trns)}_i{int(interlaced)}_f{row_filter}.png"
                    path.write_bytes(png_of(samples, depth, color, *palette, *trns, interlaced=interlaced, row_filter=row_filter))
                    (masks if color in (GRAY, PALETTE) and depth <= 8 else others).append(path)
    return masks, others


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
        write(f"raw_{name}.png", png_of(rng.integers(0, 2**depth, (29, 43, channels)), depth, color))
    short = chunk(b"PLTE", rng.bytes(3 * 5))
    write("short_palette.png", png_of(np.add.outer(np.arange(16), np.arange(16))[..., None], 8, PALETTE, short))
    gamma = chunk(b"gAMA", struct.pack(">I", 220000))
    write("gamma.png", png_of(rng.integers(0, 256, (20, 20, 3)), 8, RGB, gamma))
    for height, width in ((1, 1), (5, 3), (33, 50)):
        write(f"interlaced_{height}x{width}.png", png_of(picture(height, width, 3, seed=9), 8, RGB, interlaced=True))
    write("interlaced_rgba.png", png_of(picture(19, 23, 4, seed=9), 8, RGBA, interlaced=True))
    write("no_end.png", (folder / "odd.png").read_bytes()[:-12])
    write("trailing.jpg", (folder / "odd_2.jpg").read_bytes() + b"\0" * 100)
    return written
