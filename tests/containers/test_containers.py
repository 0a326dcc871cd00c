"""The images of docker/Dockerfile, and the containers of docker/compose.yaml, run by podman: `./run containers`.

All containers share the network of one that only holds it: it reaches nothing else.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
BASE = "docker.io/library/debian:12-slim"
LABEL, NETWORK, VOLUME = "headrace-test", "headrace-network", "headrace-socket"
MIB = 1 << 20

pytestmark = pytest.mark.timeout(1800)


def run(*command: str | Path, fails: bool = False) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode != 0) == fails, f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + (done.stderr if fails else "")


def works(*command: str) -> bool:
    return subprocess.run(command, capture_output=True).returncode == 0


def wait_until(true: Callable[[], Any], what: str, seconds: float = 90) -> Any:
    end = time.monotonic() + seconds
    while not (value := true()):
        assert time.monotonic() < end, f"waited {seconds:g} s for {what}"
        time.sleep(0.5)
    return value


class Engine:
    """podman, with the options that it needs on this machine."""

    def __init__(self) -> None:
        probe = ["run", "--rm", "--network", "none", BASE, "true"]
        # podman raises limits, which needs a capability that this process may lack; crun does not know every layout of control groups.
        low = ["--ulimit", "nofile=8192:8192", "--ulimit", "nproc=4096:4096"]
        choices: list[tuple[list[str], list[str]]] = [([], []), ([], low), (["--runtime", "runc"], low)]
        for engine, container in choices:
            if works("podman", *engine, probe[0], *container, *probe[1:]):
                self.engine, self.container = engine, container
                return
        pytest.fail("podman cannot run a container here: " + run("podman", *choices[0][0], *probe, fails=True))

    def __call__(self, *arguments: str | Path, fails: bool = False) -> str:
        return run("podman", *self.engine, *arguments, fails=fails)

    def start(self, name: str, image: str, *arguments: str | Path, options: tuple[str, ...] = ()) -> None:
        network = ["--network", "none" if name == NETWORK else f"container:{NETWORK}"]
        hosts = ["-v", f"{Path(__file__).parent / 'hosts'}:/etc/hosts:ro"]
        self("run", "-d", "--name", name, "--label", LABEL, *network, *hosts, *self.container, *options, image, *arguments)

    def logs(self, name: str) -> str:
        done = subprocess.run(["podman", "logs", name], capture_output=True, text=True)
        return done.stdout + done.stderr

    def state(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("inspect", name))[0]["State"]
        return found


def build(target: str, *files: str) -> str:
    """The image's name. Where containers may not be isolated further, the steps run in a chroot."""
    image = f"localhost/headrace-{target}"
    ways = [[], ["--isolation", "chroot", "--network", "host"]]
    command = ["--format", "docker", "--layers", *files, "--target", target, "-t", image, "."]
    for way in ways:
        probe = subprocess.run(["buildah", "bud", *way, "-f", "-", "."], input=f"FROM {BASE}\nRUN true\n", text=True, capture_output=True)
        if probe.returncode == 0:
            run("buildah", "bud", *way, *command)
            return image
    pytest.fail(f"buildah cannot build here: {probe.stderr}")


@pytest.fixture(scope="session")
def engine() -> Engine:
    run(ROOT / "tests/containers/base-image", BASE)
    return Engine()


@pytest.fixture(scope="session")
def images(engine: Engine) -> dict[str, str]:
    return {target: build(target, "-f", "docker/Dockerfile") for target in ("server", "trainer")} | {
        "prometheus": build("prometheus", "-f", "tests/containers/Dockerfile")
    }


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for label in range(3):
        (folder / f"class_{label}").mkdir()
        for index in range(64):
            Image.effect_noise((160, 120), 60).convert("RGB").save(folder / f"class_{label}" / f"{index}.jpg")
    folder.chmod(0o755)
    return folder


@pytest.fixture
def network(engine: Engine) -> Iterator[None]:
    """The network and the volume that the test's containers share. Afterwards nothing is left."""

    def ours() -> list[str]:
        return engine("ps", "-aq", "--sort", "created", "--filter", f"label={LABEL}").split()

    def remove() -> None:
        for container in reversed(ours()):  # the oldest one has the network of all others
            engine("rm", "-f", "-t", "2", container)
        engine("volume", "rm", "-f", VOLUME)

    remove()
    engine("volume", "create", VOLUME)
    engine.start(NETWORK, BASE, "sleep", "infinity")
    yield
    remove()
    assert not ours() and VOLUME not in engine("volume", "ls", "-q")


def service(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())["services"][name]
    return found


def options_of(name: str, config: Path, data: Path) -> tuple[str, ...]:
    """What compose.yaml asks of the service, as podman's options."""
    asked = service(name)
    out: list[str] = []
    for volume in asked["volumes"]:
        source, target, *mode = volume.rsplit(":", 2) if volume.endswith(":ro") else volume.rsplit(":", 1)
        host = VOLUME if source == "socket" else config if "HEADRACE_CONFIG" in source else data
        out += ["-v", ":".join([str(host), target, *mode])]
    if asked.get("read_only"):
        out += ["--read-only"]
    out += [part for capability in asked["cap_drop"] for part in ("--cap-drop", capability)]
    return tuple(out)


def configured(tmp_path: Path, **changes: Any) -> Path:
    config = yaml.safe_load((ROOT / "docker/headrace.yaml").read_text())
    config["server"] |= changes
    config["streams"]["train"]["batch_size"] = 16
    path = tmp_path / "headrace.yaml"
    path.write_text(yaml.safe_dump(config))
    tmp_path.chmod(0o755)
    return path


def healthy(engine: Engine, name: str) -> bool:
    check = json.loads(engine("inspect", name))[0]["Config"]["Healthcheck"]["Test"]
    return works("podman", *engine.engine, "exec", name, *check[1:])


def test_the_server_adds_at_most_25_mb_to_its_base(engine: Engine, images: dict[str, str]) -> None:
    sizes = {name: json.loads(engine("image", "inspect", name))[0]["Size"] for name in (BASE, images["server"])}
    assert sizes[images["server"]] - sizes[BASE] <= 25 * MIB, sizes


@pytest.mark.parametrize("target", ["server", "trainer"])
def test_the_images_have_the_licenses_of_what_is_compiled_in(engine: Engine, images: dict[str, str], target: str) -> None:
    find = ("--entrypoint", "find", images[target], "/usr/share/doc/headrace", "-type", "f", "-size", "+0", "-printf", "%P\n")
    found = set(engine("run", "--rm", "--network", "none", *engine.container, *find).split())
    debian = "boost1.74 cli11 cppzmq fmtlib highway libarchive libstb nlohmann-json3 prometheus-cpp spdlog tl-expected".split()
    assert found >= {"LICENSE", "nanobind/LICENSE", "robin_map/LICENSE", *(f"{source}/copyright" for source in debian)}


def test_the_topology_of_compose(engine: Engine, images: dict[str, str], network: None, data: Path, tmp_path: Path) -> None:
    config = configured(tmp_path, allow={"uids": [20002]})
    engine.start("headrace-server", images["server"], *service("server")["command"],
                 options=(*options_of("server", config, data), "--restart", "unless-stopped"))
    wait_until(lambda: healthy(engine, "headrace-server"), "a healthy server")

    trainer = ("-v", f"{VOLUME}:/run/headrace", "--cap-drop", "ALL", "--restart", "on-failure")
    engine.start("headrace-own", images["trainer"], "--stream", "train", options=trainer)
    engine.start("headrace-other", images["trainer"], "--stream", "train",
                 options=(*trainer, "--user", "20002:20002", "-e", "HEADRACE_ALLOW_UIDS=10001"))
    for name in ("headrace-own", "headrace-other"):
        wait_until(lambda name=name: "images/s" in engine.logs(name), f"batches in {name}")

    engine.start("headrace-stranger", images["trainer"], "--stream", "train", options=(*trainer[:4], "--user", "30003:30003", "-e", "HEADRACE_ALLOW_UIDS=10001"))
    wait_until(lambda: engine.state("headrace-stranger")["Status"] == "exited", "the end of a trainer that is not admitted")
    assert "PERMISSION_DENIED" in engine.logs("headrace-stranger")

    engine.start("headrace-prometheus", images["prometheus"], options=("-v", f"{ROOT / 'configs/prometheus'}:/etc/prometheus:ro"))
    asked = ("exec", "headrace-prometheus", "promtool", "query", "instant", "http://localhost:9090")

    def value(query: str) -> float:
        answer = subprocess.run(["podman", *engine.engine, *asked, query], capture_output=True, text=True)
        return float(answer.stdout.split("=> ")[1].split()[0]) if "=> " in answer.stdout else 0

    wait_until(lambda: value('up{job="headrace"}') == 1, "a scrape of the server")
    wait_until(lambda: value("sum(headrace_samples_granted_total)") > 0, "samples in Prometheus")
    wait_until(lambda: value('count({__name__=~"stream:headrace_.*"})') > 0, "a recording rule's result")

    before = engine.state("headrace-server")
    run("kill", "-9", str(before["Pid"]))
    wait_until(lambda: engine.state("headrace-server")["Pid"] not in (0, before["Pid"]) and healthy(engine, "headrace-server"), "another server")
    counts = {name: engine.logs(name).count("images/s") for name in ("headrace-own", "headrace-other")}
    for name, count in counts.items():
        wait_until(lambda name=name, count=count: engine.logs(name).count("images/s") > count, f"more batches in {name}")

    for name in ("headrace-own", "headrace-other", "headrace-server"):
        engine("stop", "-t", "10", name)
    assert engine.state("headrace-server")["ExitCode"] == 0, engine.logs("headrace-server")


def test_the_pod_of_kubernetes(engine: Engine, images: dict[str, str], network: None, data: Path, tmp_path: Path) -> None:
    """Its containers, one after the other: the sidecar until its probe succeeds, then the trainer until it ends."""
    config, job = yaml.safe_load_all((ROOT / "docker/kubernetes.yaml").read_text())
    pod = job["spec"]["template"]["spec"]
    (tmp_path / "config").mkdir()
    (tmp_path / "config/headrace.yaml").write_text(config["data"]["headrace.yaml"])
    (tmp_path / "sockets").mkdir()
    (tmp_path / "sockets").chmod(0o777)  # as kubelet makes an emptyDir, which belongs to root
    tmp_path.chmod(0o755)
    volumes = {"sockets": tmp_path / "sockets", "config": tmp_path / "config", "data": data}

    def options(container: dict[str, Any]) -> tuple[str, ...]:
        user = pod["securityContext"]
        out = ["--user", f"{user['runAsUser']}:{user['runAsGroup']}", "--security-opt", "no-new-privileges"]
        for mount in container["volumeMounts"]:
            out += ["-v", f"{volumes[mount['name']]}:{mount['mountPath']}" + (":ro" if mount.get("readOnly") else "")]
        for variable in container["env"]:
            out += ["-e", f"{variable['name']}={variable['value']}"]
        context = container["securityContext"]
        out += [part for capability in context["capabilities"]["drop"] for part in ("--cap-drop", capability)]
        return (*out, "--read-only") if context.get("readOnlyRootFilesystem") else tuple(out)

    (server,), (trainer,) = pod["initContainers"], pod["containers"]
    engine.start("headrace-server", images["server"], *server["args"], options=options(server))
    probe = server["startupProbe"]["exec"]["command"]
    wait_until(lambda: works("podman", *engine.engine, "exec", "headrace-server", *probe), "the startup probe")
    engine.start("headrace-trainer", images["trainer"], *trainer["args"][:-1], "20", options=options(trainer))
    wait_until(lambda: engine.state("headrace-trainer")["Status"] == "exited", "the trainer's end")
    assert engine.state("headrace-trainer")["ExitCode"] == 0, engine.logs("headrace-trainer")
    engine("stop", "-t", "10", "headrace-server")
    assert engine.state("headrace-server")["ExitCode"] == 0
    assert all(json.loads(line)["message"] for line in engine.logs("headrace-server").splitlines())


@pytest.fixture
def ordinary_user(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Runs a command as a user without privileges, who exists during the test only."""
    if os.geteuid() != 0:
        pytest.skip("these tests run without root already, so all of them are rootless")
    name = "headrace-rootless"
    subprocess.run(["userdel", "-r", name], capture_output=True)
    run("useradd", "--create-home", "--add-subids-for-system", "--system", name)
    home = Path(f"/home/{name}")
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "XDG_RUNTIME_DIR": str(home)}

    def as_user(*command: str | Path, check: bool = True) -> str:
        done = subprocess.run([str(part) for part in command], user=name, group=name, extra_groups=[], cwd=home, env=environment, capture_output=True, text=True)
        assert done.returncode == 0 or not check, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    yield as_user
    as_user("podman", "system", "reset", "--force", check=False)  # its files belong to users of its namespace
    subprocess.run(["pkill", "-9", "-u", name], capture_output=True)
    run("userdel", "-r", name)


def test_server_and_trainer_without_root(images: dict[str, str], engine: Engine, data: Path, tmp_path: Path, ordinary_user: Callable[..., str]) -> None:
    archive = tmp_path / "images.tar"
    engine("save", "-q", "-m", "-o", archive, images["server"], images["trainer"])
    archive.chmod(0o644)
    config = configured(tmp_path)
    for folder in (tmp_path.parent, tmp_path.parent.parent, data.parent):
        folder.chmod(0o755)
    ordinary_user("podman", "load", "-q", "-i", archive)
    assert "rootless: true" in ordinary_user("podman", "info")
    podman = ("podman", *engine.engine, "run", "--network", "none", *engine.container)
    ordinary_user(*podman, "-d", "--no-healthcheck", "--name", "server", *options_of("server", config, data), images["server"], *service("server")["command"])
    wait_until(lambda: "serving in" in ordinary_user("podman", "logs", "server"), "the server")
    said = ordinary_user(*podman, "--rm", *options_of("trainer", config, data), images["trainer"], "--stream", "train", "--batches", "30")
    assert "images/s" in said, said
    ordinary_user("podman", *engine.engine, "stop", "-t", "10", "server")
    assert ordinary_user("podman", "inspect", "server", "--format", "{{.State.ExitCode}}").strip() == "0"


def test_a_memory_limit_is_named(engine: Engine, images: dict[str, str], network: None, data: Path, tmp_path: Path) -> None:
    if not works("podman", *engine.engine, "run", "--rm", *engine.container, "--memory", "64m", BASE, "true"):
        pytest.skip("this machine's control groups set no memory limit for containers")
    config = configured(tmp_path)
    engine.start("headrace-server", images["server"], "serve", "/etc/headrace/headrace.yaml", "--set", "streams.train.batch_size=512",
                 options=(*options_of("server", config, data), "--memory", "64m"))
    wait_until(lambda: engine.state("headrace-server")["Status"] == "exited", "the server's end")
    assert engine.state("headrace-server")["ExitCode"] == 3
    said = engine.logs("headrace-server")
    assert "NOT_ENOUGH_MEMORY" in said and "limit" in said, said
