"""Collects the licenses of other projects' code that is compiled in: headers and static libraries of Debian's packages, and nanobind.

usage: licenses.py BUILD FOLDER        BUILD: where Ninja built it; FOLDER: is created, for an image of Debian
The texts are those of the Debian packages, one folder for each source package.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Set
from pathlib import Path

# Source packages whose code belongs to the machine, or may be compiled in by an exception of its license (GCC).
OF_THE_MACHINE = re.compile(r"(gcc|glibc|linux|python3)[-.\d]*")
COMMON = Path("/usr/share/common-licenses")


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def compiled_in(build: Path) -> set[Path]:
    """The files outside this project that compilers read, and libarchive, which is linked statically."""
    read = re.findall(r"^ +(\S+)$", output("ninja", "-C", str(build), "-t", "deps"), re.MULTILINE)
    linked = re.findall(r"/usr/lib/\S+\.a\b", (build / "build.ninja").read_text())
    return {(build / name).resolve() for name in [*read, *linked]}


def debian_packages(patterns: set[str]) -> set[str]:
    # dpkg -S fails if no package has one of them: /usr/local, or a file that a package's script made.
    found = subprocess.run(["dpkg", "-S", *sorted(patterns)], check=False, capture_output=True, text=True).stdout
    return {package for line in found.splitlines() for package in line.split(": ")[0].split(", ")}


def licenses(build: Path, packages: Set[str] = frozenset()) -> dict[str, bytes]:
    """The texts, by their paths below a folder of licenses: for what was compiled in, and for `packages`."""
    texts: dict[str, bytes] = {}
    files = compiled_in(build)
    packages = packages | debian_packages({str(file) for file in files if file.parts[1] == "usr"})
    for line in output("dpkg-query", "-W", "-f", "${source:Package} ${Package}\n", *sorted(packages)).splitlines():
        source, package = line.split()
        if not OF_THE_MACHINE.fullmatch(source):
            texts.setdefault(f"{source}/copyright", Path(f"/usr/share/doc/{package}/copyright").read_bytes())
    # Packages of PyPI that are compiled in: nanobind, which brings robin_map.
    for root in {Path(*file.parts[: file.parts.index("nanobind") + 1]) for file in files if "nanobind" in file.parts}:
        (own,) = root.parent.glob("nanobind-*.dist-info/**/LICENSE")
        texts["nanobind/LICENSE"] = own.read_bytes()
        header = (root / "ext/robin_map/include/tsl/robin_map.h").read_bytes()
        texts["robin_map/LICENSE"] = header[: header.index(b"*/") + 3]
    return texts


def common_licenses(texts: dict[str, bytes]) -> dict[str, bytes]:
    """Those to which `texts` refer. Every Debian has them in COMMON."""
    named = {name.decode() for name in re.findall(rb"/usr/share/common-licenses/([\w.-]*\w)", b"".join(texts.values()))}
    return {f"common-licenses/{name}": (COMMON / name).read_bytes() for name in sorted(named) if (COMMON / name).is_file()}


def write(texts: dict[str, bytes], folder: Path) -> None:
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)


def main() -> None:
    build, folder = Path(sys.argv[1]), Path(sys.argv[2])
    texts = licenses(build)
    write(texts, folder)
    shutil.copy(Path(__file__).parents[1] / "LICENSE", folder)
    print(f"{folder}: {len(texts)} licenses: {', '.join(sorted(texts))}")


if __name__ == "__main__":
    main()
