"""The runs of test_examples.py for the files of configs/: each creates data at the file's paths, starts a server, and compares batches.
This file has those over a folder of images and those with several trainers; example_sources.py has the others."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import yaml
from headrace.sharing import Options
from PIL import Image
from running import ROOT, headrace_binary, wait_until

sys.path.insert(0, str(ROOT / "tests/pixels"))
import proof  # noqa: E402

CONFIGS = ROOT / "configs"
ANIMALS = ("cat", "dog", "emu")


class Example:
    """A copy of configs/<name>.yaml in a separate folder, to which its paths are relative."""

    def __init__(self, name: str, folder: Path) -> None:
        self.file = Path(shutil.copy(CONFIGS / f"{name}.yaml", folder))
        self.here = folder

    def own(self) -> dict[str, str]:
        """Settings that a test must change."""
        return {"server.directory": str(self.here / "run"), "server.metrics": "off"}

    def check(self, **changed: object) -> None:
        """`headrace check` finds nothing wrong."""
        changes = {**self.own(), **{name.replace("__", "."): value for name, value in changed.items()}}
        sets = [part for name, value in changes.items() for part in ("--set", f"{name}={value}")]
        told = subprocess.run([headrace_binary(), "check", str(self.file), *sets], capture_output=True, text=True, timeout=60)
        assert told.returncode == 0 and "\nok: " in told.stdout, told.stdout + told.stderr

    @contextmanager
    def served(self, **changed: object) -> Iterator[str]:
        """The address of a server over this file. `changed`: settings by dotted path, with __ for each dot."""
        self.check(**changed)
        with headrace.serve(self.file, set=self.own(), **changed) as server:
            yield server.address


Run = Callable[[Example], None]
RUNS: dict[str, Run] = {}


def example(run: Run) -> Run:
    """Registers how configs/<name of the function>.yaml is run."""
    RUNS[run.__name__] = run
    return run


def photos(folder: Path, classes: tuple[str, ...] = ANIMALS, each: int = 20) -> None:
    """Images of one color, which no crop changes: (40 times the class, the image's number in it, 7)."""
    for label, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for number in range(each):
            Image.new("RGB", (40 + number, 50), (40 * label, number, 7)).save(folder / name / f"{number:03d}.png")


def colors(images: Any) -> list[tuple[int, int]]:
    """(class, number) of each image of a uint8 NCHW batch of photos()."""
    assert (images[:, 2] == 7).all()
    assert (images == images[:, :, :1, :1]).all()
    return [(int(red) // 40, int(green)) for red, green in images[:, :2, 0, 0]]


def epoch(address: str, stream: str = "train") -> list[tuple[int, int]]:
    """(class, number) of all photos of an epoch, each with its class for a label."""
    seen = []
    with headrace.Loader(address, stream=stream) as loader:
        for images, labels in loader:
            assert images.dtype == np.uint8 and images.shape[1:] == (3, 224, 224)
            seen += colors(images)
            assert [label for label, _ in seen[-len(labels) :]] == labels.tolist()
    return seen


ALL = [(label, number) for label in range(3) for number in range(20)]
MEAN, STD = (np.array(values).reshape(3, 1, 1) for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


def check_normalized(batch: Any) -> None:
    """(class, number) of each image of photos(), as float32 after `normalize`."""
    assert batch[0].dtype == np.float32
    pixels = (np.asarray(batch[0]) * STD + MEAN) * 255
    expected = [(40 * label, round(number), 7) for label, number in zip(batch[1], pixels[:, 1, 0, 0], strict=True)]
    np.testing.assert_allclose(pixels, np.broadcast_to(np.array(expected)[:, :, None, None], pixels.shape), atol=1e-4)


# --- one folder of images


@example
def imagefolder(it: Example) -> None:
    photos(it.here / "photos")
    with it.served() as address, headrace.Loader(address, stream="train") as loader:
        assert loader.classes == ANIMALS
        (batch,) = list(loader)
        assert np.bincount(batch[1]).tolist() == [20, 20, 20]
        check_normalized(batch)


@example
def augment(it: Example) -> None:
    photos(it.here / "photos")
    with it.served() as address:
        for stream in ("train", "views"):
            chain = chain_of(it.file, stream)
            erased = augmented = 0
            with headrace.Loader(address, stream=stream) as loader:
                (batch,) = list(loader)
            for i, image in enumerate(np.asarray(batch[0])):
                shown = headrace.sample(address, stream, 0, i)
                made = list(zip(chain, shown.parameters, strict=True))
                kept = np.ones(image.shape[1:], bool)
                if stream == "train" and (where := made.pop()[1])["applied"]:
                    kept[where["top"] :, where["left"] :][: where["height"], : where["width"]] = False
                    inside = image[:, ~kept]
                    assert abs(inside.mean()) < 0.2 and abs(inside.std() - 1) < 0.2
                    erased += 1
                config = {"transforms": [t for t, _ in made], "dtype": "float32"}
                parameters = [p for _, p in made]
                want = proof.expected_row(proof.open_rgb(it.here / "photos" / shown.name), config, parameters)
                assert np.array_equal(image.view(np.uint32)[:, kept], want[:, kept]), shown
                augmented += parameters[2] != {"op": "color_jitter", "order": []}
            assert augmented > 30 and (erased > 5 or stream == "views")


def chain_of(file: Path, stream: str) -> list[dict[str, Any]]:
    """A stream's transforms, in the form of tests/pixels/proof.py."""
    items = yaml.safe_load(file.read_text())["streams"][stream]["transforms"]
    named = [{item: {}} if isinstance(item, str) else item for item in items]
    chain = [{"op": op, **arguments} for item in named for op, arguments in item.items()]
    return [{**t, "size": [t["size"]] * 2} if "size" in t else t for t in chain]


@example
def train_val(it: Example) -> None:
    photos(it.here / "photos")
    indices: dict[str, list[int]] = {}
    with it.served() as address:
        for stream in ("train", "val"):
            with headrace.Loader(address, stream=stream) as loader:
                (batch,) = list(loader)
                check_normalized(batch)
                indices[stream] = batch.sample_index.tolist()
    assert sorted(indices["train"] + indices["val"]) == list(range(60))
    assert len(indices["val"]) == 6 and indices["val"] == sorted(indices["val"])


@example
def sweep(it: Example) -> None:
    photos(it.here / "photos")
    with it.served() as address, ExitStack() as stack:
        loaders = {name: stack.enter_context(headrace.Loader(address, stream=name)) for name in ("base", "large", "half", "colors")}
        batches = {name: list(loader)[0] for name, loader in loaders.items()}  # an epoch each
        base = batches["base"]
        assert sorted(base.sample_index.tolist()) == list(range(60))
        assert all(np.array_equal(batch.sample_index, base.sample_index) for batch in batches.values())
        np.testing.assert_array_equal(batches["large"][0], base[0])
        np.testing.assert_array_equal(batches["half"][0], base[0].astype(np.float16))
        assert batches["colors"][0].shape == base[0].shape and not np.array_equal(batches["colors"][0], base[0])

        def most_are_shared() -> bool:
            for loader in loaders.values():
                list(loader)  # the next epoch: the rows that a ring held before the other streams opened were not shared
            streams = headrace.stats(address)["streams"].values()
            made, shared = (sum(stream[key] for stream in streams) for key in ("samples", "shared"))
            return bool(shared >= made / 2)

        wait_until(most_are_shared, "most rows to come from another stream")


@example
def balanced(it: Example) -> None:
    photos(it.here / "photos", tuple("abcdefgh"), each=6)
    for number in range(3):
        (it.here / f"photos/h/{number:03d}.png").unlink()
    with it.served() as address:
        with headrace.Loader(address, stream="train") as loader:
            counts = np.bincount(np.concatenate([batch[1] for batch in loader]))
            assert sum(counts) == 45 and set(counts) <= {5, 6}
        with headrace.Loader(address, stream="compare") as loader:
            (batch,) = list(loader)
            groups = batch[1].reshape(8, 4)
            assert (groups == groups[:, :1]).all() and sorted(groups[:, 0]) == list(range(8))
            assert all(len(set(row)) == 4 - (label == 7) for row, label in zip(batch.sample_index.reshape(8, 4), groups[:, 0], strict=True))


@example
def cached(it: Example) -> None:
    photos(it.here / "photos")
    with it.served() as address:
        held = epoch(address, "val")
        assert sorted(held + epoch(address)) == ALL
        (cache,) = headrace.stats(address)["caches"]
        assert (cache["source"], cache["kind"], cache["misses"], cache["samples"]) == ("photos", "decoded", 60, 60)
        assert cache["budget_bytes"] == 2 << 30
        for path in it.here.glob("photos/*/*.png"):
            path.unlink()  # not read again
        assert epoch(address, "val") == held


@example
def network(it: Example) -> None:
    photos(it.here / "photos")
    paths = {"sources__photos__path": it.here / "photos", "sources__photos__io__disk_cache__path": it.here / "cache"}
    with it.served(**paths) as address:
        assert sorted(epoch(address)) == ALL
    assert len(list(it.here.glob("cache/*/*/*"))) == 60
    for path in it.here.glob("photos/*/*.png"):
        path.write_bytes(bytes(path.stat().st_size))  # not read again
    with it.served(**paths) as address:
        assert sorted(epoch(address)) == ALL
        (cache,) = headrace.stats(address)["caches"]
        assert (cache["kind"], cache["misses"]) == ("disk", 0) and cache["hits"] >= 60
        reads = headrace.stats(address)["streams"]["train"]["read_ahead"]
        assert reads["hit"] + reads["wait"] >= 60 and reads["miss"] == 0


@example
def packed(it: Example) -> None:
    photos(it.here / "photos")
    command = [headrace_binary(), "pack", "photos", "train.lmdb"]  # as the file says
    subprocess.run(command, cwd=it.here, check=True, capture_output=True, timeout=60)
    digests = []
    for source in ({}, {"sources__photos__type": "image_folder", "sources__photos__path": it.here / "photos"}):
        with it.served(**source) as address, headrace.Loader(address, stream="train") as loader:
            digest = headrace.Digest()
            for batch in loader:
                digest.add(batch)
            digests.append(digest.hexdigest())
    assert digests[0] == digests[1]


# --- several trainers


def together(address: str, stream: str, count: int, **options: Any) -> list[list[Any]]:
    """The batches that `count` loaders get which read an epoch at the same time."""
    seen: list[list[Any]] = [[] for _ in range(count)]

    def read(which: int) -> None:
        ranks = {"rank": which, "world_size": count} if options.get("ranks") else {}
        with headrace.Loader(address, stream=stream, **ranks) as loader:
            for batch in loader:
                seen[which].append((np.array(batch[0]), batch[1].tolist(), batch.valid.tolist()))

    threads = [threading.Thread(target=read, args=(which,)) for which in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen


@example
def demo(it: Example) -> None:
    photos(it.here / "photos")
    with it.served() as address:
        one, two = together(address, "train", 2)
    assert [labels for _, labels, _ in one] == [labels for _, labels, _ in two] and len(one[0][1]) == 60
    np.testing.assert_array_equal(one[0][0], two[0][0])
    check_normalized((one[0][0], one[0][1]))


@example
def sharded(it: Example) -> None:
    photos(it.here / "photos")
    with it.served() as address:
        ranks = together(address, "train", 2, ranks=True)
    rows = [colors(images.transpose(0, 3, 1, 2)) for batches in ranks for images, _, _ in batches]
    assert [len(rank) for rank in rows] == [30, 30]
    assert sorted(rows[0] + rows[1]) == ALL
    assert all(all(valid) for batches in ranks for _, _, valid in batches)


class Waves:
    """A DataLoader for the fields that feed.yaml names: 50000 samples in batches of 32."""

    def __len__(self) -> int:
        return 1563

    def make(self, number: int) -> dict[str, Any]:
        wave = np.arange(32 * 16000, dtype=np.float32).reshape(32, 1, 16000) + number
        return {"wave": wave, "caption": [f"batch {number}, row {row}" for row in range(32)]}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self.make(number) for number in range(len(self)))


@example
def feed(it: Example) -> None:
    class OverTheFile(headrace.Share):
        """share() would write such a file; this run uses the example's."""

        def _write_config(self, *_: Any) -> Path:
            return it.file

    it.check()
    options = Options(
        epochs=1,
        batches=None,
        samples=50000,
        names=None,
        ragged={"caption": 16384},
        address=None,
        prefetch=4,
        max_clients=4,
        wait_for=1,
        overrides=it.own(),
    )
    with OverTheFile(Waves(), "audio", options) as share:
        loaders = [headrace.Loader(share.address, stream="train", batch="dict") for _ in range(2)]
        for passes in zip(*loaders, range(3), strict=False):
            for batch in passes[:-1]:
                expected = Waves().make(passes[-1])
                np.testing.assert_array_equal(batch["wave"], expected["wave"])
                text, ends = batch["caption"]
                assert [bytes(text[ends[i] : ends[i + 1]]).decode() for i in range(32)] == expected["caption"]
        for loader in loaders:
            loader.close()


@example
def transport(it: Example) -> None:
    with it.served() as address, headrace.Loader(address, stream="nothing") as loader:
        assert len(loader) == 1563
        for batch in loader:
            assert batch[0].shape[1:] == (64,) and not batch[0][:, 8:].any() and not batch[1].any()
            np.testing.assert_array_equal(np.ascontiguousarray(batch[0][:, :8]).view("<u8")[:, 0], batch.sample_index)
