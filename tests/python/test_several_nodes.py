"""A job over several machines without Ray: two servers stand for two nodes, and torchrun or Slurm gives each process its rank."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import snippets
from running import Server, free_port, headrace_binary, wait_until

SAMPLES = 60  # of the fixture image_folder
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_", "TORCHELASTIC_", "HEADRACE_ADDRESS", "MASTER_")

# A rank: reads its node's stream, and writes a line for each batch. After batch `last` it saves its state and waits to be killed.
TRAINER = """
import json, os, sys, time
import headrace

folder, last = sys.argv[1], int(sys.argv[2])
ranks = {}
if "SLURM_PROCID" in os.environ:
    ranks = {"rank": int(os.environ["SLURM_PROCID"]), "world_size": int(os.environ["SLURM_NTASKS"])}
saved = os.path.join(folder, "checkpoint.json")
state = json.load(open(saved)) if os.path.exists(saved) else None
loader = headrace.Loader(stream="train", state=state, output="numpy", **ranks)
name = f"{os.environ.get('RANK') or os.environ['SLURM_PROCID']}-{loader.world_size}"
with open(os.path.join(folder, name), "w") as out:
    for number, batch in enumerate(loader, 1):
        out.write(json.dumps({"samples": batch.sample_index[batch.valid].tolist()}) + "\\n")
        out.flush()
        if number == last:
            json.dump(loader.state_dict(), open(os.path.join(folder, "state-" + name), "w"))
            os.rename(os.path.join(folder, "state-" + name), os.path.join(folder, "saved-" + name))
            time.sleep(60)
"""


def torchrun_ranks(rank: int, world_size: int, local_rank: int, node: int) -> dict[str, str]:
    return {"RANK": str(rank), "WORLD_SIZE": str(world_size), "LOCAL_RANK": str(local_rank), "GROUP_RANK": str(node)}


def slurm_ranks(rank: int, world_size: int, local_rank: int, node: int) -> dict[str, str]:
    return {"SLURM_PROCID": str(rank), "SLURM_NTASKS": str(world_size), "SLURM_LOCALID": str(local_rank), "SLURM_NODEID": str(node)}


def environment(address: str, **more: str) -> dict[str, str]:
    outside = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    return {**outside, "HEADRACE_ADDRESS": address, "OMP_NUM_THREADS": "1", **more}


@contextmanager
def job(nodes: list[tuple[Server, int]], ranks_of: Any, folder: Path, last: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Starts so many ranks on each node, numbered through, as a launcher does."""
    world_size, running = sum(count for _, count in nodes), []
    try:
        for node, (server, count) in enumerate(nodes):
            for local_rank in range(count):
                env = environment(server.address, **ranks_of(len(running), world_size, local_rank, node))
                running.append(subprocess.Popen([sys.executable, "-c", TRAINER, str(folder), str(last)], env=env))
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()


def samples(folder: Path, world_size: int) -> Counter[int]:
    files = list(folder.glob(f"[0-9]*-{world_size}"))
    assert len(files) == world_size
    return Counter(sample for file in files for line in file.read_text().splitlines() for sample in json.loads(line)["samples"])


@pytest.fixture
def sharded_config(quiet_config: dict[str, Any]) -> dict[str, Any]:
    quiet_config["streams"]["train"] |= {"delivery": "shard", "batch_size": 4, "ring": {"max_clients": 4}}
    return quiet_config


LAUNCHER = pytest.mark.parametrize("ranks_of", [torchrun_ranks, slurm_ranks], ids=["torchrun", "slurm"])


@LAUNCHER
def test_the_ranks_of_two_nodes_get_each_sample_once(start_server: Any, sharded_config: dict[str, Any], tmp_path: Path, ranks_of: Any) -> None:
    nodes = [(start_server(sharded_config), 2), (start_server(sharded_config), 2)]
    with job(nodes, ranks_of, tmp_path, last=0) as running:
        assert [process.wait(60) for process in running] == [0] * 4
    assert samples(tmp_path, 4) == Counter(range(SAMPLES))


@LAUNCHER
@pytest.mark.parametrize("ranks", [(2, 1), (1, 0)], ids=["a node returns with fewer ranks", "a node is lost"])
def test_after_the_death_of_a_node_a_smaller_job_gets_each_remaining_sample_once(
    start_server: Any, sharded_config: dict[str, Any], tmp_path: Path, ranks_of: Any, ranks: tuple[int, int]
) -> None:
    first, second = start_server(sharded_config), start_server(sharded_config)
    with job([(first, 2), (second, 2)], ranks_of, tmp_path, last=2) as running:
        wait_until(lambda: len(list(tmp_path.glob("saved-*"))) == 4, "the checkpoints of four ranks", 60)
        for process in running[2:]:
            process.kill()
        second.kill()
    states = [json.loads(file.read_text()) for file in tmp_path.glob("saved-*")]
    assert all(state == states[0] for state in states), "it is the same on all ranks, whichever server they read from"
    (tmp_path / "checkpoint.json").write_text(json.dumps(states[0]))
    nodes = [(first, ranks[0])] + ([(start_server(sharded_config), ranks[1])] if ranks[1] else [])
    with job(nodes, ranks_of, tmp_path, last=0) as running:
        assert [process.wait(60) for process in running] == [0] * sum(ranks)
    assert samples(tmp_path, 4) + samples(tmp_path, sum(ranks)) == Counter(range(SAMPLES))


# Runs a step on two nodes, as srun does: a process for each node, or two for each if the job's number of tasks counts. /tmp is one for
# both, so the folder differs.
SRUN = """
import os, subprocess, sys
words = [word for word in sys.argv[1:] if not word.startswith("--overlap")]
each = 2
if words[0] == "--ntasks-per-node=1":
    words, each = words[1:], 1
running = []
for task in range(2 * each):
    node = task // each
    numbers = {"SLURM_PROCID": task, "SLURM_NTASKS": 2 * each, "SLURM_LOCALID": task % each, "SLURM_NODEID": node}
    own = {"HEADRACE_ADDRESS": f"{os.environ['HEADRACE_ADDRESS']}-{node}", **{name: str(number) for name, number in numbers.items()}}
    words_here = [word.replace(os.environ["HEADRACE_ADDRESS"], own["HEADRACE_ADDRESS"]) for word in words]
    running.append(subprocess.Popen(words_here, env={**os.environ, **own}))
sys.exit(max(process.wait() for process in running))
"""


def test_the_slurm_script_of_the_page_starts_a_server_on_each_node(sharded_config: dict[str, Any], tmp_path: Path) -> None:
    script = next(block.text for block in snippets.blocks("bindings/many-machines.md") if "SLURM_JOB_ID" in block.text)
    (tmp_path / "train.yaml").write_text(json.dumps(sharded_config))
    (tmp_path / "train.py").write_text(f"import sys\nsys.argv[1:] = ['.', '0']\n{TRAINER}")
    (tmp_path / "bin").mkdir()
    commands = {
        "srun": f"#!{sys.executable}\n{SRUN}",
        "scontrol": "#!/bin/sh\necho localhost\n",
        "headrace": f'#!/bin/sh\nexec {headrace_binary()} "$@"\n',
        "python": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
    }
    for name, text in commands.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    folder = tempfile.mkdtemp(prefix="slurm-")  # short: a socket's path has at most 107 bytes
    env = environment("", PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}", TMPDIR=folder, SLURM_JOB_ID="7", SLURM_JOB_NODELIST="a")
    shell = subprocess.Popen(["bash", "-c", script], cwd=tmp_path, env=env, start_new_session=True)
    try:
        assert shell.wait(100) == 0
        assert len(os.listdir(folder)) == 2, "a server on each node"
        assert list(Path(folder).rglob("*.sock")) == [], "which have ended"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
        shutil.rmtree(folder)
    assert samples(tmp_path, 4) == Counter(range(SAMPLES))


# A rank under torchrun, in step with the others. Rank 0 saves a checkpoint after each batch. After batch 3 of the first attempt the last
# rank fails, or its whole node does.
ELASTIC = """
import json, os, signal, sys, time
import headrace
import torch.distributed as dist

folder, how = sys.argv[1:]
dist.init_process_group("gloo")
rank, world_size, saved = dist.get_rank(), dist.get_world_size(), os.path.join(folder, "checkpoint.json")
state = json.load(open(saved)) if os.path.exists(saved) else None
dist.barrier()
begun = 0 if state is None else state["cursor"]["batch"]
loader = headrace.Loader(stream="train", state=state, output="numpy", timeout=30)
with open(os.path.join(folder, f"log-{rank}-{world_size}-{begun}"), "w") as out:
    for number, batch in enumerate(loader, 1):
        out.write(json.dumps({"samples": batch.sample_index[batch.valid].tolist(), "server": os.environ["HEADRACE_ADDRESS"]}) + "\\n")
        out.flush()
        dist.barrier()
        if state is None and number == 3 and os.environ["DIES"] == "1":
            if how == "node":
                os.kill(os.getppid(), signal.SIGKILL)  # torchrun; its other processes end with the test
                os._exit(1)
            sys.exit(1)
        if rank == 0:
            with open(saved + ".new", "w") as new:
                json.dump(loader.state_dict(), new)
            os.rename(saved + ".new", saved)
        dist.barrier()
loader.close()
dist.destroy_process_group()
"""


@pytest.mark.timeout(200)
@pytest.mark.parametrize("how", ["rank", "node"])
def test_torchrun_restarts_a_job_of_two_nodes_and_each_sample_is_trained_once(
    start_server: Any, sharded_config: dict[str, Any], tmp_path: Path, how: str
) -> None:
    pytest.importorskip("torch")
    servers = [start_server(sharded_config), start_server(sharded_config)]
    program = tmp_path / "elastic.py"
    program.write_text(ELASTIC)
    nodes = "2" if how == "rank" else "1:2"
    times = "join_timeout=60,last_call_timeout=3,keep_alive_interval=1,keep_alive_max_attempt=3"
    command = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={nodes}", "--nproc-per-node=1", "--max-restarts=3", "--rdzv-id=job"]
    command += ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--monitor-interval=0.2"]
    running = []
    try:
        for node, server in enumerate(servers):
            # A store for each attempt: in a shared one, ranks find addresses of an attempt that has ended, and torchrun runs out of restarts.
            env = environment(server.address, DIES=str(node), TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
            host = f"--rdzv-conf={times},is_host={int(node == 0)}"  # the endpoint's node, which must survive
            running.append(subprocess.Popen([*command, host, str(program), str(tmp_path), how], env=env, start_new_session=True))
        assert running[0].wait(150) == 0
        if how == "rank":
            assert running[1].wait(60) == 0
    finally:
        for process in running:
            process.terminate()  # torchrun ends its ranks, which have sessions of their own
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
            process.wait()
    lines = {
        tuple(map(int, file.name.split("-")[1:])): [json.loads(line) for line in file.read_text().splitlines()] for file in tmp_path.glob("log-*")
    }
    begun = max(begun for _, _, begun in lines)  # 3 if rank 0 saved once more before it was ended
    assert begun in (2, 3)
    assert set(lines) == {(0, 2, 0), (1, 2, 0), *(((0, 2, begun), (1, 2, begun)) if how == "rank" else ((0, 1, begun),))}, "all attempts"
    assert {line["server"] for rank in (0, 1) for line in lines[rank, 2, 0]} == {server.address for server in servers}
    kept = [line for (_, _, began), each in lines.items() for line in (each if began else each[:begun])]
    assert Counter(sample for line in kept for sample in line["samples"]) == Counter(range(SAMPLES))
