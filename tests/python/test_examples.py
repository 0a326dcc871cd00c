"""Runs every file of configs/: starts a server with it, and compares the values of batches."""

from __future__ import annotations

import json
from pathlib import Path

import example_sources  # noqa: F401  (registers its runs)
import pytest
import yaml
from examples import CONFIGS, RUNS, Example

FILES = sorted(path.stem for path in CONFIGS.glob("*.yaml"))


@pytest.mark.parametrize("name", FILES)
def test_it_runs(name: str, tmp_path: Path) -> None:
    assert name in RUNS, f"nothing runs configs/{name}.yaml: write an @example `{name}` in examples.py or example_sources.py"
    RUNS[name](Example(name, tmp_path))


def test_every_run_has_its_file_and_its_line_in_the_readme() -> None:
    assert sorted(RUNS) == FILES
    readme = (CONFIGS / "README.md").read_text()
    assert [name for name in FILES if f"| `{name}.yaml` |" not in readme] == []


def test_every_type_of_source_and_what_one_can_have_is_in_an_example() -> None:
    kinds = json.loads((CONFIGS / "headrace.schema.json").read_text())["definitions"]["source"]["oneOf"]
    types = {kind["properties"]["type"]["const"] for kind in kinds}
    shown = [source for name in FILES for source in yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())["sources"].values()]
    assert {source["type"] for source in shown} == types
    assert {"split", "cache", "io"} <= {key for source in shown for key in source}
