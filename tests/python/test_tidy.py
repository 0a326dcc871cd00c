"""tests/tidy fails where clang-tidy is missing or crashes: a check that cannot fail is worthless."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from running import ROOT

TOOLS = "bash cat cut dirname env find grep mkdir nproc python3 readlink rm sha256sum sort xargs".split()


@pytest.fixture(scope="module")
def configured() -> None:
    """What tests/tidy reads: how each file is compiled."""
    subprocess.run(["cmake", "--preset", "release", "-B", "build/tidy/tree", "-DHEADRACE_TOGETHER=OFF"], cwd=ROOT, capture_output=True, check=True)


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake")
@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize("clang_tidy", [None, "kill -SEGV $$", "exit 127", "exit 1", "echo 'x.cpp:1:1: warning: bad'", "exit 0"])
def test_only_a_clang_tidy_that_ran_and_found_nothing_is_a_pass(clang_tidy: str | None, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for tool in TOOLS:
        (programs / tool).symlink_to(str(shutil.which(tool)))
    if clang_tidy is not None:
        fake = programs / "clang-tidy"
        fake.write_text(f"#!/bin/bash\n{clang_tidy}\n")
        fake.chmod(0o755)
    looked_at = tmp_path / "x.cpp"
    looked_at.write_text(f"// {tmp_path}\n")
    run = [subprocess.run(
        [ROOT / "tests/tidy", looked_at], env={**os.environ, "PATH": str(programs)}, capture_output=True, text=True, check=False
    ) for _ in range(2)]
    assert [each.returncode == 0 for each in run] == [clang_tidy == "exit 0"] * 2, run[0].stdout + run[0].stderr
