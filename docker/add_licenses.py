"""Adds to a wheel the licenses of other projects' code in it: of the libraries that auditwheel added, and of what was compiled in.

usage: add_licenses.py WHEEL BUILD        BUILD: the folder where Ninja built it, which knows each file that was compiled in
The texts are those of the Debian packages, one folder for each source package.
"""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
import zipfile
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


def added(wheel: Path) -> set[str]:
    """The Debian packages of the libraries. auditwheel's own list lacks those whose package still has /lib in its paths."""
    packages: set[str] = set()
    with zipfile.ZipFile(wheel) as opened:
        names = [Path(name).name for name in opened.namelist() if re.search(r"\.libs/lib[^/]+$", name)]
    for name in names:
        soname = re.sub(r"-[0-9a-f]{8}\.", ".", name, count=1)  # the hash is auditwheel's
        found = debian_packages({f"*-linux-gnu/{soname}"})
        if not found:
            sys.exit(f"{wheel}: no Debian package has the library {soname} ({name}): its license is unknown")
        packages |= found
    return packages


def licenses(packages: set[str], files: set[Path]) -> dict[str, bytes]:
    """Path below dist-info/licenses: text."""
    texts: dict[str, bytes] = {}
    for line in output("dpkg-query", "-W", "-f", "${source:Package} ${Package}\n", *sorted(packages)).splitlines():
        source, package = line.split()
        if not OF_THE_MACHINE.fullmatch(source):
            texts.setdefault(f"{source}/copyright", Path(f"/usr/share/doc/{package}/copyright").read_bytes())
    # The copyright files refer to these texts.
    named = set(re.findall(rb"/usr/share/common-licenses/([\w.-]*\w)", b"".join(texts.values())))
    for name in sorted(named):
        text = COMMON / name.decode()
        if text.is_file():
            texts[f"common-licenses/{text.name}"] = text.read_bytes()
    # Packages of PyPI that are compiled in: nanobind, which brings robin_map.
    for root in {Path(*file.parts[: file.parts.index("nanobind") + 1]) for file in files if "nanobind" in file.parts}:
        (own,) = root.parent.glob("nanobind-*.dist-info/**/LICENSE")
        texts["nanobind/LICENSE"] = own.read_bytes()
        header = (root / "ext/robin_map/include/tsl/robin_map.h").read_bytes()
        texts["robin_map/LICENSE"] = header[: header.index(b"*/") + 3]
    return texts


def rewrite(wheel: Path, texts: dict[str, bytes]) -> None:
    """The wheel again, with `texts`, which its METADATA and RECORD name."""
    new = wheel.with_suffix(".new")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as to:
        (record,) = [name for name in old.namelist() if name.endswith(".dist-info/RECORD")]
        info = record.rpartition("/")[0]
        rows = [row for row in old.read(record).decode().splitlines() if not row.startswith((f"{info}/METADATA,", record))]

        def add(entry: zipfile.ZipInfo, content: bytes) -> None:
            to.writestr(entry, content, zipfile.ZIP_DEFLATED)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            rows.append(f"{entry.filename},sha256={digest},{len(content)}")

        for entry in old.infolist():
            content = old.read(entry)
            if entry.filename == f"{info}/METADATA":
                names = "".join(f"License-File: {name}\n" for name in texts)
                add(entry, content.replace(b"License-File: LICENSE\n", b"License-File: LICENSE\n" + names.encode(), 1))
            elif entry.filename != record:
                to.writestr(entry, content, zipfile.ZIP_DEFLATED)
        date = old.getinfo(record).date_time
        for name, content in texts.items():
            entry = zipfile.ZipInfo(f"{info}/licenses/{name}", date)
            entry.external_attr = 0o100644 << 16
            add(entry, content)
        to.writestr(old.getinfo(record), "\n".join([*rows, f"{record},,"]) + "\n", zipfile.ZIP_DEFLATED)
    new.replace(wheel)


def main() -> None:
    wheel, build = Path(sys.argv[1]), Path(sys.argv[2])
    files = compiled_in(build)
    packages = added(wheel) | debian_packages({str(file) for file in files if file.parts[1] == "usr"})
    texts = licenses(packages, files)
    rewrite(wheel, texts)
    print(f"{wheel}: added {len(texts)} licenses: {', '.join(sorted(texts))}")


if __name__ == "__main__":
    main()
