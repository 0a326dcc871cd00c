"""Seeds of the target `config` (see seeds.py): the configurations of configs/, and some with what can be wrong in one."""

from __future__ import annotations

import re
from pathlib import Path

from seeds_messages import Inputs

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
PHOTOS = "sources: {f: {type: image_folder, path: /data}}\nstreams:\n  t:\n    source: f\n"
SPLIT = "sources:\n  p: {type: image_folder, path: /p, split: {seed: 1, fractions: {train: 0.9, val: 0.1}}}\n  q: {type: image_folder, path: /q}\n"
FEED = "sources: {f: {type: feed, samples: 12, batch_size: 4, fields: [{name: x, dtype: int32}]}}\n"

WRONG = {
    "parts": SPLIT + "streams: {a: {source: p}, b: {source: p, part: test}, c: {source: q, part: train}, d: {source: p.train}, e: {source: r}}\n",
    "composites": SPLIT
    + """  no_part: {type: concat, of: [p, q]}
  other_part: {type: concat, of: [p.test, q.train, r]}
  itself: {type: concat, of: [through, q]}
  through: {type: repeat, of: itself, times: 2}
  twice: {type: concat, of: [p.train, p.train], split: {fractions: {a: 0.5, b: 0.5}}}
  repeated: {type: repeat, of: q, times: 2, split: {fractions: {a: 0.5, b: 0.5}}}
  both: {type: concat, of: [p.train, p.val], split: {fractions: {a: 0.5, b: 0.5}}}
  pairs: {type: zip, of: [p.train, q]}
streams: {a: {source: both, part: a}}
""",
    "feed": FEED + "streams: {a: {source: f, batch_size: 3, sharing: {on_lag: detach}}, b: {source: f, transforms: [resize: 8]}}\n",
    "sharing": PHOTOS + "    sharing: {on_lag: wait, patience: 5s, window: 4, max_lag: 9, wait_timeout: 0s}\n    ring: {prefetch: 2}\n",
    "sharing_shard": PHOTOS + "    delivery: shard\n    sharing: {on_lag: detach, max_lag: 2, wait_for: 2, wait_timeout: 0s}\n",
    "pk": PHOTOS + "    batch_size: 10\n    delivery: shard\n    last: short\n    sampler: {pk: {p: 4, k: 2}}\n    shuffle: true\n",
    "pk_default": PHOTOS + "    sampler: {pk: {p: 5, k: 3}}\n",
    "residence": PHOTOS
    + "    residence: gpu\n    sampler: balanced\n    device: {image: {transforms: [normalize]}}\n    mix: {mixup: {alpha: 0.2}}\n    derive: {small: {of: image, transforms: [resize: 8]}}\n    transforms: [gaussian_blur: 3]\n",
    "values": PHOTOS + "    batch_size: -1\n    seed: 99999999999999999999\n    last: sometimes\n    sharing: {patience: 9000h, wait_timeout: 1x}\n    cache: {decoded: 9999999TB}\n    transforms: [resize: {}, normalize: {mean: [0.5]}, rotate: 3, center_crop]\n",
    "keys": PHOTOS + "    batchsize: 4\n    transform: []\n    ring: 3\n    output: [float32]\nserver: {}\nstream: {}\n",
    "indentation": "sources:\n  f:\n  type: image_folder\n  path: /data\nstreams:\n  t:\n    source: f\n   batch_size: 3\n",
    "under_indented": "sources:\n  f:\n  type: image_folder\n  path: /data\nstreams:\n  t:\n  source: f\n  batch_size: 3\n",
    "no_space": "sources:\n  f: {type: image_folder, path: /data}\nstreams:\n  t:\n    source:f\n",
    "paths": "sources: {a: {type: image_folder, path: ~/x}, b: {type: image_folder, path: $HOME/x}, c: {type: npy}, d: {type: npy, path: x.npz, fields: {a: http://h/x}}}\nstreams: {s: {source: a}}\n",
    "urls": "sources: {a: {type: webdataset, path: 's3://', s3: {endpoint: 'http://u@h'}}, b: {type: manifest, path: 'ftp://h/x.csv'}, c: {type: lmdb, path: 'https://h/x'}, d: {type: image_folder, path: 'http://h/x'}, e: {type: idx, images: 'http://h:99999/a', labels: b, s3: {region: x}}, f: {type: cifar, path: /c, tls_ca: x}}\nstreams: {s: {source: a}}\n",
    "io": "sources: {a: {type: image_folder, path: /data, io: {disk_cache: {path: /data/c, size: 1GB}, retry: {for: 11s}}, cache: {tile: true}}, b: {type: npy, path: x.npz, io: {disk_cache: {path: /c, size: 1GB}}, cache: {encoded: 1GB}}}\nstreams: {s: {source: a}}\n",
    "numbers": "sources: {a: {type: synthetic, count: 0x10, bytes: 0o17}}\nstreams: {s: {source: a, batch_size: .inf, seed: -9223372036854775808, shuffle: !!str true}, t: {source: a, batch_size: 1_000, seed: .nan}}\n",
    "merges": "x: &x {source: a}\ny: &y 3\nsources: {a: {type: synthetic, count: 3, bytes: 8}}\nstreams: {s: {<<: *x}, t: {<<: [*x, {batch_size: 2}]}, u: {<<: *y}, [1]: {source: a}, v: {source: a, source: a}}\n",
    "bomb": "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(f"{k}: &{k} [{', '.join(['*' + chr(ord(k) - 1)] * 10)}]\n" for k in "bcdefg") + "sources: *g\n",
    "server": "server: {directory: " + "x" * 120 + ", evict_after: 0s, log_level: loud, threads: 0, allow: {uids: [-1, root]}, metrics: {port: 99999}}\nsources: {}\nstreams: {}\n",
    "extends": PHOTOS + "  u: {extends: u}\n  v: {extends: w}\n  w: {extends: v}\n  x: {extends: y}\n  z: {extends: t, transforms: , sharing: }\n",
    "samplers": PHOTOS + "    sampler: {weighted: {weights: w.txt, samples: 0}}\n  u: {source: f, sampler: {list: {path: http://h/x}}}\n  v: {source: f, sampler: {balanced: {samples: 10}, pk: {}}}\n  w: {source: f, shuffle: sometimes}\n",
}


def config() -> Inputs:
    yield "small", f"{PHOTOS}    transforms: [random_resized_crop: {{size: 8}}, random_horizontal_flip]\n    output: {{dtype: float32, layout: NHWC}}\n    sharing: {{wait_for: 2, wait_timeout: '5s'}}\n".encode()
    flags = ("streams.t.batch_size=32", "server.threads=2", "streams.t.transforms.0.center_crop.size=9", "streams.t.transforms[0]=x", "streams.t.ring={prefetch: 2", "x", "=3", "streams.u=", "streams.t.last", "sources.f.path=/x")
    for number in range(len(flags)):
        yield f"flags_{number}", f"{PHOTOS}    transforms: [center_crop: 8]\n\0{flags[0]}\0{flags[number]}".encode()
    yield "extends", f"{PHOTOS}    transforms: [resize: 8, center_crop: 8]\n  u: {{extends: t, shuffle: off, sampler: {{type: weighted}}}}\n".encode()
    yield "aliases", b"x: &x [1, 2]\nsources: {a: {type: synthetic, count: 10, bytes: 8}, b: {type: concat, of: [a, a]}}\nstreams: {s: {source: b, batch_size: *x}}\n"
    yield "server", b"server: {directory: /run/x, allow: {uids: [5]}, metrics: off, log_level: debug, drain_timeout: 1m}\nsources: {a: {type: npy, npz: x.npz}}\nstreams: {s: {source: a, cache: {decoded: 1GiB}}}\n"
    yield "feed", f"{FEED}streams: {{s: {{source: f}}}}\n".encode()
    for name, text in WRONG.items():
        yield f"wrong_{name}", text.encode()
    for file in sorted(CONFIGS.glob("*.yaml")):
        yield f"configs_{file.stem}", re.sub(rb"(?m)(^|\s+)#.*$", b"", file.read_bytes())
