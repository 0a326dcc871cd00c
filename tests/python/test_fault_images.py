"""Bad images among good ones, through a server: each is replaced, named with its reason, and costs no memory."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from conftest import ServerFactory
from hostile_images import chunk, many_scans, png_header
from images import write_images
from PIL import Image
from test_endless_messages import resident


def noise(**options: Any) -> bytes:
    pixels = np.random.default_rng(5).integers(0, 256, (96, 128, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, **options)
    return out.getvalue()


def gigantic_jpeg() -> bytes:
    """A gray image of 65,500 x 65,500 pixels in 258 bytes: every header that it needs, with Huffman tables of one code."""

    def segment(marker: int, data: bytes) -> bytes:
        return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data

    tables = [segment(0xC4, bytes([kind, 1]) + bytes(15) + b"\0") for kind in (0x00, 0x10)]
    frame = segment(0xC0, struct.pack(">BHHBBBB", 8, 65_500, 65_500, 1, 1, 0x11, 0))
    head = b"\xff\xd8" + segment(0xDB, b"\0" + bytes([1] * 64)) + frame + b"".join(tables) + segment(0xDA, b"\1\1\0\0\x3f\0")
    return head + bytes(258 - len(head) - 2) + b"\xff\xd9"


def gigantic_png() -> bytes:
    head, tail = png_header(65_500), chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    return head + chunk(b"tEXt", b"x" * (258 - len(head) - len(tail) - 12)) + tail


JPEG, PNG = noise(format="JPEG", quality=90), noise(format="PNG")
BAD = {
    "half.jpg": (JPEG[: len(JPEG) // 2], "truncated"),
    "no_end.jpg": (JPEG[: len(JPEG) - 40], "truncated"),
    "half.png": (PNG[: len(PNG) // 2], "truncated"),
    "no_end.png": (PNG[: len(PNG) * 9 // 10], "truncated"),
    "headers.jpg": (gigantic_jpeg(), "too_large"),
    "headers.png": (gigantic_png(), "too_large"),
    "scans.jpg": (many_scans(96, 501), "unsupported (a progressive JPEG with more than 500 scans, "),
    "empty.jpg": (b"", "empty"),
    "text.jpg": (b"no image at all\n" * 30, "unknown_format"),
}


@pytest.mark.parametrize("policy", ["replace", "fail"])
def test_bad_images_are_replaced_by_reason_or_stop_the_stream(
    start_server: ServerFactory, basic_config: dict[str, Any], tmp_path: Path, policy: str
) -> None:
    folder = write_images(tmp_path / "images", classes=3, per_class=20)
    assert len(BAD["headers.jpg"][0]) == len(BAD["headers.png"][0]) == 258
    for name, (data, _) in BAD.items():
        (folder / "class_1" / name).write_bytes(data)
    basic_config["sources"]["images"]["path"] = str(folder)
    basic_config["streams"]["train"] |= {"on_error": policy, "max_bad": 0.5}
    server = start_server(basic_config)
    before = resident(server, "VmHWM")
    with headrace.Loader(server.address, stream="train") as loader:
        if policy == "fail":
            with pytest.raises(headrace.errors.StreamFailed, match=r"BAD_SAMPLE: class_1/\w+\.(jpg|png): ") as failed:
                for _ in loader:
                    pass
            assert any(f"class_1/{name}: {reason}" in str(failed.value) for name, (_, reason) in BAD.items())
        else:
            for _ in range(2):
                batches = [(batch.sample_index.copy(), batch.replaced.copy()) for batch in loader]
                assert sum(int(replaced.sum()) for _, replaced in batches) == len(BAD)
                assert sum(len(index) for index, _ in batches) == 60 + len(BAD)
            named = {line.split(": ")[0]: line for line in headrace.stats(server.address)["streams"]["train"]["bad_samples"]["first"]}
            for name, (_, reason) in BAD.items():
                assert named[f"class_1/{name}"].startswith(f"class_1/{name}: {reason}"), named[f"class_1/{name}"]
    assert (grown := resident(server, "VmHWM") - before) < 100_000_000, f"the server grew by {grown} bytes at most"
    server.check_alive()
