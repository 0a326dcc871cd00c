"""Real sets for the training examples, each with a test split held out before anything is repeated: the folder HEADRACE_DATA
as test_real_data.py wants it has MNIST's test files, CIFAR-10's training images as JPEGs and BSD100's pairs of scale 4."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

from .files import CIFAR_TEST, CIFAR_TRAIN, write_cifar, write_mnist, write_pairs

MNIST_TRAIN, CIFAR_HELD_OUT, PAIRS_HELD_OUT = 8000, 5000, 20
DATA_USED = {
    "mnist_mlp": "only MNIST's 10,000 test images: the first 8,000 for training, the last 2,000 held out",
    "cifar10_vgg": "CIFAR-10's 50,000 training images, from JPEG files: 45,000 for training, 5,000 (500 per class) held out",
    "srcnn": "BSD100, scale factor 4: 80 pairs for training (each 8 times an epoch), 20 held out",
}


def mnist(given: Path, data: Path) -> None:
    images = np.frombuffer(gzip.decompress((given / "t10k-images-idx3-ubyte.gz").read_bytes()), np.uint8, offset=16)
    labels = np.frombuffer(gzip.decompress((given / "t10k-labels-idx1-ubyte.gz").read_bytes()), np.uint8, offset=8)
    images = images.reshape(-1, 28, 28)
    write_mnist(data, "train", images[:MNIST_TRAIN], labels[:MNIST_TRAIN])
    write_mnist(data, "t10k", images[MNIST_TRAIN:], labels[MNIST_TRAIN:])


def images_of(archive: Path) -> dict[str, Image.Image]:
    found = {}
    with tarfile.open(archive) as tar:
        for name in sorted(member.name for member in tar if member.isfile()):
            file = tar.extractfile(name)
            assert file is not None
            found[name] = Image.open(io.BytesIO(file.read())).convert("RGB")
    return found


def cifar(given: Path, data: Path) -> None:
    """The last tenth of each class is held out; the other images are shuffled, as in CIFAR-10's own files."""
    found = images_of(given / "cifar10-train-jpg.tar")
    classes = sorted({Path(name).parent.name for name in found})
    labels = np.array([classes.index(Path(name).parent.name) for name in found])
    images = np.stack([np.asarray(image).transpose(2, 0, 1) for image in found.values()])
    each = CIFAR_HELD_OUT // len(classes)
    held_out = np.concatenate([np.flatnonzero(labels == label)[-each:] for label in range(len(classes))])
    kept = np.random.default_rng(0).permutation(np.setdiff1d(np.arange(len(labels)), held_out))
    write_cifar(data, CIFAR_TRAIN, images[kept], labels[kept])
    write_cifar(data, CIFAR_TEST, images[held_out], labels[held_out])


def pairs(given: Path, data: Path) -> None:
    found = images_of(given / "bsd100-x4-pairs.tar")
    every = [(image, found[name.replace("_LR", "_HR")]) for name, image in found.items() if name.endswith("_LR.png")]
    write_pairs(data, "train", every[:-PAIRS_HELD_OUT])
    write_pairs(data, "test", every[-PAIRS_HELD_OUT:])


def write_all(given: Path, data: Path) -> None:
    for write in (mnist, cifar, pairs):
        write(given, data)
