"""Checks a wheel's RECORD: each file once, with its size and sha256. usage: record.py WHEEL"""

import base64
import csv
import hashlib
import sys
import zipfile

with zipfile.ZipFile(sys.argv[1]) as wheel:
    (record,) = [name for name in wheel.namelist() if name.endswith(".dist-info/RECORD")]
    rows = {name: (digest, size) for name, digest, size in csv.reader(wheel.read(record).decode().splitlines())}
    files = {}
    for name in wheel.namelist():
        if name.endswith("/"):
            continue
        assert name not in files, f"{name}: twice in the wheel"
        content = wheel.read(name)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        files[name] = (f"sha256={digest}", str(len(content)))
    files[record] = ("", "")
    wrong = sorted(name for name in files.keys() | rows.keys() if files.get(name) != rows.get(name))
    assert not wrong, f"RECORD differs from the wheel: {wrong}"
    metadata = wheel.read(record.replace("RECORD", "METADATA")).decode()
    folder = record.replace("RECORD", "licenses/")
    listed = [line.removeprefix("License-File: ") for line in metadata.splitlines() if line.startswith("License-File: ")]
    texts = sorted(name.removeprefix(folder) for name in files if name.startswith(folder))
    assert sorted(listed) == texts, f"METADATA names {sorted(listed)}, the wheel has {texts}"
