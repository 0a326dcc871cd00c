"""headrace.pack() of a Ray Dataset: its blocks are read in parallel, its records are in the dataset's order."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from headrace.errors import DatasetInvalid, InvalidArgument
from local_ray import nodes, ray

ROWS, BLOCKS = 40, 8
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[Any]:
    with nodes(2) as running:
        yield running


def pixels(index: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(index).integers(0, 256, (6, 5, 3), dtype=np.uint8)


def dataset(fails_at: int = -1, none_at: int = -1) -> ray.data.Dataset:
    """Numbered pictures in blocks, of which the first ones take the longest."""

    def make(row: dict[str, Any]) -> dict[str, Any]:
        index = int(row["id"])
        if index == fails_at:
            raise ValueError(f"no row {index} today")
        if index < ROWS // BLOCKS:
            time.sleep(0.2)
        return {"image": pixels(index), "label": index % 3, "name": None if index == none_at else f"row {index}", "number": index}

    return ray.data.range(ROWS, override_num_blocks=BLOCKS).map(make)


def pack(data: Any, out: Path, **options: Any) -> headrace.Packed:
    return headrace.pack(data, out, **{"progress": False, **options})


def served(out: Path) -> list[dict[str, Any]]:
    """The rows of a database, in its order."""
    body = {
        "server": {"threads": 1, "metrics": "off"},
        "sources": {"packed": {"type": "lmdb", "path": str(out)}},
        "streams": {"train": {"source": "packed", "batch_size": 1, "shuffle": False, "output": {"layout": "NHWC"}}},
    }
    config = out.with_suffix(".yaml")
    config.write_text(json.dumps(body))
    with headrace.serve(config) as server, headrace.Loader(server.address, stream="train", batch="dict", output="numpy") as loader:
        return [{name: values for name, values in batch.items()} for batch in loader]


def check_rows(out: Path, indices: list[int]) -> None:
    rows = served(out)
    assert [int(row["number"][0]) for row in rows] == indices
    for row, index in zip(rows, indices, strict=True):
        np.testing.assert_array_equal(row["image"][0], pixels(index))
        assert int(row["label"][0]) == index % 3
        assert bytes(row["name"][0]).decode() == f"row {index}"


@pytest.mark.parametrize("workers", [None, 1])
def test_all_rows_are_packed_in_the_datasets_order(tmp_path: Path, workers: int | None) -> None:
    packed = pack(dataset(), tmp_path / "set.lmdb", workers=workers)
    assert (packed.samples, packed.before, packed.bad) == (ROWS, 0, 0)
    check_rows(tmp_path / "set.lmdb", list(range(ROWS)))


def test_the_database_is_that_of_the_same_samples_without_ray(tmp_path: Path) -> None:
    def fingerprint(name: str, data: Any) -> str:
        pack(data, tmp_path / name)
        config = tmp_path / f"{name}.yaml"
        body = {"sources": {"packed": {"type": "lmdb", "path": name}}, "streams": {"train": {"source": "packed", "batch_size": 1}}}
        config.write_text(json.dumps(body))
        return str(headrace.Maker(config, "train").info.fingerprint)

    rows = [{"image": pixels(index), "label": index % 3, "name": f"row {index}", "number": index} for index in range(ROWS)]
    assert fingerprint("ray.lmdb", dataset()) == fingerprint("list.lmdb", rows)


def test_a_row_that_raises_is_named_and_a_second_call_continues(tmp_path: Path) -> None:
    with pytest.raises(DatasetInvalid, match="no row 25 today"):
        pack(dataset(fails_at=25), tmp_path / "set.lmdb")
    packed = pack(dataset(), tmp_path / "set.lmdb")
    assert packed.samples == ROWS
    check_rows(tmp_path / "set.lmdb", list(range(ROWS)))


def test_a_row_without_a_value_stops_or_is_a_bad_one(tmp_path: Path) -> None:
    with pytest.raises(DatasetInvalid, match="sample 12: field `name`"):
        pack(dataset(none_at=12), tmp_path / "stops.lmdb")
    packed = pack(dataset(none_at=12), tmp_path / "bad.lmdb", on_error="bad")
    assert (packed.samples, packed.bad) == (ROWS, 1)
    assert packed.first_bad[0].startswith("12: ")


def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="workers=0"):
        pack(dataset(), tmp_path / "set.lmdb", workers=0)
    with pytest.raises(InvalidArgument, match="no samples"):
        pack(dataset().limit(0), tmp_path / "set.lmdb")
    with pytest.raises(InvalidArgument, match="colour"):
        pack(dataset(), tmp_path / "set.lmdb", fields={"colour": "image"})
    assert not (tmp_path / "set.lmdb").exists()


def test_headrace_alone_does_not_import_ray() -> None:
    code = "import sys, headrace; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
