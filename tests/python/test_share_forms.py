"""headrace.share(): the accepted forms of batches, and the errors for others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import headrace
import numpy as np
import pytest
from headrace.errors import DatasetInvalid, InvalidArgument, StreamFailed
from running import ROOT
from shared import Batches


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda images, labels: (images[:, :, :4], labels), r"epoch 0, batch 2: field `field0` is uint8 \(3, 4\), expected uint8 \(3, 5\) as in the first batch"),
        (lambda images, labels: (images, labels.astype(np.int32)), r"epoch 0, batch 2: field `field1` is int32 \(\), expected int64 \(\) as in the first batch: convert it to one dtype"),
        (lambda images, labels: (images,), "epoch 0, batch 2: field `field1` is missing"),
        (lambda images, labels: (images, labels, labels), "epoch 0, batch 2: field `field2` is new, expected only .*: field0, field1"),
        (lambda images, labels: (images, labels[:3]), "epoch 0, batch 2: field `field0` has 4 rows, `field1` has 3"),
        (lambda images, labels: (images[:3], labels[:3]), "epoch 0, batch 2: found 3 rows, expected 4"),
        (lambda images, labels: (images, object()), "epoch 0, batch 2: field `field1` is of type object"),
    ],
)
def test_errors_name_the_field_of_a_batch_of_another_form(spoil: Any, said: str) -> None:
    class Spoilt(Batches):
        def make(self, epoch: int, number: int) -> Any:
            batch = super().make(epoch, number)
            return spoil(*batch) if number == 2 else batch

    with headrace.share(Spoilt()) as share, headrace.Loader(share.address, stream="train") as loader:
        with pytest.raises(StreamFailed, match=said) as failed:
            for _ in loader:
                pass
        assert str(failed.value).count("epoch 0, batch 2: ") == 1
        with pytest.raises((DatasetInvalid, InvalidArgument), match=said):
            share.wait(20)


def test_numbers_may_be_numpys() -> None:
    with headrace.share(Batches(), epochs=1, prefetch=np.int64(2), max_clients=np.int32(3), wait_for=np.uint8(1)) as share:
        with headrace.Loader(share.address, stream="train") as loader:
            assert sum(1 for _ in loader) == len(Batches())


class Unreadable(Exception):
    def __str__(self) -> str:
        raise ValueError("it has no text")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError("no such file: caf\udce9.wav"), r"epoch 0, batch 2: the shared iterable raised OSError: no such file: caf\\udce9\.wav"),
        (OSError("\udcff" * 5000), r"epoch 0, batch 2: the shared iterable raised OSError: (\\udcff){20}"),
        (Unreadable(), "epoch 0, batch 2: the shared iterable raised Unreadable: <exception str"),
        (OSError("epoch 0, batch 2 is gone"), "epoch 0, batch 2: the shared iterable raised OSError: epoch 0, batch 2 is gone"),
    ],
)
def test_errors_without_valid_text_reach_the_consumers(error: Exception, said: str) -> None:
    class Raises(Batches):
        def make(self, epoch: int, number: int) -> Any:
            if number == 2:
                raise error
            return super().make(epoch, number)

    with headrace.share(Raises()) as share, headrace.Loader(share.address, stream="train", batch_timeout=20) as loader:
        with pytest.raises(StreamFailed, match=said):
            for _ in loader:
                pass
        with pytest.raises(type(error)):
            share.wait(20)


def test_a_feed_that_cannot_send_its_end_ends_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: headrace.Share, why: str, done: bool) -> None:
        raise MemoryError

    monkeypatch.setattr(headrace.Share, "_send_end", fails)
    monkeypatch.setattr("threading.excepthook", lambda _: None)
    share = headrace.share([np.zeros(3)], epochs=1)
    with headrace.Loader(share.address, stream="train", batch_timeout=20) as loader:
        assert len(list(loader)) == 1
        with pytest.raises(StreamFailed, match="the feeder .* exited"):
            list(loader)
    monkeypatch.undo()
    share.close()


def test_epochs_of_another_length_are_named() -> None:
    class Odd(Batches):
        def __init__(self, given: int) -> None:
            super().__init__()
            self.given = given

        def __len__(self) -> int:
            return self.given

    for given, said in ((9, "epoch 0 ended after 7 of 9 batches"), (5, "epoch 0 has more than 5 batches")):
        with headrace.share(Odd(given)) as share, headrace.Loader(share.address, stream="train") as loader:
            with pytest.raises(StreamFailed, match=said):
                for _ in range(2):
                    for _ in loader:
                        pass


def test_what_cannot_be_shared_is_refused_immediately() -> None:
    ring = json.loads((ROOT / "configs/headrace.schema.json").read_text())["definitions"]["stream"]["properties"]["ring"]["properties"]

    def one(value: Any) -> Any:
        return headrace.share([value])

    for wrong, said in [
        (lambda: headrace.share(5), "expected a DataLoader or another iterable of batches, found int"),
        (lambda: headrace.share(Batches(), "my data"), "name='my data': expected 1 to 47 letters, digits, _ and -, a letter first"),
        (lambda: headrace.share(Batches(), wait_for=0), r"wait_for=0: expected 1 to 4"),
        (lambda: headrace.share(Batches(), wait_for=5), r"wait_for=5: expected 1 to 4"),
        (lambda: headrace.share(Batches(), prefetch=0), f"prefetch=0: expected 1 to {ring['prefetch']['maximum']}"),
        (lambda: headrace.share(Batches(), max_clients=65), f"max_clients=65: expected 1 to {ring['max_clients']['maximum']}"),
        (lambda: headrace.share([]), "the iterable is empty"),
        (lambda: headrace.share(iter([np.zeros(3)])), "give `batches`"),
        (lambda: one(object()), "a batch is of type object"),
        (lambda: one((np.zeros(3), np.zeros(2))), "has 3 rows, `field1` has 2"),
        (lambda: one(np.zeros((3, 2), np.complex64)), "dtype complex64"),
        (lambda: one({"x": np.float32(1)}), "a single number"),
        (lambda: one({"a": {"b": object()}}), "field `a_b` is of type object, expected an array"),
        (lambda: one({"X": np.zeros(3)}), "field name 'X': expected 1 to 47 characters"),
        (lambda: one(np.zeros((3, 0))), "is empty"),
        (lambda: headrace.share([(np.zeros(3),)], names=["a", "b"]), "expected 1 names"),
        (lambda: headrace.share(Batches(), names="ab"), r"names='ab': expected a list of names"),
        (lambda: headrace.share(Batches(), ragged="ab"), r"ragged='ab': expected a list of names"),
        (lambda: headrace.share(Batches(), samples=100), "samples=100: expected 25 to 28 samples in 7 batches of 4"),
        (lambda: headrace.share(Batches(), epochs=0), "epochs"),
    ]:
        with pytest.raises((InvalidArgument, DatasetInvalid), match=said):
            wrong()  # type: ignore[no-untyped-call]


def test_text_ragged_and_nested_fields() -> None:
    rows = [["a", "", "grüße"], ["longer text", "b", "c"]]
    tokens = [[np.arange(n, dtype=np.int32) for n in lengths] for lengths in ((1, 0, 5), (2, 3, 1))]
    boxes = [[np.full((n, 4), n, np.float32) for n in lengths] for lengths in ((2, 1, 1), (0, 0, 3))]
    batches = [
        {"text": rows[i], "tokens": tokens[i], "inner": {"boxes": boxes[i], "score": [0.5, 1.5, 2.5]}, "flag": np.array([True, False, True])}
        for i in range(2)
    ]
    share = headrace.share(batches, "texts", ragged={"tokens": 30, "inner_boxes": 12}, epochs=2)
    with share, headrace.Loader(share.address, stream="texts", batch="dict") as loader:
        assert [field.name for field in loader.info.fields] == ["text", "tokens", "inner_boxes", "inner_score", "flag"]
        for _ in range(2):
            for number, batch in enumerate(loader):
                values, offsets = batch["text"]
                assert [bytes(values[a:b]).decode() for a, b in zip(offsets[:-1], offsets[1:], strict=True)] == rows[number]
                values, offsets = batch["tokens"]
                assert [list(values[a:b]) for a, b in zip(offsets[:-1], offsets[1:], strict=True)] == [list(t) for t in tokens[number]]
                values, offsets = batch["inner_boxes"]
                assert np.array_equal(values, np.concatenate(boxes[number])) and list(np.diff(offsets)) == [len(b) for b in boxes[number]]
                assert list(batch["inner_score"]) == [0.5, 1.5, 2.5]
                assert batch["flag"].dtype == np.bool_ and list(batch["flag"]) == [True, False, True]


def test_an_error_for_a_full_ragged_field_says_how_to_enlarge_it() -> None:
    batches = [{"text": ["ab"]}, {"text": ["x" * 100]}]
    with headrace.share(batches) as share, headrace.Loader(share.address, stream="train") as loader:
        with pytest.raises(StreamFailed, match=r"field `text` has 100 values, expected at most 8: .*ragged=\{'text': 200\}"):
            for _ in loader:
                pass


def test_an_endless_iterable_has_the_epochs_that_it_is_given() -> None:
    def endless() -> Iterator[Any]:
        for number in range(1000):
            yield np.full(2, number)

    with headrace.share(endless(), batches=5, epochs=3) as share, headrace.Loader(share.address, stream="train") as loader:
        assert [[int(batch[0][0]) for batch in loader] for _ in range(3)] == [list(range(e * 5, e * 5 + 5)) for e in range(3)]
        with pytest.raises(StreamFailed, match="all 3 epochs were sent"):
            next(iter(loader))


@pytest.mark.parametrize("batches", [2, 5])
def test_epochs_of_a_loader_may_have_other_lengths_than_its_own(batches: int) -> None:
    data = pytest.importorskip("torch.utils.data")
    loader = data.DataLoader(list(range(12)), batch_size=4)
    share = headrace.share(loader, batches=batches, epochs=3)
    with share, headrace.Loader(share.address, stream="train") as mine:
        assert len(mine) == batches
        firsts = [int(batch[0][0]) for _ in range(3) for batch in mine]
        assert firsts == [4 * (number % 3) for number in range(3 * batches)], "pass after pass, no batch is omitted"


def test_a_loaders_shorter_last_batch_is_known_also_if_its_length_is_given() -> None:
    data = pytest.importorskip("torch.utils.data")
    loader = data.DataLoader(list(range(10)), batch_size=4)
    with headrace.share(loader, batches=3, epochs=2) as share, headrace.Loader(share.address, stream="train") as mine:
        assert [[int(batch.valid.sum()) for batch in mine] for _ in range(2)] == [[4, 4, 2]] * 2
