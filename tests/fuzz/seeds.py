#!/usr/bin/env python3
"""Writes the committed corpus: small valid inputs of every target, from which it finds the others. Needs pillow and numpy.

    tests/fuzz/seeds.py [TARGET...]"""

from __future__ import annotations

import gzip
import io
import json
import struct
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
from PIL import Image

HERE = Path(__file__).resolve().parent
Inputs = Iterator[tuple[str, bytes]]


def piece(*parts: bytes) -> bytes:
    """Input::take_piece()"""
    return b"".join(struct.pack("<H", len(part)) + part for part in parts)


def picture(width: int, height: int, mode: str = "RGB") -> Image.Image:
    """A gradient with noise."""
    random = numpy.random.default_rng(width * height)
    ramp = numpy.linspace(0, 200, width)[None, :, None] + numpy.linspace(0, 40, height)[:, None, None]
    return Image.fromarray((ramp + random.integers(0, 15, (height, width, 3))).astype(numpy.uint8)).convert(mode)


def file_of(image: Image.Image, kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


REGION = bytes([40, 128, 20, 100])


def jpeg() -> Inputs:
    yield "baseline", REGION + file_of(picture(40, 24), "JPEG", quality=60)
    yield "gray", REGION + file_of(picture(33, 17, "L"), "JPEG", quality=40)
    yield "full_chroma", REGION + file_of(picture(33, 17), "JPEG", quality=50, subsampling=0)
    yield "half_chroma", REGION + file_of(picture(50, 20), "JPEG", quality=50, subsampling=1)
    yield "restarts", REGION + file_of(picture(48, 48), "JPEG", quality=30, restart_marker_blocks=2)
    yield "progressive", REGION + file_of(picture(40, 24), "JPEG", quality=40, progressive=True)
    yield "own_tables", REGION + file_of(picture(40, 24), "JPEG", quality=40, optimize=True)
    yield "cmyk", REGION + file_of(picture(24, 16, "CMYK"), "JPEG", quality=40)


def tiled(width: int, shown: int, height: int, mcu: int = 16, tile: int = 4) -> bytes:
    """As JpegTiler writes it (server/decode/jpeg_tiles.h): a picture whose rows are whole tiles, and its index."""
    file = file_of(picture(width, height), "JPEG", quality=30, restart_marker_blocks=tile, subsampling=2)
    tables = file.index(b"\xff\xdb")
    scan = file.index(b"\xff\xda")
    scan += 2 + struct.unpack(">H", file[scan + 2 : scan + 4])[0]
    lengths, begin, at = [], scan, scan
    while at < len(file) - 1:
        if file[at] == 0xFF and (0xD0 <= file[at + 1] <= 0xD7 or file[at + 1] == 0xD9):
            lengths.append(at - begin)
            begin = at + 2
        at += 1
    assert len(lengths) == width // (mcu * tile) * ((height + mcu - 1) // mcu)
    index = b"HEADRACE tile\1" + struct.pack(f">{4 + len(lengths)}H", shown, height, tile, scan - tables, *lengths)
    return file[:2] + b"\xff\xea" + struct.pack(">H", 2 + len(index)) + index + file[2:]


def tiles() -> Inputs:
    yield "plain", REGION + file_of(picture(136, 40), "JPEG", quality=30)
    yield "gray", REGION + file_of(picture(100, 20, "L"), "JPEG", quality=30)
    yield "tiled", REGION + tiled(192, 192, 48)
    yield "padded", REGION + tiled(192, 170, 40)


def png() -> Inputs:
    for mode in ("RGB", "RGBA", "L", "LA", "P", "1"):
        image = picture(9, 7, "RGB").convert("P", palette=Image.Palette.ADAPTIVE, colors=5) if mode == "P" else picture(9, 7, mode)
        yield f"mode_{mode}", b"\1" + REGION + file_of(image, "PNG")
    yield "mask", b"\3" + REGION + file_of(picture(9, 7, "L").quantize(4), "PNG", bits=2)
    yield "gray16", b"\1" + REGION + file_of(Image.fromarray(numpy.arange(63, dtype=numpy.uint16).reshape(7, 9) * 900), "PNG")
    for color, depth, channels in ((0, 1, 1), (0, 4, 1), (2, 8, 3), (3, 2, 1), (4, 8, 2), (6, 16, 4)):
        yield f"interlaced_{color}_{depth}", b"\1" + REGION + interlaced(color, depth, channels)


def interlaced(color: int, depth: int, channels: int) -> bytes:
    """An interlaced PNG of 5 x 5 pixels, which Pillow does not write."""
    rows = b""
    for x0, y0, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)):
        width, height = -(-(5 - x0) // dx), -(-(5 - y0) // dy)
        if width > 0 and height > 0:
            rows += (b"\0" + bytes(-(-width * channels * depth // 8))) * height
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", 5, 5, depth, color, 0, 0, 1))]
    chunks += [(b"PLTE", bytes(range(12)))] if color == 3 else []
    chunks += [(b"tRNS", b"\0\x80")] if color == 3 else []
    chunks += [(b"IDAT", zlib.compress(rows, 0)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks)


CURSOR = {"epoch": 1, "origin": 0, "batch": 2}
OPEN = {"stream": "train", "group": "g", "rank": 0, "world_size": 1, "client": "c", "pid": 1, "join": "default"}


def request(op: str, body: object) -> bytes:
    return json.dumps({"v": 1, "id": 7, "op": op, "body": body}).encode()


def requests() -> Iterator[tuple[str, bytes]]:
    fingerprint = {"dataset": "d", "plan": "p", "seed": "s", "algorithm": "a"}
    more = OPEN | {"start": CURSOR, "position": CURSOR, "resume_server": True, "fingerprint": fingerprint, "batching": {"batch_size": 8, "last": "short"}}
    yield "hello", request("hello", {"client": "0.1.0", "layout": 2})
    yield "streams", request("streams", {})
    yield "open", request("open", OPEN)
    yield "open_at", request("open", more)
    yield "cursor_set", request("cursor_set", {"session": "x", "cursor": CURSOR})
    yield "failure", request("failure", {"session": "x"})
    yield "cursor_get", request("cursor_get", {"stream": "train", "group": "g"})
    yield "sample", request("sample", {"stream": "train", "epoch": 0, "index": 3, "picture": "image"})
    yield "stats", request("stats", {})
    yield "drain", request("drain", {})


def wire() -> Inputs:
    yield from requests()
    field = {"name": "image", "dtype": "uint8", "kind": "dense", "shape": [3, 8, 8], "ragged_capacity": 0}
    reply = {"sample_index": 3, "name": "a", "replaced": False, "label": 1, "fields": [field], "parameters": {}}
    for name, body in {
        "sample": reply,
        "cursor_set": {"seek": 1, "cursor": CURSOR, "length": 8, "epoch_length": 8},
        "cursors": {"world_size": 1, "start": CURSOR, "lanes": [{"rank": 0, "client": "c", "attached": True, "granted": CURSOR, "consumed": CURSOR}]},
        "residence": {"upload": "u", "plan": "p", "seed": 1, "image": IMAGE},
    }.items():
        yield f"reply_{name}", json.dumps({"v": 1, "id": 7, "ok": body}).encode()
    state = {"version": 1, "stream": "train", "cursor": CURSOR, "batch_size": 8, "world_size": 2, "fingerprint": {"dataset": "d", "plan": "p", "seed": "s", "algorithm": "a"}}
    yield "state", json.dumps(state).encode()
    yield "reply_error", json.dumps({"v": 1, "id": 7, "error": {"code": "NO_SUCH_STREAM", "message": "x"}}).encode()


MOVE = {"kind": "crop", "stage": 2, "height": 32, "width": 24, "top": -4, "left": -5, "rows": 17, "columns": 15, "padding": "symmetric", "fill": [1, 2, 255], "p": 0.5}
IMAGE = {"field": 1, "height": 40, "width": 30, "channels": 3, "moves": [MOVE], "color_steps": 3, "contrasts": 2, "layout": "NHWC"}
IMAGE |= {"mean": [0.1], "std": [0.3], "erased": [0.5]}


def url() -> Inputs:
    for number, text in enumerate((b"https://me:secret@host:8443/a%20b/c.tar?sig=x#part", b"s3://bucket/a b\0s3://b/k", b"http://[::1]/x?y\0a/b c", b"/path/only")):
        yield str(number), text


def http() -> Inputs:
    yield "range", b"\0bytes 0-99/1000"
    yield "range_unknown", b"\0bytes 5-9/*"
    contents = b"<Contents><Key>a/b</Key><Size>3</Size><ETag>&quot;x&quot;</ETag></Contents><CommonPrefixes><Prefix>a/c/</Prefix></CommonPrefixes>"
    yield "listing", b"\1<?xml version='1.0'?><ListBucketResult>" + contents + b"</ListBucketResult>"
    yield "listing_more", b"\1<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken></ListBucketResult>"
    yield "error", b"\2<Error><Code>NoSuchBucket</Code></Error>"
    yield "whole", b'\3HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: "x"\r\nAccept-Ranges: bytes\r\n\r\nhello'
    yield "part", b'\3HTTP/1.1 206 Partial Content\r\nContent-Length: 1\r\nContent-Range: bytes 0-0/5\r\nETag: "x"\r\n\r\nh'
    yield "chunked", b"\3HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    yield "redirect", b"\3HTTP/1.1 302 Found\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n"
    yield "busy", b"\3HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"


def tar() -> Inputs:
    for kind, flags in ((tarfile.USTAR_FORMAT, 1), (tarfile.GNU_FORMAT, 1), (tarfile.PAX_FORMAT, 3), (tarfile.USTAR_FORMAT, 13)):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=kind) as archive:
            long = "d" * 110 if kind != tarfile.USTAR_FORMAT else "d"
            for name, content in ((f"{long}/a.jpg", b"picture"), (f"{long}/a.cls", b"1"), (f"{long}/a.json", b'{"label": 1}'), ("b.png", b"x"), ("b.cls", b"0"), ("b.json", b'{"label": 0}')):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        yield f"format_{kind}_{flags}", bytes([flags]) + out.getvalue().rstrip(b"\0") + bytes(1536)
    member = tarfile.TarInfo("a.cls")
    member.size = 1
    header = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    header[386:410] = b"77777777777\00000000000001\0"  # a part of it is 8 GiB behind its begin
    yield "hole", b"\1" + bytes(header) + b"7" + bytes(511 + 1024)


def npy_file(array: numpy.ndarray) -> bytes:
    out = io.BytesIO()
    numpy.save(out, array)
    return out.getvalue()


def npy() -> Inputs:
    images, labels = numpy.arange(96, dtype=numpy.uint8).reshape(2, 4, 4, 3), numpy.array([0, 1], dtype=numpy.int64)
    yield "images", b"\0" + npy_file(images)
    yield "floats", b"\0" + npy_file(numpy.zeros((2, 3), dtype=numpy.float32))
    yield "labelled", b"\2" + piece(npy_file(images)) + npy_file(labels)
    for name, save in (("stored", numpy.savez), ("deflated", numpy.savez_compressed)):
        out = io.BytesIO()
        save(out, image=images, label=labels)
        yield name, b"\1" + out.getvalue()


def idx(*dims: int) -> bytes:
    return bytes([0, 0, 8, len(dims)]) + struct.pack(f">{len(dims)}I", *dims) + bytes(int(numpy.prod(dims)))


def table() -> Inputs:
    yield "idx", b"\0" + piece(idx(2, 4, 4)) + idx(2)
    yield "idx_color", b"\0" + piece(idx(2, 3, 2, 3)) + idx(2)
    yield "idx_gzip", b"\0" + piece(gzip.compress(idx(2, 4, 4), mtime=0)) + gzip.compress(idx(2), mtime=0)
    yield "cifar10", b"\1\0" + struct.pack("<H", 6146) + piece(b"\n".join(b"class %d" % i for i in range(10))) + struct.pack("<IBB", 3073, 1, 9)
    yield "cifar100", b"\2\1" + struct.pack("<H", 6148) + piece(b"a\nb\n") + struct.pack("<IBBB", 0, 2, 19, 99)


def manifest() -> Inputs:
    text = b'file,label,age,point,boxes,caption,tags,mask\na.jpg,cat,3,"[1,2]","[[0,0,9,9]]","a ""cat""",big|wet,b.png\nb.png,dog,4,"[3,4]",[],x,,b.png\n'
    for fields in range(4):
        yield f"csv_{fields}", bytes([4 * fields]) + text.replace(b"file", b"path", 1) if fields == 0 else bytes([4 * fields]) + text
    yield "tsv", bytes([1]) + b"path\tlabel\na.jpg\t1\n"
    rows = [{"file": "a.jpg", "label": "cat", "age": 3, "point": [1, 2], "boxes": [[0, 0, 9, 9]], "caption": "x", "tags": ["big"], "mask": "b.png"}]
    for fields in (1, 2, 3):
        yield f"jsonl_{fields}", bytes([4 * fields + 2]) + b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    yield "txt", bytes([3]) + b"a.jpg 1\nb.png 0\n"
    yield "txt_plain", bytes([3]) + b"a.jpg\nb.png\n"


META = {"headrace": "packed", "format": 1, "complete": True, "count": 2, "fields": [{"name": "image", "content": "encoded_image"}], "labelled": True}
META |= {"classes": ["cat", "dog"], "source_fingerprint": "1234", "fingerprint": "1234", "algorithm": 1, "labels_hash": "a", "wholes_hash": "b", "wholes": False}
META |= {"options": {"store": "encoded", "compress": "lz4", "resize": {"shorter": 8, "height": 0, "width": 0}}, "raw_bytes": 9, "undecodable": 1}
META |= {"first_undecodable": ["x"], "streamed": True, "content_hash": "c", "sizes": [[2, 3]]}


def record() -> Inputs:
    yield "record", b"\0" + value([(b"picture!", 0, 0, 0)])
    yield "meta", b"\1" + json.dumps(META).encode()
    yield "record_pixels", b"\0" + value([(bytes(24), 4, 2, 3), (b"12345678", 0, 0, 0)])


def query() -> Inputs:
    yield "both", b"stream=train&index=3%20"


def value(fields: list[tuple[bytes, int, int, int]]) -> bytes:
    """A record without compression (server/store/record.h); its checksum, which only `verify` reads, is wrong."""
    heads = b"".join(struct.pack("<QQiiBBBBI", len(body), len(body), width, height, channels, 0, 0, 0, 0) for body, width, height, channels in fields)
    body = heads + b"s0".ljust(8, b"\0") + b"".join(part + bytes(-len(part) % 8) for part, *_ in fields)
    return struct.pack("<IHHIIqQQ", 0x43455248, 1, 0, len(fields), 2, 1, 0, 40 + len(body) + 8) + body + bytes(8)


def config() -> Inputs:
    source = b"sources: {f: {type: image_folder, path: /data}}\nstreams:\n  t:\n    source: f\n"
    yield "small", source + b"    transforms: [random_resized_crop: {size: 8}, random_horizontal_flip]\n    output: {dtype: float32, layout: NHWC}\n    sharing: {wait_for: 2, wait_timeout: '5s'}\n"
    yield "flags", source + b"    transforms: [center_crop: 8]\n\0streams.t.batch_size=32\0server.threads=2"
    yield "extends", source + b"    transforms: [resize: 8, center_crop: 8]\n  u: {extends: t, shuffle: off, sampler: {type: weighted}}\n"
    yield "aliases", b"x: &x [1, 2]\nsources: {a: {type: synthetic, count: 10, bytes: 8}, b: {type: concat, of: [a, a]}}\nstreams: {s: {source: b, batch_size: *x}}\n"
    yield "server", b"server: {directory: /run/x, allow: {uids: [5]}, metrics: off, log_level: debug, drain_timeout: 1m}\nsources: {a: {type: npy, npz: x.npz}}\nstreams: {s: {source: a, cache: {decoded: 1GiB}}}\n"


def handshake() -> Inputs:
    greeting = b"\xff" + bytes(8) + b"\x7f\3\0NULL" + bytes(48)
    name = lambda key, text: bytes([len(key)]) + key + struct.pack(">I", len(text)) + text  # noqa: E731
    for number, properties in enumerate((name(b"Socket-Type", b"DEALER"), name(b"Socket-Type", b"DEALER") + name(b"Identity", b""), name(b"Identity", b"me"))):
        body = b"\5READY" + properties
        yield str(number), greeting + bytes([4, len(body)]) + body


def patches(*changes: tuple[int, bytes]) -> bytes:
    """fuzz::patch()"""
    return b"".join(struct.pack("<IB", at, len(to)) + to for at, to in changes)


def ring() -> Inputs:
    yield "valid", b"\0" + piece(b"")
    yield "private", b"\2" + piece(b"")
    yield "rows", b"\0" + piece(patches((0, b"\xff" * 8))) + patches((64, struct.pack("<IIII", 2, 3, 4, 2)))
    yield "fields", b"\0" + piece(b"") + patches((256 + 48, b"\1\0\1"), (256 + 56, struct.pack("<q", 8)))


def lmdb() -> Inputs:
    yield "valid", b""
    yield "cut", b"\x80"
    yield "meta", b"\0" + patches((16, b"\xde\xc0\xef\xbe"), (40, struct.pack("<Q", 1 << 20)))
    yield "page_size", b"\0" + patches((40, b"\xde\xc0\xef\xbe"))
    yield "page", b"\0" + patches((4096 * 3 + 10, struct.pack("<HHH", 2, 30, 4000)))


TARGETS: dict[str, Callable[[], Inputs]] = {
    function.__name__: function
    for function in (jpeg, tiles, png, wire, url, http, tar, npy, table, manifest, record, query, config, handshake, ring, lmdb)
}

if __name__ == "__main__":
    for target in sys.argv[1:] or TARGETS:
        folder = HERE / "corpus" / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in TARGETS[target]():
            (folder / name).write_bytes(content)
