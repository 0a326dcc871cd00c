"""numpy arrays, served: .npy and .npz files against the arrays that were saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from test_pixel_sources import config


@pytest.fixture
def arrays() -> dict[str, Any]:
    random = np.random.default_rng(5)
    return {
        "image": random.integers(0, 256, (50, 12, 10, 3), dtype=np.uint8),
        "label": np.arange(50) % 7,
        "features": random.standard_normal((50, 4, 2), dtype=np.float32),
        "flag": random.integers(0, 2, 50).astype(bool),
    }


def save(folder: Path, arrays: dict[str, Any]) -> dict[str, str]:
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", values)
    return {name: str(folder / f"{name}.npy") for name in arrays}


def check(address: str, arrays: dict[str, Any]) -> None:
    with headrace.Loader(address, stream="train", batch="dict") as loader:
        assert loader.classes == tuple(str(i) for i in range(7))
        seen = []
        for batch in loader:
            index = batch.sample_index
            np.testing.assert_array_equal(batch["image"], arrays["image"][index].transpose(0, 3, 1, 2))
            np.testing.assert_array_equal(batch["features"], arrays["features"][index])
            np.testing.assert_array_equal(batch["flag"], arrays["flag"][index])
            np.testing.assert_array_equal(batch["label"], arrays["label"][index])
            assert batch["features"].dtype == np.float32
            seen += index.tolist()
        assert sorted(seen) == list(range(50))


def test_npy_files_come_in_batches_as_they_were_saved(start_server: Any, tmp_path: Path, arrays: dict[str, Any]) -> None:
    check(start_server(config({"type": "npy", "fields": save(tmp_path, arrays)})).address, arrays)


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_npz_files_come_in_batches_as_they_were_saved(start_server: Any, tmp_path: Path, arrays: dict[str, Any], write: Any) -> None:
    write(tmp_path / "set.npz", **arrays)
    check(start_server(config({"type": "npy", "path": str(tmp_path / "set.npz")})).address, arrays)


def test_arrays_of_other_names_become_fields_by_the_configuration(start_server: Any, tmp_path: Path, arrays: dict[str, Any]) -> None:
    other = {"X_train": arrays["image"].transpose(0, 3, 1, 2), "y_train": arrays["label"], "F": arrays["features"], "v": arrays["flag"]}
    np.savez(tmp_path / "set.npz", **other, unused=np.array(["text"]))
    fields = {"image": "X_train", "label": "y_train", "features": "F", "flag": "v"}
    check(start_server(config({"type": "npy", "path": str(tmp_path / "set.npz"), "fields": fields})).address, arrays)


def test_sets_without_images_or_labels_are_served_too(start_server: Any, tmp_path: Path, arrays: dict[str, Any]) -> None:
    source = {"type": "npy", "fields": {"features": save(tmp_path, arrays)["features"]}}
    with headrace.Loader(start_server(config(source, shuffle=False)).address, stream="train") as loader:
        np.testing.assert_array_equal(np.concatenate([batch[0] for batch in loader]), arrays["features"])
    with pytest.raises(AssertionError, match="the source has no images to transform; leave `transforms` out"):
        start_server(config(source, transforms=["random_horizontal_flip"]))


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (np.zeros((50, 2), dtype=">f4"), "is big-endian"),
        (np.asfortranarray(np.zeros((50, 2))), "is in Fortran order"),
        (np.array([None] * 50), "holds Python objects"),
        (np.zeros(50, dtype=[("a", "f4"), ("b", "i4")]), "is an array of records"),
        (np.zeros((50, 2), dtype=np.complex64), 'dtype "<c8" is not supported'),
        (np.zeros((49, 2)), "has 49 samples"),
    ],
)
def test_arrays_that_no_field_can_hold_are_refused(
    start_server: Any, tmp_path: Path, arrays: dict[str, Any], values: Any, why: str
) -> None:
    fields = save(tmp_path, {**arrays, "odd": values})
    with pytest.raises(AssertionError, match=rf"odd\.npy: {why}"):
        start_server(config({"type": "npy", "fields": fields}))
