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
from collections.abc import Callable
from pathlib import Path

import numpy
from PIL import Image
from seeds_config import config
from seeds_messages import Inputs, control, handshake, lease, packets, patches, piece, ring, wire

HERE = Path(__file__).resolve().parent


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
    small, progressive = (file_of(picture(40, 24), "JPEG", quality=40, progressive=each) for each in (False, True))
    yield "cut", REGION + small[:-60]
    yield "cut_header", REGION + small[:100]
    yield "cut_segment", REGION + small[:20] + b"\xff\xe5\xff\xff"
    yield "garbage", REGION + small[:-40] + b"\xff\xd5garbage" + small[-30:]
    yield "long_codes", REGION + small[:-200] + b"\xfe" * 198 + small[-2:]
    yield "cut_progressive", REGION + progressive[: len(progressive) // 2]
    yield "small_region", bytes([255, 20, 255, 10]) + small
    for name, marker in (("arithmetic", 0xC9), ("lossless", 0xC3), ("hierarchical", 0xC5)):
        yield name, REGION + small.replace(b"\xff\xc0", bytes([0xFF, marker]), 1)
    for name, at, to in (("precision", 4, b"\x0c"), ("no_height", 5, b"\0\0"), ("wide", 7, b"\xff\xff"), ("components", 9, b"\2"), ("sampling", 11, b"\x55")):
        frame = small.index(b"\xff\xc0") + at
        yield f"wrong_{name}", REGION + small[:frame] + to + small[frame + len(to) :]
    yield "many_scans", REGION + progressive[:-2] + progressive[progressive.index(b"\xff\xda") : progressive.index(b"\xff\xda") + 14] * 501 + b"\xff\xd9"
    yield "no_jpeg", REGION + b"\xff\xd8\xff"


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
    plain = file_of(picture(9, 7), "PNG")
    yield "cut", b"\1" + REGION + plain[:-40]
    yield "cut_chunk", b"\1" + REGION + plain[:40]
    yield "no_mask", b"\3" + REGION + plain
    yield "wide", b"\1" + REGION + plain[:16] + struct.pack(">II", 70000, 7) + plain[24:]
    yield "large", b"\1" + REGION + plain[:16] + struct.pack(">II", 60000, 60000) + plain[24:]
    yield "long", b"\1" + REGION + plain[:16] + struct.pack(">II", 900, 900) + plain[24:]
    yield "depth", b"\1" + REGION + plain[:24] + b"\3" + plain[25:]
    yield "filter", b"\1" + REGION + plain.replace(b"IDAT", b"IDAX", 1)
    yield "damaged", b"\1" + REGION + plain[:60] + b"\0\xff" * 4 + plain[68:]
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
    for status in (204, 401, 403, 404, 408, 412, 416, 429, 500):
        yield f"status_{status}", b"\3HTTP/1.1 %d x\r\nContent-Length: 0\r\nx-amz-bucket-region: r\r\n\r\n" % status
    yield "no_length", b"\3HTTP/1.0 200 OK\r\n\r\nhello"
    yield "short", b"\3HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello"
    yield "long", b"\3HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\nhello"
    yield "other_range", b"\3HTTP/1.1 206 Partial Content\r\nContent-Length: 4\r\nContent-Range: bytes 7-10/50\r\nETag: \"x\"\r\n\r\nhell"
    yield "same_range", b"\3HTTP/1.1 206 Partial Content\r\nContent-Length: 4\r\nContent-Range: bytes 0-3/50\r\nETag: \"x\"\r\n\r\nhell"
    yield "no_http", b"\3SSH-2.0-x\r\n"
    xml = b"<ListBucketResult>" + contents + b"</ListBucketResult>"
    yield "s3_listing", b"\3HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(xml) + xml
    more = xml.replace(b"</List", b"<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken></List")
    yield "s3_repeats", b"\3HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(more) + more
    yield "no_size", b"\1<ListBucketResult><Contents><Key>a/b</Key><Size>x</Size></Contents></ListBucketResult>"
    yield "other_key", b"\1<ListBucketResult><Contents><Key>b/b</Key><Size>3</Size></Contents></ListBucketResult>"
    yield "other_prefix", b"\1<ListBucketResult><CommonPrefixes><Prefix>b/</Prefix></CommonPrefixes></ListBucketResult>"
    yield "no_token", b"\1<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"
    yield "busy", b"\3HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n"


def archive_of(members: dict[str, bytes | None]) -> bytes:
    """None: a link, or a folder."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content or b"")
            if content is None:
                member.type, member.linkname = (tarfile.DIRTYPE, "") if name.endswith("/") else (tarfile.SYMTYPE, "a.jpg")
            archive.addfile(member, io.BytesIO(content or b""))
    return out.getvalue().rstrip(b"\0") + bytes(1536)


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
    good = {"a.jpg": b"picture", "a.cls": b"1", "a.json": b'{"label": 1}'}
    sets = {
        "no_number": good | {"a.cls": b"x", "a.json": b'{"label": "x"}'},
        "no_label": {"a.jpg": b"picture", "a.txt": b"x"},
        "no_image": {"a.cls": b"1", "a.json": b"{}", "a.txt": b"x"},
        "no_object": good | {"a.json": b"[]", "a.cls": b"-1"},
        "no_key": good | {"a.json": b"{}", "a.cls": b"9" * 100},
        "twice": good | {"b.jpg": b"y", "b.cls": b"1", "b.json": b'{"label": 1}', "a.png": b"z"},
        "no_extension": good | {"README": b"x"},
    }
    for name, members in sets.items():
        for flags in (1, 3):
            yield f"{name}_{flags}", bytes([flags]) + archive_of(members)
    whole = archive_of(good)
    yield "links", b"\1" + archive_of({"link": None, "folder/": None} | good)
    yield "cut", b"\1" + whole[:1100]
    yield "cut_member", b"\1" + whole[:520]
    yield "no_end", b"\1" + whole.rstrip(b"\0") + b"\0" * 300
    yield "joined", b"\1" + whole + whole
    yield "gzip", b"\1" + gzip.compress(whole, mtime=0)
    yield "no_tar", b"\1" + b"text" * 200
    yield "no_name", b"\1" + bytes(1) + whole[1:]
    yield "sparse", b"\1" + whole[:156] + b"S" + whole[157:]
    yield "large", b"\1" + whole[:124] + b"77777777777" + whole[135:]
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
    for dtype in ("u1", "i1", "i2", "i4", "i8"):
        yield f"labels_{dtype}", b"\2" + piece(npy_file(images)) + npy_file(labels.astype(dtype))
    yield "labels_negative", b"\2" + piece(npy_file(images)) + npy_file(-labels)
    yield "labels_wrong", b"\2" + piece(npy_file(images)) + npy_file(images)
    yield "labels_fewer", b"\2" + piece(npy_file(images)) + npy_file(labels[:1])
    yield "labels_scalar", b"\2" + piece(npy_file(images)) + npy_file(labels[0])
    others = {"fortran": numpy.asfortranarray(images.reshape(8, 12)), "big_endian": labels.astype(">i8"), "complex": labels.astype("c8"), "records": numpy.zeros(2, dtype=[("a", "i4")]), "text": numpy.array(["a", "b"]), "empty": images[:, :0], "deep": images.reshape(2, 1, 1, 1, 2, 2, 4, 3), "bool": images > 3}
    for name, array in others.items():
        yield name, b"\0" + npy_file(array)
    file = npy_file(images)
    yield "objects", b"\0" + file.replace(b"'|u1'", b"'|O8'", 1)
    yield "no_dtype", b"\0" + file.replace(b"'|u1'", b"'|xx'", 1)
    yield "no_shape", b"\0" + file.replace(b"(2, 4,", b"(2, x,", 1)
    yield "no_dict", b"\0" + file.replace(b"{'descr", b"['descr", 1)
    yield "no_npy", b"\0" + b"text" * 20
    yield "version", b"\0" + file[:6] + b"\7" + file[7:]
    yield "long_header", b"\0" + file[:6] + b"\2\0\xff\xff\xff\x7f" + file[12:]
    yield "cut", b"\0" + file[:-20]
    for name, arrays in (("twice", {"image": images, "label": images}), ("names", {"Image": images}), ("index", {"sample_index": images}), ("none", {})):
        out = io.BytesIO()
        numpy.savez(out, **arrays)
        yield f"npz_{name}", b"\1" + out.getvalue()
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
    packed = gzip.compress(idx(2, 4, 4), mtime=0)
    for name, images in {"type": b"\0\0\x0d" + idx(2, 4, 4)[3:], "channels": idx(2, 4, 4, 2), "large": idx(1, 1, 1)[:8] + b"\0\1\xff\xff" * 2, "more": idx(3, 4, 4), "cut": idx(2, 4, 4)[:-9], "no_idx": b"text", "gzip_cut": packed[:-12], "gzip_damaged": packed[:14] + b"\xff\xff" + packed[16:], "empty": b""}.items():
        yield f"idx_{name}", b"\0" + piece(images) + idx(2)
    yield "idx_long", b"\0" + piece(idx(2, 4, 4) + b"more") + idx(2) + b"more"
    yield "cifar_no_file", b"\1\0" + struct.pack("<H", 0) + piece(b"")
    yield "cifar_label", b"\1\0" + struct.pack("<H", 3073) + piece(b"a\nb\n") + struct.pack("<IBB", 0, 1, 200)
    yield "cifar_size", b"\1\0" + struct.pack("<H", 3000) + piece(b"a\nb\n")
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
    yield "txt_bad", bytes([3]) + b"a.jpg x\nb.png -1\n\n  \nc.jpg\n"
    yield "csv_bad", bytes([4]) + b'file,label,mask\n"a.jpg,1,b.png\nb.png,2\n'
    yield "csv_columns", bytes([0]) + b"name,class\na.jpg,1\n"
    yield "csv_twice", bytes([0]) + b"file,file\na.jpg,1\n"
    yield "csv_values", bytes([8]) + b'file,age,point\na.jpg,x,"[1]"\nb.png,99999999999,"[1,x]"\n'
    yield "jsonl_bad", bytes([6]) + b'{"file": "a.jpg"\n[]\n{"file": 3, "label": "x", "mask": 1}\n'
    yield "empty", bytes([0])
    yield "txt_plain", bytes([3]) + b"a.jpg\nb.png\n"


META = {"headrace": "packed", "format": 1, "complete": True, "count": 2, "fields": [{"name": "image", "content": "encoded_image"}], "labelled": True}
META |= {"classes": ["cat", "dog"], "source_fingerprint": "1234", "fingerprint": "1234", "algorithm": 1, "labels_hash": "a", "wholes_hash": "b", "wholes": False}
META |= {"options": {"store": "encoded", "compress": "lz4", "resize": {"shorter": 8, "height": 0, "width": 0}}, "raw_bytes": 9, "undecodable": 1}
META |= {"first_undecodable": ["x"], "streamed": True, "content_hash": "c", "sizes": [[2, 3]]}


def record() -> Inputs:
    yield "record", b"\0" + value([(b"picture!", 0, 0, 0)])
    yield "meta", b"\1" + json.dumps(META).encode()
    shaped = [{"name": "boxes", "content": "ragged", "dtype": "int16", "shape": [2, 4]}, {"name": "mask", "content": "pixels", "channels": 1, "height": 4, "width": 4, "scale": 2, "mask": True}]
    changes = {"tiled": {"format": 2, "options": META["options"] | {"store": "tiled", "compress": "zstd"}}, "decoded": {"fields": shaped, "options": META["options"] | {"store": "decoded", "compress": "none"}, "streamed": False}}
    changes |= {"later": {"format": 9}, "other": {"headrace": "x"}, "empty": {"fields": []}, "no_count": {"count": 0}, "hex": {"labels_hash": "xyz"}, "store": {"options": META["options"] | {"store": "x"}}, "compress": {"options": META["options"] | {"compress": "x"}}}
    wrong = {"content": "x", "dtype": "x", "channels": 2, "height": -1, "width": 3, "scale": 0, "shape": [1] * 7, "name": ""}
    changes |= {f"field_{key}": {"fields": [{"name": "f", "content": "pixels", key: item}]} for key, item in wrong.items()} | {"field_large": {"fields": [{"name": "f", "content": "values", "shape": [1 << 40, 2]}]}}
    for name, change in changes.items():
        yield f"meta_{name}", b"\1" + json.dumps(META | change).encode()
    yield "meta_text", b"\1{"
    yield "lz4", b"\0" + value([(b"\x1fa\1\0\5\x50aaaaa", 0, 0, 0)], packed=(1, 30), label=0)
    yield "zstd", b"\0" + value([(bytes.fromhex("28b52ffd2014a3000061"), 0, 0, 0)], packed=(2, 20))
    yield "zstd_damaged", b"\0" + value([(b"damaged", 0, 0, 0)], packed=(2, 20))
    yield "record_pixels", b"\0" + value([(bytes(24), 4, 2, 3), (b"12345678", 0, 0, 0)])


def query() -> Inputs:
    for number, text in enumerate((b"stream=train&index=3%20", b"stream=train&epoch=1&index=3&&", b"stream", b"stream=", b"stream=a&stream=b", b"x=1", b"stream=%ff", b"stream=%00", b"", b"stream=" + b"a" * 2000)):
        yield str(number), text


HEAD = {"headrace": "records", "version": 1, "count": 1, "labelled": True, "classes": ["cat", "dog"]}
HEAD |= {"fields": [{"name": "image", "content": "pixels"}, {"name": "boxes", "content": "ragged", "dtype": "int16", "shape": [4]}]}


def records(*parts: bytes, end: int = 1, step: int = 1, **head: object) -> bytes:
    first = {key: value for key, value in (HEAD | head).items() if value is not None}
    return bytes([step]) + json.dumps(first).encode() + b"\n" + b"".join(parts) + struct.pack("<QqII", end, 0, 0, 0)


def pipe() -> Inputs:
    sample = struct.pack("<QqII", 0, 1, 2, 1) + struct.pack("<QII", 18, 2, 3) + struct.pack("<QII", 8, 0, 0) + b"s0" + bytes(26)
    bad = struct.pack("<QqII", 0, 1, 3, 2) + b"why"
    yield "pipe", records(sample)
    yield "pipe_bad", records(bad)
    yield "open_end", records(sample, bad.replace(b"\0", b"\1", 1), end=2, count=None)
    yield "values", records(struct.pack("<QqII", 0, 0, 0, 1) + struct.pack("<QII", 6, 0, 0) + b"abcdef", fields=[{"name": "x", "content": "values", "dtype": "int16", "shape": [3]}], labelled=False, classes=[])
    yield "whole", records(sample, step=255)
    yield "few", records(end=0)
    yield "many", records(sample, sample)
    yield "cut", records(sample)[:-30]
    yield "cut_head", records(sample)[:-70]
    yield "no_end", records(sample)[:-24]
    yield "no_line", bytes([0]) + json.dumps(HEAD).encode()
    yield "no_object", b"\0[]\n"
    for name, wrong in {
        "count": {"count": 0},
        "classes": {"labelled": False},
        "version": {"version": 2},
        "other": {"headrace": "packed"},
        "no_fields": {"fields": []},
        "no_name": {"fields": [{"content": "pixels"}]},
        "content": {"fields": [{"name": "x", "content": "y"}]},
        "name": {"fields": [{"name": "X", "content": "pixels"}]},
        "label": {"fields": [{"name": "label", "content": "pixels"}]},
        "twice": {"fields": [{"name": "x", "content": "pixels"}] * 2},
        "mask": {"fields": [{"name": "x", "content": "pixels", "mask": True}]},
        "empty_shape": {"fields": [{"name": "x", "content": "values", "shape": [0]}]},
    }.items():
        yield f"wrong_{name}", records(sample, **wrong)
    heads = {"kind": (0, 1, 2, 3), "index": (1, 1, 2, 1), "name": (0, 1, 5000, 1), "class": (0, 2, 2, 1), "no_reason": (0, 1, 0, 2)}
    for name, head in heads.items():
        yield f"wrong_{name}_of_sample", records(struct.pack("<QqII", *head) + sample[24:])
    fields = {"large": (1 << 40, 2, 3), "size": (18, 0, 3), "bytes": (17, 2, 3)}
    for name, field in fields.items():
        yield f"wrong_{name}_of_field", records(sample[:24] + struct.pack("<QII", *field) + sample[40:])
    yield "wrong_ragged", records(sample[:40] + struct.pack("<QII", 7, 0, 0) + sample[56:])
    yield "wrong_ragged_size", records(sample[:40] + struct.pack("<QII", 8, 1, 1) + sample[56:])


def value(fields: list[tuple[bytes, int, int, int]], packed: tuple[int, int] | None = None, label: int = 1) -> bytes:
    """A record (server/store/record.h); its checksum, which only `verify` reads, is wrong. `packed`: compression and size of its fields."""
    sizes = [packed or (0, len(body)) for body, *_ in fields]
    heads = b"".join(struct.pack("<QQiiBBBBI", size, len(body), width, height, channels, 0, how, 0, 0) for (body, width, height, channels), (how, size) in zip(fields, sizes, strict=True))
    body = heads + b"s0".ljust(8, b"\0") + b"".join(part + bytes(-len(part) % 8) for part, *_ in fields)
    return struct.pack("<IHHIIqQQ", 0x43455248, 1, 0, len(fields), 2, label, 0, 40 + len(body) + 8) + body + bytes(8)


def lmdb() -> Inputs:
    yield "valid", b""
    yield "cut", b"\x80"
    yield "meta", b"\0" + patches((16, b"\xde\xc0\xef\xbe"), (40, struct.pack("<Q", 1 << 20)))
    yield "page_size", b"\0" + patches((40, b"\xde\xc0\xef\xbe"))
    yield "version", b"\0" + patches((20, b"\x77"), (4096 + 20, b"\x77"))
    for at in range(4096 * 2, 4096 * 9, 4096):
        yield f"page_{at // 4096}", b"\0" + patches((at + 16, b"\xff\xff"), (at + 200, b"\xff" * 40), (at + 3000, b"\xff" * 90))
        yield f"end_{at // 4096}", b"\0" + patches((at + 4000, b"\x30" * 90))
    yield "page", b"\0" + patches((4096 * 3 + 10, struct.pack("<HHH", 2, 30, 4000)))


TARGETS: dict[str, Callable[[], Inputs]] = {
    function.__name__: function
    for function in (jpeg, tiles, png, wire, control, url, http, tar, npy, table, manifest, record, pipe, query, config, handshake, packets, ring, lease, lmdb)
}

if __name__ == "__main__":
    for target in sys.argv[1:] or TARGETS:
        folder = HERE / "corpus" / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in TARGETS[target]():
            (folder / name).write_bytes(content)
