"""The commands, configurations and programs that do not run: in pages other than those of test_snippets.py, and where a page says so."""

from __future__ import annotations

import ast
import functools
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import snippets
import yaml
from running import ROOT, headrace_binary
from test_snippets import PAGES

jsonschema = pytest.importorskip("jsonschema")

FOLDERS = ("bindings", "clientlib", "configs", "docker", "server", "tests")
OTHERS = sorted(
    {str(file.relative_to(ROOT)) for file in [ROOT / "README.md", *(found for folder in FOLDERS for found in (ROOT / folder).rglob("*.md"))]} - set(PAGES)
)
ALL = [block for page in OTHERS for block in snippets.blocks(page)] + [
    block for page in PAGES for block in snippets.blocks(page) if block.why_not_run
]


def named(language: str) -> list[Any]:
    return [pytest.param(block, id=f"{block.page}:{block.line}") for block in ALL if block.language == language]


def without_required(node: Any) -> Any:
    """The schema, for parts of configurations."""
    if isinstance(node, dict):
        return {key: without_required(value) for key, value in node.items() if key != "required" or not isinstance(value, list)}
    return [without_required(each) for each in node] if isinstance(node, list) else node


@functools.cache
def validator() -> Any:
    schema = without_required(json.loads((ROOT / "configs/headrace.schema.json").read_text()))
    return jsonschema.Draft7Validator(schema)


@pytest.mark.parametrize("block", named("yaml"))
def test_a_configuration_has_keys_and_values_that_exist(block: snippets.Block) -> None:
    config = yaml.safe_load(block.text)
    if config is not None and set(config) & {"server", "sources", "streams"}:
        assert [f"{'.'.join(map(str, error.path))}: {error.message[:200]}" for error in validator().iter_errors(config)] == []


@pytest.mark.parametrize("block", named("python"))
def test_a_program_compiles(block: snippets.Block) -> None:
    ast.parse(block.text)


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here")
@pytest.mark.parametrize("block", named("cpp"))
def test_a_part_of_a_program_in_cpp_compiles(block: snippets.Block) -> None:
    lines = block.text.split("\n")
    outside = [line for line in lines if line.startswith(("#include", "using"))]
    inside = [line for line in lines if line not in outside]
    step = "template <class... T> void step(T&&...) {}"
    program = "\n".join([*outside, step, "int main() {", *inside, "}"])
    done = subprocess.run(
        ["g++", "-std=c++20", "-fsyntax-only", "-I", str(ROOT / "clientlib/include"), "-x", "c++", "-"], input=program, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


@functools.cache
def help_of(verb: str) -> str:
    done = subprocess.run([headrace_binary(), verb, "--help"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, f"no verb {verb}"
    return done.stdout


def commands(text: str) -> Iterator[list[str]]:
    """The words of each command of a block, without comments."""
    for line in text.replace("\\\n", " ").split("\n"):
        for command in re.split(r"&&|\|\|?|;|&", re.sub(r"(^|\s)#.*", "", line)):
            words = shlex.split(re.sub(r"[<>]\s*\S+|<\(.*|\(|\)", "", command))
            while words and re.fullmatch(r"\w+=.*", words[0]):
                del words[0]
            if words:
                yield words


@pytest.mark.parametrize("block", named("sh"))
def test_a_command_exists_and_has_its_options(block: snippets.Block) -> None:
    assert subprocess.run(["bash", "-n", "-c", block.text], capture_output=True).returncode == 0
    run_help = subprocess.run([ROOT / "run", "help"], capture_output=True, text=True, timeout=30).stdout
    for words in commands(block.text):
        program, arguments = words[0], words[1:]
        names = [word.rpartition("/")[2] for word in words]
        if program.endswith("headrace") or (program == "docker" and "headrace" in names):  # also in a container
            verb, *given = words[names.index("headrace") + 1 :]
            unknown = [word for word in given if word.startswith("--") and word.partition("=")[0] not in help_of(verb)]
            assert unknown == [], f"headrace {verb} has no {unknown}"
        elif program == "./run":
            assert re.search(rf"\b{re.escape(arguments[0])}\b", run_help), words
        elif program.startswith(("tests/", "configs/", "bindings/")):
            assert (ROOT / program).exists(), f"{program} does not exist"
        elif program == "docker" and "-f" in arguments:
            assert (ROOT / arguments[arguments.index("-f") + 1]).exists(), words
        elif program in ("python", "python3") and arguments and arguments[0].endswith(".py") and "/" in arguments[0]:
            assert (ROOT / arguments[0]).exists(), f"{arguments[0]} does not exist"
