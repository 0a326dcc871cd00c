"""The container files, as far as they can be checked without a container engine."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from conftest import ServerFactory
from grafana_foundation_sdk.models.dashboard import Dashboard
from running import ROOT, headrace_binary

DOCKER = ROOT / "docker"


def run(*command: str) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "PATH": path})
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}{done.stderr}"
    return done.stdout


def compose() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    return content


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    run("hadolint", str(DOCKER / "Dockerfile"))


def test_compose_file_follows_the_compose_schema() -> None:
    run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", str(DOCKER / "compose.yaml"))


def kubernetes() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DOCKER / "kubernetes.yaml").read_text()))


@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_the_pod_follows_the_schemas_of_kubernetes(version: str) -> None:
    for resource in kubernetes():
        kubernetes_validate.validate(resource, version, strict=True)
    broken = kubernetes()[1]
    broken["spec"]["template"]["spec"]["initContainers"][0]["restartpolicy"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, version, strict=True)


def test_the_configuration_in_the_pod_is_valid(image_folder: Path, tmp_path: Path) -> None:
    config = tmp_path / "headrace.yaml"
    config.write_text(kubernetes()[0]["data"]["headrace.yaml"].replace("/data", str(image_folder)).replace("/run/headrace", str(tmp_path)))
    assert "ok: `headrace serve" in run(headrace_binary(), "check", "--set", "server.metrics.port=0", str(config))


def test_grafana_finds_its_dashboard_and_its_data() -> None:
    grafana = ROOT / "configs/grafana"
    mounts = {target: (DOCKER / source).resolve() for source, target in (volume.split(":")[:2] for volume in compose()["services"]["grafana"]["volumes"])}
    assert mounts["/etc/grafana/provisioning"] == (grafana / "provisioning").resolve()
    (source,) = yaml.safe_load((grafana / "provisioning/datasources/prometheus.yaml").read_text())["datasources"]
    (provider,) = yaml.safe_load((grafana / "provisioning/dashboards/headrace.yaml").read_text())["providers"]
    # The keys that Grafana documents for provisioning; it publishes no schema of these files.
    assert set(source) <= {"name", "type", "access", "orgId", "uid", "url", "user", "database", "basicAuth", "basicAuthUser", "withCredentials", "isDefault", "jsonData", "secureJsonData", "version", "editable"}
    assert set(provider) <= {"name", "orgId", "folder", "folderUid", "type", "disableDeletion", "updateIntervalSeconds", "allowUiUpdates", "options"}
    assert source["type"] == "prometheus" and "prometheus" in compose()["services"] and source["url"] == "http://prometheus:9090"
    dashboards = mounts[provider["options"]["path"]]
    decoded = Dashboard.from_json(json.loads((dashboards / "headrace.json").read_text()))
    assert decoded.title == "Headrace" and len(decoded.panels or []) > 5
    uids = set(re.findall(r'"uid": "(\w+)"', json.dumps([panel for panel in json.loads((dashboards / "headrace.json").read_text())["panels"]])))
    assert uids == {source["uid"]}
    home = compose()["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == provider["options"]["path"] + "/headrace.json"


def test_server_and_trainer_share_the_socket_volume_and_no_privileges() -> None:
    services = compose()["services"]
    for name in ("server", "trainer"):
        assert "socket:/run/headrace" in services[name]["volumes"]
        assert services[name]["cap_drop"] == ["ALL"]
        assert not {"privileged", "ipc", "shm_size", "pid", "network_mode"} & set(services[name])
    assert "healthcheck" not in services["server"], "the image has one"
    assert services["trainer"]["depends_on"]["server"]["condition"] == "service_healthy"


def test_files_that_compose_mounts_and_builds_from_are_there() -> None:
    for name, service in compose()["services"].items():
        if "build" in service:
            assert (DOCKER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        for volume in service.get("volumes", []):
            source = volume.replace("${HEADRACE_CONFIG:-", "").replace("}", "").split(":")[0]
            if source.startswith("."):
                assert (DOCKER / source).exists(), f"service {name} mounts {source}"


def test_the_health_check_ends_by_itself_and_says_why(tmp_path: Path) -> None:
    (check,) = re.findall(r"^HEALTHCHECK .*--timeout=(\d+)s .*CMD (.*)$", (DOCKER / "Dockerfile").read_text(), re.MULTILINE)
    command, limit = json.loads(check[1]), int(check[0])
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:  # a server that accepts and does not answer
        silent.bind(str(tmp_path / "control.sock"))
        silent.listen()
        done = subprocess.run([headrace_binary(), *command[1:], "--address", tmp_path], capture_output=True, text=True, timeout=limit)
    assert done.returncode == 3 and "no server within 2.0 s" in done.stderr, done.stderr


def test_dockerfile_copies_only_what_is_there() -> None:
    for line in (DOCKER / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (ROOT / source).exists(), line


def test_scrape_target_is_the_port_that_the_config_serves() -> None:
    port = yaml.safe_load((DOCKER / "headrace.yaml").read_text())["server"]["metrics"]["port"]
    scrape = yaml.safe_load((ROOT / "configs/prometheus/prometheus.yml").read_text())["scrape_configs"][0]
    assert scrape["static_configs"][0]["targets"] == [f"server:{port}"]
    assert compose()["services"]["server"]["expose"] == [str(port)]


def test_package_lists_name_packages_that_debian_has() -> None:
    names = [
        line
        for file in sorted(DOCKER.glob("packages-*.txt"))
        for line in file.read_text().splitlines()
        if not line.startswith("#")
    ]
    known = run("apt-cache", "show", "--no-all-versions", *names)
    assert {line.split()[1] for line in known.splitlines() if line.startswith("Package:")} == set(names)


@pytest.mark.skipif(shutil.which("ldd") is None, reason="no ldd here")
def test_runtime_list_has_every_library_that_the_server_loads() -> None:
    listed = set((DOCKER / "packages-runtime.txt").read_text().split("\n"))
    base = {"libc6", "libstdc++6", "libgcc-s1"}  # debian:12-slim has these, or they come with the listed ones
    needed = run("objdump", "-p", headrace_binary())
    own = Path(headrace_binary()).parent.parent / "libheadrace_server.so"  # in the wheel's package
    if own.name in needed:
        needed = run("objdump", "-p", str(own))
    for line in needed.splitlines():
        if not line.strip().startswith("NEEDED"):
            continue
        library = line.split()[1]
        owners = {
            row.split(":")[0] for row in run("dpkg", "-S", f"*/{library}").splitlines() if "cross" not in row
        }
        assert owners & (listed | base), f"{library} is of {owners}, none of which is in packages-runtime.txt"


def test_example_config_of_the_image_is_valid(tmp_path: Path, image_folder: Path) -> None:
    text = (DOCKER / "headrace.yaml").read_text().replace("/data", str(image_folder))
    config = tmp_path / "headrace.yaml"
    config.write_text(text.replace("/run/headrace", str(tmp_path / "run")))
    run(headrace_binary(), "check", str(config))


def test_trainer_of_the_image_reads_batches(
    start_server: ServerFactory, basic_config: dict[str, Any]
) -> None:
    server = start_server(basic_config)
    said = run(sys.executable, str(DOCKER / "trainer.py"), "--address", server.address, "--batches", "12")
    assert "images/s" in said
    health = run(headrace_binary(), "health", "--address", server.address)
    assert "ok" in health, "what the image's health check asks"


def test_build_context_holds_everything_that_the_dockerfile_copies() -> None:
    kept = [
        line[1:]
        for line in (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    for line in (DOCKER / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert any(Path(source).match(pattern) for pattern in kept), f"{source} is not in the context"
