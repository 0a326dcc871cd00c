"""A trainer in Python, with the same model and output as clientlib/examples/trainer.cpp."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import headrace
import numpy as np

CELLS = 8


class SoftmaxModel:
    """Softmax regression on 8 x 8 average-pooled RGB, plain SGD."""

    def __init__(self, classes: int, rate: float) -> None:
        self.rate = rate
        self.weights = np.zeros((classes, 3 * CELLS * CELLS + 1), np.float32)

    @staticmethod
    def pool(image: Any) -> Any:
        rows, _, height, width = image.shape
        down, across = np.arange(CELLS + 1) * height // CELLS, np.arange(CELLS + 1) * width // CELLS
        sums = np.add.reduceat(np.add.reduceat(image, across[:-1], axis=3), down[:-1], axis=2)
        features = sums / (np.diff(down)[:, None] * np.diff(across)[None, :])
        return np.concatenate([features.reshape(rows, -1), np.ones((rows, 1), np.float32)], axis=1)

    def step(self, image: Any, label: Any) -> float:
        """Makes one step; returns the mean loss before it."""
        features = self.pool(image).astype(np.float32)
        scores = features @ self.weights.T
        scores -= scores.max(axis=1, keepdims=True)
        chances = np.exp(scores)
        chances /= chances.sum(axis=1, keepdims=True)
        each = np.arange(len(label))
        loss = float(-np.log(np.maximum(chances[each, label], 1e-12)).mean())
        chances[each, label] -= 1
        self.weights -= self.rate / len(label) * (chances.T @ features)
        return loss


def say(**line: Any) -> None:
    print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", help="the server's directory")
    parser.add_argument("--stream", default="train", help="the stream to train on")
    parser.add_argument("--client", help="this trainer's name in the server's metrics and messages")
    parser.add_argument("--epochs", type=int, default=3, help="epochs to train")
    parser.add_argument("--report", type=int, default=5, help="batches between two progress lines")
    parser.add_argument("--rate", type=float, default=0.003, help="learning rate")
    arguments = parser.parse_args()

    with headrace.Loader(arguments.address, stream=arguments.stream, client=arguments.client) as loader:
        model = SoftmaxModel(len(loader.classes), arguments.rate)
        begun = time.monotonic()
        images = 0
        for epoch in range(arguments.epochs):
            digest = headrace.Digest()
            losses = []
            for batch in loader:
                image, label = batch
                digest.add(batch)
                losses.append(model.step(image[batch.valid], label[batch.valid]))
                images += int(batch.valid.sum())
                if (len(losses) - 1) % arguments.report == 0:
                    say(event="progress", epoch=epoch, batch=len(losses), images=images, loss=losses[-1])
            say(
                event="epoch",
                epoch=epoch,
                batches=len(losses),
                loss=float(np.mean(losses)),
                digest=digest.hexdigest(),
            )
        say(event="end", images=images, seconds=time.monotonic() - begun, waited=loader.waited)


if __name__ == "__main__":
    main()
