"""Damaged JPEG files, made from whole ones by known mutations, for the comparison of the server with PIL."""
import collections
import io
import json
import random
import struct
import subprocess

import numpy as np
import proof
from PIL import Image

SOI, SOS, DHT, COM = 0xD8, 0xDA, 0xC4, 0xFE
FRAMES = (0xC0, 0xC1, 0xC2, 0xC9, 0xCA)


def segments(data):
    """(marker, begin, end) of each segment from SOI to the first SOS, and where the scan begins."""
    found, at = [(SOI, 0, 2)], 2
    while data[at + 1] != SOS:
        end = at + 2 + struct.unpack(">H", data[at + 2:at + 4])[0]
        found.append((data[at + 1], at, end))
        at = end
    end = at + 2 + struct.unpack(">H", data[at + 2:at + 4])[0]
    return [*found, (SOS, at, end)], end


def segment(marker, payload):
    return bytes([0xFF, marker]) + struct.pack(">H", len(payload) + 2) + payload


def mutations(data, seed):
    """Yields (name, bytes)."""
    rng = random.Random(seed)
    parts, scan = segments(data)
    end = len(data) - 2
    middle = scan + (end - scan) // 2

    def replaced(at, new):
        return data[:at] + new + data[at + len(new):]

    def inserted(at, new):
        return data[:at] + new + data[at:]

    for marker in (*range(0x01, 0x03), *range(0xC0, 0x100)):
        yield f"scan_marker_{marker:02x}", replaced(middle, bytes([0xFF, marker]))
    for place in (0.02, 0.3, 0.7, 0.98):
        at = scan + int((end - scan) * place)
        yield f"illegal_marker_at_{place}", replaced(at, b"\xff\xf2")
        yield f"cut_at_{place}", data[:at]
        yield f"cut_and_ended_at_{place}", data[:at] + b"\xff\xd9"
        yield f"zeros_at_{place}", replaced(at, bytes(40))
        yield f"ones_at_{place}", replaced(at, b"\xff" * 7)
        yield f"removed_at_{place}", data[:at] + data[at + 9:]
    frame = next(data[begin:stop] for marker, begin, stop in parts if marker in FRAMES)
    for name, place in (("before_scan", parts[-1][1]), ("in_scan", middle), ("before_end", end)):
        yield f"second_frame_{name}", inserted(place, frame)
        yield f"comment_{name}", inserted(place, segment(COM, b"a comment"))
        yield f"long_comment_{name}", inserted(place, bytes([0xFF, COM]) + b"\xff\xff" + b"short")
        yield f"zero_length_{name}", inserted(place, bytes([0xFF, COM]) + b"\0\0" + b"short")
        yield f"fill_bytes_{name}", inserted(place, b"\xff" * 5)
        yield f"second_start_{name}", inserted(place, b"\xff\xd8")
        yield f"tables_{name}", inserted(place, segment(DHT, b"\0" + bytes([0, 1] + [0] * 14) + b"\5"))
        yield f"bad_tables_{name}", inserted(place, segment(DHT, b"\0" + b"\xff" * 16 + b"\5"))
        yield f"garbage_{name}", inserted(place, bytes(rng.randrange(255) for _ in range(13)))
    yield "second_scan", inserted(end, data[parts[-1][1]:end])
    yield "trailing_garbage", data + bytes(rng.randrange(256) for _ in range(50))
    yield "two_images", data + data
    for marker, begin, stop in parts[1:]:
        for name, length in (("zero", 0), ("one", 1), ("short", stop - begin - 3), ("long", stop - begin - 1), ("huge", 0xFFFF)):
            yield f"length_{name}_{marker:02x}_{begin}", replaced(begin + 2, struct.pack(">H", length))
        yield f"without_{marker:02x}_{begin}", data[:begin] + data[stop:]
        yield f"twice_{marker:02x}_{begin}", inserted(stop, data[begin:stop])
        for i in range(6):
            at = rng.randrange(begin, stop)
            yield f"header_byte_{marker:02x}_{begin}_{i}", replaced(at, bytes([rng.randrange(256)]))
    for i in range(40):
        at = rng.randrange(scan, end)
        yield f"scan_byte_{i}", replaced(at, bytes([rng.randrange(256)]))
    for i in range(15):
        at = [rng.randrange(2, len(data)) for _ in range(10)]
        changed = bytearray(data)
        for place in at:
            changed[place] = rng.randrange(256)
        yield f"ten_bytes_{i}", bytes(changed)


def originals(picture, pixel_dump, folder):
    """Yields (name, bytes) of whole files: every coding for which the server has its own decoder."""
    for name, kind in {"arithmetic": {"arithmetic": True}, "440": {"horizontal": 1, "vertical": 2},
                       "ycck": {"components": 4, "ycck": True}, "rgb": {"rgb": True}}.items():
        path = folder / "original.jpg"
        height, width = picture.shape[:2]
        subprocess.run([pixel_dump, "jpeg", path, json.dumps(kind | {"width": width, "height": height})], check=True)
        yield name, path.read_bytes()
        path.unlink()

    def saved(image, **options):
        out = io.BytesIO()
        image.save(out, "JPEG", quality=85, **options)
        return out.getvalue()

    image = Image.fromarray(picture)
    for name, options in {"420": {"subsampling": 2}, "422": {"subsampling": 1}, "444": {"subsampling": 0},
                          "restart": {"subsampling": 2, "restart_marker_blocks": 3},
                          "progressive": {"progressive": True, "subsampling": 2},
                          "progressive_444": {"progressive": True, "subsampling": 0}}.items():
        yield name, saved(image, **options)
    yield "gray", saved(image.convert("L"))
    yield "cmyk", saved(image.convert("CMYK"))


def write_mutated(folder, named, seed=2, most=None):
    """Writes the mutations (`most` of them, drawn) of each (name, bytes); returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, data in named:
        made = list(mutations(data, f"{seed} {name}"))
        for mutation, mutated in made if most is None else random.Random(f"{seed} {name}").sample(made, most):
            written.append(folder / f"{name}__{mutation}.jpg")
            written[-1].write_bytes(mutated)
    return written


ENDS_INSIDE_A_SEGMENT = "the file ends inside a marker segment"
MOST_SMOOTHED = 16
MOST_SIDE = 4000


def compare(tool, files, folder, most_side=MOST_SIDE):
    """Images (the center of most_side pixels) from the server and from PIL: counts by outcome, and a complaint for each difference that is not allowed.

    Two differences are allowed:
    - The delivered rows are damaged, and a segment after the scan extends beyond the end of the file. PIL fills these rows with one color, the
      server refuses them.
    - A progressive file lacks scans. Both smooth over what is missing, by different versions of libjpeg-turbo: the rows differ by
      MOST_SMOOTHED levels at most, and the server counts a decoder warning.
    """
    outcomes, complaints = collections.Counter(), []
    by_size = collections.defaultdict(list)
    for path in files:
        try:
            image = proof.open_rgb(path)
        except Exception:  # PIL's errors have many types
            image = None
        by_size[image.size if image else (64, 64)].append((path, image))
    for (width, height), group in by_size.items():
        size = [min(height, most_side), min(width, most_side)]
        config = {"transforms": [{"op": "center_crop", "size": size}], "layout": "nhwc"}
        lines = proof.render(tool, config, [path for path, _ in group], folder)
        for (path, image), (line, row) in zip(group, lines, strict=True):
            if image is None or row is None:
                outcome = "both refuse" if image is row else "only PIL serves" if row is None else "only the server serves"
                allowed = image is row or (row is None and line["detail"] == ENDS_INSIDE_A_SEGMENT and line["warned"])
            else:
                want = proof.expected_row(image, config, line["parameters"]).astype(int)
                most = int(np.abs(row.reshape(want.shape) - want).max())
                outcome = "same pixels" if most == 0 else "other pixels"
                allowed = most == 0 or (most <= MOST_SMOOTHED and line["warned"] and image.info.get("progressive"))
            outcomes[outcome] += 1
            if not allowed:
                complaints.append(f"{path.name}: {outcome}; the server says {line['bad']} {line['detail']!r}")
    return outcomes, complaints
