"""Storage for a Dataset of pairs: PNG files, BasicSR's LMDB of PNG files, or an LMDB of lz4-compressed arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lmdb
import lz4.frame
import numpy as np
from torch.utils.data import Dataset

from peers import prepare
from peers.loaders._pairs import PairTransform, decode
from peers.workloads import Job

MAP_SIZE = 1 << 32


class Pairs(Dataset[Any]):
    """`kind`: pil, png-lmdb (OpenCV decodes), lz4-lmdb."""

    def __init__(self, job: Job, kind: str, store: Path | None) -> None:
        self._kind, self._store, self._transform = kind, store, PairTransform(job)
        self._files = prepare.pair_files(Path(job.scratch))
        self._open: Any = None  # on first use: a worker must not inherit it

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> Any:
        return self._transform((self._image(index, 0), self._image(index, 1)))

    def _image(self, index: int, which: int) -> Any:
        if self._store is None:
            from PIL import Image

            return np.asarray(Image.open(self._files[index][which]).convert("RGB"))
        if self._open is None:
            env = lmdb.open(str(self._store), readonly=True, lock=False, readahead=False, max_readers=64)
            self._open = env.begin(buffers=True)
        value = self._open.get(_key(index, which))
        if self._kind == "png-lmdb":
            return decode(value)
        height, width = np.frombuffer(value[:8], np.int32)
        return np.frombuffer(lz4.frame.decompress(value[8:]), np.uint8).reshape(height, width, 3)


def _key(index: int, which: int) -> bytes:
    return f"{index:08d}-{which}".encode()


def pairs(job: Job, kind: str) -> Pairs:
    if kind == "pil":
        return Pairs(job, kind, None)

    def write(path: Path) -> None:
        env = lmdb.open(str(path), map_size=MAP_SIZE)
        with env.begin(write=True) as writing:
            for index, files in enumerate(prepare.pair_files(Path(job.scratch))):
                for which, file in enumerate(files):
                    content = Path(file).read_bytes()
                    if kind == "lz4-lmdb":
                        pixels = decode(content)
                        content = np.array(pixels.shape[:2], np.int32).tobytes() + lz4.frame.compress(pixels.tobytes())
                    writing.put(_key(index, which), content)
        env.close()

    return Pairs(job, kind, prepare.once(job.shared(f"pairs-{kind}"), write))
