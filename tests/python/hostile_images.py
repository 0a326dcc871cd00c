"""Image files that cost far more than their size."""

from __future__ import annotations

import io
import struct
import zlib

from PIL import Image


def chunk(kind: bytes, data: bytes) -> bytes:
    """Of a PNG."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_header(side: int) -> bytes:
    """Signature and header of `side` x `side` RGB pixels."""
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))


def black_png(side: int, row_filter: int = 0, end: bool = True) -> bytes:
    """`side` x `side` black pixels in far less than a megabyte. Without `end`, the IEND chunk is missing."""
    packer = zlib.compressobj(1)
    row = bytes([row_filter]) + bytes(3 * side)
    data = b"".join(packer.compress(row) for _ in range(side)) + packer.flush()
    return png_header(side) + chunk(b"IDAT", data) + (chunk(b"IEND", b"") if end else b"")


def many_scans(side: int, scans: int) -> bytes:
    """A gray progressive JPEG with `scans` scans: a few bytes each, and each time its reader visits all coefficients."""
    whole = io.BytesIO()
    Image.new("L", (side, side), 128).save(whole, "JPEG", progressive=True)
    file = whole.getvalue()
    begin = file.index(b"\xff\xda", file.index(b"\xff\xda") + 2)  # the second one: it says nothing of a flat image
    end = begin + 2 + int.from_bytes(file[begin + 2 : begin + 4], "big")
    while file[end] != 0xFF or file[end + 1] == 0:
        end += 1
    return file[:end] + file[begin:end] * (scans - file.count(b"\xff\xda")) + file[end:]
