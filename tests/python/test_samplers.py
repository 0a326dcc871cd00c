"""Samplers through a real server: what they promise, over several ranks, resumed, and refused with named errors."""

from __future__ import annotations

import subprocess
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
import yaml
from headrace.errors import FingerprintMismatch
from images import write_images
from running import ROOT, headrace_binary
from test_resume import digests, indices

SIZES = {"class_0": 12, "class_1": 5, "class_2": 30, "class_3": 8, "class_4": 3}
LABELS = np.repeat(np.arange(5), list(SIZES.values()))


@pytest.fixture(scope="session")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """5 classes of 12, 5, 30, 8 and 3 JPEGs: 58."""
    folder = write_images(tmp_path_factory.mktemp("uneven"), classes=5, per_class=30)
    for name, size in SIZES.items():
        for file in sorted((folder / name).iterdir())[size:]:
            file.unlink()
    return folder


def config(folder: Path, sampler: Any, **stream: Any) -> dict[str, Any]:
    crop = {"random_resized_crop": {"size": 16}}
    return {
        "server": {"threads": 2, "metrics": "off"},
        "sources": {"images": {"type": "image_folder", "path": str(folder)}},
        "streams": {"train": {"source": "images", "batch_size": 8, "seed": 3, "transforms": [crop], "sampler": sampler, **stream}},
    }


WEIGHTED = {"weighted": {"by": "class", "weights": {"class_0": 2, "class_4": 5}, "other": 0, "samples": 400}}
PK = {"pk": {"p": 2, "k": 4, "small_classes": "repeat", "samples": 90}}


def test_weights_by_class_draw_each_sample_as_often_as_it_weighs(start_server: Any, uneven: Path) -> None:
    with headrace.Loader(start_server(config(uneven, WEIGHTED)).address, stream="train") as loader:
        assert len(loader) == 50
        seen = Counter(LABELS[indices(loader)].tolist())
    assert set(seen) == {0, 4}
    # 24 of 39 in expectation, and 400 draws: 246 with a standard deviation of 9.7
    assert 197 < seen[0] < 295


def test_balanced_gives_every_class_equally_often(start_server: Any, uneven: Path) -> None:
    server = start_server(config(uneven, {"balanced": {"samples": 60}}, batch_size=10))
    with headrace.Loader(server.address, stream="train") as loader:
        for batch in loader:
            assert Counter(batch[1].tolist()) == dict.fromkeys(range(5), 2)
        first, second = indices(loader), indices(loader)
    assert first != second
    assert max(Counter(i for i in first if LABELS[i] == 2).values()) == 1  # 12 of 30


def test_pk_gives_batches_of_whole_groups(start_server: Any, uneven: Path) -> None:
    with headrace.Loader(start_server(config(uneven, PK)).address, stream="train") as loader:
        assert len(loader) == 11  # 90 rounded down to 88
        for batch in loader:
            labels = batch[1].reshape(2, 4)
            assert (labels == labels[:, :1]).all() and labels[0, 0] != labels[1, 0]
            for label, four in zip(labels[:, 0], batch.sample_index.reshape(2, 4), strict=True):
                assert len(set(four.tolist())) == (3 if label == 4 else 4)


def test_a_list_is_served_as_it_is(start_server: Any, uneven: Path, tmp_path: Path) -> None:
    listed = [57, 3, 3, 20, 0, 57]
    (tmp_path / "list.txt").write_text("\n".join(map(str, listed)))
    path = str(tmp_path / "list.txt")
    with headrace.Loader(start_server(config(uneven, {"list": {"path": path}}, batch_size=4)).address, stream="train") as loader:
        assert indices(loader) == indices(loader) == listed
    with headrace.Loader(start_server(config(uneven, {"list": {"path": path, "shuffle": True}})).address, stream="train") as loader:
        assert sorted(indices(loader)) == sorted(listed)


def test_weights_come_from_a_file_of_paths(start_server: Any, uneven: Path, tmp_path: Path) -> None:
    (tmp_path / "w.txt").write_text("class_1/0002.jpg 3\nclass_4/0000.jpg\t1\n")
    sampler = {"weighted": {"by": "file", "path": str(tmp_path / "w.txt"), "other": 0, "samples": 400}}
    with headrace.Loader(start_server(config(uneven, sampler)).address, stream="train") as loader:
        seen = Counter(indices(loader))
    assert set(seen) == {14, 55}
    assert 256 < seen[14] < 344  # 300 with a standard deviation of 8.7


def test_weights_come_from_a_field(start_server: Any) -> None:
    set_up = config(Path("unused"), {"weighted": {"by": "field", "field": "data", "samples": 100}})
    set_up["sources"] = {"images": {"type": "synthetic", "count": 3, "bytes": 1}}  # sample i holds the byte i
    del set_up["streams"]["train"]["transforms"]
    with headrace.Loader(start_server(set_up).address, stream="train") as loader:
        assert set(indices(loader)) == {1, 2}


@pytest.mark.parametrize("sampler", [WEIGHTED, PK, {"balanced": {"samples": 64}}], ids=["weighted", "pk", "balanced"])
def test_two_ranks_divide_what_one_gets(start_server: Any, uneven: Path, sampler: Any) -> None:
    server = start_server(config(uneven, sampler, delivery="shard", last="drop"))
    with headrace.Loader(server.address, stream="train", group="one") as loader:
        one = Counter(i for batch in list(loader)[: len(loader) // 2 * 2] for i in batch.sample_index.tolist())
    with ExitStack() as stack:
        pair = [stack.enter_context(headrace.Loader(server.address, stream="train", rank=r, world_size=2)) for r in range(2)]
        assert len({len(loader) for loader in pair}) == 1
        assert Counter(i for loader in pair for i in indices(loader)) == one


@pytest.mark.parametrize("sampler", [WEIGHTED, PK], ids=["weighted", "pk"])
def test_resumed_within_an_epoch_the_same_batches_remain(start_server: Any, uneven: Path, sampler: Any) -> None:
    set_up = config(uneven, sampler, delivery="shard", last="drop")
    address = start_server(set_up).address
    with ExitStack() as stack:
        pair = [stack.enter_context(headrace.Loader(address, stream="train", rank=r, world_size=2)) for r in range(2)]
        undisturbed = [list(digests(loader)) for loader in pair]
    assert undisturbed[0] != undisturbed[1]
    states = []
    with ExitStack() as stack:
        for rank in range(2):
            loader = stack.enter_context(headrace.Loader(address, stream="train", rank=rank, world_size=2))
            iterator = iter(loader)
            assert list(digests([next(iterator), next(iterator)])) == undisturbed[rank][:2]
            states.append(loader.state_dict())
    again = start_server(set_up).address
    with ExitStack() as stack:
        for rank in range(2):
            loader = stack.enter_context(
                headrace.Loader(again, stream="train", rank=rank, world_size=2, state=states[rank])
            )
            assert list(digests(loader)) == undisturbed[rank][2:]


def test_other_weights_are_another_plan_and_another_path_is_not(start_server: Any, uneven: Path, tmp_path: Path) -> None:
    def serve(name: str, first: int) -> str:
        (tmp_path / name).write_text("\n".join(map(str, [first] + [1] * 57)))
        sampler = {"weighted": {"by": "file", "path": str(tmp_path / name)}}
        return str(start_server(config(uneven, sampler)).address)

    with headrace.Loader(serve("a.txt", 5), stream="train") as loader:
        next(iter(loader))
        state = loader.state_dict()
    with headrace.Loader(serve("b.txt", 5), stream="train", state=state) as loader:
        assert len(list(loader)) == 7
    with pytest.raises(FingerprintMismatch, match="the plan .*changed"):
        headrace.Loader(serve("c.txt", 6), stream="train", state=state)


def test_a_sample_is_shown_as_it_is_served(start_server: Any, uneven: Path) -> None:
    address = start_server(config(uneven, PK)).address
    with headrace.Loader(address, stream="train") as loader:
        batch = next(iter(loader))
        for position in range(8):
            sample = headrace.sample(address, "train", 0, position)
            assert sample.sample_index == batch.sample_index[position]
            np.testing.assert_array_equal(sample.fields["image"], batch[0][position])


def test_a_bad_sample_is_replaced_by_one_of_its_class(start_server: Any, tmp_path: Path) -> None:
    folder = write_images(tmp_path / "images", classes=3, per_class=6)
    (folder / "class_1" / "0003.jpg").write_bytes(b"no picture")
    server = start_server(config(folder, {"balanced": {"samples": 36}}, max_bad=0.5, batch_size=6))
    with headrace.Loader(server.address, stream="train") as loader:
        for batch in loader:
            assert Counter(batch[1].tolist()) == {0: 2, 1: 2, 2: 2}
            assert 9 not in batch.sample_index


def check(tmp_path: Path, set_up: dict[str, Any]) -> tuple[int, str]:
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(set_up))
    done = subprocess.run([headrace_binary(), "check", str(tmp_path / "c.yaml")], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("sampler", ["sequential", "balanced", WEIGHTED, PK], ids=["sequential", "balanced", "weighted", "pk"])
def test_check_accepts_samplers(uneven: Path, tmp_path: Path, sampler: Any) -> None:
    status, said = check(tmp_path, config(uneven, sampler))
    assert status == 0, said


REFUSED = {
    "zero weights": ({"weighted": {"by": "file", "path": "zeros.txt"}}, "the weights of all 58 samples sum to zero"),
    "zero classes": ({"weighted": {"by": "class", "weights": {"class_0": 0}, "other": 0}}, "weights that sum to zero"),
    "no weight": ({"weighted": {"by": "class", "weights": {"class_0": 1, "class_3": 1}}}, "3 of 5 classes have no weight: class_1, class_2, class_4"),
    "no such class": ({"weighted": {"by": "class", "weights": {"class0": 1}, "other": 1}}, 'class "class0", which does not exist; classes: class_0, '),
    "no such field": ({"weighted": {"by": "field", "field": "weight"}}, 'no field "weight"; fields: image'),
    "an image": ({"weighted": {"by": "field", "field": "image"}}, 'field "image" is not a weight'),
    "bad lines": ({"weighted": {"by": "file", "path": "bad.txt"}}, "bad.txt:2: the weight -1 is negative"),
    "bad paths": ({"weighted": {"by": "file", "path": "paths.txt"}}, 'paths.txt:2: "class_9/1.jpg" is not in the source'),
    "bad indices": ({"list": {"path": "indices.txt"}}, "indices.txt:3: there is no sample 58 here; there are 58, from 0 to 57"),
    "no list": ({"list": {"path": "none.txt"}}, "none.txt: the list cannot be read: No such file"),
    "small classes": ({"pk": {"p": 2, "k": 4}}, "pk: 1 of 5 classes have fewer than k = 4 samples: class_4 (3); lower k"),
    "large p": ({"pk": {"p": 8, "k": 1}}, "groups of p = 8 classes, but only 5 have samples"),
    "half groups": ({"pk": {"p": 3, "k": 1}}, "batches of 8 hold no whole number of groups of p * k = 3 * 1 = 3"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_errors_name_what_cannot_be_sampled(uneven: Path, tmp_path: Path, case: str) -> None:
    (tmp_path / "zeros.txt").write_text("0\n" * 58)
    (tmp_path / "bad.txt").write_text("1\n-1\nx\n")
    (tmp_path / "paths.txt").write_text("class_0/0000.jpg 1\nclass_9/1.jpg 1\n")
    (tmp_path / "indices.txt").write_text("0\n57\n58\n")
    sampler, expected = REFUSED[case]
    status, said = check(tmp_path, config(uneven, sampler))
    assert status == 2 and expected in said, said


def test_the_config_for_uneven_classes_runs(uneven: Path, tmp_path: Path) -> None:
    own = {
        "sources.photos.path": str(uneven),
        "streams.train.batch_size": "10",
        "streams.compare.sampler.pk.p": "4",
        "server.directory": str(tmp_path / "run"),
        "server.metrics": "off",
    }
    with headrace.serve(ROOT / "configs" / "balanced.yaml", set=own) as server:
        with headrace.Loader(server.address, stream="train") as loader:
            for batch in list(loader)[:5]:
                assert Counter(batch[1].tolist()) == dict.fromkeys(range(5), 2)
        with headrace.Loader(server.address, stream="compare") as loader:
            (batch,) = list(loader)
            assert batch[1].shape == (48,)


def test_tables_beyond_the_memory_at_hand_are_refused(uneven: Path, tmp_path: Path) -> None:
    set_up = config(uneven, "balanced")
    (name,) = set_up["sources"]
    set_up["sources"]["long"] = {"type": "repeat", "of": name, "times": 1_000_000}
    set_up["sources"]["endless"] = {"type": "repeat", "of": "long", "times": 1000}
    for stream in set_up["streams"].values():
        stream["source"] = "endless"
    status, said = check(tmp_path, set_up)
    assert status == 3 and "its tables of 58000000000 samples take up to 1.86 TB" in said
