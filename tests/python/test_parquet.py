"""python -m headrace.parquet: Hugging Face's Parquet files become a database whose rows are the files' images."""

from __future__ import annotations

import io
import json
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from headrace._folder_dataset import FolderDataset
from headrace.errors import DatasetInvalid, EnvironmentFailed, InvalidArgument
from headrace.parquet import ParquetDataset, main
from PIL import Image
from test_pack import inspect, lmdb
from test_pixel_sources import config

CLASSES = ["cat", "dog", "emu"]
SIDE = 16
POOL = pyarrow.proxy_memory_pool(pyarrow.default_memory_pool())  # counts; must outlive what is allocated from it


def jpeg(number: int) -> bytes:
    random = np.random.default_rng(number)
    out = io.BytesIO()
    Image.fromarray(random.integers(0, 256, (SIDE, SIDE, 3), np.uint8)).save(out, "JPEG")
    return out.getvalue()


def features(**classes: list[str]) -> dict[bytes, bytes]:
    described = {"image": {"_type": "Image"}, **{name: {"names": names, "_type": "ClassLabel"} for name, names in classes.items()}}
    return {b"huggingface": json.dumps({"info": {"features": described}}).encode()}


def write(path: Path, columns: dict[str, Any], metadata: dict[bytes, bytes] | None = None, rows: int = 4) -> str:
    table = pyarrow.table(columns)
    pyarrow.parquet.write_table(table.replace_schema_metadata(metadata), path, row_group_size=rows)
    return str(path)


def published(folder: Path) -> list[str]:
    """Two files as push_to_hub() writes them, of 10 and 7 rows in groups of 4."""
    files = []
    for name, numbers in (("train-0.parquet", range(10)), ("train-1.parquet", range(10, 17))):
        images = [{"bytes": jpeg(number), "path": f"{number}.jpg"} for number in numbers]
        columns = {"image": images, "kind": [number % 3 for number in numbers], "caption": [f"number {number}" for number in numbers]}
        files.append(write(folder / name, columns, features(kind=CLASSES)))
    return files


@pytest.mark.parametrize("workers", ["0", "3"])
def test_what_hugging_face_publishes_is_served(start_server: Any, tmp_path: Path, workers: str) -> None:
    out = tmp_path / "set.lmdb"
    command = [sys.executable, "-m", "headrace.parquet", *published(tmp_path), str(out), "--workers", workers, "--quiet"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert said == f"packed 17 samples into {out}; serve it: sources: {{packed: {{type: lmdb, path: {out}}}}}\n"
    again = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert again == said.replace(f"packed 17 samples into {out}", f"{out} is complete already: 17 samples")
    seen = []
    server = start_server(config(lmdb(out), output={"layout": "NHWC"}, transforms=[{"center_crop": SIDE}]))
    with headrace.Loader(server.address, stream="train", batch="dict") as loader:
        assert loader.classes == tuple(CLASSES)
        for batch in loader:
            values, offsets = batch["caption"]
            for row, index in enumerate(batch.sample_index.tolist()):
                expected = np.asarray(Image.open(io.BytesIO(jpeg(index))))
                np.testing.assert_array_equal(batch["image"][row], expected)
                assert batch["label"][row] == index % 3
                assert bytes(values[offsets[row] : offsets[row + 1]]).decode() == f"number {index}"
                seen.append(index)
    assert sorted(seen) == list(range(17))


def test_plain_columns_are_read_without_metadata(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", {"png": [jpeg(0), jpeg(1)], "label": [1, 0], "weight": [0.5, 1.5]})
    dataset = ParquetDataset([file])
    assert dataset.classes is None and len(dataset) == 2
    assert dataset[1] == {"png": jpeg(1), "label": 0, "weight": 1.5}
    assert ParquetDataset([file], columns=["png"], label="label")[0] == {"png": jpeg(0), "label": 1}
    with pytest.raises(IndexError):
        dataset[2]


NAMED = ["emu", "cat", "dog", "cat", "emu", "cät", "Ant"]
TYPES = {
    "string": pyarrow.string(),
    "large_string": pyarrow.large_string(),
    "dictionary": pyarrow.dictionary(pyarrow.int8(), pyarrow.string()),
    "large_dictionary": pyarrow.dictionary(pyarrow.int32(), pyarrow.large_string()),
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(("column", "options"), [("cls", ["--label", "cls", "--columns", "image", "cls"]), ("label", [])])
def test_strings_are_classes_numbered_in_sorted_order(start_server: Any, tmp_path: Path, kind: str, column: str, options: list[str]) -> None:
    images = [jpeg(number) for number in range(7)]
    files = [
        write(tmp_path / f"{part}.parquet", {"image": images[rows], column: pyarrow.array(NAMED[rows], TYPES[kind])}, rows=2)
        for part, rows in (("a", slice(0, 4)), ("b", slice(4, 7)))
    ]
    out = tmp_path / "set.lmdb"
    assert main([*files, str(out), *options, "--workers", "2", "--quiet"]) == 0
    classes = ["Ant", "cat", "cät", "dog", "emu"]
    described = inspect(out)
    assert [field["name"] for field in described["fields"]] == ["image"]
    assert {each["label"]: each["name"] for each in described["largest_classes"]} == dict(enumerate(classes))
    with headrace.Loader(start_server(config(lmdb(out), transforms=[{"center_crop": SIDE}])).address, stream="train", batch="dict") as loader:
        assert loader.classes == tuple(classes)
        labels = {index: label for batch in loader for index, label in zip(batch.sample_index.tolist(), batch["label"].tolist(), strict=True)}
    assert [classes[labels[index]] for index in range(7)] == NAMED


def test_strings_that_are_all_whole_numbers_are_their_own_labels(tmp_path: Path) -> None:
    def numbers(*names: str) -> tuple[list[str] | None, list[int]]:
        dataset = ParquetDataset([write(tmp_path / "a.parquet", {"x": [0.5] * len(names), "label": list(names)})])
        return dataset.classes, [dataset[row]["label"] for row in range(len(names))]

    assert numbers("10", "2", "0") == (None, [10, 2, 0])
    assert numbers("10", "2", "b") == (["10", "2", "b"], [0, 1, 2])
    assert numbers("1440764", "2") == (["1440764", "2"], [0, 1]), "too large for a label"


def test_only_the_column_of_classes_is_read_for_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "a.parquet", {"image": [jpeg(0), jpeg(1)], "cls": ["b", "a"], "label": ["c", "d"]})
    read, columns = pyarrow.parquet.ParquetFile.iter_batches, []
    monkeypatch.setattr(pyarrow.parquet.ParquetFile, "iter_batches", lambda *given, **options: columns.append(options["columns"]) or read(*given, **options))
    assert ParquetDataset([file], columns=["image", "cls"]).classes is None, "no label is chosen"
    assert columns == []
    dataset = ParquetDataset([file], columns=["image"], label="cls")
    assert dataset.classes == ["a", "b"] and columns == [["cls"]]
    assert pickle.loads(pickle.dumps(dataset))[0] == {"image": jpeg(0), "label": 1}
    assert columns == [["cls"], ["image", "cls"]]


def test_columns_that_cannot_be_classes_are_refused(tmp_path: Path) -> None:
    for missing, what in ((None, "null"), ("", "an empty string")):
        for kind in TYPES.values():
            file = write(tmp_path / "a.parquet", {"x": [1.5] * 7, "cls": pyarrow.array(["a"] * 6 + [missing], kind)})
            with pytest.raises(DatasetInvalid, match=rf"a.parquet, row group 1, row 2: column 'cls' is {what}, expected the name of a class: .*--columns"):
                ParquetDataset([file], label="cls")
            assert ParquetDataset([file])[6] == {"x": 1.5, "cls": missing}
    many = write(tmp_path / "many.parquet", {"x": [1.5] * 100_001, "label": [f"n{row}" for row in range(100_001)]}, rows=50_000)
    with pytest.raises(InvalidArgument, match=r"many.parquet: column 'label' has more than 100,000 distinct strings, .*too many for classes: choose another column \(label=, --label\)"):
        ParquetDataset([many])
    assert ParquetDataset([many], columns=["x"])[0] == {"x": 1.5}
    most = write(tmp_path / "most.parquet", {"x": [1.5] * 100_000, "label": [f"n{row:06}" for row in range(100_000)]}, rows=50_000)
    assert ParquetDataset([most])[99_999] == {"x": 1.5, "label": 99_999}
    long = write(tmp_path / "long.parquet", {"x": [1.5] * 20, "label": [chr(97 + row) * (1 << 20) for row in range(20)]})
    with pytest.raises(InvalidArgument, match="'label' has more than .* 16 MiB"):
        ParquetDataset([long])
    with pytest.raises(InvalidArgument, match=r"a.parquet: column 'x' has the type double, expected integers or strings as classes: choose another column"):
        ParquetDataset([file], label="x")
    changed = ParquetDataset([write(tmp_path / "b.parquet", {"x": [1.5], "label": ["a"]})])
    write(tmp_path / "b.parquet", {"x": [1.5], "label": ["b"]})
    with pytest.raises(DatasetInvalid, match="b.parquet, row group 0, row 0: column 'label' is 'b', which was not there at first: the file changed"):
        changed[0]


@pytest.fixture
def reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """The row groups that all processes have read since the last call, in order of their numbers."""
    log, read = tmp_path / "reads", pyarrow.parquet.ParquetFile.iter_batches

    def logged(file: Any, *arguments: Any, **options: Any) -> Any:
        with log.open("a") as lines:
            lines.writelines(f"{file.metadata.num_rows} rows, {group}\n" for group in options["row_groups"])
        return read(file, *arguments, **options)

    def taken() -> list[str]:
        lines = log.read_text().splitlines()
        log.unlink()
        return sorted(lines)

    monkeypatch.setattr(pyarrow.parquet.ParquetFile, "iter_batches", logged)
    return taken


GROUPS = ["10 rows, 0", "10 rows, 1", "10 rows, 2", "7 rows, 0", "7 rows, 1"]  # of published(); they have 4, 4, 2, 4 and 3 rows


class Failing(ParquetDataset):
    fails_at = -1

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == self.fails_at:
            raise ValueError(f"no row {index} today")
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 1, 2, 3, 8])
def test_each_row_group_is_read_once_and_rows_keep_their_order(tmp_path: Path, reads: Callable[[], list[str]], workers: int) -> None:
    dataset = Failing(published(tmp_path))
    rows = [dataset[index] for index in range(17)]
    assert [row["caption"] for row in rows] == [f"number {number}" for number in range(17)]
    assert reads() == GROUPS
    headrace.pack(rows, tmp_path / "rows.lmdb", classes=CLASSES, workers=0, progress=False)
    headrace.pack(dataset, tmp_path / "set.lmdb", workers=workers, progress=False)
    assert reads() == GROUPS
    assert inspect(tmp_path / "set.lmdb")["fingerprint"] == inspect(tmp_path / "rows.lmdb")["fingerprint"]
    dataset.fails_at = 6  # within the second group
    with pytest.raises(DatasetInvalid, match="sample 6: the dataset raised ValueError: no row 6 today; 6 samples before it"):
        headrace.pack(dataset, tmp_path / "halves.lmdb", workers=workers, progress=False)
    dataset.fails_at = -1
    reads()
    assert headrace.pack(dataset, tmp_path / "halves.lmdb", workers=workers, progress=False).before == 6
    assert reads() == GROUPS, "the first group is read for the fields"
    assert inspect(tmp_path / "halves.lmdb")["fingerprint"] == inspect(tmp_path / "rows.lmdb")["fingerprint"]


def test_memory_is_bounded_within_a_row_group(tmp_path: Path) -> None:
    rows, each = 256, 1 << 18
    table = pyarrow.table({"x": [np.random.default_rng(row).bytes(each) for row in range(rows)]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", use_dictionary=False, write_batch_size=4)  # pages of 4 rows
    default = pyarrow.default_memory_pool()
    pyarrow.set_memory_pool(POOL)
    try:
        dataset = ParquetDataset([tmp_path / "a.parquet"])
        assert dataset.pack_blocks == [rows]
        assert sum(len(dataset[row]["x"]) for row in range(rows)) == rows * each
    finally:
        pyarrow.set_memory_pool(default)
    assert 0 < POOL.max_memory() < rows * each // 3


@pytest.mark.parametrize("workers", ["0", "3"])
def test_a_damaged_page_is_named_and_the_same_command_continues(tmp_path: Path, capsys: pytest.CaptureFixture[str], workers: str) -> None:
    first, second = published(tmp_path)
    whole = Path(second).read_bytes()
    page = pyarrow.parquet.ParquetFile(second).metadata.row_group(1).column(0).data_page_offset
    Path(second).write_bytes(whole[:page] + b"\xff" * 16 + whole[page + 16 :])
    command = [first, second, str(tmp_path / "out"), "--workers", workers, "--quiet"]
    assert main(command) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"headrace: DATASET_INVALID: sample 14: {second}, row group 1, row 0: cannot be read: OSError: "), line
    kept = f"; 14 samples before it are kept in {tmp_path / 'out'}: repair the dataset, then run the same command or program again to continue"
    assert line.endswith(f"{kept}; or pack such samples as bad ones with --on-error bad"), line
    Path(second).write_bytes(whole)
    assert main(command) == 0
    assert "packed 17 samples" in capsys.readouterr().out


@pytest.mark.parametrize("workers", ["0", "3"])
@pytest.mark.parametrize(
    ("column", "value", "what"),
    [("w", 1.5, "a number, array, image, str or bytes"), ("caption", "a", "str"), ("image", {"bytes": jpeg(0), "path": ""}, "bytes"), ("label", 1, "a number, .*")],
)
def test_rows_with_nulls_are_named_and_may_be_packed_as_bad(tmp_path: Path, capsys: pytest.CaptureFixture[str], column: str, value: Any, what: str, workers: str) -> None:
    file, out = write(tmp_path / "a.parquet", {"x": [0.5] * 7, column: [*[value] * 5, None, value]}), tmp_path / "out"
    command = [file, str(out), "--workers", workers, "--quiet"]
    assert main(command) == 3
    (line,) = capsys.readouterr().err.splitlines()
    said = f"sample 5: field `{column}` is NoneType, expected {what}; 5 samples before it are kept in {out}: repair the dataset, then run the same .*"
    assert re.fullmatch(f"headrace: DATASET_INVALID: {said} to continue; or pack such .* with --on-error bad; or leave the column out with --columns, and remove {out} first.*", line), line
    assert main([*command, "--columns", "x"]) == 2
    assert re.search(f"{out} holds another packing: .*; remove it or choose another name", capsys.readouterr().err)
    assert main([*command, "--on-error", "bad"]) == 0
    assert capsys.readouterr().out.startswith(f"packed 7 samples into {out}, 1 of them bad (5: field `{column}` is NoneType, expected ")
    assert re.fullmatch(f"5: field `{column}` is NoneType, expected {what}", inspect(out)["first_undecodable"][0])
    assert main([*command, "--on-error", "bad"]) == 0
    assert capsys.readouterr().out.startswith(f"{out} is complete already: 7 samples, 1 of them bad (5: field ")
    shutil.rmtree(out)
    assert main([*command, "--columns", "x"]) == 0


def test_images_that_cannot_be_decoded_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = [{"bytes": bytes, "path": ""} for bytes in (jpeg(0), b"hello", jpeg(1), jpeg(2)[:-400])]
    assert main([write(tmp_path / "a.parquet", {"image": images, "label": [0, 1, 0, 1]}), str(tmp_path / "out"), "--quiet"]) == 0
    said = capsys.readouterr().out
    assert "2 of them bad (1: unknown_format (neither a JPEG nor a PNG file by its first bytes); 3: truncated (" in said


def test_a_first_image_that_is_none_does_not_make_the_others_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = [{"bytes": bytes, "path": ""} for bytes in (b"hello", jpeg(0), jpeg(1))]
    assert main([write(tmp_path / "a.parquet", {"image": images, "label": [0, 1, 0]}), str(tmp_path / "out"), "--quiet"]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert "sample 1: field `image` begins like a JPEG or PNG file, but the first sample does not: repair or remove the first sample" in line, line


def test_remedies_are_only_those_that_help(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = write(tmp_path / "first.parquet", {"x": [0.5] * 2, "w": [None, 1.5]})
    assert main([first, str(tmp_path / "out"), "--on-error", "bad", "--quiet"]) == 3
    error = capsys.readouterr().err
    assert "; nothing was written: the first sample shows what the fields are, so repair or remove it; or leave the column out with --columns" in error and "--on-error" not in error
    lengths = write(tmp_path / "lengths.parquet", {"x": [0.5] * 2, "w": [[1.5], [1.5, 2.5]]})
    assert main([lengths, str(tmp_path / "out"), "--on-error", "bad", "--quiet"]) == 3
    error = capsys.readouterr().err
    assert "sample 1: field `w` has shape (2,), expected (1,)" in error and "--columns" in error and "--on-error" not in error


def test_a_folder_whose_classes_are_strings_is_refused(tmp_path: Path) -> None:
    class Rows(FolderDataset):
        format, module, install = "Rows", "json", "json"

        def _open(self, library: Any) -> Any:
            return [{"x": 1.5, "kind": 2, "cls": "cat"}]

    with pytest.raises(InvalidArgument, match=r"column 'cls' has values of type str, expected integers as classes: .*\(--label\)"):
        Rows(tmp_path, label="cls")
    assert Rows(tmp_path, label="kind")[0] == {"x": 1.5, "label": 2, "cls": "cat"}


@pytest.mark.parametrize("module", ["parquet", "mds", "litdata"])
def test_each_command_offers_to_pack_bad_samples(module: str) -> None:
    said = subprocess.run([sys.executable, "-m", f"headrace.{module}", "--help"], check=True, capture_output=True, text=True).stdout
    assert "--on-error {raise,bad}" in said


def test_rows_may_be_read_in_any_order(tmp_path: Path) -> None:
    dataset = ParquetDataset(published(tmp_path))
    for index in (16, 0, 3, 1, 9, 8):
        assert dataset[index]["caption"] == f"number {index}"


def test_errors_name_the_file_and_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (first, second), other = published(tmp_path), write(tmp_path / "other.parquet", {"image": [jpeg(0)]})
    differ = r"other.parquet: its columns differ from those of .*train-0.parquet: expected image \(struct.*, found image \(binary\)"
    with pytest.raises(DatasetInvalid, match=differ):
        ParquetDataset([first, other])
    with pytest.raises(InvalidArgument, match=r"has no column 'picture'; columns: image \(.*\), kind \(int64\), caption \(string\)"):
        ParquetDataset([first, second], columns=["picture"])
    with pytest.raises(InvalidArgument, match="expected a list of Parquet files"):
        ParquetDataset(first)
    several = write(tmp_path / "several.parquet", {"image": [jpeg(0)], "fine": [1], "coarse": [0]}, features(fine=CLASSES, coarse=CLASSES))
    with pytest.raises(InvalidArgument, match="several columns of classes: choose one with label: fine, coarse"):
        ParquetDataset([several])
    assert ParquetDataset([several], label="coarse").classes == CLASSES
    linked = write(tmp_path / "linked.parquet", {"image": [{"bytes": None, "path": "there.jpg"}], "label": [0]})
    with pytest.raises(DatasetInvalid, match=r"linked.parquet, row group 0, row 0: column 'image' has no bytes, only the path 'there.jpg': embed the files"):
        ParquetDataset([linked])[0]
    (tmp_path / "text.parquet").write_text("no Parquet")
    assert main([str(tmp_path / "text.parquet"), str(tmp_path / "out")]) == 3
    assert "text.parquet: cannot be read as a Parquet file" in capsys.readouterr().err
    assert main([first, str(tmp_path / "out"), "--columns", "picture"]) == 2
    refused = subprocess.run(["headrace", "pack", first, str(tmp_path / "out")], capture_output=True, text=True, check=False)
    assert f"python -m headrace.parquet {first} OUT" in refused.stderr, refused.stderr
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(EnvironmentFailed, match="pip install pyarrow"):
        ParquetDataset([first])
