"""Seeds of the targets that read messages and shared memory (see seeds.py)."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator

Inputs = Iterator[tuple[str, bytes]]


def piece(*parts: bytes) -> bytes:
    """Input::take_piece()"""
    return b"".join(struct.pack("<H", len(part)) + part for part in parts)


CURSOR = {"epoch": 1, "origin": 0, "batch": 2}
OPEN = {"stream": "train", "group": "g", "rank": 0, "world_size": 1, "client": "c", "pid": 1, "join": "default", "resume_server": False}


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
    reply = {"sample_index": 3, "name": "a", "replaced": False, "label": 1, "fields": [FIELD], "parameters": {}}
    for name, body in {
        "sample": reply,
        "cursor_set": {"seek": 1, "cursor": CURSOR, "length": 8, "epoch_length": 8},
        "cursors": {"world_size": 1, "start": CURSOR, "lanes": [{"rank": 0, "client": "c", "attached": True, "granted": CURSOR, "consumed": CURSOR}]},
        "residence": {"upload": "u", "plan": "p", "seed": 1, "image": IMAGE},
        "hello": {"server": "0.1.0", "layout": 2, "instance": 5, "pid": 1},
        "open": {"token": "t", "stream": INFO},
        "stream": INFO | {"residence": {"upload": "u", "plan": "p", "seed": 1, "image": IMAGE}},
        "stream_no_image": INFO | {"on_device": [IMAGE | {"field": 0}]},
        "stream_bad_shape": INFO | {"fields": [FIELD | {"shape": [-1]}]},
        "stream_bad_class": INFO | {"classes": [3]},
        "attach": {"lane": 1, "seek": 2, "cursor": CURSOR, "start": CURSOR, "length": 8, "epoch_length": 8, "max_leases": 2, "session": "s", "batches_behind": 1},
        "failure": {"why": "x"},
        "moves": {"upload": "u", "plan": "p", "seed": 1, "image": IMAGE | {"moves": [MOVE | {"kind": kind} for kind in ("horizontal_flip", "vertical_flip", "turn")]}},
    }.items():
        yield f"reply_{name}", json.dumps({"v": 1, "id": 7, "ok": body}).encode()
    yield "wrong_version", request("hello", {}).replace(b'"v": 1', b'"v": 2')
    yield "wrong_id", request("hello", {}).replace(b'"id": 7', b'"id": "x"')
    yield "wrong_json", request("hello", {})[:-1]
    yield "wrong_world", request("open", OPEN | {"world_size": 0})
    yield "wrong_rank", request("open", OPEN | {"rank": 1, "pid": "x", "join": 3})
    yield "wrong_name", request("open", OPEN | {"client": "a\n", "group": "x" * 5000})
    yield "wrong_cursor", request("open", OPEN | {"start": {"epoch": -1}, "batching": [], "resume_server": 1})
    state = {"version": 1, "stream": "train", "cursor": CURSOR, "batch_size": 8, "world_size": 2, "fingerprint": {"dataset": "d", "plan": "p", "seed": "s", "algorithm": "a"}}
    yield "state", json.dumps(state).encode()
    yield "reply_error", json.dumps({"v": 1, "id": 7, "error": {"code": "NO_SUCH_STREAM", "message": "x"}}).encode()


MOVE = {"kind": "crop", "stage": 2, "height": 32, "width": 24, "top": -4, "left": -5, "rows": 17, "columns": 15, "padding": "symmetric", "fill": [1, 2, 255], "p": 0.5}
IMAGE = {"field": 1, "height": 40, "width": 30, "channels": 3, "moves": [MOVE], "color_steps": 3, "contrasts": 2, "layout": "NHWC"}
IMAGE |= {"mean": [0.1], "std": [0.3], "erased": [0.5]}


FIELD = {"name": "image", "dtype": "uint8", "kind": "dense", "shape": [3, 8, 8], "ragged_capacity": 0}
INFO = {"name": "train", "delivery": "broadcast", "samples": 10, "batch_size": 4, "last": "short", "shuffle": True, "live": True, "classes": ["a"]}
INFO |= {"fields": [{"name": "boxes", "dtype": "int16", "kind": "ragged", "shape": [4], "ragged_capacity": 9}, FIELD], "on_device": [IMAGE]}
INFO |= {"fingerprint": {"dataset": "d", "plan": "p", "seed": "s", "algorithm": "a"}}


def control() -> Inputs:
    for name, frame in requests():
        yield name, piece(frame)
    yield "seek", piece(request("cursor_set", {"session": "SESSION", "cursor": CURSOR})) + b"\0" + piece(request("failure", {"session": "SESSION"}))
    yield "seek_far", piece(request("cursor_set", {"session": "SESSION", "cursor": {"epoch": 1 << 40, "origin": 501, "batch": 1 << 40}}))
    yield "other_layout", piece(request("hello", {"client": "0", "layout": 1 << 30}))
    yield "shards", piece(request("open", OPEN | {"stream": "shards", "world_size": 2, "rank": 1}))
    yield "join_now", piece(request("open", OPEN | {"join": "now", "start": CURSOR, "batching": {"batch_size": 5, "last": "drop"}}))
    yield "no_picture", piece(request("sample", {"stream": "train", "epoch": 0, "index": 3, "picture": ""}))
    yield "no_sample", piece(request("sample", {"stream": "train", "epoch": 0, "index": 500, "picture": ""}))
    yield "group", piece(request("cursor_get", {"stream": "train", "group": "g"})) + b"\0" + piece(request("cursor_get", {"stream": "x", "group": "h"}))
    yield "unknown", piece(request("upload", {}))
    yield "twice", piece(request("open", OPEN)) + b"\0" + piece(request("open", OPEN | {"client": "d", "group": "h"}))
    yield "two_frames", piece(request("hello", {})) + b"\1" + piece(b"more")
    for name in ("open", "cursor_set", "failure", "cursor_get", "sample", "hello"):
        yield f"{name}_empty", piece(request(name, {}))


def handshake() -> Inputs:
    greeting = b"\xff" + bytes(8) + b"\x7f\3\0NULL" + bytes(48)
    name = lambda key, text: bytes([len(key)]) + key + struct.pack(">I", len(text)) + text  # noqa: E731
    for number, properties in enumerate((name(b"Socket-Type", b"DEALER"), name(b"Socket-Type", b"DEALER") + name(b"Identity", b""), name(b"Identity", b"me"))):
        body = b"\5READY" + properties
        yield str(number), greeting + bytes([4, len(body)]) + body


def packets() -> Inputs:
    fds = lambda *kinds: bytes([len(kinds), *kinds])  # noqa: E731
    goodbye = piece(b"goodbye") + fds()
    yield "attach", b"\0" + piece(b"\1") + fds(0) + goodbye
    yield "attach_no_pidfd", b"\0" + piece(b"\1") + fds()
    yield "attach_ended", b"\0" + piece(b"\1") + fds(1, 2, 3)
    yield "attach_many_fds", b"\0" + piece(b"\1") + fds(*[2] * 9)
    yield "attach_twice", b"\0" + piece(b"\1") + fds(3) + piece(b"\1") + fds(2)
    yield "attach_wrong", b"\0" + piece(b"headrace-attach 1 0123") + fds()
    yield "attach_version", b"\0" + piece(b"headrace-attach 2 0123") + fds(2)
    yield "attach_no_version", b"\0" + piece(b"headrace-attach x") + fds(2)
    yield "attach_other", b"\0" + piece(b"GET /") + fds(2)
    yield "attach_empty", b"\0" + piece(b"") + fds()
    batch = b'{"batch": 0, "slot": 0, "rows": 4}'
    yield "feed", b"\1" + piece(b'{"feed": 1}', struct.pack("<IB", 0, 1) + b"\7", batch, b'{"batch": 1, "slot": 1, "rows": 4}', b'{"end": "why", "done": true}')
    yield "feed_early", b"\1" + piece(b'{"feed": 1}', b"", batch, b'{"end": "", "done": false}')
    yield "feed_offsets", b"\1" + piece(b'{"feed": 1}', patches((4, b"\xff" * 250), (254, b"\xff" * 250)), batch)
    yield "feed_order", b"\1" + piece(b'{"feed": 1}', b"", b'{"batch": 1, "slot": 0, "rows": 4}')
    yield "feed_end_wrong", b"\1" + piece(b'{"feed": 1}', b"", b'{"end": 1, "done": 2}')
    yield "feed_no_json", b"\1" + piece(b'{"feed": 1}', b"", b"{")
    yield "feed_version", b"\1" + piece(b'{"feed": 2}', b"", batch)
    yield "feed_hello", b"\1" + piece(b"{}", b"", batch)
    made = b'{"made": ORDER, "node": "n", "received": 1, "sent": 1, "fields": FIELDS, "samples": SAMPLES, "replaced": REPLACED}'
    hello = piece(b'{"bridge": 1, "most": 4}')
    yield "bridge", b"\2" + hello + b"\0" + piece(b'{"most": 2}') + (b"\1" + piece(made)) * 4
    yield "bridge_wrong", b"\2" + hello + (b"\2" + piece(made)) * 2 + b"\1" + piece(made)
    yield "bridge_failed", b"\2" + hello + b"\1" + piece(b'{"failed": ORDER, "node": "n", "why": "x"}') + b"\1" + piece(made)
    yield "bridge_memory", b"\2" + hello + b"\1" + piece(made.replace(b"FIELDS", b"[4096, 4096]"))
    yield "bridge_samples", b"\2" + hello + b"\1" + piece(made.replace(b"SAMPLES", b"REPLACED"))
    yield "bridge_fields", b"\2" + hello + b"\1" + piece(made.replace(b"FIELDS", b"[]"))
    yield "bridge_address", b"\2" + hello + b"\1" + piece(made.replace(b"FIELDS", b'["x"]'))
    yield "bridge_no_node", b"\2" + hello + b"\1" + piece(made.replace(b'"n"', b'""'))
    yield "bridge_no_order", b"\2" + hello + b"\0" + piece(made.replace(b"ORDER", b"99999")) + b"\0" + piece(b'{"failed": 99999, "node": "n", "why": "x"}')
    yield "bridge_failed_wrong", b"\2" + hello + b"\0" + piece(b'{"failed": "x"}')
    yield "bridge_other", b"\2" + hello + b"\0" + piece(b'{"other": 1}')
    yield "bridge_version", b"\2" + piece(b'{"bridge": 2, "most": 4}')
    yield "bridge_hello", b"\2" + piece(b"[]")
    yield "bridge_most", b"\2" + piece(b'{"bridge": 1, "most": 4000000000}')


def patches(*changes: tuple[int, bytes]) -> bytes:
    """fuzz::patch()"""
    return b"".join(struct.pack("<IB", at, len(to)) + to for at, to in changes)


def ring() -> Inputs:
    yield "valid", b"\0" + piece(b"")
    yield "private", b"\2" + piece(b"")
    yield "rows", b"\0" + piece(patches((0, b"\xff" * 8))) + patches((64, struct.pack("<IIII", 2, 3, 4, 2)))
    for flags in (1, 3, 4, 6):
        yield f"flags_{flags}", bytes([flags]) + piece(b"")
    for name, at in (("magic", 0), ("layout", 8), ("header", 12), ("control_bytes", 16), ("data_bytes", 24), ("stride", 32), ("rows_offset", 40), ("slots", 56), ("field_count", 60), ("rows", 64), ("lanes", 68), ("fields_offset", 72), ("slots_offset", 80), ("lanes_offset", 88), ("allocated", 96)):
        yield f"wrong_{name}", b"\0" + piece(b"") + patches((at, b"\x77\x77"))
    yield "fields", b"\0" + piece(b"") + patches((256 + 48, b"\1\0\1"), (256 + 56, struct.pack("<q", 8)))


def lease() -> Inputs:
    yield "valid", b"\1"
    yield "stuck", b"\3"
    yield "jump", b"\0" + patches((256, struct.pack("<I", 1000)))
    yield "ack_again", b"\1" + patches((320, struct.pack("<QII", 5, 1, 0)), (256, struct.pack("<I", 2)))
    yield "ack_other", b"\0" + patches((320, struct.pack("<QII", 5, 1, 0)), (256, struct.pack("<I", 1)))
    yield "ack_no_slot", b"\0" + patches((320, struct.pack("<QII", 1, 1 << 20, 0)), (256, struct.pack("<I", 1)))
    yield "commit", b"\0" + patches((128, struct.pack("<QQQQ", 1, 2, 3, 4)))
    yield "commit_far", b"\0" + patches((128, struct.pack("<QQQQQQQ", 1, 0, 0, 0, 1 << 63, 0, 1 << 63)))
    yield "commit_first", b"\1" + patches((128, struct.pack("<QQQQQQQ", 1, 0, 0, 0, 0, 0, 1)))
    yield "waiting", b"\0" + patches((192, struct.pack("<I", 1)), (64, struct.pack("<QQQQ", 1, 1 << 63, 2, 3)))
