"""What users of DataLoaders try first: wrong calls get an error that shows the right one."""

from __future__ import annotations

import dataclasses
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import headrace
import pytest
import yaml
from headrace.errors import InvalidArgument
from running import headrace_binary


@pytest.mark.parametrize(
    ("argument", "key"),
    [("batch_size", "streams.val.batch_size"), ("shuffle", "streams.val.shuffle"), ("num_workers", "server.threads"), ("drop_last", "streams.val.last (`drop`)")],
)
def test_an_argument_of_a_dataloader_names_the_key_that_replaces_it(argument: str, key: str) -> None:
    with pytest.raises(TypeError) as refused:
        headrace.Loader(stream="val", **{argument: 8})
    assert f"Loader({argument}=...): the server makes the batches, so its configuration sets this: {key}" in str(refused.value)


def test_an_unknown_argument_suggests_the_most_similar_one() -> None:
    with pytest.raises(TypeError, match=r"Loader\(bacth_timeout=...\): unknown argument; did you mean batch_timeout\?"):
        headrace.Loader(stream="val", **{"bacth_timeout": 8})
    with pytest.raises(TypeError, match=r"Loader\(generator=...\): unknown argument; instead: the stream's `seed:`"):
        headrace.Loader(stream="train", generator=None)  # type: ignore[call-arg]
    with pytest.raises(headrace.errors.InvalidArgument, match=r"serve\(reload=...\): unknown argument; expected wait, env, set, restart, or a key"):
        headrace.serve("c.yaml", reload=True)
    with pytest.raises(headrace.errors.InvalidArgument, match=r"restart='yes': expected True or False"):
        headrace.serve("c.yaml", restart="yes")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Loader\(xyzzy=...\): unknown argument; expected one of: address, stream, rank, "):
        headrace.Loader(stream="val", **{"xyzzy": 8})


def test_the_description_of_a_stream_shortens_a_long_list_of_classes(start_server: Any, basic_config: dict[str, Any]) -> None:
    with headrace.Loader(start_server(basic_config).address, stream="train") as loader:
        info = dataclasses.replace(loader.info, classes=tuple(f"class {number}" for number in range(1000)))
    assert repr(info).startswith("StreamInfo(name='train', delivery='broadcast', samples=60, ")
    assert "classes=('class 0', 'class 1', 'class 2', 'class 3', 'class 4', 'class 5', ...), " in repr(info)


def test_a_batch_a_sample_and_a_server_say_what_they_are(start_server: Any, basic_config: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    address = start_server(basic_config).address
    monkeypatch.setenv("HEADRACE_ADDRESS", str(address))
    with headrace.Loader(stream="train") as loader:
        batch = next(iter(loader))
        with pytest.raises(TypeError, match=r"batch\['image'\]: this batch is a tuple; unpack its fields"):
            batch["image"]  # type: ignore[call-overload]
        assert batch[0] is batch[:1][0]
    assert "image" in headrace.sample(stream="train", epoch=0, index=1).fields
    with pytest.raises(InvalidArgument, match=r"headrace.sample\(stream='train', epoch=0, index=0\)"):
        headrace.sample()
    with pytest.raises(InvalidArgument, match=r"headrace.cursors\(stream='train', group='job'\)"):
        headrace.cursors(stream="train")


def test_check_tries_the_metrics_port(tmp_path: Path, basic_config: dict[str, Any]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        basic_config.setdefault("server", {})
        basic_config["server"] |= {"directory": str(tmp_path / "run"), "metrics": {"port": taken.getsockname()[1]}}
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(basic_config))
        command = [headrace_binary(), "check", tmp_path / "config.yaml"]
        checked = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert checked.returncode != 0
        assert "is in use, perhaps by another server: set another server.metrics.port" in checked.stderr
        assert "will run" not in checked.stdout
    assert subprocess.run(command, capture_output=True, text=True, timeout=60).returncode == 0


def test_a_server_shows_its_address(tmp_path: Path, basic_config: dict[str, Any]) -> None:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(basic_config))
    with headrace.serve(tmp_path / "config.yaml") as server:
        assert repr(server) == f"headrace.Server(address={server.address!r}, pid={server.pid})"


@pytest.mark.parametrize(
    ("imports", "arguments", "expected"),
    [("", "", "ndarray"), ("import torch", "", "Tensor"), ("import torch", "zero_copy=True", "ndarray"), ("import torch", "output='numpy'", "ndarray")],
)
def test_who_has_imported_torch_gets_tensors(start_server: Any, quiet_config: dict[str, Any], imports: str, arguments: str, expected: str) -> None:
    if imports:
        pytest.importorskip("torch")
    program = f"{imports}\nimport headrace\nwith headrace.Loader({str(start_server(quiet_config).address)!r}, stream='train', {arguments}) as loader:\n    print([type(field).__name__ for field in next(iter(loader))])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert ran.stdout.strip() == str([expected] * 2)
