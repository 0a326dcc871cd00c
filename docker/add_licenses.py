"""Adds to a wheel the licenses of other projects' code in it: of the libraries that auditwheel added, and of what was compiled in.

usage: add_licenses.py WHEEL BUILD        BUILD: the folder where Ninja built it
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from auditwheel.wheeltools import InWheelCtx
from licenses import common_licenses, debian_packages, licenses, write


def added(libraries: list[str]) -> set[str]:
    """The Debian packages of the libraries. auditwheel's own list lacks those whose package still has /lib in its paths."""
    packages: set[str] = set()
    for name in libraries:
        soname = re.sub(r"-[0-9a-f]{8}\.", ".", name, count=1)  # the hash is auditwheel's
        found = debian_packages({f"*-linux-gnu/{soname}"})
        if not found:
            sys.exit(f"no Debian package has the library {soname} ({name}): its license is unknown")
        packages |= found
    return packages


def main() -> None:
    wheel, build = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    with InWheelCtx(wheel) as unpacked:  # changes to the unpacked wheel's folder
        texts = licenses(build, added([path.name for path in unpacked.path.glob("*.libs/lib*")]))
        texts |= common_licenses(texts)
        (info,) = unpacked.path.glob("*.dist-info")
        write(texts, info / "licenses")
        metadata = info / "METADATA"
        own = "License-File: LICENSE\n"
        metadata.write_text(metadata.read_text().replace(own, own + "".join(f"License-File: {name}\n" for name in texts), 1))
        unpacked.zip_compression_level = 9
        unpacked.out_wheel = wheel  # rewrites RECORD and the wheel on leaving, unless an error came before
    print(f"{wheel}: added {len(texts)} licenses: {', '.join(sorted(texts))}")


if __name__ == "__main__":
    main()
