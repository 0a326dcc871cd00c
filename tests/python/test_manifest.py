"""Samples listed in a file: every kind of field and file, and errors in lines."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from PIL import Image
from test_fields import check

SHOW = {
    "batch_size": 4,
    "shuffle": False,
    "transforms": [{"center_crop": {"size": 8}}],
    "output": {"layout": "NHWC"},
}
ROWS = 6


def write_photos(root: Path) -> None:
    """photos/<i>.png is of one color, i."""
    (root / "photos").mkdir(parents=True)
    for index in range(ROWS):
        Image.new("RGB", (12, 10), (index, index, index)).save(root / "photos" / f"{index}, or so.png")


def config_of(manifest: Path, fields: dict[str, Any] | None = None, **source: Any) -> dict[str, Any]:
    given = {"type": "manifest", "path": str(manifest), **source, **({"fields": fields} if fields else {})}
    return {
        "server": {"metrics": "off"},
        "sources": {"set": given},
        "streams": {"train": {"source": "set", **SHOW}},
    }


def colors(batch: Any) -> list[int]:
    return [int(value) for value in batch["image"][:, 0, 0, 0]]


FIELDS = {
    "image": {"column": "path"},
    "label": {"kind": "class", "column": "animal"},
    "age": {"kind": "value", "dtype": "int16"},
    "pose": {"kind": "value", "shape": [2, 2]},
    "boxes": {"kind": "ragged", "shape": [4], "dtype": "float64"},
    "caption": {"kind": "text"},
    "tags": {"kind": "multi_hot", "classes": ["big", "wet", "old"]},
}


def row(index: int) -> dict[str, Any]:
    return {
        "path": f"photos/{index}, or so.png",
        "animal": ["dog", "cat", "ant"][index % 3],
        "age": -index,
        "pose": [[index, 0.5], [0, 1]],
        "boxes": [[index, 0, k, 1] for k in range(index % 3)],
        "caption": f'a "{index}", größer\n\nand more',
        "tags": ["big", "old"] if index % 2 else [],
        "unused": None,
    }


def write_manifest(path: Path) -> Path:
    rows = [row(index) for index in range(ROWS)]
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(entry) + "\n" for entry in rows))
        return path
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writeheader()
        for entry in rows:
            cells = {
                name: json.dumps(value) if isinstance(value, list) else value for name, value in entry.items()
            }
            writer.writerow(cells | {"tags": "|".join(entry["tags"])})
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
def test_each_kind_of_field_comes_as_it_was_written(start_server: Any, tmp_path: Path, suffix: str) -> None:
    write_photos(tmp_path)
    address = start_server(config_of(write_manifest(tmp_path / f"set{suffix}"), FIELDS)).address
    with headrace.Loader(address, stream="train", batch="dict") as loader:
        assert loader.classes == ("ant", "cat", "dog")
        seen = 0
        for batch in loader:
            rows = [row(seen + i) for i in range(len(batch["label"]))]
            assert colors(batch) == [seen + i for i in range(len(rows))]
            assert [loader.classes[label] for label in batch["label"]] == [entry["animal"] for entry in rows]
            assert batch["age"].dtype == np.int16 and batch["age"].tolist() == [
                entry["age"] for entry in rows
            ]
            assert batch["pose"].tolist() == [entry["pose"] for entry in rows]
            assert batch["tags"].tolist() == [[1, 0, 1] if entry["tags"] else [0, 0, 0] for entry in rows]
            boxes, ends = batch["boxes"]
            captions, text_ends = batch["caption"]
            assert boxes.dtype == np.float64
            for i, entry in enumerate(rows):
                assert boxes[ends[i] : ends[i + 1]].tolist() == entry["boxes"]
                assert bytes(captions[text_ends[i] : text_ends[i + 1]]).decode() == entry["caption"]
            seen += len(rows)
        assert seen == ROWS
    sample = headrace.sample(address, "train", 0, 5)
    assert sample.fields["boxes"].tolist() == row(5)["boxes"]


def test_lists_of_paths_need_no_fields(start_server: Any, tmp_path: Path) -> None:
    write_photos(tmp_path / "deep")
    bare, labelled = tmp_path / "bare.txt", tmp_path / "labelled.txt"
    bare.write_text("".join(f"photos/{index}, or so.png\n" for index in range(ROWS)))
    labelled.write_text("".join(f"photos/{index}, or so.png {index % 2 * 3}\n" for index in range(ROWS)))
    for manifest, classes in ((bare, ()), (labelled, ("0", "1", "2", "3"))):
        address = start_server(config_of(manifest, root=str(tmp_path / "deep"))).address
        with headrace.Loader(address, stream="train", batch="dict") as loader:
            assert loader.classes == classes
            batches = list(loader)
        assert [color for batch in batches for color in colors(batch)] == list(range(ROWS))
        if classes:
            assert [int(label) for batch in batches for label in batch["label"]] == [0, 3] * 3


def test_a_byte_order_mark_is_no_part_of_the_first_column(start_server: Any, tmp_path: Path) -> None:
    write_photos(tmp_path)
    rows = "".join(f'"photos/{index}, or so.png",{index % 2}\n' for index in range(ROWS))
    (tmp_path / "list.csv").write_text("path,label\n" + rows, encoding="utf-8-sig")
    server = start_server(config_of(tmp_path / "list.csv"))
    with headrace.Loader(server.address, stream="train", batch="dict") as loader:
        assert [color for batch in loader for color in colors(batch)] == list(range(ROWS))


def test_a_manifest_of_many_lines_is_served_and_its_missing_files_are_reported(
    start_server: Any, tmp_path: Path
) -> None:
    """More lines than the server requests one by one: see server/source/size_sample.h."""
    write_photos(tmp_path)
    lines = [f"photos/{index % ROWS}, or so.png\n" for index in range(70_000)]
    manifest = tmp_path / "set.txt"
    manifest.write_text("".join(lines))
    address = start_server(config_of(manifest, root=str(tmp_path))).address
    assert headrace.streams(address)[0].samples == 70_000
    with headrace.Loader(address, stream="train", batch="dict") as loader:
        assert colors(next(iter(loader))) == [0, 1, 2, 3]
    lines[66_001] = "photos/gone.png\n"
    lines[69_999] = "photos\n"
    manifest.write_text("".join(lines))
    told = check(tmp_path, config_of(manifest, root=str(tmp_path)))
    assert told.returncode == 3
    assert "set.txt:66002: column `path`: " in told.stderr
    assert "photos/gone.png: No such file or directory" in told.stderr
    assert "set.txt:70000: column `path`: " in told.stderr
    assert "photos: is not a regular file" in told.stderr


def test_wrong_lines_are_reported_each_with_its_number_up_to_twenty(tmp_path: Path) -> None:
    write_photos(tmp_path)
    manifest = tmp_path / "set.csv"
    good = '"photos/1, or so.png",cat,3\n'
    lines = [
        "path,label,age\n",
        good,
        '"photos/9, or so.png",cat,3\n',
        '"photos/1, or so.png",,3\n',
        '"photos/1, or so.png",cat,x\n',
    ]
    lines += [
        '"photos/1, or so.png",cat\n',
        '"photos/1, or so.png",cat,300\n',
        *['"photos/1, or so.png",cat,1.5\n'] * 30,
    ]
    manifest.write_text("".join(lines))
    told = check(
        tmp_path,
        config_of(
            manifest,
            {
                "image": {"column": "path"},
                "label": {"kind": "class"},
                "age": {"kind": "value", "dtype": "uint8"},
            },
        ),
    )
    assert told.returncode == 3
    for words in (
        ":3: column `path`: ",
        "photos/9, or so.png: No such file or directory",
        ':4: column `label`: "" is not a class',
        ':5: column `age`: "x" is neither a number',
        ":6: has 2 cells, the header has 3",
        ":7: column `age`: 300 is outside 0 to 255",
        ":8: column `age`: 1.5 is not a whole number",
        "and 15 more",
    ):
        assert words in told.stderr, told.stderr


@pytest.mark.parametrize(
    ("text", "fields", "words"),
    [
        ("path,label\n", None, "lists no sample"),
        (
            "photo,label\nx,1\n",
            None,
            "has no column path, image, file or filename: name the `fields`; columns: photo, label",
        ),
        (
            "path\nx\n",
            {"image": {"column": "photo"}},
            "has no column `photo` for field `image`; columns: path",
        ),
        ('path,label\n"photos/1, or so.png"x,1\n', None, ":2: is not CSV"),
        (
            'path,label\n"photos/1, or so.png",owl\n',
            {"image": {"column": "path"}, "label": {"kind": "class", "classes": ["cat"]}},
            '"owl" is none of the 1 classes',
        ),
    ],
)
def test_what_is_wrong_with_a_manifest_is_named(
    tmp_path: Path, text: str, fields: dict[str, Any] | None, words: str
) -> None:
    write_photos(tmp_path)
    (tmp_path / "set.csv").write_text(text)
    told = check(tmp_path, config_of(tmp_path / "set.csv", fields))
    assert told.returncode in (2, 3)
    assert words in told.stderr
