"""Damaged images: the server and PIL give the same pixels, or both refuse, except for the documented differences."""

import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from running import ROOT
from test_pixels import find_tool

sys.path.insert(0, str(ROOT / "tests/pixels"))
import mutated_jpegs  # noqa: E402
import odd_images  # noqa: E402
import proof  # noqa: E402


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("originals")
    return dict(mutated_jpegs.originals(odd_images.picture(151, 203, seed=4), find_tool(), folder))


@pytest.mark.parametrize("most_side", [mutated_jpegs.MOST_SIDE, 40], ids=["whole", "center"])
def test_damaged_jpegs_are_served_or_refused_as_pil_does(originals: dict[str, bytes], tmp_path: Path, most_side: int) -> None:
    files = mutated_jpegs.write_mutated(tmp_path / "mutated", originals.items())
    outcomes, complaints = mutated_jpegs.compare(find_tool(), files, tmp_path, most_side)
    assert not complaints, f"{outcomes}\n" + "\n".join(complaints[:10])
    assert outcomes["same pixels"] > 1500 and outcomes["both refuse"] > 1500
    assert outcomes["only the server serves"] == 0
    assert outcomes["only PIL serves"] < 200 and outcomes["other pixels"] < 20, "the exceptions are few"


def test_a_chunk_of_a_png_with_a_wrong_checksum_is_refused_as_by_pil(tmp_path: Path) -> None:
    """Damages each chunk in turn, including ancillary ones, which libspng skips by default."""
    samples = np.random.default_rng(5).integers(0, 256, (29, 43, 1), dtype=np.uint8)
    extra = [odd_images.chunk(b"gAMA", struct.pack(">I", 45455)), odd_images.chunk(b"tEXt", b"a\0b"), odd_images.chunk(b"abCd", b"private")]
    whole = odd_images.png_of(samples, 8, 0, *extra)
    files, at = [], 8
    while at < len(whole):
        size, kind = struct.unpack(">I4s", whole[at : at + 8])
        at += 12 + size
        files.append(tmp_path / f"{kind.decode()}.png")
        files[-1].write_bytes(whole[: at - 1] + bytes([whole[at - 1] ^ 1]) + whole[at:])
    assert {file.stem for file in files} >= {"IHDR", "gAMA", "tEXt", "abCd", "IDAT"}
    outcomes, complaints = mutated_jpegs.compare(find_tool(), [file for file in files if file.stem != "IEND"], tmp_path)
    assert not complaints, "\n".join(complaints)
    assert outcomes == {"both refuse": 4, "same pixels": 1}, "neither checks that of the last IDAT"


def test_a_progressive_jpeg_without_all_scans_is_a_warning(originals: dict[str, bytes], tmp_path: Path) -> None:
    whole = originals["progressive"]
    scans = [at for at in range(len(whole)) if whole[at : at + 2] == b"\xff\xda"]
    assert len(scans) > 5
    files = {name: tmp_path / f"{name}.jpg" for name in ("whole", "short")}
    files["whole"].write_bytes(whole)
    files["short"].write_bytes(whole[: scans[3]] + b"\xff\xd9")
    config = {"transforms": [{"op": "center_crop", "size": [151, 203]}]}
    lines = [line for line, _ in proof.render(find_tool(), config, files.values(), tmp_path)]
    assert [(line["bad"], line["warned"]) for line in lines] == [("none", False), ("none", True)]
    lines = [line for line, _ in proof.render(find_tool(), dict(config, warnings_are_bad=True), files.values(), tmp_path)]
    assert [line["bad"] for line in lines] == ["none", "warning"]
    assert lines[1]["detail"] == "a progressive JPEG without all of its scans: the missing detail is smoothed over"
