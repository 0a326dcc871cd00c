"""`headrace completion`: what each shell proposes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from running import headrace_binary, wait_until
from terminal import Terminal


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([headrace_binary(), *arguments], capture_output=True, text=True, timeout=10, check=True)


def completed(shell: str, line: str) -> list[str]:
    """What bash proposes for the last word of `line`."""
    script = f"{run('completion', shell).stdout}\nCOMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _headrace; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=10, check=True).stdout.splitlines()


def test_bash_completes_verbs_options_and_files(tmp_path: Path) -> None:
    assert completed("bash", "headrace ser") == ["serve"]
    assert set(completed("bash", "headrace p")) == {"pack", "preview"}
    assert completed("bash", "headrace completion z") == ["zsh"]
    assert set(completed("bash", "headrace bench --s")) == {"--set", "--stream", "--seconds"}
    (tmp_path / "train.yaml").touch()
    assert completed("bash", f"headrace check {tmp_path}/tr") == [f"{tmp_path}/train.yaml"]
    (tmp_path / "my own *.yaml").touch()
    assert completed("bash", f"headrace check {tmp_path}/my") == [f"{tmp_path}/my own *.yaml"]
    assert completed("bash", f"headrace ls --address {tmp_path}/tr") == [f"{tmp_path}/train.yaml"]
    assert completed("bash", "headrace pack --store ''") == ["tiled", "encoded", "decoded"]
    for nothing in ("bench --stream", "ls", "serve --ready-fd"):
        assert completed("bash", f"headrace {nothing} ''") == [""], "no files"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_reads_its_script(shell: str, tmp_path: Path) -> None:
    script = run("completion", shell).stdout
    verbs = re.findall(r"^  (\w+)  ", run("--help").stdout.split("Subcommands:")[1], re.MULTILINE)
    assert len(verbs) >= 15 and all(verb in script for verb in verbs)
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    path = tmp_path / "completion"
    path.write_text(script)
    assert subprocess.run([shell, "-n", str(path)], capture_output=True, timeout=10, check=False).returncode == 0


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes_from_a_folder_of_functions(tmp_path: Path) -> None:
    (tmp_path / "_headrace").write_text(run("completion", "zsh").stdout)
    with Terminal(24, 100, "-f", "-i", program="zsh") as zsh:
        zsh.type(f"fpath=({tmp_path} $fpath); autoload -Uz compinit; compinit -D -u; PROMPT='ready> '\n")
        wait_until(lambda: zsh.read().endswith(b"ready> \x1b[K\x1b[?2004h"), "the prompt")
        zsh.type("headrace ser\t")
        wait_until(lambda: b"serve" in zsh.read().rpartition(b"ready> ")[2], "the verb")
        zsh.type("\x15headrace completion f\t")
        wait_until(lambda: b"fish" in zsh.read().rpartition(b"ready> ")[2], "the shell")
        zsh.type("\x15headrace pack --store ti\t")
        wait_until(lambda: b"tiled" in zsh.read().rpartition(b"ready> ")[2], "the choice")


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_sources_the_script_without_compinit(tmp_path: Path) -> None:
    (tmp_path / "script").write_text(run("completion", "zsh").stdout)
    done = subprocess.run(["zsh", "-f", "-c", f"source {tmp_path}/script; print $_comps[headrace]"], env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
                          capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "_headrace\n", "")


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_verbs_options_and_shells() -> None:
    def completed(line: str) -> set[str]:
        script = run("completion", "fish").stdout + f"complete -C '{line}'"
        done = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, timeout=20, check=True)
        return {proposed.split("\t")[0] for proposed in done.stdout.splitlines()}

    assert completed("headrace p") == {"pack", "preview"}
    assert completed("headrace bench --s") == {"--set", "--stream", "--seconds"}
    assert completed("headrace completion ") == {"bash", "fish", "zsh"}
    assert completed("headrace pack --store ") == {"tiled", "encoded", "decoded"}
    assert completed("headrace bench --stream ") == set(), "no files"
