"""`headrace check CONFIG` makes samples and names those that are bad."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import headrace
import pytest
import yaml
from conftest import ServerFactory
from images import write_images
from running import headrace_binary


def check(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([headrace_binary(), "check", *options, str(path)], capture_output=True, text=True, timeout=60)


def check_photos(folder: Path, stream: str) -> subprocess.CompletedProcess[str]:
    """`check` of a stream over images in the folder `photos`: six, unless there are some."""
    if not (folder / "photos").exists():
        write_images(folder / "photos", classes=2, per_class=3)
    config = folder / "c.yaml"
    config.write_text(
        "sources: {photos: {type: image_folder, path: photos}}\n"
        f"streams: {{train: {{source: photos, {stream}}}}}\n"
    )
    return check(config)


def test_samples_that_do_not_fit_their_crop_are_reported_with_the_reason(tmp_path: Path) -> None:
    done = check_photos(tmp_path, "transforms: [{random_crop: {size: 2000}}]")
    assert done.returncode == 3
    assert "stream `train`: all of 6 samples are bad:\n" in done.stderr
    assert ".jpg: unsupported (random_crop of 2000 x 2000 from " in done.stderr
    assert "pixels (width x height): set its pad_if_needed, or put a resize before it" in done.stderr


def test_bad_images_are_named_of_a_few_samples_or_of_all(tmp_path: Path) -> None:
    write_images(tmp_path / "photos", classes=2, per_class=50)
    names = sorted((tmp_path / "photos").rglob("*.jpg"))
    for path in names[:12]:
        path.write_bytes(path.read_bytes()[:200])
    names[99].write_bytes(b"")
    few = check_photos(tmp_path, "transforms: [center_crop: 16], shuffle: false, max_bad: 0.2")
    assert few.returncode == 0
    assert "of 32 samples that were tried (`check --all` tries all) are bad" in few.stdout
    config = tmp_path / "c.yaml"
    every = check(config, "--all")
    assert (every.returncode, every.stderr) == (0, "")
    told = every.stdout.split("warning: 13 of 100 samples are bad; the first 10:\n")[1].splitlines()
    assert [line.split(": ")[0].strip() for line in told[:10]] == [str(path.relative_to(tmp_path / "photos")) for path in names[:10]]
    assert "truncated (" in told[0]
    for path in [*names[:12], names[99]]:
        path.unlink()
    sound = check(config, "--all")
    assert "  all of the first epoch's 87 samples are sound\n" in sound.stdout
    for path in names[13:99]:
        path.unlink(missing_ok=True)
    names[99].parent.rmdir()
    assert "  its only sample is sound\n" in check(config, "--all").stdout


def test_more_bad_samples_than_the_stream_allows_are_an_error(tmp_path: Path) -> None:
    write_images(tmp_path / "photos", classes=2, per_class=20)
    for path in sorted((tmp_path / "photos").rglob("*.jpg"))[::8]:
        path.write_bytes(b"")
    crop = "transforms: [center_crop: 16], shuffle: false"
    few = check_photos(tmp_path, crop)
    assert few.returncode == 0, few.stderr
    assert "warning: 4 of 32 samples that were tried (`check --all` tries all) are bad:\n" in few.stdout
    assert "\n    the stream will probably fail: more of the tried samples are bad than max_bad (0.1) allows. Run `headrace check --all` to try all samples; " in few.stdout
    assert "ok: " not in few.stdout and few.stdout.endswith(f"no error was found, but `headrace serve {tmp_path}/c.yaml` may fail: see the warnings above\n")
    doctor = subprocess.run([headrace_binary(), "doctor", tmp_path / "c.yaml"], capture_output=True, text=True, timeout=60, check=False)
    assert doctor.returncode == 0 and "note  stream train" in doctor.stdout and "-> the stream will probably fail" in doctor.stdout
    assert doctor.stdout.endswith("no check failed; uncertain: stream train\n"), doctor.stdout
    every = check(tmp_path / "c.yaml", "--all")
    assert every.returncode == 3
    assert "DATASET_INVALID: stream `train`: 5 of 40 samples are bad:\n" in every.stderr
    assert every.stderr.endswith("the stream would fail: its max_bad allows 4. Repair or remove these files, or raise max_bad\n")
    strict = check_photos(tmp_path, f"{crop}, on_error: fail")
    assert strict.returncode == 3
    assert strict.stderr.endswith("the stream would fail: its on_error is `fail`. Repair or remove these files, or set on_error: replace\n")
    both = check_photos(tmp_path, f"{crop}, on_error: fail, max_bad: 0.01")
    assert both.stderr.endswith("or set on_error: replace and raise max_bad\n")


def test_more_bad_samples_than_allowed_among_a_few_are_an_error(tmp_path: Path) -> None:
    write_images(tmp_path / "photos", classes=2, per_class=20)
    for path in sorted((tmp_path / "photos").rglob("*.jpg"))[::4]:
        path.write_bytes(path.read_bytes()[:100])
    done = check_photos(tmp_path, "transforms: [center_crop: 16], shuffle: false, max_bad: 0.1")
    assert done.returncode == 3 and "ok: " not in done.stdout
    assert "DATASET_INVALID: stream `train`: 8 of 32 samples that were tried (`check --all` tries all) are bad:\n" in done.stderr
    assert done.stderr.endswith("the stream would fail: its max_bad allows 4. Repair or remove these files, or raise max_bad\n")
    doctor = subprocess.run([headrace_binary(), "doctor", tmp_path / "c.yaml"], capture_output=True, text=True, timeout=60, check=False)
    assert doctor.returncode == 3 and "FAIL  stream train   8 of 32 samples" in doctor.stdout, doctor.stdout


def test_all_streams_that_would_fail_are_reported_at_once(tmp_path: Path) -> None:
    write_images(tmp_path / "photos", classes=2, per_class=10)
    next(iter((tmp_path / "photos").rglob("*.jpg"))).write_bytes(b"")
    config = tmp_path / "c.yaml"
    config.write_text(
        "sources: {photos: {type: image_folder, path: photos}}\n"
        "streams:\n"
        "  lenient: {source: photos, transforms: [{center_crop: 16}]}\n"
        "  exact: {extends: lenient, max_bad: 0}\n"
        "  strict: {extends: lenient, on_error: fail}\n"
    )
    done = check(config)
    assert done.returncode == 3
    assert [f"stream `{name}`: 1 of 20 samples is bad" in done.stderr for name in ("exact", "strict", "lenient")] == [True, True, False]
    assert "stream lenient: 20 samples" in done.stdout and "ok: " not in done.stdout


def test_a_folder_of_bad_images_is_named_with_its_first_reason(tmp_path: Path, start_server: ServerFactory) -> None:
    for path in write_images(tmp_path / "photos", classes=2, per_class=3).rglob("*.jpg"):
        path.write_bytes(b"no image")
    done = check_photos(tmp_path, "transforms: [center_crop: 16], max_bad: 1")
    assert done.returncode == 3
    reasons = done.stderr.split("all of 6 samples are bad:\n")[1].splitlines()
    assert sorted(line.strip() for line in reasons) == [
        f"class_{kind}/{i:04d}.jpg: unknown_format (neither a JPEG nor a PNG file by its first bytes)" for kind in range(2) for i in range(3)
    ]
    config = yaml.safe_load((tmp_path / "c.yaml").read_text())
    config["sources"]["photos"]["path"] = str(tmp_path / "photos")
    server = start_server(config)
    with headrace.Loader(server.address, stream="train") as loader, pytest.raises(headrace.Error) as failed:
        next(iter(loader))
    said = r"TOO_MANY_BAD_SAMPLES: class_\d/000\d.jpg: unknown_format \(neither [^)]+\); all 5 other samples that were tried are bad, too\. "
    assert re.search(said + "Repair or remove bad files: `headrace check --all CONFIG` lists them", str(failed.value))


def test_all_samples_of_a_folder_need_a_configuration(tmp_path: Path) -> None:
    done = check(tmp_path, "--all")
    assert (done.returncode, done.stderr.split(": ")[1]) == (2, "INVALID_ARGUMENT")


def test_a_stream_whose_epochs_have_no_batch_is_refused(tmp_path: Path) -> None:
    crop = "last: drop, transforms: [{random_resized_crop: {size: 8}}]"
    done = check_photos(tmp_path, f"batch_size: 7, {crop}")
    assert done.returncode == 2
    said = "stream `train`: an epoch has no batch: 6 samples, batches of 7, "
    assert f"{tmp_path}/c.yaml:2:47: {said}" in done.stderr
    assert done.stderr.count("stream `train`") == 1, done.stderr
    assert check_photos(tmp_path, f"batch_size: 6, {crop}").returncode == 0


def test_classes_whose_labels_differ_between_streams_are_named(tmp_path: Path, start_server: ServerFactory) -> None:
    write_images(tmp_path / "train", classes=3, per_class=2)
    shutil.copytree(tmp_path / "train", tmp_path / "val")
    shutil.rmtree(tmp_path / "val/class_0")
    config = {
        "server": {"metrics": "off"},
        "sources": {name: {"type": "image_folder", "path": str(tmp_path / name)} for name in ("train", "val")},
        "streams": {name: {"source": name, "transforms": [{"center_crop": 16}]} for name in ("train", "val")},
    }
    expected = "class `class_1` has label 1 in stream `train`, but 0 in stream `val`, because their lists of classes differ. Give both the same class folders"
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config))
    done = check(tmp_path / "c.yaml")
    assert done.returncode == 0 and f"warning: {expected}" in done.stdout
    assert expected in start_server(config).output()
    shutil.rmtree(tmp_path / "train/class_2")
    shutil.copytree(tmp_path / "train/class_0", tmp_path / "val/class_0")
    assert "has label" not in check(tmp_path / "c.yaml").stdout, "additional classes at the end change no label"


def test_the_report_and_its_errors_keep_their_order_in_one_file(tmp_path: Path) -> None:
    write_images(tmp_path / "photos", classes=2, per_class=10)
    next(iter((tmp_path / "photos").rglob("*.jpg"))).write_bytes(b"")
    strict = check_photos(tmp_path, "transforms: [{center_crop: 16}], on_error: fail")
    assert strict.stdout.endswith("\nnot ok, 1 error\n")
    done = subprocess.run([headrace_binary(), "check", tmp_path / "c.yaml"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
    order = [done.stdout.index(word) for word in ("stream train: 20 samples", "headrace: DATASET_INVALID: ", "  ring: ", "not ok, 1 error")]
    assert order == sorted(order), done.stdout
    (tmp_path / "c.yaml").write_text("sources: {a: {type: lmdb}}\nstreams: {b: {source: c, batch_sise: 2}}\n")
    wrong = check(tmp_path / "c.yaml")
    assert (wrong.returncode, wrong.stdout) == (2, f"not ok, {len(wrong.stderr.splitlines())} errors\n")
