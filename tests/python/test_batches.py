"""The contents of batches: copies, views, types, and the attributes of their rows."""

from __future__ import annotations

import copy
import gc
import pickle
import warnings
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
import torch
from running import wait_until


def client_stats(address: str) -> dict[str, Any]:
    (client,) = headrace.stats(address)["streams"]["train"]["clients"]
    found: dict[str, Any] = client
    return found


def test_tuples_and_dicts_hold_the_same(start_server: Any, quiet_config: dict[str, Any]) -> None:
    address = start_server(quiet_config).address
    with (
        headrace.Loader(address, stream="train") as tuples,
        headrace.Loader(address, stream="train", batch="dict", meta=True) as dicts,
        headrace.Loader(address, stream="train", meta=True) as with_meta,
    ):
        for plain, named, meta in zip(tuples, dicts, with_meta, strict=True):
            image, label = plain
            assert image.shape == (len(label), 3, 32, 32)
            assert (image.dtype, label.dtype) == (np.uint8, np.int64)
            assert set(named) == {"image", "label", "valid", "sample_index", "replaced"}
            np.testing.assert_array_equal(named["image"], image)
            np.testing.assert_array_equal(named["label"], label)
            assert list(meta[2]) == ["valid", "sample_index", "replaced"]
            np.testing.assert_array_equal(meta[2]["sample_index"], plain.sample_index)
            np.testing.assert_array_equal(named["sample_index"], plain.sample_index)
            assert not plain.replaced.any()


@pytest.mark.parametrize("form", ["tuple", "dict"])
def test_copies_and_pickles_of_a_batch_keep_its_row_attributes(start_server: Any, quiet_config: dict[str, Any], form: str) -> None:
    with headrace.Loader(start_server(quiet_config).address, stream="train", batch=form) as loader:
        batch = next(iter(loader))
        other = next(iter(loader))
        for again in (copy.copy(batch), copy.deepcopy(batch), pickle.loads(pickle.dumps(batch))):
            assert type(again) is type(batch)
            assert (again.epoch, again.number, again.private_copy) == (0, 0, True)
            assert again.valid.dtype == bool
            np.testing.assert_array_equal(again.sample_index, batch.sample_index)
            np.testing.assert_array_equal(again.replaced, batch.replaced)
        batch.sample_index[:] = -1  # an array of the batch's own
        assert (batch.sample_index == -1).all()
        assert (other.sample_index >= 0).all()


@pytest.mark.parametrize("form", ["tuple", "dict"])
def test_saved_batches_are_loaded_by_torch(start_server: Any, quiet_config: dict[str, Any], tmp_path: Path, form: str) -> None:
    with headrace.Loader(start_server(quiet_config).address, stream="train", batch=form, output="torch") as loader:
        batch = next(iter(loader))
    plain = dict(batch) if form == "dict" else tuple(batch)
    torch.save([batch, plain], tmp_path / "batch.pt")
    with pytest.raises(pickle.UnpicklingError, match="add_safe_globals"):  # torch's own words
        torch.load(tmp_path / "batch.pt")
    with torch.serialization.safe_globals([headrace.TupleBatch, headrace.DictBatch]):
        again, alike = torch.load(tmp_path / "batch.pt")
    assert type(again) is type(batch)
    assert type(alike) is type(plain)
    assert torch.equal(again.sample_index, batch.sample_index)
    for name in plain if isinstance(plain, dict) else range(2):
        assert torch.equal(again[name], plain[name])
        assert torch.equal(alike[name], plain[name])


def test_padded_rows_are_marked_also_in_tuples(start_server: Any, quiet_config: dict[str, Any]) -> None:
    quiet_config["streams"]["train"]["last"] = "pad"
    with headrace.Loader(start_server(quiet_config).address, stream="train") as loader:
        valid = np.concatenate([batch.valid for batch in loader])
        assert len(valid) == 64
        assert valid[:60].all()
        assert not valid[60:].any()


def test_labels_are_those_of_the_files(start_server: Any, quiet_config: dict[str, Any]) -> None:
    with headrace.Loader(start_server(quiet_config).address, stream="train") as loader:
        assert loader.classes == ("class_0", "class_1", "class_2")
        for batch in loader:
            np.testing.assert_array_equal(batch[1], batch.sample_index // 20)


def test_a_private_copy_may_be_changed_without_anybody_noticing(start_server: Any, quiet_config: dict[str, Any]) -> None:
    address = start_server(quiet_config).address
    with headrace.Loader(address, stream="train") as first, headrace.Loader(address, stream="train") as second:
        for mine, theirs in zip(first, second, strict=True):
            before = theirs[0].copy()
            assert mine.private_copy
            mine[0][:] = 255 - mine[0]
            mine[1][:] = -1
            np.testing.assert_array_equal(theirs[0], before)
            assert (theirs[1] >= 0).all()


def test_a_field_that_a_batch_does_not_have_is_named_with_those_that_it_has(start_server: Any, quiet_config: dict[str, Any]) -> None:
    address = start_server(quiet_config).address
    with headrace.Loader(address, stream="train", batch="dict") as loader:
        batch = next(iter(loader))
        with pytest.raises(KeyError, match="images: the batch has image, label"):
            batch["images"]
        with pytest.raises(AttributeError, match=r"no attribute 'image'; its fields are items, as in batch\['image'\]"):
            _ = batch.image
    with headrace.Loader(address, stream="train") as loader:
        batch = next(iter(loader))
        with pytest.raises(AttributeError, match="no attribute 'image': unpack its fields"):
            _ = batch.image
        assert copy.deepcopy(batch).epoch == batch.epoch
    with pytest.raises(headrace.errors.InvalidArgument, match="expected a batch of a headrace.Loader, found list"):
        headrace.Digest().add([1, 2])  # type: ignore[arg-type]


def test_copies_that_are_kept_stay_as_they_are(start_server: Any, quiet_config: dict[str, Any]) -> None:
    with headrace.Loader(start_server(quiet_config).address, stream="train") as loader:
        kept = list(loader)
        digests = []
        for batches in (kept, loader):
            loader.set_epoch(0)
            digest = headrace.Digest()
            for batch in batches:
                digest.add(batch)
            digests.append(digest.hexdigest())
        assert digests[0] == digests[1]


@pytest.mark.parametrize("dtype", ["uint8", "bfloat16"])
def test_a_digest_is_the_same_for_torch_and_numpy_also_with_rows_that_are_not_valid(
    start_server: Any, quiet_config: dict[str, Any], dtype: str
) -> None:
    pytest.importorskip("torch")
    quiet_config["streams"]["train"] |= {"last": "pad", "output": {"dtype": dtype}}
    address = start_server(quiet_config).address
    digests = []
    for output in ("numpy", "torch"):
        digest = headrace.Digest()
        with headrace.Loader(address, stream="train", output=output) as loader:
            batches = list(loader)
            assert not all(batches[-1].valid)
            for batch in batches:
                digest.add(batch)
        digests.append(digest.hexdigest())
    assert digests[0] == digests[1]


def test_zero_copy_views_are_read_only_and_labels_are_copies(start_server: Any, quiet_config: dict[str, Any]) -> None:
    address = start_server(quiet_config).address
    with headrace.Loader(address, stream="train", zero_copy=True) as loader:
        image, label = batch = next(iter(loader))
        assert not batch.private_copy
        with pytest.raises(ValueError, match="read-only"):
            image[0] = 0
        with pytest.raises(ValueError, match="WRITEABLE"):
            image.flags.writeable = True
        label[0] = -1


@pytest.mark.parametrize("access", ["read_write", "read_only"])
def test_torch_writing_to_a_zero_copy_view_changes_nobody_elses_batch(
    start_server: Any, quiet_config: dict[str, Any], access: str
) -> None:
    quiet_config["streams"]["train"]["ring"] = {"data_access": access}
    address = start_server(quiet_config).address
    with (
        headrace.Loader(address, stream="train", zero_copy=True) as careless,
        headrace.Loader(address, stream="train") as private,
        headrace.Loader(address, stream="train", zero_copy=True) as views,
    ):
        for epoch in range(6):
            for mine, copied, viewed in zip(careless, private, views, strict=True):
                np.testing.assert_array_equal(mine[0], copied[0])
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # torch's own: not writable
                    torch.from_numpy(mine[0]).fill_(epoch)
                np.testing.assert_array_equal(viewed[0], copied[0])
                assert (mine[0] == epoch).all()
                del mine, viewed


def test_zero_copy_gives_the_same_bytes(start_server: Any, quiet_config: dict[str, Any]) -> None:
    address = start_server(quiet_config).address
    digests = []
    for zero_copy in (False, True):
        digest = headrace.Digest()
        with headrace.Loader(address, stream="train", zero_copy=zero_copy) as loader:
            for batch in loader:
                digest.add(batch)
                del batch
        digests.append(digest.hexdigest())
    assert digests[0] == digests[1]


def test_a_view_never_changes_while_it_lives(start_server: Any, quiet_config: dict[str, Any]) -> None:
    address = start_server(quiet_config).address
    with headrace.Loader(address, stream="train", zero_copy=True) as loader:
        image = next(iter(loader))[0][0]  # a view of a view keeps the slot, too
        gc.collect()
        before = image.copy()
        for _ in range(5):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                for batch in loader:
                    del batch
        np.testing.assert_array_equal(image, before)
        loader.close()
        np.testing.assert_array_equal(image, before)
        assert client_stats(address)["leases"] >= 1  # the slot is leased for as long as the view lives
        del image
        gc.collect()
        wait_until(lambda: not headrace.stats(address)["streams"]["train"]["clients"], "the session's end with its last view")


def test_views_are_released_in_any_order(start_server: Any, quiet_config: dict[str, Any]) -> None:
    quiet_config["streams"]["train"]["ring"] = {"max_leases": 6}
    with headrace.Loader(start_server(quiet_config).address, stream="train", zero_copy=True) as loader:
        held: list[Any] = []
        for epoch in range(4):
            for batch in loader:
                held.append(batch)
                if len(held) == 4:
                    del held[(epoch + batch.number) % 4]
        assert all(not batch.private_copy for batch in held)


def test_keeping_every_view_gives_copies_one_warning_and_no_deadlock(start_server: Any, quiet_config: dict[str, Any]) -> None:
    address = start_server(quiet_config).address
    with headrace.Loader(address, stream="train", zero_copy=True, batch_timeout=10) as loader:
        with pytest.warns(RuntimeWarning, match="2 views are alive, of 3 leases.*ring.max_leases.*zero_copy=False") as seen:
            kept = list(loader)
            kept += list(loader)
        assert len(seen) == 1
        assert seen[0].filename == __file__, "the loop's line"
        assert [batch.private_copy for batch in kept] == [False] * 2 + [True] * 14
        assert sorted(np.concatenate([batch.sample_index for batch in kept[:8]])) == list(range(60))
        assert client_stats(address)["private_copies"] == 14


def test_a_warning_that_is_an_error_costs_no_batch(start_server: Any, quiet_config: dict[str, Any]) -> None:
    address = start_server(quiet_config).address
    with headrace.Loader(address, stream="train", zero_copy=True, batch_timeout=10) as loader:
        iterator = iter(loader)
        kept = [next(iterator) for _ in range(2)]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(RuntimeWarning, match="2 views are alive"):
                next(iterator)
            assert loader.state_dict()["cursor"]["batch"] == 2
            kept += iterator
        assert [batch.number for batch in kept] == list(range(8))


def test_torch_tensors_own_their_memory(start_server: Any, quiet_config: dict[str, Any]) -> None:
    address = start_server(quiet_config).address
    with (
        headrace.Loader(address, stream="train", output="torch") as tensors,
        headrace.Loader(address, stream="train") as arrays,
    ):
        for tensor, array in zip(tensors, arrays, strict=True):
            image, label = tensor
            assert (image.dtype, label.dtype, tensor.valid.dtype) == (torch.uint8, torch.int64, torch.bool)
            np.testing.assert_array_equal(image.numpy(), array[0])
            np.testing.assert_array_equal(label.numpy(), array[1])
            image.add_(1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_float_types_agree_with_torchs_cast(start_server: Any, quiet_config: dict[str, Any], dtype: str) -> None:
    stream = quiet_config["streams"]["train"]
    stream["transforms"] = [*stream["transforms"], {"normalize": {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]}}]
    whole = {**stream, "output": {"dtype": "float32"}}
    other = {**stream, "output": {"dtype": dtype}}
    address = start_server({**quiet_config, "streams": {"whole": whole, "other": other}}).address
    with (
        headrace.Loader(address, stream="whole", output="torch") as exact,
        headrace.Loader(address, stream="other", output="torch") as cast,
        headrace.Loader(address, stream="other") as arrays,
    ):
        for left, right, array in zip(exact, cast, arrays, strict=True):
            assert right[0].dtype == getattr(torch, dtype)
            assert torch.equal(left[0].to(right[0].dtype), right[0])
            if dtype == "bfloat16" and array[0].dtype == np.uint16:  # no ml_dtypes: the bits
                np.testing.assert_array_equal(array[0], right[0].view(torch.uint16).numpy())
            else:
                np.testing.assert_array_equal(array[0].astype(np.float32), right[0].float().numpy())


def test_one_sample_is_the_one_that_trainers_get(start_server: Any, quiet_config: dict[str, Any]) -> None:
    address = start_server(quiet_config).address
    with headrace.Loader(address, stream="train") as loader:
        loader.set_epoch(3)
        batch = next(iter(loader))
        for row in range(len(batch[1])):
            sample = headrace.sample(address, "train", 3, row)
            assert sample.sample_index == batch.sample_index[row]
            assert sample.label == sample.fields["label"] == batch[1][row]
            assert [entry["op"] for entry in sample.parameters] == ["random_resized_crop", "random_horizontal_flip"]
            assert sample.name.startswith(f"class_{sample.label}/")
            np.testing.assert_array_equal(sample.fields["image"], batch[0][row])
