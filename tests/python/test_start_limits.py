"""Limits of the system that do not let a server start: each ends it promptly, with the limit's name."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import headrace_binary

NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """Readable by every user, unlike tmp_path."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.mark.parametrize(
    ("limit", "most", "server", "streams", "said"),
    [
        (resource.RLIMIT_NOFILE, 20, "metrics: off", 1, "expected a limit of at least 64 open files, found 20: raise it (ulimit -n)"),
        (resource.RLIMIT_FSIZE, 10_000, "metrics: off", 1, "File too large; raise the limit of file sizes (ulimit -f)"),
        (resource.RLIMIT_NPROC, 1, "metrics: off", 1, "no further thread can be created; raise the limit of threads (ulimit -u, the cgroup's pids.max)"),
        *((resource.RLIMIT_NOFILE, 64, "metrics: off", streams, "no descriptor is left for clients: 64 files may be open, of which 16 are reserved") for streams in (21, 27)),
        # When the workers do not fit, those of the metrics server have to end.
        (resource.RLIMIT_NPROC, 80, "metrics: {port: 0}, threads: 100", 1, "no further thread can be created; raise the limit of threads"),
    ],
)
def test_a_limit_that_is_too_low_ends_the_start_with_its_name(folder: Path, limit: int, most: int, server: str, streams: int, said: str) -> None:
    (folder / "c.yaml").write_text(
        f"server: {{directory: {folder}/run, {server}}}\n"
        "sources: {rows: {type: synthetic, count: 100, bytes: 4000}}\n"
        f"streams: {{{', '.join(f't{i}: {{source: rows, batch_size: 10}}' for i in range(streams))}}}\n"
    )
    user = NOBODY if os.geteuid() == 0 else None  # root may have any number of threads
    if user is not None:
        os.chown(folder, user, user)
    done = subprocess.run(
        [headrace_binary(), "serve", folder / "c.yaml"], capture_output=True, text=True, timeout=60, user=user, group=user,
        preexec_fn=lambda: resource.setrlimit(limit, (most, most)),
    )  # fmt: skip
    assert done.returncode == 3
    assert "headrace: ENVIRONMENT: " in done.stderr and said in done.stderr
