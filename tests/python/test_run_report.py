"""The last lines of `./run test` say which stages did not run, why, and when each last passed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from datetime import date
from pathlib import Path

import pytest
from running import ROOT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with nothing to install, and stages that pass at once."""
    shutil.copy(ROOT / "run", tmp_path)
    stubs = {
        ".venv/bin/python": "exit 0",
        ".venv/bin/pip": "exit 0",
        ".venv/bin/activate": "",
        "tests/lint": "echo 3 passed, 0 failed",
        "tests/neon": "echo 5 passed, 0 failed",
    }
    for name, stub in stubs.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/bash\n{stub}\n")
        file.chmod(0o755)
    (tmp_path / "docker").mkdir()
    for name in ("build", "demo", "test", "neon"):
        (tmp_path / f"docker/packages-{name}.txt").write_text("bash\n")
    (tmp_path / "tests/python").mkdir()
    (tmp_path / "tests/python/requirements.txt").touch()
    (tmp_path / ".gitignore").write_text("/build/\n/.venv/\n/.cache/\n")
    return tmp_path


def run(checkout: Path, *names: str, budget: int | None = None) -> list[str]:
    """The final lines of a passing run, after those of its stages."""
    env = {name: value for name, value in os.environ.items() if name != "HEADRACE_BUDGET_S"}
    if budget is not None:
        env["HEADRACE_BUDGET_S"] = str(budget)
    ran = subprocess.run([checkout / "run", "test", *names], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.rpartition("\n\n")[2].splitlines()


def commit(checkout: Path) -> str:
    git = ["git", "-C", checkout, "-c", "user.name=x", "-c", "user.email=x@localhost"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "all"], check=True)
    return subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()


def test_a_stage_that_does_not_fit_is_named_with_the_reason_and_its_last_pass(checkout: Path) -> None:
    made = commit(checkout)
    lint, *missing, total = run(checkout, "lint", "neon", budget=100)
    assert lint.startswith("lint") and total == "3 passed, 0 failed"
    assert missing[0] == "These stages did not run:" and len(missing) == 2
    assert re.fullmatch(r"  neon +needs about 300 s, (100|9\d) s of the budget were left; no pass on record here", missing[1])

    assert run(checkout, "neon")[-1] == "5 passed, 0 failed"
    passed = f"last passed at {made} on {date.today().isoformat()}"
    assert run(checkout, "lint", "neon", budget=1)[2].endswith(passed)

    (checkout / "tests/neon").write_text("#!/bin/bash\necho 6 passed, 0 failed\n")
    run(checkout, "neon")
    assert f"at {made}+ on" in run(checkout, "lint", "neon", budget=1)[2]  # with changes


def test_a_run_in_which_everything_ran_says_nothing_more(checkout: Path) -> None:
    lines = run(checkout, "lint", "neon")
    assert [line.split()[0] for line in lines] == ["lint", "neon", "8"]


def test_a_failure_is_no_pass_to_be_remembered(checkout: Path) -> None:
    (checkout / "tests/neon").write_text("#!/bin/bash\necho 4 passed, 1 failed\nexit 1\n")
    ran = subprocess.run([checkout / "run", "test", "neon"], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1
    assert "no pass on record here" in run(checkout, "lint", "neon", budget=1)[2]
