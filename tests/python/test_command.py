"""The command `headrace` as the wheel installs it, and its errors for files that are not configurations."""

from __future__ import annotations

import gzip
import pickle
import signal
import subprocess
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

import headrace
import numpy as np
import pytest
import yaml
from headrace import _binary
from images import write_images
from PIL import Image
from running import headrace_binary, wait_until
from test_basicsr import write_lmdb
from test_pixel_sources import write_idx

COMMAND = Path(sysconfig.get_path("scripts")) / "headrace"


def test_the_command_becomes_the_binary_that_serve_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADRACE_BINARY", raising=False)
    with subprocess.Popen([COMMAND, "pack", "-", "unused"], stdin=subprocess.PIPE) as process:
        program = Path(f"/proc/{process.pid}/exe")
        wait_until(lambda: program.readlink() == Path(_binary.path()).resolve(), "the binary in the process of the command")
        process.kill()
    assert COMMAND.read_bytes().startswith(b"#!/bin/sh"), "no Python starts before it"
    assert subprocess.run([COMMAND, "--version"], capture_output=True, text=True, check=True).stdout.startswith("headrace 0.")


@pytest.mark.parametrize("after", [0, 0.005, 0.02, 0.05, 0.1, 0.2])
def test_control_c_ends_it_plainly_however_soon(tmp_path: Path, image_folder: Path, after: float) -> None:
    config = {
        "server": {"directory": str(tmp_path / "run"), "metrics": "off"},
        "sources": {"images": {"type": "image_folder", "path": str(image_folder)}},
        "streams": {"train": {"source": "images", "transforms": [{"random_resized_crop": {"size": 32}}]}},
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config))
    process = subprocess.Popen([COMMAND, "serve", str(tmp_path / "c.yaml")], stderr=subprocess.PIPE, text=True)
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    # A shell reports 130 for a process that SIGINT ended; a running server exits normally.
    assert process.returncode in (-signal.SIGINT, 130, 0)
    assert "Traceback" not in said and "rror" not in said


def jpeg(folder: Path) -> Path:
    Image.new("RGB", (20, 20)).save(folder / "cat.jpg")
    return folder / "cat.jpg"


def png(folder: Path) -> Path:
    Image.new("RGB", (20, 20)).save(folder / "cat.png")
    return folder / "cat.png"


def data_mdb(folder: Path) -> Path:
    write_lmdb(folder / "set", {"00000000": b"x"})
    return folder / "set" / "data.mdb"


def idx(folder: Path) -> Path:
    return write_idx(folder / "train-images-idx3-ubyte", np.zeros((3, 28, 28), dtype=np.uint8))


def zipped_idx(folder: Path) -> Path:
    return write_idx(folder / "train-images-idx3-ubyte.gz", np.zeros((3, 28, 28), dtype=np.uint8))


def cifar_file(folder: Path) -> Path:
    (folder / "data_batch_1.bin").write_bytes((bytes([3]) + bytes(3072)) * 7)
    return folder / "data_batch_1.bin"


def compressed_tar(folder: Path) -> Path:
    (folder / "train.tar.gz").write_bytes(gzip.compress(bytes(1024)))
    return folder / "train.tar.gz"


def renamed_array(folder: Path) -> Path:
    np.save(folder / "images.npy", np.zeros(3))
    return (folder / "images.npy").rename(folder / "images.array")


def pickled(folder: Path) -> Path:
    (folder / "data_batch_1").write_bytes(pickle.dumps({"data": [1, 2, 3]}, protocol=4))
    return folder / "data_batch_1"


def noise(folder: Path) -> Path:
    (folder / "weights").write_bytes(bytes(100))
    return folder / "weights"


@pytest.mark.parametrize(("lay", "words"), [
    (jpeg, "cat.jpg is a JPEG image, not a configuration: give the folder that holds a folder of images per class"),
    (png, "cat.png is a PNG image, not a configuration: give the folder"),
    (data_mdb, "data.mdb is an LMDB database's file, not a configuration: give its folder: headrace check {folder}/set"),
    (idx, "is an IDX file, not a configuration: give its folder: headrace check {folder}"),
    (zipped_idx, "is packed by gzip, not a configuration: unpack it, or, where its source reads it so (MNIST's .gz), give its folder"),
    (cifar_file, "data_batch_1.bin is binary, not a configuration: give its folder: headrace check {folder}"),
    (compressed_tar, "train.tar.gz is packed by gzip, not a configuration: unpack it"),
    (renamed_array, "images.array is a numpy array, not a configuration: data files are known by their names"),
    (pickled, "data_batch_1 is a pickle, not a configuration: no source reads it; headrace.pack() writes"),
    (noise, "weights is binary, not a configuration: give a dataset's folder, or a configuration in YAML"),
])  # fmt: skip
def test_a_data_file_is_named_with_what_to_give_instead(tmp_path: Path, lay: Callable[[Path], Path], words: str) -> None:
    file = lay(tmp_path)
    for arguments in (["check", file], ["serve", file], ["pack", file, tmp_path / "out.lmdb"]):
        done = subprocess.run([headrace_binary(), *map(str, arguments)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2
        assert f"INVALID_ARGUMENT: {tmp_path}" in done.stderr
        assert words.format(folder=tmp_path) in done.stderr


def check(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([headrace_binary(), "check", str(path)], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("name", ["a_first", "class_1_between", "z_last"])
def test_a_class_folder_that_cannot_be_used_is_named(tmp_path: Path, name: str) -> None:
    root = write_images(tmp_path / "photos", classes=3, per_class=2)
    (root / name).mkdir()
    (root / name / "notes.txt").touch()
    empty = check(root)
    assert empty.returncode == 3
    assert f"1 of 4 class folders hold no .jpg, .jpeg or .png: {name}; remove them, or add images" in empty.stderr
    (root / name / "loop").symlink_to("..")
    looped = check(root)
    assert looped.returncode == 3 and f"{name}/loop" in looped.stderr


def test_folders_without_any_image_are_listed(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.heic").touch()
    refused = check(tmp_path)
    assert refused.returncode == 3
    assert "nothing that a source reads. Looked for: " in refused.stderr
    assert "Its folders hold no .jpg, .jpeg or .png: cat, dog" in refused.stderr


def test_images_without_class_folders_are_served_without_labels(tmp_path: Path) -> None:
    write_images(tmp_path / "photos", classes=1, per_class=5)
    photos = tmp_path / "photos/class_0"
    proposal = check(photos)
    assert f"{photos}: images without class folders, so without labels" in proposal.stderr
    assert "note: for labels, put the images into one folder per class" in proposal.stderr
    config = tmp_path / "c.yaml"
    config.write_text(proposal.stdout)
    with headrace.serve(config) as server, headrace.Loader(server.address, stream="train", batch="dict") as loader:
        (batch,) = list(loader)
        assert batch["image"].shape[:2] == (5, 3)
        assert "label" not in batch


def test_datasets_with_different_classes_give_a_warning(tmp_path: Path) -> None:
    write_images(tmp_path / "train", classes=3, per_class=2)
    write_images(tmp_path / "val", classes=3, per_class=2)
    assert "warning" not in check(tmp_path).stderr
    (tmp_path / "val/class_2").rename(tmp_path / "class_2")
    assert "warning" not in check(tmp_path).stderr, "the labels of those that are there are the same"
    (tmp_path / "class_2").rename(tmp_path / "val/apple")
    proposal = check(tmp_path)
    assert proposal.returncode == 0
    assert (
        "warning: val has other classes than train, so a label does not mean the same in both; only in train: class_2; "
        "only in val: apple. Give both the same class folders, or a `relabel` with one list of `classes` over each\n"
    ) in proposal.stderr
    write_images(tmp_path / "more", classes=4, per_class=1)
    (tmp_path / "val").rename(tmp_path / "old")
    (tmp_path / "more").rename(tmp_path / "val")
    assert "; only in val: class_3. Give" in check(tmp_path).stderr


def checked(tmp_path: Path, source: Path, stream: dict[str, object]) -> str:
    config = {
        "server": {"directory": str(tmp_path / "run"), "metrics": "off"},
        "sources": {"images": {"type": "image_folder", "path": str(source)}},
        "streams": {"train": {"source": "images"} | stream},
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config))
    done = subprocess.run([headrace_binary(), "check", tmp_path / "c.yaml"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


FLIP_AND_NORMALIZE = ["random_horizontal_flip", {"normalize": {"mean": [0.5] * 3, "std": [0.5] * 3}}]


@pytest.mark.parametrize(
    ("stream", "said"),
    [
        (
            {"device": "gpu", "transforms": [{"random_resized_crop": {"size": 16}}, *FLIP_AND_NORMALIZE], "output": {"dtype": "float32"}},
            "transforms on the device: random_horizontal_flip, normalize; on the server: random_resized_crop\n",
        ),
        (
            {"residence": "gpu", "transforms": [{"resize": {"size": [20, 20]}}, {"random_crop": {"size": 16}}, "random_horizontal_flip"]},
            "transforms on the device: random_crop, random_horizontal_flip; on the server: resize\n",
        ),
        (
            {"device": "gpu", "transforms": ["random_horizontal_flip", {"random_resized_crop": {"size": 16}}]},
            "transforms on the device: none; on the server: random_horizontal_flip, random_resized_crop\n  warning: no transform runs on",
        ),
    ],
)
def test_check_says_which_transforms_run_on_the_device(tmp_path: Path, image_folder: Path, stream: dict[str, object], said: str) -> None:
    told = checked(tmp_path, image_folder, stream)
    assert said in told
    assert ("warning: no transform runs on the device" in told) == ("none" in said)


@pytest.mark.parametrize(("mean", "warned"), [([123.7, 116.3, 103.5], True), ([0.485, 0.456, 0.406], False)])
def test_check_warns_of_means_before_the_division_by_255(tmp_path: Path, image_folder: Path, mean: list[float], warned: bool) -> None:
    stream: dict[str, object] = {
        "transforms": [{"random_resized_crop": {"size": 16}}, {"normalize": {"mean": mean, "std": [0.2] * 3}}],
        "output": {"dtype": "float32"},
    }
    assert ("warning: normalize subtracts means above 1" in checked(tmp_path, image_folder, stream)) == warned


@pytest.mark.parametrize("verb", ["ls", "stats", "health"])
def test_a_directory_without_its_option_is_refused_with_the_option(tmp_path: Path, verb: str) -> None:
    done = subprocess.run([headrace_binary(), verb, tmp_path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert f"unexpected argument `{tmp_path}`; a server is named by its directory: `headrace {verb} --address {tmp_path}`" in done.stderr
    usage = subprocess.run([headrace_binary(), verb, "--help"], capture_output=True, text=True, timeout=60).stdout
    assert f"headrace {verb} [OPTIONS]\n" in usage


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name a verb, such as check or serve; `headrace --help` lists verbs and options"),
        (["--verson"], "headrace has no option --verson (did you mean --version?); `headrace --help` lists verbs and options"),
        (["ls", "--adress=/run"], "headrace ls has no option --adress (did you mean --address?); `headrace ls --help` lists the options"),
        (["serve", "c.yaml", "--port", "9"], "headrace serve has no option --port; `headrace serve --help` lists the options"),
        (["serve", "a.yaml", "b.yaml"], "headrace serve: unexpected argument 'b.yaml'; `headrace serve --help` lists the options"),
    ],
)
def test_a_wrong_command_line_is_named_with_its_verb(arguments: list[str], said: str) -> None:
    done = subprocess.run([headrace_binary(), *arguments], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (2, f"headrace: INVALID_ARGUMENT: {said}\n")


def test_output_that_cannot_be_written_is_reported() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([headrace_binary(), "schema"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (3, "headrace: ENVIRONMENT: standard output cannot be written: No space left on device\n")
