"""python -m headrace.mds and headrace.litdata: folders that the real libraries write become databases with the same rows."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace
import litdata
import numpy as np
import pytest
import streaming
from headrace.errors import DatasetInvalid, EnvironmentFailed, InvalidArgument
from headrace.litdata import LitDataset
from headrace.mds import MDSDataset, main
from PIL import Image

ROWS, SIDE = 17, 16
COLUMNS = {"image": "jpeg", "kind": "int", "caption": "str", "place": "ndarray:float32:2"}


def picture(number: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(number).integers(0, 256, (SIDE, SIDE, 3), np.uint8))


def jpeg(number: int) -> bytes:
    out = io.BytesIO()
    picture(number).save(out, "JPEG")
    return out.getvalue()


class Row:
    """Both libraries keep a JPEG's bytes only if the image comes from a file."""

    def __init__(self, folder: Path) -> None:
        self.files = folder.parent / "files"
        self.files.mkdir(exist_ok=True)

    def __call__(self, number: int) -> dict[str, Any]:
        path = self.files / f"{number}.jpg"
        path.write_bytes(jpeg(number))
        return {"image": Image.open(path), "kind": number % 3, "caption": f"number {number}", "place": np.float32([number, -number])}


def mds(folder: Path, columns: dict[str, str] = COLUMNS, make: Callable[[int], dict[str, Any]] | None = None, **options: Any) -> Path:
    make = make or Row(folder)
    with streaming.MDSWriter(out=str(folder), columns=columns, size_limit=5000, **options) as writer:
        for number in range(ROWS):
            writer.write(make(number))
    return folder


def lit(folder: Path) -> Path:
    litdata.optimize(fn=Row(folder), inputs=list(range(ROWS)), output_dir=str(folder), chunk_bytes=5000, num_workers=1, verbose=False)
    return folder


@pytest.mark.parametrize("workers", ["0", "3"])
@pytest.mark.parametrize(("module", "write"), [("mds", mds), ("litdata", lit)])
def test_a_folder_is_served(tmp_path: Path, module: str, write: Callable[[Path], Path], workers: str) -> None:
    out = tmp_path / "set.lmdb"
    command = [sys.executable, "-m", f"headrace.{module}", str(write(tmp_path / "folder")), str(out), "--label", "kind", "--workers", workers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    packed, proposed = done.stdout.rstrip("\n").split("; serve it: ")
    assert packed == f"packed {ROWS} samples into {out}", done.stderr
    assert proposed == f"sources: {{packed: {{type: lmdb, path: {out}}}}}"
    config = tmp_path / "c.yaml"
    config.write_text(f"{proposed}\nstreams: {{train: {{source: packed, batch_size: 4, output: {{layout: NHWC}}, transforms: [{{center_crop: {SIDE}}}]}}}}")
    seen = []
    with headrace.serve(config) as server, headrace.Loader(server.address, stream="train", batch="dict", output="numpy") as loader:
        for batch in loader:
            values, offsets = batch["caption"]
            for at, index in enumerate(batch.sample_index.tolist()):
                np.testing.assert_array_equal(batch["image"][at], np.asarray(Image.open(io.BytesIO(jpeg(index)))))
                assert batch["label"][at] == index % 3
                assert batch["place"][at].tolist() == [index, -index]
                assert bytes(values[offsets[at] : offsets[at + 1]]).decode() == f"number {index}"
                seen.append(index)
    assert sorted(seen) == list(range(ROWS))


@pytest.mark.parametrize(("dataset", "write"), [(MDSDataset, mds), (LitDataset, lit)])
def test_columns_are_chosen_and_files_stay_undecoded(tmp_path: Path, dataset: Any, write: Callable[[Path], Path]) -> None:
    folder = write(tmp_path / "folder")
    rows = dataset(folder, columns=["image"], label="kind")
    assert len(rows) == ROWS
    assert rows[5] == {"image": jpeg(5), "label": 2}
    with pytest.raises(IndexError):
        rows[ROWS]
    with pytest.raises(InvalidArgument, match="has no column 'picture'; columns: "):
        dataset(folder, columns=["picture"])


def test_png_files_stay_undecoded_and_pil_images_have_pixels(tmp_path: Path) -> None:
    folder = mds(tmp_path / "folder", {"png": "png", "pil": "pil"}, lambda number: {"png": picture(number), "pil": picture(number)})
    sample = MDSDataset(folder)[3]
    assert sample["png"].startswith(b"\x89PNG")
    np.testing.assert_array_equal(np.asarray(sample["pil"]), np.asarray(picture(3)))


def test_compressed_shards_can_be_unpacked_by_their_library(tmp_path: Path) -> None:
    folder = mds(tmp_path / "packed", compression="zstd")
    assert len(list(streaming.StreamingDataset(local=str(folder), batch_size=1))) == ROWS
    assert MDSDataset(folder, label="kind")[5]["image"] == jpeg(5)


def test_shards_that_are_not_mds_are_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, writer in (("json", streaming.JSONWriter), ("csv", streaming.CSVWriter)):
        with writer(out=str(tmp_path / name), columns={"kind": "int"}) as to:
            to.write({"kind": 1})
        assert main([str(tmp_path / name), str(tmp_path / "out")]) == 3
        (line,) = capsys.readouterr().err.splitlines()
        assert line == f"headrace: DATASET_INVALID: {tmp_path / name} has {name.upper()} shards: expected MDS; write it again with streaming.MDSWriter"


def test_damaged_shards_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refusal(folder: Path) -> str:
        assert main([str(folder), str(tmp_path / "out"), "--workers", "2", "--quiet"]) == 3
        (line,) = capsys.readouterr().err.splitlines()
        return line

    folder = mds(tmp_path / "folder")
    shard = folder / "shard.00000.mds"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:100])
    assert refusal(folder).endswith(f"{shard} has 100 bytes, expected {len(whole)} as index.json says: copy or download it again")
    shard.write_bytes(whole[:4] + b"\xff" * 8 + whole[12:])  # where row 0 is
    assert f"{folder}: row 0 cannot be read as MDS: IndexError: " in refusal(folder)
    shard.write_bytes(whole[:8] + b"\xff" * 8 + whole[16:])  # where row 1 is
    line = refusal(folder)
    assert line.startswith(f"headrace: DATASET_INVALID: sample 1: {folder}: row 1 cannot be read as MDS: "), line
    assert "1 samples before it are kept" in line and line.endswith("run the same command or program again to continue; or pack such samples as bad ones with --on-error bad")
    shard.write_bytes(whole)
    assert main([str(folder), str(tmp_path / "out"), "--quiet"]) == 0
    (folder / "index.json").write_text('{"version": 2}')
    assert "folder cannot be read as MDS: KeyError: 'shards'" in refusal(folder)


def test_damaged_chunks_are_named(tmp_path: Path) -> None:
    folder = lit(tmp_path / "folder")
    chunk = min(folder.glob("chunk-*"))
    chunk.write_bytes(chunk.read_bytes()[:10])
    with pytest.raises(DatasetInvalid, match=f"^DATASET_INVALID: {folder}: row 0 cannot be read as LitData: "):
        LitDataset(folder)


def test_errors_name_the_folder_and_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    packed = mds(tmp_path / "packed", compression="zstd")
    with pytest.raises(DatasetInvalid, match=r"packed/shard.00000.mds is missing: unpack compressed shards first"):
        MDSDataset(packed)
    pickled = mds(tmp_path / "pickled", {"any": "pkl"}, lambda number: {"any": {number}})
    with pytest.raises(DatasetInvalid, match="unsafe type: pkl"):
        MDSDataset(pickled)
    (tmp_path / "empty").mkdir()
    for dataset in (MDSDataset, LitDataset):
        with pytest.raises(DatasetInvalid, match="empty cannot be read as (MDS|LitData)"):
            dataset(tmp_path / "empty")
        with pytest.raises(DatasetInvalid, match="s3://bucket/set is not a folder on this machine: .*download it first"):
            dataset("s3://bucket/set")
    assert main([str(tmp_path / "empty"), str(tmp_path / "out")]) == 3
    assert "cannot be read as MDS" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "streaming", None)
    with pytest.raises(EnvironmentFailed, match="pip install mosaicml-streaming"):
        MDSDataset(packed)
