"""headrace.pack(): interrupted in every way and resumed, and the errors for wrong datasets."""

from __future__ import annotations

import os
import pty
import resource
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
import torch
from headrace.errors import DatasetInvalid, EnvironmentFailed, Error, InvalidArgument
from packing_datasets import Counted, Iterated, Killed
from running import Process, wait_until
from test_pack import good, inspect, lmdb, run
from test_pixel_sources import config

warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)


@pytest.fixture
def dataset(tmp_path: Path) -> Counted:
    return Counted(tmp_path / "calls")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "set.lmdb"


def pack(dataset: Any, out: Path, **options: Any) -> headrace.Packed:
    return headrace.pack(dataset, out, **{"workers": 2, "progress": False, **options})


def check_served(start_server: Any, out: Path, dataset: Counted) -> None:
    """Checks that each row equals the dataset's, and comes once."""
    assert "none damaged" in good("verify", out)
    with headrace.Loader(start_server(config(lmdb(out), output={"layout": "NHWC"})).address, stream="train") as loader:
        assert loader.classes == ("0", "1", "2")
        seen = []
        for batch in loader:
            for image, label, index in zip(*batch, batch.sample_index, strict=True):
                np.testing.assert_array_equal(image, dataset.values(int(index))[0])
                assert label == dataset.values(int(index))[1]
            seen += batch.sample_index.tolist()
        assert sorted(seen) == list(range(len(dataset)))


@pytest.mark.parametrize("how", [{"workers": 0}, {"workers": 3}, {"workers": 64}, {"start": "spawn"}, {"compress": "zstd"}])
def test_each_sample_is_called_once_and_served_as_it_was(
    start_server: Any, dataset: Counted, out: Path, how: dict[str, Any]
) -> None:
    packed = pack(dataset, out, **how)
    assert (packed.samples, packed.before, packed.bad, packed.path) == (40, 0, 0, str(out))
    assert packed.raw_bytes == 40 * 192
    assert dataset.calls() == list(range(40))
    check_served(start_server, out, dataset)
    again = pack(dataset, out, **how)
    assert (again.samples, again.before) == (40, 40)
    assert dataset.calls() == [0], "the first sample defines the fields"


def test_the_fingerprint_depends_on_the_samples_and_not_on_how_they_were_packed(dataset: Counted, tmp_path: Path) -> None:
    def fingerprint(name: str, data: Any, **how: Any) -> str:
        pack(data, tmp_path / name, **how)
        return str(inspect(tmp_path / name)["fingerprint"])

    one = fingerprint("a", dataset)
    assert fingerprint("b", dataset, workers=0, compress="lz4") == one
    assert fingerprint("c", Iterated(dataset)) == one
    assert fingerprint("d", Counted(dataset.log, count=39)) != one


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_that_raises_is_named_and_what_came_before_is_kept(
    start_server: Any, dataset: Counted, out: Path, workers: int
) -> None:
    dataset.fails_at = 25
    told = "sample 25: the dataset raised ValueError: no sample 25 today; 25 samples before it"
    with pytest.raises(DatasetInvalid, match=told) as caught:
        pack(dataset, out, workers=workers)
    assert "packing_datasets.py" in str(caught.value) and "in __getitem__" in str(caught.value), "where it was"
    assert isinstance(caught.value.__cause__, ValueError)
    assert set(range(26)) <= set(dataset.calls())
    said = good("inspect", out)
    assert "NOT complete: 25 are there" in said
    with pytest.raises(AssertionError, match="packing was not finished: 25 of 40 samples"):
        start_server(config(lmdb(out)))
    dataset.fails_at = -1
    packed = pack(dataset, out, workers=workers)
    assert (packed.before, packed.samples) == (25, 40)
    assert dataset.calls() == [0, *range(25, 40)]
    check_served(start_server, out, dataset)


def test_errors_that_cannot_be_pickled_are_reported_as_text(dataset: Counted, out: Path) -> None:
    class Local(Exception):
        def __init__(self, a: int, b: int) -> None:
            super().__init__(f"{a} and {b}")

    class Odd(Counted):
        def __getitem__(self, index: int) -> Any:
            raise Local(1, 2)

    with pytest.raises(DatasetInvalid, match="sample 0: the dataset raised .*Local: 1 and 2; nothing was written"):
        pack(Odd(dataset.log), out)
    assert not out.exists()


def test_bad_samples_may_be_packed_as_bad(start_server: Any, dataset: Counted, out: Path) -> None:
    dataset.fails_at = 7
    assert pack(dataset, out, on_error="bad").bad == 1
    assert inspect(out)["first_undecodable"] == ["7: ValueError: no sample 7 today"]
    with headrace.Loader(start_server(config(lmdb(out), max_bad=0.5)).address, stream="train") as loader:
        assert sum(int(batch.replaced.sum()) for batch in loader) == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_without_a_value_may_be_packed_as_bad_but_misfits_may_not(out: Path, workers: int) -> None:
    values = [{"x": np.ones(3), "label": 0}, {"x": None, "label": 1}, {"x": np.ones(3), "label": None}, {"x": np.ones(3), "label": 1}]
    with pytest.raises(DatasetInvalid, match="sample 1: field `x` is NoneType, expected a number"):
        pack(values, out, workers=workers)
    packed = pack(values, out, on_error="bad", workers=workers)
    assert (packed.samples, packed.before, packed.bad) == (4, 1, 2)
    assert inspect(out)["first_undecodable"][0].startswith("1: field `x` is NoneType, expected a number")
    for other in ({"x": np.ones(2), "label": 0}, {"label": 0}):
        with pytest.raises(DatasetInvalid, match="sample 1: field `x` (has shape|is missing)"):
            pack([values[0], other], out.with_name("other"), on_error="bad", workers=workers)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("text", "kept"),
    [("no file caf\udce9.png", "no file caf\\udce9.png"), ("x" * 986 + "grüße", "x" * 986 + "grü")],
)
def test_bad_samples_whose_errors_are_no_text_are_packed_too(dataset: Counted, out: Path, text: str, kept: str, workers: int) -> None:
    class Raises(Counted):
        def __getitem__(self, index: int) -> Any:
            if index == 7:
                raise OSError(text)
            return super().__getitem__(index)

    assert pack(Raises(dataset.log), out, on_error="bad", workers=workers).bad == 1
    assert inspect(out)["first_undecodable"] == [f"7: OSError: {kept}"]


def test_an_error_that_has_no_text_is_reported_by_its_class(dataset: Counted, out: Path) -> None:
    class Unreadable(Exception):
        def __str__(self) -> str:
            raise ValueError("it has no text")

    class Raises(Counted):
        def __getitem__(self, index: int) -> Any:
            raise Unreadable

    with pytest.raises(DatasetInvalid, match="sample 0: the dataset raised .*Unreadable: <exception str"):
        pack(Raises(dataset.log), out)


def test_a_worker_that_the_system_kills_is_named(out: Path, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailed, match="the worker that made sample 11 ended with status -9"):
        pack(Killed(tmp_path / "calls", fails_at=11), out)
    assert inspect(out)["packed"] == 11


PROGRAM = str(Path(__file__).with_name("packing_datasets.py"))


def packed_so_far(out: Path) -> int:
    # Before the first transaction there is nothing to inspect.
    done = run("inspect", out, "--json") if (out / "data.mdb").exists() else None
    return inspect(out)["packed"] if done is not None and done.returncode == 0 else 0


def alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(("end", "workers"), [(signal.SIGKILL, 2), (signal.SIGKILL, 0), (signal.SIGINT, 2)])
def test_a_program_that_is_killed_half_way_goes_on(
    start_server: Any, tmp_path: Path, out: Path, end: signal.Signals, workers: int
) -> None:
    dataset = Counted(tmp_path / "calls", count=400)
    command = [sys.executable, PROGRAM, str(dataset.log), str(out), "400", "8", "0.02", str(workers)]
    first = Process(command, tmp_path / "pack.log")
    wait_until(lambda: packed_so_far(out), "the first samples to be packed")
    first.check_alive()
    first.popen.send_signal(end)
    first.popen.wait(30)
    wait_until(lambda: not alive(first.popen.pid), "the workers to see the end of their pipes")
    # The binary ends as well: it keeps what it has, and closes the database.
    other = '{"headrace": "records", "version": 1, "fields": [{"name": "x", "content": "values"}]}\n'
    wait_until(lambda: "another packing" in run("pack", "-", out, input=other).stdout, "the binary to end")
    before = packed_so_far(out)
    assert 0 < before < 400
    assert not inspect(out)["complete"]
    dataset.calls()
    assert pack(dataset, out).before == before
    assert dataset.calls() == [0, *range(before, 400)]
    check_served(start_server, out, dataset)


def test_a_binary_that_is_killed_half_way_is_named_and_packing_resumes(out: Path, tmp_path: Path) -> None:
    class Killer(Counted):
        def __getitem__(self, index: int) -> tuple[Any, int]:
            if index == 30:
                me = f"/proc/{os.getppid()}/task/{os.getppid()}/children"
                for child in Path(me).read_text().split():
                    if "pack" in Path(f"/proc/{child}/cmdline").read_text().split("\0"):
                        os.kill(int(child), signal.SIGKILL)
            return super().__getitem__(index)

    with pytest.raises(Error, match="`headrace pack` ended with status -9"):
        pack(Killer(tmp_path / "calls", count=3000, side=64), out, workers=1)
    whole = Counted(tmp_path / "calls", count=3000, side=64)
    pack(whole, out)
    assert "none damaged" in good("verify", out)
    assert inspect(out)["count"] == 3000


def test_a_full_disk_is_named_and_what_was_written_stays(tmp_path: Path, out: Path) -> None:
    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 * 2**20, 2 * 2**20))

    command = [sys.executable, PROGRAM, str(tmp_path / "calls"), str(out), "60", "256", "0", "2"]
    full = subprocess.run(command, capture_output=True, text=True, timeout=100, preexec_fn=small_disk)
    assert full.returncode == 1
    assert "ENVIRONMENT" in full.stderr and "no room to write on: " in full.stderr
    assert not inspect(out)["complete"]
    dataset = Counted(tmp_path / "calls", count=60, side=256)
    assert pack(dataset, out).samples == 60
    assert "none damaged" in good("verify", out)


def test_iterables_are_packed_in_order_and_resume_by_iterating(start_server: Any, dataset: Counted, out: Path) -> None:
    dataset.fails_at = 25
    with pytest.raises(DatasetInvalid, match="sample 25: the dataset raised ValueError"):
        pack(Iterated(dataset), out)
    assert "an unknown number of samples, NOT complete: 25 are there" in good("inspect", out)
    with pytest.raises(AssertionError, match="packing was not finished: 25 samples"):
        start_server(config(lmdb(out)))
    with pytest.raises(DatasetInvalid, match="sample 25: the iterable ended before this sample"):
        pack(Iterated(Counted(dataset.log, count=20)), out)
    dataset.fails_at = -1
    packed = pack((dataset[index] for index in range(40)), out)
    assert (packed.before, packed.samples) == (25, 40)
    check_served(start_server, out, dataset)


def test_packing_does_not_resume_with_another_dataset(dataset: Counted, out: Path, tmp_path: Path) -> None:
    dataset.fails_at = 25
    with pytest.raises(DatasetInvalid):
        pack(dataset, out)
    with pytest.raises(InvalidArgument, match="holds another packing: number of samples: expected 41, found 40"):
        pack(Counted(tmp_path / "calls", count=41), out)
    with pytest.raises(InvalidArgument, match="compression: expected lz4, found none"):
        pack(dataset, out, compress="lz4")
    with pytest.raises(InvalidArgument, match="list of fields: expected picture: pixels x1, 3 channels, found image: pixels x1"):
        pack(dataset, out, fields={"picture": "image", "class": "label"})
    with pytest.raises(InvalidArgument, match="its classes or its source fingerprint differ from the requested ones"):
        pack(dataset, out, classes=["a", "b", "c"])
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "note.txt").write_text("mine")
    with pytest.raises(InvalidArgument, match="holds other files"):
        pack(dataset, tmp_path / "folder")


@pytest.mark.parametrize("progress", [True, False])
def test_progress_is_shown_on_a_terminal(tmp_path: Path, progress: bool) -> None:
    code = (
        "import headrace, time\n"
        "class Slow(list):\n"
        "    def __getitem__(self, i): time.sleep(0.03); return super().__getitem__(i)\n"
        f"headrace.pack(Slow([1.5] * 20), {str(tmp_path / 'x.lmdb')!r}, workers=0, progress={progress})\n"
    )
    parent, child = pty.openpty()
    done = subprocess.run([sys.executable, "-c", code], stderr=child, timeout=100)
    os.set_blocking(parent, False)
    os.close(child)
    try:
        said = os.read(parent, 65536).decode()
    except OSError:  # Linux raises this when the other end is closed and all was read
        said = ""
    os.close(parent)
    assert done.returncode == 0
    assert (" of 20  " in said and "samples/s" in said) == progress, said


def samples(*values: Any) -> list[dict[str, Any]]:
    return [{"x": value, "y": 1.0} for value in values]


IMAGE = np.zeros((4, 5, 3), np.uint8)


@pytest.mark.parametrize(
    ("values", "spelling", "why"),
    [
        ([np.zeros((2, 4)), np.zeros((3, 4))], None, r"sample 1: field `x` has shape \(3, 4\), expected \(2, 4\) as in the .*'ragged float64 \(4,\)'"),
        ([np.zeros(2, np.int32), np.zeros(2)], None, "sample 1: field `x` is float64, expected int32"),
        ([np.zeros(2, np.uint16)], None, "sample 0: field `x` is uint16, expected one of"),
        ([np.array(["a"])], None, "sample 0: field `x` is str.*, expected one of"),
        ([None], None, "sample 0: field `x` is NoneType, expected a number, array, image, str or bytes"),
        ([[1, [2]]], None, "sample 0: field `x` cannot be made an array"),
        ([np.zeros((0, 4))], None, "sample 0: field `x` is empty in the first sample"),
        ([IMAGE[:, :, 0], IMAGE], None, "sample 1: field `x` is an image of 3 channels"),
        ([IMAGE, IMAGE.astype(np.float32)], None, r"sample 1: field `x` is float32 \(4, 5, 3\), expected an image: uint8"),
        ([IMAGE, np.zeros((0, 5, 3), np.uint8)], None, "sample 1: field `x` is uint8 .0, 5, 3., expected an image"),
        (["a", 5], None, "sample 1: field `x` is int, expected str"),
        ([b"a", "b"], None, "sample 1: field `x` is str, expected bytes"),
        ([[1.5]], "int32 (1,)", "sample 0: field `x` is float64, expected int32"),
        ([300], "uint8", "sample 0: field `x` has values that uint8 cannot hold, such as 300"),
        ([-1], "uint8", "sample 0: field `x` has values that uint8 cannot hold, such as -1"),
        ([np.uint8(200)], "int8", "sample 0: field `x` has values that int8 cannot hold, such as 200"),
        ([70000], "float16", "sample 0: field `x` has values that float16 cannot hold, such as 70000"),
        ([[1, 2048, 2049]], "float16 (3,)", "sample 0: field `x` has values that float16 cannot hold, such as 2049"),
        ([2**24, 2**24 + 1], "float32", "sample 1: field `x` has values that float32 cannot hold, such as 16777217"),
        ([[-(2**63), 2**63 - 1]], "float64 (2,)", "field `x` has values that float64 cannot hold, such as 9223372036854775807"),
        ([1.5, 1e39], "float32", r"sample 1: field `x` has values that float32 cannot hold, such as 1e\+39"),
        ([[[1, 2]]], "ragged float32 (3,)", r"sample 0: field `x` has shape \(1, 2\), expected \(any, 3\)"),
        ([0, 1.5], "label", r"sample 1: field `x` is float64 \(\), expected one integer"),
        ([0, -1], "label", "sample 1: field `x` is -1, expected a class of 0 or more"),
        ([np.full((3, 3), 300)], "mask", "sample 0: field `x` has classes from 300 to 300"),
        ([torch.ones(3, 3, dtype=torch.bfloat16)], "mask", r"sample 0: field `x` is bfloat16 \(3, 3\), expected a mask: H x W of integers"),
        ([np.zeros((3, 3, 3))], "mask", r"sample 0: field `x` is float64 \(3, 3, 3\), expected a mask: H x W"),
    ],
)
def test_samples_that_do_not_fit_are_named_with_what_they_are(
    tmp_path: Path, values: list[Any], spelling: str | None, why: str
) -> None:
    fields = None if spelling is None else {"x": spelling, "y": "float64"}
    with pytest.raises(DatasetInvalid, match=why):
        pack(samples(*values), tmp_path / "set.lmdb", fields=fields, workers=0)


def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    for arguments, why in (
        ({"fields": ["image", "label"]}, r"fields=.'image', 'label'.: expected a dict of kinds"),
        ({"fields": {"x": "picture"}}, "fields.'x'.='picture': expected one of: image, mask, file"),
        ({"fields": {"x": "float32 (0,)"}}, "a shape must not contain 0"),
        ({"fields": {"z": "float32"}}, "fields names 'z', but the first sample has 'x', 'y'"),
        ({"fields": {"x": "label"}}, "expected at most one label"),
        ({"classes": ["a"]}, "classes=: the samples have no label"),
        ({"classes": "ab"}, r"classes='ab': expected a list of names, such as \['ab'\]"),
        ({"classes": ["a", "b", "a"]}, "duplicate name 'a'"),
        ({"resize": 0}, "resize=0: expected the shorter side in pixels"),
        ({"workers": -1}, "workers=-1"),
        ({"start": "thread"}, "start='thread'"),
        ({"compress": "gzip"}, "compress='gzip'"),
    ):
        with pytest.raises(InvalidArgument, match=why):
            pack(samples(1, 2), tmp_path / "set.lmdb", **{"workers": 0, **arguments})
    with pytest.raises(InvalidArgument, match="int is not a dataset"):
        pack(5, tmp_path / "set.lmdb")
    for nothing in ([], iter([])):
        with pytest.raises(InvalidArgument, match="the dataset has no sample"):
            pack(nothing, tmp_path / "set.lmdb")
    with pytest.raises(DatasetInvalid, match="sample 1: field `label` is 2, expected a class from 0 to 1"):
        pack([(1.0, 0), (1.0, 2)], tmp_path / "set.lmdb", classes=["a", "b"])


@pytest.mark.parametrize("path", ["photos", Path("photos")])
def test_a_name_is_no_dataset(path: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="is a name, not a dataset: `headrace pack photos .* packs a folder"):
        headrace.pack(path, tmp_path / "out")
