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
def test_the_example_runs(name: str, tmp_path: Path) -> None:
    assert name in RUNS, f"no test runs configs/{name}.yaml: add a function with @example({name!r}) to examples.py or example_sources.py"
    RUNS[name](Example(name, tmp_path))


def test_every_config_has_a_test_and_a_row_in_the_readme() -> None:
    assert sorted(RUNS) == FILES
    readme = (CONFIGS / "README.md").read_text()
    assert [name for name in FILES if f"| `{name}.yaml` |" not in readme] == []


def test_every_source_type_and_source_option_is_in_an_example() -> None:
    kinds = json.loads((CONFIGS / "headrace.schema.json").read_text())["definitions"]["source"]["oneOf"]
    types = {kind["properties"]["type"]["const"] for kind in kinds}
    shown = [source for name in FILES for source in yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())["sources"].values()]
    assert {source["type"] for source in shown} == types
    assert {"split", "cache", "io"} <= {key for source in shown for key in source}
