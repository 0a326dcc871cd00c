"""Shares one loader with transforms in Python between two trainers: each batch is made once.

    python share_dataloader.py --epochs 2
"""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Iterator

import headrace
import numpy as np


class NoisySines:
    """Stands in for any DataLoader: it has a len(), and each iter() is an epoch."""

    def __len__(self) -> int:
        return 12

    def __iter__(self) -> Iterator[dict[str, object]]:
        random = np.random.default_rng()
        for _ in range(len(self)):
            pitch = random.integers(1, 20, 8)
            wave = np.sin(pitch[:, None] * np.linspace(0, 2 * np.pi, 4000)) + random.normal(0, 0.1, (8, 4000))
            yield {"wave": wave.astype(np.float32), "pitch": pitch, "caption": [f"{p} Hz" for p in pitch]}


def train(address: str, name: str, epochs: int) -> None:
    with headrace.Loader(address, stream="sines", client=name, batch="dict") as loader:
        for epoch in range(epochs):
            means = [float(np.abs(batch["wave"]).mean()) for batch in loader]
            print(f"{name}: epoch {epoch}: {len(means)} batches, mean {np.mean(means):.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2, help="epochs to train (default: 2)")
    epochs = parser.parse_args().epochs
    with headrace.share(NoisySines(), "sines", epochs=epochs, wait_for=2) as share:
        spawn = multiprocessing.get_context("spawn")
        trainers = [spawn.Process(target=train, args=(share.address, name, epochs)) for name in ("small", "large")]
        for trainer in trainers:
            trainer.start()
        share.wait()  # until both have received everything; raises the loader's error, if any
        for trainer in trainers:
            trainer.join()


if __name__ == "__main__":
    main()
