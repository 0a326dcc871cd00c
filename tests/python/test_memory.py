"""A server that runs out of memory while it serves."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import headrace
from conftest import ServerFactory
from images import write_images


def test_a_file_that_there_is_no_memory_for_is_a_bad_sample_and_not_the_servers_end(
    start_server: ServerFactory, quiet_config: dict[str, Any], tmp_path: Path
) -> None:
    folder = write_images(tmp_path / "images", classes=2, per_class=20)
    with (folder / "class_0" / "large.jpg").open("wb") as large:
        large.truncate(250 << 20)
    quiet_config["sources"]["images"]["path"] = str(folder)
    server = start_server(quiet_config)
    pages = int(Path(f"/proc/{server.popen.pid}/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + (150 << 20)
    resource.prlimit(server.popen.pid, resource.RLIMIT_AS, (most, most))
    with headrace.Loader(server.address, stream="train") as loader:
        assert sum(int(batch.replaced.sum()) for batch in loader) == 1
    server.check_alive()
    (stream,) = headrace.stats(server.address)["streams"].values()
    assert set(stream["errors"]) == {"too_large"}, "the next epoch, which begins ahead, may have read it again"
