"""Served sources that are made of other sources: their contents, their errors, and the shipped configurations."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
import yaml
from running import headrace_binary

CLASSES = ["cat", "dog", "emu"]


def write_numbers(folder: Path, name: str, values: list[int], classes: list[str] | None = None, labels: list[int] | None = None) -> dict[str, Any]:
    """A numpy source: x is the value, and the class if there are any."""
    np.save(folder / f"{name}.npy", np.asarray(values, dtype=np.int32))
    source: dict[str, Any] = {"type": "npy", "fields": {"x": str(folder / f"{name}.npy")}}
    if classes is not None:
        np.save(folder / f"{name}_labels.npy", np.asarray(labels))
        source["fields"]["label"] = str(folder / f"{name}_labels.npy")
        source["classes"] = classes
    return source


def config(sources: dict[str, Any], **streams: dict[str, Any]) -> dict[str, Any]:
    return {
        "server": {"threads": 2, "metrics": "off"},
        "sources": sources,
        "streams": {name: {"batch_size": 4, "shuffle": False, **stream} for name, stream in streams.items()},
    }


def epoch(address: str, stream: str, key: str = "x") -> list[int]:
    with headrace.Loader(address, stream=stream, batch="dict") as loader:
        return [int(value) for batch in loader for value in batch[key]]


def refusal(folder: Path, sources: dict[str, Any]) -> str:
    """The output of check for a stream over the last source."""
    (folder / "c.yaml").write_text(yaml.safe_dump(config(sources, train={"source": list(sources)[-1]}), sort_keys=False))
    done = subprocess.run([headrace_binary(), "check", str(folder / "c.yaml")], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0, done.stdout
    return done.stderr


@pytest.fixture
def pets(tmp_path: Path) -> dict[str, Any]:
    return {
        "a": write_numbers(tmp_path, "a", [10, 11, 12, 13], CLASSES, [0, 1, 2, 1]),
        "b": write_numbers(tmp_path, "b", [20, 21, 22], ["ant", "dog", "wolf"], [1, 0, 2]),
    }


def test_concatenated_sources_have_one_label_for_one_name(start_server: Any, pets: dict[str, Any]) -> None:
    address = start_server(config({**pets, "all": {"type": "concat", "of": ["a", "b"]}}, train={"source": "all"})).address
    assert epoch(address, "train") == [10, 11, 12, 13, 20, 21, 22]
    assert epoch(address, "train", "label") == [0, 1, 2, 1, 1, 3, 4]
    with headrace.Loader(address, stream="train") as loader:
        assert loader.classes == (*CLASSES, "ant", "wolf")


def test_relabelled_classes_are_put_together_and_reordered(start_server: Any, pets: dict[str, Any]) -> None:
    fewer = {"type": "relabel", "of": "all", "remap": {"wolf": "dog", "ant": "bug"}, "classes": ["bug", "dog", "cat", "emu"]}
    sources = {**pets, "all": {"type": "concat", "of": ["a", "b"]}, "fewer": fewer}
    address = start_server(config(sources, train={"source": "fewer"})).address
    assert epoch(address, "train", "label") == [2, 1, 3, 1, 1, 0, 1]


def test_several_streams_share_one_tree_of_sources(start_server: Any, tmp_path: Path) -> None:
    sources = {
        "a": {**write_numbers(tmp_path, "a", list(range(100))), "split": {"fractions": {"train": 0.8, "val": 0.2}}},
        "b": write_numbers(tmp_path, "b", list(range(100, 140))),
        "all": {"type": "concat", "of": ["a.train", "b"], "split": {"seed": 3, "fractions": {"one": 0.5, "two": 0.5}}},
        "twice": {"type": "repeat", "of": "a.val", "times": 2},
        "few": {"type": "subset", "of": "all.two", "first": 5},
    }
    streams = {
        "one": {"source": "all", "part": "one", "shuffle": True},
        "two": {"source": "all", "part": "two"},
        "twice": {"source": "twice", "shuffle": True},
        "few": {"source": "few"},
    }
    address = start_server(config(sources, **streams)).address
    seen = {name: epoch(address, name) for name in streams}
    assert len(seen["one"]) == len(seen["two"]) == 60
    held = sorted(set(seen["twice"]))
    assert len(held) == 20 and set(Counter(seen["twice"]).values()) == {2}
    assert sorted(seen["one"] + seen["two"] + held) == list(range(140)), "every sample is in one place"
    assert seen["few"] == seen["two"][:5]


def test_zipped_sources_give_several_inputs_a_sample(start_server: Any, tmp_path: Path, pets: dict[str, Any]) -> None:
    sources = {
        **pets,
        "y": write_numbers(tmp_path, "y", [5, 6, 7, 8]),
        "wide": {"type": "zip", "of": ["y", "a"], "rename": {"y": {"x": "y"}}},
        "again": {"type": "subset", "of": "wide", "classes": ["dog"]},
    }
    address = start_server(config(sources, train={"source": "again"})).address
    assert [epoch(address, "train", key) for key in ("x", "y", "label")] == [[11, 13], [6, 8], [1, 1]]


def test_what_does_not_go_together_is_named(tmp_path: Path, pets: dict[str, Any]) -> None:
    plain = write_numbers(tmp_path, "plain", [1, 2])
    both = {"type": "concat", "of": ["a", "plain"]}
    assert "source `both`: concat: `a` has classes, and `plain` has none" in refusal(tmp_path, {**pets, "plain": plain, "both": both})
    both = {"type": "zip", "of": ["a", "b"]}
    assert "zip: `a` has 4 samples and `b` 3" in refusal(tmp_path, {**pets, "both": both})
    few = {"type": "subset", "of": "plain", "fraction": 0.01}
    assert "subset: it has no samples (the source has 2)" in refusal(tmp_path, {"plain": plain, "few": few})
    other = {"type": "relabel", "of": "a", "remap": {"dgo": "cat"}}
    assert 'class "dgo", which does not exist; classes: cat, dog, emu; did you mean "dog"?' in refusal(tmp_path, {**pets, "other": other})
    nested = {"other": other, "all": {"type": "concat", "of": ["other", "b"]}}
    assert "source `all`: source `other`: relabel: remap names" in refusal(tmp_path, {**pets, **nested})
    cycle = {"c": {"type": "concat", "of": ["a", "d"]}, "d": {"type": "repeat", "of": "c", "times": 2}}
    assert "sources.d.of: a source cannot be made of itself: c -> d -> c" in refusal(tmp_path, {**pets, **cycle})


def test_an_unknown_field_of_a_stream_is_named(start_server: Any, pets: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="fields: there is no field `z`; fields: x"):
        start_server(config({**pets, "all": {"type": "concat", "of": ["a", "b"]}}, train={"source": "all", "fields": ["z"]}))
