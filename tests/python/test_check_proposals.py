"""`headrace check DATASET` describes a dataset and proposes a configuration that runs."""

from __future__ import annotations

import gzip
import json
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
import yaml
from images import write_images
from PIL import Image
from running import ROOT, headrace_binary
from test_basicsr import write_pairs
from test_pixel_sources import write_idx
from test_webdataset import write_shards


def check(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([headrace_binary(), "check", str(path)], capture_output=True, text=True, timeout=60)


def test_a_mistyped_verb_gets_a_suggestion() -> None:
    done = subprocess.run([headrace_binary(), "chck"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (2, "headrace: INVALID_ARGUMENT: there is no verb `chck`; did you mean `check`?\n")


def test_a_crop_larger_than_all_images_is_reported_with_its_line(tmp_path: Path) -> None:
    mnist(tmp_path)
    config = tmp_path / "c.yaml"
    files = "images: train-images-idx3-ubyte.gz, labels: train-labels-idx1-ubyte"
    text = f"sources: {{digits: {{type: idx, {files}}}}}\nstreams:\n  train:\n    source: digits\n    transforms:\n"
    config.write_text(text + "      - random_horizontal_flip\n      - random_crop: {size: 32}\n")
    done = check(config)
    assert done.returncode == 2
    assert f"{config}:7:9: stream `train`: " in done.stderr
    assert "random_crop: size [32, 32] is larger than the [28, 28] image with its padding: set `pad_if_needed: true`" in done.stderr
    config.write_text(text + "      - random_crop: {size: 32, pad_if_needed: true}\n")
    assert check(config).returncode == 0


def test_a_folder_above_the_class_folders_gives_a_warning(tmp_path: Path) -> None:
    for name in ("photos/images", "sets/train", "sets/val"):
        write_images(tmp_path / name, classes=2, per_class=3)
    config = tmp_path / "c.yaml"
    config.write_text(
        "sources: {one: {type: image_folder, path: photos}, two: {type: image_folder, path: sets}}\n"
        "streams: {a: {source: one, transforms: [{random_crop: {size: 8}}]}, b: {source: two, transforms: [{random_crop: {size: 8}}]}}\n"
    )
    done = check(config)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "has one class only, `images`" in said and f"the folders in {tmp_path}/photos/images, point `path` at that" in said
    assert "train, val look like sets but are read as classes" in said


def classes_of_images(root: Path) -> None:
    write_images(root, classes=3, per_class=4)


def sets_of_images(root: Path) -> None:
    write_images(root / "train", classes=3, per_class=4)
    write_images(root / "val", classes=3, per_class=2)


def mnist(root: Path) -> None:
    random = np.random.default_rng(1)
    for name, count in (("train", 40), ("t10k", 20)):
        write_idx(root / f"{name}-images-idx3-ubyte.gz", random.integers(0, 256, (count, 28, 28), dtype=np.uint8))
        write_idx(root / f"{name}-labels-idx1-ubyte", np.arange(count, dtype=np.uint8) % 10)


def cifar10(root: Path) -> None:
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        (root / name).write_bytes((bytes([3]) + bytes(3072)) * 7)


def cifar100(root: Path) -> None:
    for name in ("train.bin", "test.bin"):
        (root / name).write_bytes((bytes([3, 30]) + bytes(3072)) * 7)


def shards(root: Path) -> None:
    images = write_images(root.parent / "images", classes=3, per_class=4)
    write_shards(images, root, "train", tarfile.PAX_FORMAT, "json", count=3)
    write_shards(images, root, "val", tarfile.GNU_FORMAT, "json", count=1)


def shards_in_folders(root: Path) -> None:
    images = write_images(root.parent / "images", classes=3, per_class=4)
    for name in ("train", "test"):
        write_shards(images, root / name, "shard", tarfile.GNU_FORMAT, "cls")


def npy_files(root: Path) -> None:
    np.save(root / "images.npy", np.zeros((9, 8, 8, 3), dtype=np.uint8))
    np.save(root / "labels.npy", np.arange(9))
    np.save(root / "Other-Values.npy", np.zeros((9, 2)))


def npz_of_keras(root: Path) -> None:
    sets: dict[str, np.ndarray[Any, Any]] = {}
    for name, count in (("train", 12), ("test", 5)):
        sets |= {f"x_{name}": np.zeros((count, 28, 28), dtype=np.uint8), f"y_{name}": np.arange(count, dtype=np.uint8)}
    np.savez_compressed(root / "mnist.npz", **sets)


def write_pair(folders: tuple[Path, Path], names: tuple[str, str], sides: tuple[int, int] = (120, 60), count: int = 6) -> None:
    for folder, name, side in zip(folders, names, sides, strict=True):
        folder.mkdir(parents=True, exist_ok=True)
        for i in range(1, count + 1):
            Image.new("RGB", (side + i * side // 60, side), (i, i, i)).save(folder / name.format(f"{i:03d}"))


def div2k(root: Path) -> None:
    for name, count in (("train", 6), ("valid", 4)):
        lr = root / f"DIV2K_{name}_LR_bicubic" / "X2"
        write_pair((root / f"DIV2K_{name}_HR", lr), ("0{}.png", "0{}x2.png"), count=count)


def pairs_in_sets(root: Path) -> None:
    for name, count in (("train", 6), ("test", 4)):
        write_pair((root / name / "hr", root / name / "lr"), ("{}.png", "{}.png"), count=count)


def set5(root: Path) -> None:
    write_pair((root, root), ("img_{}_SRF_2_HR.png", "img_{}_SRF_2_LR.png"))


def masks(root: Path) -> None:
    write_pair((root / "images", root / "masks"), ("{}.jpg", "{}_mask.png"), (90, 90))
    for path in (root / "masks").iterdir():
        Image.open(path).convert("L").save(path)


def basicsr(root: Path) -> None:
    write_pairs(root)
    (root / "gt.lmdb").rename(root / "DF2K_train_HR_sub.lmdb")
    (root / "lq.lmdb").rename(root / "DF2K_train_LR_bicubic_X4_sub.lmdb")


def listed(root: Path, name: str, header: str, row: str) -> None:
    images = write_images(root / "pictures", classes=2, per_class=5)
    rows = [row.format(path.relative_to(root), path.parent.name[-1]) for path in sorted(images.rglob("*.jpg"))]
    (root / name).write_text(header + "".join(line + "\n" for line in rows))


def manifest_csv(root: Path) -> None:
    listed(root, "train.csv", "image,label\n", "{},{}")


def manifest_tsv_of_other_columns(root: Path) -> None:
    listed(root, "samples.tsv", "id\tpicture\tspecies\n", "7\t{}\tspecies {}")


def manifest_jsonl(root: Path) -> None:
    listed(root, "val.jsonl", "", '{{"file": "{}", "class": {}}}')
    (root / "val.jsonl").rename(root / "train.jsonl")


def list_of_paths(root: Path) -> None:
    listed(root, "train.txt", "", "{} {}")


def packed_lmdb(root: Path) -> None:
    images = write_images(root.parent / "images", classes=3, per_class=4)
    subprocess.run([headrace_binary(), "pack", str(images), str(root), "--quiet"], check=True, capture_output=True, timeout=60)


EVENLY = {"train": [4, 4, 4]}

# The content of a folder, the type of its source, its description and, for each stream, the number of samples in each class (or of all
# samples, if classes are unknown).
PROPOSALS: list[tuple[Callable[[Path], None], str, str, dict[str, list[int]]]] = [
    (classes_of_images, "image_folder", "images, a folder per class", EVENLY),
    (sets_of_images, "image_folder", "image folders, a folder per class, in 2 sets", {**EVENLY, "val": [2, 2, 2]}),
    (mnist, "idx", "IDX files, 2 of images with their labels", {"train": [4] * 10, "test": [2] * 10}),
    (cifar10, "cifar", "CIFAR-10, binary version", {"train": [0, 0, 0, 35], "test": [0, 0, 0, 7]}),
    (cifar100, "cifar", "CIFAR-100, binary version", {"train": [0] * 30 + [7], "test": [0] * 30 + [7]}),
    (shards, "webdataset", "WebDataset shards", {**EVENLY, "val": [4, 4, 4]}),
    (shards_in_folders, "webdataset", "WebDataset shards", {**EVENLY, "test": [4, 4, 4]}),
    (npy_files, "npy", "numpy arrays", {"train": [1] * 9}),
    (npz_of_keras, "npy", "numpy arrays", {"train": [1] * 12, "test": [1] * 5}),
    (div2k, "paired_folders", "images that belong together by name", {"train": [6], "val": [4]}),
    (pairs_in_sets, "paired_folders", "images that belong together by name", {"train": [6], "test": [4]}),
    (set5, "paired_folders", "images that belong together by name", {"train": [6]}),
    (masks, "paired_folders", "images that belong together by name", {"train": [6]}),
    (basicsr, "paired_folders", "images that belong together by name", {"train": [10]}),
    (manifest_csv, "manifest", "a list of images", {"train": [5, 5]}),
    (manifest_tsv_of_other_columns, "manifest", "a list of images", {"train": [5, 5]}),
    (manifest_jsonl, "manifest", "a list of images", {"train": [5, 5]}),
    (list_of_paths, "manifest", "a list of images", {"train": [5, 5]}),
    (packed_lmdb, "lmdb", "a database that headrace pack wrote, tiled", EVENLY),
]


def check_proposal(tmp_path: Path, proposal: subprocess.CompletedProcess[str], kind: str, counts: dict[str, list[int]]) -> None:
    """Saves the proposal as a file, checks it and serves it. `counts` as in PROPOSALS."""
    assert proposal.returncode == 0, proposal.stderr
    config = tmp_path / "headrace.yaml"
    config.write_text(proposal.stdout)
    assert {source["type"] for source in yaml.safe_load(proposal.stdout)["sources"].values()} == {kind}
    assert check(config).returncode == 0
    with headrace.serve(config, set={"server.directory": str(tmp_path / "run"), "server.metrics": "off"}) as server:
        assert {info.name for info in headrace.streams(server.address)} == set(counts)
        for stream, classes in counts.items():
            with headrace.Loader(server.address, stream=stream, batch="dict") as loader:
                batches = list(loader)
            assert sorted(i for batch in batches for i in batch.sample_index) == list(range(sum(classes)))
            assert not any(batch.replaced.any() for batch in batches)
            if "label" in batches[0]:
                assert np.bincount(np.concatenate([batch["label"] for batch in batches])).tolist() == classes


@pytest.mark.parametrize(("lay", "kind", "found", "counts"), PROPOSALS)
def test_a_dataset_gets_a_configuration_that_serves_it(
    tmp_path: Path, lay: Callable[[Path], None], kind: str, found: str, counts: dict[str, list[int]]
) -> None:
    root = tmp_path / 'data "here"'
    root.mkdir()
    lay(root)
    proposal = check(root)
    assert found in proposal.stderr
    check_proposal(tmp_path, proposal, kind, counts)


def test_each_type_of_source_that_can_be_found_is_proposed() -> None:
    kinds = json.loads((ROOT / "configs/headrace.schema.json").read_text())["definitions"]["source"]["oneOf"]
    found = {
        kind["properties"]["type"]["const"] for kind in kinds if "of" not in kind["properties"]
    }  # sources made of other sources are not files
    assert {kind for _, kind, _, _ in PROPOSALS} == found - {"feed", "synthetic"}


@pytest.mark.parametrize(("lay", "file", "kind", "counts"), [
    (shards, "val-0000.tar", "webdataset", {"train": [4, 4, 4]}),
    (npy_files, "images.npy", "npy", {"train": [9]}),
    (npz_of_keras, "mnist.npz", "npy", {"train": [1] * 12, "test": [1] * 5}),
    (manifest_csv, "train.csv", "manifest", {"train": [5, 5]}),
    (manifest_tsv_of_other_columns, "samples.tsv", "manifest", {"train": [5, 5]}),
    (manifest_jsonl, "train.jsonl", "manifest", {"train": [5, 5]}),
    (list_of_paths, "train.txt", "manifest", {"train": [5, 5]}),
    (basicsr, "DF2K_train_HR_sub.lmdb", "paired_folders", {"train": [10]}),
])  # fmt: skip
def test_one_file_gets_a_configuration_that_serves_it(
    tmp_path: Path, lay: Callable[[Path], None], file: str, kind: str, counts: dict[str, list[int]]
) -> None:
    (tmp_path / "set").mkdir()
    lay(tmp_path / "set")
    check_proposal(tmp_path, check(tmp_path / "set" / file), kind, counts)


def test_a_path_without_a_dataset_is_refused_with_what_was_expected(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    refused = check(tmp_path)
    assert refused.returncode == 3
    assert "nothing that a source reads. Looked for: folders of .jpg" in refused.stderr
    missing = check(tmp_path / "nowhere")
    assert missing.returncode == 3
    assert "no such file or folder; correct the path, or mount it" in missing.stderr


def test_proposals_of_pairs_say_how_partners_are_called(tmp_path: Path) -> None:
    div2k(tmp_path)
    said = check(tmp_path).stdout
    assert 'names: "{}x2"' in said and "random_crop: {size: 48, pad_if_needed: true}" in said
    (tmp_path / "DIV2K_train_LR_bicubic/X2/0003x2.png").unlink()
    refused = check(tmp_path)
    assert refused.returncode == 3
    assert "have no partner in" in refused.stderr and "0003.png" in refused.stderr


def test_a_note_says_that_class_folders_in_a_shard_are_not_labels(tmp_path: Path) -> None:
    images = write_images(tmp_path / "images", classes=2, per_class=3)
    for target in (tmp_path / "one.tar", tmp_path / "set/train-0.tar"):
        target.parent.mkdir(exist_ok=True)
        with tarfile.open(target, "w") as tar:
            for file in sorted(images.rglob("*.jpg")):
                tar.add(file, file.relative_to(images))
    for path in (tmp_path / "one.tar", tmp_path / "set"):
        said = check(path).stderr
        assert said.count("note: samples have no label: the name of a folder (`class_0`) in a shard is not used as a label") == 1, said
    write_shards(images, tmp_path / "labelled", "train", tarfile.GNU_FORMAT, "cls")
    assert "have no label" not in check(tmp_path / "labelled").stderr


@pytest.mark.parametrize(("sizes", "train", "test"), [
    ([(32, 32)] * 4, {"random_crop": {"size": 32, "padding": 4}}, [{"center_crop": {"size": 32}}]),
    ([(40, 32)] * 4, {"random_crop": {"size": [32, 40], "padding": 4}}, [{"center_crop": {"size": [32, 40]}}]),
    ([(120, 90), (112, 115), (105, 400)] * 2, {"random_resized_crop": {"size": 104}}, [{"resize": {"size": 118}}, {"center_crop": {"size": 104}}]),
    ([(300, 240)] * 4, {"random_resized_crop": {"size": 224}}, [{"resize": {"size": 256}}, {"center_crop": {"size": 224}}]),
])  # fmt: skip
def test_proposals_fit_the_images(tmp_path: Path, sizes: list[tuple[int, int]], train: object, test: list[object]) -> None:
    data = tmp_path / "data"
    for name in ("train", "test"):
        for i, size in enumerate(sizes):
            (data / name / f"c{i % 2}").mkdir(parents=True, exist_ok=True)
            Image.new("RGB", size, (i, i, i)).save(data / name / f"c{i % 2}" / f"{i}.png")
    proposal = check(data)
    streams = yaml.safe_load(proposal.stdout)["streams"]
    assert streams["train"]["transforms"] == [train, "random_horizontal_flip"]
    assert streams["test"]["transforms"] == test
    half = (len(sizes) + 1) // 2
    counts = [half, len(sizes) - half]
    check_proposal(tmp_path, proposal, "image_folder", {"train": counts, "test": counts})


def test_packed_pairs_are_cropped_as_pairs(tmp_path: Path) -> None:
    write_pair((tmp_path / "sr/hr", tmp_path / "sr/lr"), ("{}.png", "{}.png"))
    packed = tmp_path / "packed"
    subprocess.run([headrace_binary(), "pack", str(tmp_path / "sr"), str(packed), "--quiet"], check=True, capture_output=True, timeout=60)
    proposal = check(packed)
    crop = [{"random_crop": {"size": 48, "pad_if_needed": True}}, "random_horizontal_flip"]
    assert yaml.safe_load(proposal.stdout)["streams"]["train"]["transforms"] == crop
    check_proposal(tmp_path, proposal, "lmdb", {"train": [6]})


def test_a_dataset_that_is_cut_is_refused_by_file(tmp_path: Path) -> None:
    mnist(tmp_path)
    whole = gzip.decompress((tmp_path / "train-images-idx3-ubyte.gz").read_bytes())
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(whole[:-1]))
    refused = check(tmp_path)
    assert refused.returncode == 3
    assert "train-images-idx3-ubyte.gz: its header says 40 x 28 x 28" in refused.stderr


def test_notes_name_the_files_that_a_proposal_omits(tmp_path: Path) -> None:
    write_images(tmp_path / "set", classes=2, per_class=3)
    names = sorted(str(file.relative_to(tmp_path / "set")) for file in (tmp_path / "set").rglob("*.jpg"))
    (tmp_path / "set" / "captions.csv").write_text("".join(["path,label,caption,age\n", *(f"{n},a,b,3\n" for n in names)]))
    assert "note: captions.csv: unused columns: caption, age; the source's `fields`" in check(tmp_path / "set").stderr
    (tmp_path / "set" / "captions.csv").write_text("id,caption\n1,b\n")
    assert f"note: not in it: captions.csv; `headrace check {tmp_path}/set/captions.csv` says whether it" in check(tmp_path / "set").stderr
    for name in ("Set5", "Set14"):
        folders = (tmp_path / "sr" / name / "hr", tmp_path / "sr" / name / "lr")
        write_pair(folders, ("{}.png", "{}.png"))
    said = check(tmp_path / "sr")
    assert "note: Set14 is read as a class, although it looks like" in said.stderr
    assert f"`headrace check {tmp_path}/sr/Set14` proposes a configuration for it" in said.stderr


def test_bad_images_of_a_folder_are_reported_beside_the_proposal(tmp_path: Path) -> None:
    paths = sorted(write_images(tmp_path / "photos", classes=2, per_class=15).rglob("*.jpg"))
    paths[0].write_bytes(b"")
    few = check(tmp_path / "photos")
    assert (few.returncode, few.stderr.count("warning: stream `train`: 1 of 30 samples is bad:\n    class_0/0000.jpg: ")) == (0, 1), few.stderr
    for path in paths[:4]:
        path.write_bytes(b"")
    many = check(tmp_path / "photos")
    assert many.returncode == 3 and "DATASET_INVALID: stream `train`: 4 of 30 samples are bad:\n" in many.stderr
    assert "the stream would fail: its max_bad allows 3. Repair or remove these files, or raise max_bad\n" in many.stderr
    assert yaml.safe_load(many.stdout)["streams"]["train"]["batch_size"] == 64, "the configuration that it is about"


def test_everything_that_is_wrong_with_the_sources_is_reported_at_once(tmp_path: Path) -> None:
    write_images(tmp_path / "good", classes=2, per_class=3)
    config = tmp_path / "c.yaml"
    stream = "source: {}, batch_size: 2, transforms: [{{random_crop: {{size: 8}}}}]"
    streams = "streams:\n" + "".join(f"  {n}: {{{stream.format(n)}}}\n" for n in "abcd")
    config.write_text(
        "sources:\n  a: {type: image_folder, path: nowhere}\n  b: {type: lmdb, path: elsewhere}\n"
        "  c: {type: concat, of: [a]}\n  d: {type: image_folder, path: good}\n" + streams
    )
    done = check(config)
    assert done.returncode == 3
    lines = done.stderr.splitlines()
    assert len([line for line in lines if "nowhere: No such file" in line]) == 1, done.stderr
    assert len([line for line in lines if "source `b`: " in line and "elsewhere" in line]) == 1, done.stderr
    assert "source `d`" not in done.stderr
    config.write_text(
        "sources:\n  a: {type: image_folder, path: good}\n  b: {type: lmdb, path: elsewhere}\n"
        f"streams: {{s: {{{stream.format('a')}}}}}\n"
    )
    done = check(config)
    assert done.returncode == 0, done.stderr
    assert "source `b`: no stream serves it, so it was not opened" in done.stdout
