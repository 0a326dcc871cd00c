"""Caches of sources, end to end: the same batches, decoded once, and metrics that say so."""

from __future__ import annotations

import copy
import re
import subprocess
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from conftest import ServerFactory
from images import write_images
from running import headrace_binary, wait_until


def cache_metrics(text: str, kind: str) -> dict[str, float]:
    """hits_total, misses_total, samples, bytes and budget_bytes of the source `images`."""
    pattern = rf'^headrace_cache_(\w+){{source="images",kind="{kind}"}} (\S+)$'
    return {name: float(value) for name, value in re.findall(pattern, text, re.MULTILINE)}


def decodes(text: str) -> int:
    found = re.search(r'^headrace_stage_seconds_count{stream="train",stage="decode"} (\d+)$', text, re.MULTILINE)
    assert found
    return int(found[1])


def epochs(address: str, stream: str, count: int) -> list[tuple[bytes, bytes, bytes]]:
    with headrace.Loader(address, stream=stream) as loader:
        seen = []
        for epoch in range(count):
            loader.set_epoch(epoch)
            seen += [(batch[0].tobytes(), batch[1].tobytes(), np.asarray(batch.sample_index).tobytes()) for batch in loader]
        return seen


def with_cache(config: dict[str, Any], **cache: str) -> dict[str, Any]:
    cached = copy.deepcopy(config)
    cached["sources"]["images"]["cache"] = cache
    return cached


PREFIX = [{"resize": {"size": 40}}, {"random_crop": {"size": 32}}, "random_horizontal_flip"]


@pytest.mark.parametrize("transforms", [PREFIX, [{"random_resized_crop": {"size": 32}}]], ids=["prefix", "whole image"])
def test_a_set_that_fits_decoded_is_decoded_once(start_server: ServerFactory, basic_config: dict[str, Any], transforms: Any) -> None:
    basic_config["streams"]["train"]["transforms"] = transforms
    expected = epochs(start_server(basic_config).address, "train", 3)
    server = start_server(with_cache(basic_config, decoded="8MB"))
    assert epochs(server.address, "train", 1) == expected[: len(expected) // 3]
    assert epochs(server.address, "train", 3) == expected
    counts = cache_metrics(server.metrics(), "decoded")
    assert (counts["misses_total"], counts["samples"], counts["budget_bytes"]) == (60, 60, 8_000_000)
    assert counts["hits_total"] >= 180
    assert 60 * 32 * 32 * 3 < counts["bytes"] < 8_000_000
    assert decodes(server.metrics()) == 60


def test_a_cache_that_is_full_keeps_what_it_has(start_server: ServerFactory, basic_config: dict[str, Any]) -> None:
    basic_config["streams"]["train"]["transforms"] = [{"resize": {"size": [40, 40]}}, {"random_crop": {"size": 32}}]
    expected = epochs(start_server(basic_config).address, "train", 3)
    half = 30 * 4864  # 40 * 40 * 3 bytes and their bookkeeping, in units of 64
    server = start_server(with_cache(basic_config, decoded=f"{half}B"))
    assert epochs(server.address, "train", 3) == expected

    def at_rest() -> dict[str, float] | None:
        text = server.metrics()
        counts = cache_metrics(text, "decoded")
        return counts if counts["misses_total"] == decodes(text) else None

    counts = wait_until(at_rest, "as many decodes as misses")
    assert (counts["samples"], counts["bytes"]) == (30, half)
    assert counts["misses_total"] >= 60 + 2 * 30
    assert counts["hits_total"] >= 2 * 30


def test_training_and_validation_share_what_was_read(start_server: ServerFactory, basic_config: dict[str, Any]) -> None:
    basic_config["streams"]["val"] = {**basic_config["streams"]["train"], "seed": 1, "transforms": [{"resize": {"size": [32, 32]}}]}
    plain = start_server(basic_config)
    server = start_server(with_cache(basic_config, encoded="4MiB"))
    for stream in ("train", "val"):
        assert epochs(server.address, stream, 2) == epochs(plain.address, stream, 2)
    counts = cache_metrics(server.metrics(), "encoded")
    assert (counts["misses_total"], counts["samples"], counts["budget_bytes"]) == (60, 60, 4 * 2**20)
    assert counts["hits_total"] >= 180


def test_bad_samples_are_bad_each_time_and_never_kept(start_server: ServerFactory, basic_config: dict[str, Any], tmp_path: Path) -> None:
    folder = write_images(tmp_path / "images", classes=2, per_class=10)
    (folder / "class_0" / "bad.jpg").write_bytes(b"this is no image")
    whole = (folder / "class_0" / "0001.jpg").read_bytes()
    (folder / "class_1" / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    basic_config["sources"]["images"]["path"] = str(folder)
    basic_config["streams"]["train"]["max_bad"] = 0.5
    expected = epochs(start_server(basic_config).address, "train", 3)
    server = start_server(with_cache(basic_config, decoded="8MB", encoded="8MB"))
    assert epochs(server.address, "train", 3) == expected
    assert cache_metrics(server.metrics(), "decoded")["samples"] == 20
    assert cache_metrics(server.metrics(), "encoded")["samples"] == 22
    reasons = dict(re.findall(r'headrace_sample_errors_total{stream="train",reason="(\w+)"} (\d+)', server.metrics()))
    assert int(reasons["unknown_format"]) >= 3
    assert int(reasons["truncated"]) >= 3


def check(config: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "c.yaml"
    path.write_text(config)
    return subprocess.run([headrace_binary(), "check", str(path)], capture_output=True, text=True, timeout=60)


STREAM = "streams: {train: {source: images, transforms: [{resize: {size: 32}}, {random_crop: {size: 32}}]}}\n"


def test_check_counts_the_caches_and_says_how_far_they_reach(image_folder: Path, tmp_path: Path) -> None:
    source = f"sources: {{images: {{type: image_folder, path: {image_folder}, cache: {{decoded: 1MB}}}}}}\n"
    done = check(source + STREAM, tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"source `images`, cache.decoded: 1.0 MB, room for about \d+ samples", done.stdout)
    assert "  caches: up to 1.0 MB\n" in done.stdout

    done = check(source.replace("1MB", "100B") + STREAM, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "kept none of the samples that were tried: they are bad, or larger than it" in done.stdout

    done = check(source.replace("1MB", "100B") + STREAM.replace("size: 32", "size: [32, 32]", 1), tmp_path)
    assert done.returncode == 2
    assert "cache.decoded: 100 bytes do not hold even one sample, which takes 3136 bytes: raise it (all 60 samples take 188.2 KB) or remove it" in done.stderr

    done = check(source.replace("1MB", "60TB") + STREAM, tmp_path)
    assert done.returncode == 3
    assert "lower source `images`, cache.decoded" in done.stderr

    done = check(source.replace("cache: {decoded: 1MB}", "io: {memory: 30TB}") + STREAM, tmp_path)
    assert done.returncode == 3
    assert "30.00 TB may be needed beside the rings (" in done.stderr and "reading ahead 30.00 TB" in done.stderr

    done = check(source.replace(", cache: {decoded: 1MB}", "") + STREAM.replace("source: images,", "source: images, sharing: {window: 5TB},"), tmp_path)
    assert done.returncode == 3
    assert "5.00 TB may be needed beside the rings (windows 5.00 TB" in done.stderr and "lower sharing.window of stream `train` (5.00 TB)" in done.stderr
    assert " 0 B" not in done.stderr


def test_the_size_of_a_cache_counts_a_repeated_sample_once(start_server: ServerFactory, basic_config: dict[str, Any]) -> None:
    basic_config["sources"]["thrice"] = {"type": "repeat", "of": "images", "times": 3}
    basic_config["streams"]["thrice"] = {"extends": "train", "source": "thrice"}
    address = start_server(basic_config).address
    for stream in ("train", "thrice"):
        epochs(address, stream, 1)
    streams = headrace.stats(address)["streams"]
    assert streams["thrice"]["decoded_cache_bytes"] == pytest.approx(streams["train"]["decoded_cache_bytes"], rel=0.1)


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        ({"type": "subset", "first": 60}, False),
        ({"type": "relabel", "remap": {"class_0": "class_1"}}, False),
        ({"type": "repeat", "times": 3}, False),
        ({"type": "repeat", "times": 3}, True),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else "own" if value else "",
)
def test_sources_made_of_a_source_are_decoded_once(
    start_server: ServerFactory, basic_config: dict[str, Any], kind: dict[str, Any], own: bool
) -> None:
    basic_config["sources"]["made"] = {**kind, "of": "images"}
    basic_config["streams"]["train"]["source"] = "made"
    expected = epochs(start_server(basic_config).address, "train", 2)
    cached = copy.deepcopy(basic_config)
    cached["sources"]["made" if own else "images"]["cache"] = {"decoded": "8MB"}
    server = start_server(cached)
    assert epochs(server.address, "train", 2) == expected
    assert decodes(server.metrics()) == 60


@pytest.mark.parametrize("kept", [("images", "others"), ("others",), ("images",)], ids="-".join)
def test_a_concat_uses_the_caches_of_its_members(start_server: ServerFactory, basic_config: dict[str, Any], kept: tuple[str, ...]) -> None:
    sources = basic_config["sources"]
    sources["others"] = dict(sources["images"])
    sources["twice"] = {"type": "repeat", "of": "others", "times": 2}
    sources["both"] = {"type": "concat", "of": ["images", "twice"]}
    sources["made"] = {"type": "subset", "of": "both", "first": 175}
    basic_config["streams"]["train"]["source"] = "made"
    expected = epochs(start_server(basic_config).address, "train", 2)
    cached = copy.deepcopy(basic_config)
    for name in kept:
        cached["sources"][name]["cache"] = {"decoded": "8MB"}
    server = start_server(cached)
    assert epochs(server.address, "train", 2) == expected
    misses = re.findall(r'^headrace_cache_misses_total{source="(\w+)",kind="decoded"} (\d+)$', server.metrics(), re.MULTILINE)
    assert misses == [(name, "60") for name in kept]
    if len(kept) == 2:
        assert decodes(server.metrics()) == 120


def test_a_cache_that_no_stream_uses_is_reported(start_server: ServerFactory, basic_config: dict[str, Any]) -> None:
    config = with_cache(basic_config, decoded="8MB")
    config["sources"]["others"] = basic_config["sources"]["images"]
    config["sources"]["twice"] = {"type": "concat", "of": ["images", "others"], "cache": {"decoded": "8MB"}}
    config["streams"]["train"]["source"] = "twice"
    server = start_server(config)
    assert "source `images`, cache.decoded: no stream uses this cache: streams reach the source through one that has a decoded cache of its own, or through a zip" in server.output()
    config["sources"]["twice"]["cache"] = {"encoded": "8MB"}
    with pytest.raises(AssertionError, match="files are kept by the sources that read them"):
        start_server(config)
