"""The references that are generated from code when the site is built: command line, errors, Python, C++."""

from __future__ import annotations

import functools
import re
import subprocess
from pathlib import Path

import cpp_reference
import griffe
import python_reference

COMMANDS = """# Command line

This page lists the verbs of the program `headrace` and their options, for those who run a server. It is the output of `--help` of
the build that made this site. [Configuration](../../configs/README.md) explains how a server is configured.

```sh
headrace check train.yaml && headrace serve train.yaml
```
"""
ERRORS = """# Errors

This page lists the names of all errors, for programs that handle them. A name is the same in C++, on the wire and in Python: it
begins each message (`NO_SUCH_STREAM: …`), and is `error.code` in Python. [Troubleshooting](troubleshooting.md) says for each name
what to do. The site generates this page from [`error.h`](include/headrace/error.h) and `bindings/headrace/errors.py`.

```python
import headrace

try:
    loader = headrace.Loader(stream="train")
except headrace.errors.ServerUnreachable as error:
    print(error.code, error.message)
```

| name | C++: `headrace::ErrorCode` | Python: `headrace.errors` | what it means |
|---|---|---|---|
"""


def help_of(*verb: str) -> str:
    return subprocess.run(["headrace", *verb, "--help"], check=True, capture_output=True, text=True).stdout.strip()


def verbs() -> list[str]:
    listed = help_of().partition("Subcommands:")[2].partition("\n\n")[0]
    return re.findall(r"^  ([\w-]+)  ", listed, re.MULTILINE)


def commands() -> str:
    sections = [f"## `{name.strip()}`\n\n```console\n{help_of(*name.split()[1:])}\n```\n" for name in ("headrace", *(f"headrace {verb}" for verb in verbs()))]
    return "\n".join([COMMANDS, *sections])


def screaming(enumerator: str) -> str:
    """kNoSuchStream -> NO_SUCH_STREAM."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", enumerator.removeprefix("k")).upper()


def error_codes(root: Path) -> dict[str, tuple[str, str]]:
    """Name -> (enumerator, meaning), as error.h has them."""
    return {screaming(name): (name, meaning) for name, meaning in cpp_reference.enumerators(root, "ErrorCode")}


def error_classes(root: Path) -> dict[str, tuple[str, str]]:
    """Name -> (class, its bases)."""
    module = griffe.load("headrace.errors", search_paths=[root / "bindings"])
    found = {}
    for kind in module.classes.values():
        bases = ", ".join(f"`{base}`" for base in map(str, kind.bases) if base not in ("Error", "Exception"))
        code = str(kind.attributes["code"].value).strip("\"'")
        found[code] = (kind.name, bases)
    return found


def errors(root: Path) -> str:
    classes = error_classes(root)
    rows = []
    for name, (enumerator, meaning) in error_codes(root).items():
        kind, bases = classes.get(name, ("Error", ""))
        python = f"`{kind}`" + (f" (also {bases})" if bases else "")
        rows.append(f"| [`{name}`](troubleshooting.md#{name.lower()}) | `{enumerator}` | {python} | {meaning} |")
    return ERRORS + "\n".join(rows) + "\n"


@functools.cache
def pages(root: Path) -> dict[str, str]:
    """Path of the page -> its text."""
    return {
        "server/verbs/commands.md": commands(),
        "clientlib/errors.md": errors(root),
        "bindings/headrace/reference.md": python_reference.page(root),
        "clientlib/include/reference.md": cpp_reference.page(root),
    }
