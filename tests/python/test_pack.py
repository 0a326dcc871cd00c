"""`headrace pack`, `inspect` and `verify`, and the packed set served: the same batches as the folder gives."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from images import write_images
from PIL import Image
from running import Process, headrace_binary, wait_until
from test_pixel_sources import config, digits  # noqa: F401  (a fixture)


def run(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [headrace_binary(), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, **options)


def good(*arguments: str | Path) -> str:
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def inspect(path: Path) -> dict[str, Any]:
    described: dict[str, Any] = json.loads(good("inspect", path, "--json"))
    return described


CROP = [{"random_resized_crop": {"size": 32}}, "random_horizontal_flip"]


def served(start_server: Any, source: dict[str, Any], **stream: Any) -> tuple[str, list[list[int]], tuple[str, ...]]:
    """One epoch: its digest, the samples and labels, the classes."""
    digest = headrace.Digest()
    rows = []
    with headrace.Loader(start_server(config(source, seed=5, **stream)).address, stream="train") as loader:
        for batch in loader:
            digest.add(batch)
            rows += [[int(i), int(label)] for i, label in zip(batch.sample_index, batch[1], strict=True)]
        return digest.hexdigest(), rows, loader.classes


def folder(path: Path, **more: Any) -> dict[str, Any]:
    return {"type": "image_folder", "path": str(path), **more}


def lmdb(path: Path, **more: Any) -> dict[str, Any]:
    return {"type": "lmdb", "path": str(path), **more}


def test_files_that_are_skipped_are_named_once(tmp_path: Path) -> None:
    (write_images(tmp_path / "photos", classes=2, per_class=2) / "class_0/old.webp").write_bytes(b"RIFF")
    done = run("pack", tmp_path / "photos", tmp_path / "packed", "--quiet")
    assert done.returncode == 0 and done.stderr.count("old.webp") == 1, done.stderr


@pytest.mark.parametrize("options", ["", "--store encoded", "--compress lz4", "--compress zstd", "--store decoded", "--store decoded --compress zstd"])
def test_a_packed_set_gives_the_batches_of_its_folder(start_server: Any, image_folder: Path, tmp_path: Path, options: str) -> None:
    out = tmp_path / "train.lmdb"
    assert "60 samples" in good("pack", image_folder, out, *options.split())
    assert "none damaged" in good("verify", out, "--decode")
    expected = served(start_server, folder(image_folder), transforms=CROP)
    assert served(start_server, lmdb(out), transforms=CROP) == expected
    assert served(start_server, lmdb(out, verify=True), transforms=CROP) == expected
    described = inspect(out)
    assert described["complete"]
    assert described["count"] == 60
    assert (described["fingerprint"] == described["source_fingerprint"]) == ("decoded" not in options)


def test_a_trainer_goes_on_from_the_folders_checkpoint(start_server: Any, image_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "train.lmdb"
    good("pack", image_folder, out, "--compress", "zstd")

    def rest(source: dict[str, Any], state: dict[str, Any] | None) -> tuple[list[bytes], dict[str, Any]]:
        with headrace.Loader(start_server(config(source, transforms=CROP)).address, stream="train") as loader:
            if state is not None:
                loader.load_state_dict(state)
            batches = iter(loader)
            if state is None:
                next(batches)
                state = loader.state_dict()
            return [batch[0].tobytes() for batch in batches], state

    expected, state = rest(folder(image_folder), None)
    assert len(expected) == 3
    assert rest(lmdb(out), state)[0] == expected


def test_a_part_of_a_configuration_is_packed_with_its_indices(start_server: Any, image_folder: Path, tmp_path: Path) -> None:
    source = folder(image_folder, split={"fractions": {"train": 0.8, "val": 0.2}})
    written = tmp_path / "both.yaml"
    written.write_text(json.dumps(config(source, part="train", transforms=CROP)))
    out = tmp_path / "val.lmdb"
    refused = run("pack", written, out, "--part", "test")
    assert refused.returncode == 2
    assert 'source "set" has no part "test"; parts: train, val' in refused.stderr
    good("pack", written, out, "--part", "val")
    assert served(start_server, lmdb(out), transforms=CROP)[1:] == served(start_server, source, part="val", transforms=CROP)[1:]


def test_pixels_stay_pixels(start_server: Any, digits: dict[str, Any], tmp_path: Path) -> None:  # noqa: F811
    written = tmp_path / "digits.yaml"
    written.write_text(json.dumps(config(digits["source"])))
    out = tmp_path / "digits.lmdb"
    good("pack", written, out, "--compress", "lz4")
    assert served(start_server, lmdb(out)) == served(start_server, digits["source"])
    proposal = run("check", out)
    assert "transforms" not in proposal.stdout, "images of one size need no transforms"


@pytest.fixture
def slow_folder(tmp_path: Path) -> Path:
    """1600 names of 8 large pictures: seconds of decoding, a few MB of disk."""
    root = write_images(tmp_path / "slow", classes=2, per_class=1)
    random = np.random.default_rng(3)
    for label in range(2):
        for i in range(4):
            picture = Image.fromarray(random.integers(0, 256, (12, 16, 3), dtype=np.uint8))
            original = root / f"class_{label}" / f"{i}.jpg"
            picture.resize((1000, 750), Image.Resampling.BICUBIC).save(original, quality=90)
            for copy in range(200):
                os.link(original, root / f"class_{label}" / f"{i}_{copy:03d}.jpg")
    return root


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_packing_that_was_stopped_half_way_resumes(start_server: Any, slow_folder: Path, tmp_path: Path, end: signal.Signals) -> None:
    out = tmp_path / "slow.lmdb"
    arguments = ["pack", str(slow_folder), str(out), "--store", "decoded", "--resize", "64"]
    first = Process([headrace_binary(), *arguments, "--threads", "1"], tmp_path / "pack.log")

    def some() -> bool:
        first.check_alive()
        return (out / "data.mdb").exists() and run("inspect", out, "--json").stdout.find('"packed": 0') < 0 and inspect(out)["packed"] > 0

    wait_until(some, "the first samples to be packed")
    second = run(*arguments)
    assert second.returncode == 2
    assert "another headrace pack writes it now" in second.stderr
    first.popen.send_signal(end)
    code = first.popen.wait(30)
    if end == signal.SIGTERM:
        assert code == 143
        assert "run the same command again to continue" in first.output()
    half = inspect(out)
    assert not half["complete"]
    assert 0 < half["packed"] < half["count"] == 1610
    with pytest.raises(AssertionError, match="packing was not finished: .* of 1610 samples; run the same headrace pack again"):
        start_server(config(lmdb(out), transforms=[{"center_crop": {"size": 48}}]))
    other = run("pack", slow_folder, out, "--store", "decoded", "--resize", "65")
    assert other.returncode == 2
    assert "holds another packing: resize: expected 65, found 64; remove it or choose another name" in other.stderr

    assert "1610 samples" in good(*arguments)
    assert "is complete already" in good(*arguments)
    assert "none damaged" in good("verify", out)
    crop = {"center_crop": {"size": 48}}
    assert (
        served(start_server, lmdb(out), transforms=[crop], batch_size=200)[:2]
        == served(start_server, folder(slow_folder), transforms=[{"resize": {"size": 64}}, crop], batch_size=200)[:2]
    )


def test_a_full_disk_is_named_and_what_was_written_stays(slow_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "slow.lmdb"
    limit = 24 * 2**20

    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    arguments = ["pack", str(slow_folder), str(out), "--store", "decoded", "--resize", "96"]
    full = run(*arguments, preexec_fn=small_disk)
    assert full.returncode == 3
    assert "no room to write on: " in full.stderr
    assert "make room, then run the same headrace pack again" in full.stderr
    assert not inspect(out)["complete"]
    good(*arguments)
    assert "none damaged" in good("verify", out)


def test_one_changed_byte_is_found(image_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "train.lmdb"
    good("pack", image_folder, out, "--store", "encoded")
    data = bytearray((out / "data.mdb").read_bytes())
    picture = (image_folder / "class_1" / "0007.jpg").read_bytes()
    data[data.index(picture) + 200] ^= 1
    (out / "data.mdb").write_bytes(data)
    damaged = run("verify", out)
    assert damaged.returncode == 3
    assert "1 of 60 samples are damaged" in damaged.stderr
    assert "27: class_1/0007.jpg: its checksum is wrong" in damaged.stderr


def test_a_destroyed_tree_is_an_error(image_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "train.lmdb"
    good("pack", image_folder, out, "--store", "encoded")
    data = bytearray((out / "data.mdb").read_bytes())
    data[2 * 4096 :] = np.random.default_rng(1).bytes(len(data) - 2 * 4096)
    (out / "data.mdb").write_bytes(data)
    for verb in ("verify", "inspect"):
        refused = run(verb, out)
        assert refused.returncode == 3
        assert str(out) in refused.stderr
        assert "pack it again" in refused.stderr or "was not written by headrace pack" in refused.stderr


def test_bad_samples_are_packed_as_they_are_and_named(start_server: Any, tmp_path: Path) -> None:
    root = write_images(tmp_path / "images", classes=2, per_class=10)
    (root / "class_0" / "0003.jpg").write_bytes((root / "class_0" / "0003.jpg").read_bytes()[:900])
    (root / "class_1" / "0004.jpg").write_bytes(b"no picture")
    stream = {"transforms": CROP, "max_bad": 0.5}
    expected = served(start_server, folder(root), **stream)
    for store in ("tiled", "encoded", "decoded"):
        out = tmp_path / f"{store}.lmdb"
        said = good("pack", root, out, "--store", store)
        for bad in ("2 bad samples were packed unchanged", "class_0/0003.jpg: truncated", "class_1/0004.jpg: unknown_format"):
            assert (bad in said) == (store != "encoded"), "images stay unread if they are kept encoded"
        assert served(start_server, lmdb(out), **stream) == expected
        assert inspect(out)["undecodable"] == (0 if store == "encoded" else 2)
    assert "none damaged; 2 could not be decoded when they were packed" in good("verify", tmp_path / "tiled.lmdb", "--decode")


@pytest.mark.parametrize("packed", [True, False])
def test_the_sheet_shows_the_set(image_folder: Path, tmp_path: Path, packed: bool) -> None:
    source = tmp_path / "train.lmdb" if packed else image_folder
    if packed:
        good("pack", image_folder, source, "--store", "decoded")
    text = good("inspect", source, "--sheet", tmp_path / "sheet.png")
    assert "60 samples" in text
    assert "classes: 3, the largest:" in text
    with Image.open(tmp_path / "sheet.png") as sheet:
        sheet.load()
        assert (sheet.size, sheet.mode) == ((768, 768), "RGB")
        pixels = np.asarray(sheet)
    with Image.open(image_folder / "class_0" / "0000.jpg") as first:
        shorter = 96 / min(first.size)
        size = tuple(96 if side == min(first.size) else int(shorter * side) for side in first.size)
        resized = first.resize(size, Image.Resampling.BILINEAR)
    left, top = ((side - 96) / 2 for side in resized.size)
    cell = np.asarray(resized.crop((round(left), round(top), round(left) + 96, round(top) + 96)))
    np.testing.assert_array_equal(pixels[:96, :96], cell)
    assert (pixels[7 * 96 :, 4 * 96 :] == 0).all(), "60 of 64 cells"


def test_the_arguments_are_checked(image_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.lmdb"
    for wrong in (["--store", "raw"], ["--compress", "gzip"], ["--resize", "12y"], ["--resize", "0"], ["--threads", "0"]):
        refused = run("pack", image_folder, out, *wrong)
        assert refused.returncode == 2
        assert "INVALID_ARGUMENT" in refused.stderr
    assert run("pack", tmp_path / "nowhere", out).returncode == 3
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note.txt").write_text("mine")
    refused = run("pack", image_folder, tmp_path / "full")
    assert refused.returncode == 2
    assert "holds other files" in refused.stderr
    sets = write_images(tmp_path / "sets" / "train", classes=2, per_class=2).parent
    write_images(sets / "val", classes=2, per_class=2)
    assert "choose by --source: train_set, val_set" in run("pack", sets, out).stderr
    good("pack", sets, out, "--source", "val_set")
