"""The pixel engine against PIL, numpy and torchvision themselves. Tools come from the build folder
$HEADRACE_BUILD, by default build/release."""
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from running import ROOT

sys.path.insert(0, str(ROOT / "tests/pixels"))
import odd_images  # noqa: E402
import proof  # noqa: E402


def find_tool():
    tool = Path(os.environ.get("HEADRACE_BUILD", ROOT / "build/release")) / "tests/pixel_dump"
    assert tool.exists(), f"{tool} is not there: ./run build makes it, or set HEADRACE_BUILD to another build folder"
    return str(tool.resolve())


@pytest.fixture(scope="module")
def tool():
    return find_tool()


@pytest.fixture(scope="module")
def odd(tool, tmp_path_factory):
    return odd_images.write_all(tmp_path_factory.mktemp("odd"), tool)


@pytest.mark.parametrize(("name", "config"), list(proof.chains()), ids=[name for name, _ in proof.chains()])
def test_odd_files_are_the_pixels_that_pil_gives(tool, odd, tmp_path, name, config):
    files, rows, different, complaints = proof.compare(tool, dict(config, rows_per_file=1), odd, tmp_path)
    assert not complaints, "\n".join(complaints[:5])
    assert different == 0
    assert files >= 60 and rows >= files


def test_every_transform_is_compared_with_its_original():
    elsewhere = {
        "gaussian_blur": "test_augmentations.py: with torchvision's, within 1",
        "random_rotate90": "test_fields.py: with numpy's rot90",
        "to_y": "test_fields.py: with BT.601's formula",
    }
    in_chains = {transform["op"] for _, config in proof.chains() for transform in config["transforms"]}
    schema = json.loads((ROOT / "configs/headrace.schema.json").read_text())
    known = set(schema["definitions"]["transform"]["anyOf"][1]["properties"])
    assert known == in_chains | set(elsewhere), "add new transforms to chains() of tests/pixels: tests/pixels/README.md"


@pytest.mark.parametrize("size", [(29, 43), (1, 1), (3, 2), (8, 9)])
def test_every_kind_of_png_is_read_as_pil_reads_it(tool, tmp_path, size):
    masks, others = odd_images.write_png_matrix(tmp_path / "png", *size)
    whole = [{"op": "center_crop", "size": size}]
    part = [{"op": "random_resized_crop", "size": [17, 19], "interpolation": "nearest"}]
    for transforms in (whole, part):
        config = {"transforms": transforms, "rows_per_file": 3}
        for files, mask, image_of in ((masks + others, False, proof.open_rgb), (masks, True, proof.open_mask)):
            compared, rows, different, complaints = proof.compare(tool, dict(config, mask=mask), files, tmp_path, image_of)
            assert not complaints, "\n".join(complaints[:5])
            assert different == 0
            assert compared == len(files) and rows == 3 * len(files)
    assert len(masks) == 192 and len(others) == 120


def test_the_proof_notices_one_wrong_pixel(tool, odd, tmp_path):
    def off_by_one(path):
        pixels = np.array(proof.open_rgb(path))
        pixels[pixels.shape[0] // 2, pixels.shape[1] // 2, 1] ^= 1
        return Image.fromarray(pixels)

    config = {"transforms": [{"op": "resize", "size": [64, 64]}]}
    square = [path for path in odd if path.name == "square.png"]
    assert proof.compare(tool, config, square, tmp_path)[2] == 0
    assert proof.compare(tool, config, square, tmp_path, off_by_one)[2] == 1


def test_bad_files_are_refused_where_pil_refuses_them(tool, odd, tmp_path):
    by_name = {path.name: path for path in odd}
    jpeg, png = by_name["square_2.jpg"].read_bytes(), by_name["square.png"].read_bytes()
    bad = {"empty.jpg": b"", "text.jpg": b"not an image", "half.jpg": jpeg[: len(jpeg) // 2], "half.png": png[: len(png) // 2],
           "header.jpg": jpeg[:40], "no_end.jpg": jpeg[:-2], "header.png": png[:20]}
    bad["checksum.png"] = png[:60] + bytes([png[60] ^ 1]) + png[61:]
    files = []
    for name, data in bad.items():
        files.append(tmp_path / name)
        files[-1].write_bytes(data)
    reasons = {}
    config = {"transforms": [{"op": "center_crop", "size": [8, 8]}]}
    for line, row in proof.render(tool, config, files, tmp_path):
        assert row is None
        reasons[Path(line["file"]).name] = line["bad"]
        with pytest.raises((OSError, SyntaxError)):
            proof.open_rgb(line["file"])
    assert reasons["empty.jpg"] == "empty"
    assert reasons["text.jpg"] == "unknown_format"
    assert {reasons[name] for name in ("half.jpg", "half.png", "header.jpg", "no_end.jpg", "header.png")} == {"truncated"}
    assert reasons["checksum.png"] == "corrupt"


def test_torchvision_v2_itself_gives_the_same_rows(tool, odd, tmp_path):
    torch = pytest.importorskip("torch")
    v2 = pytest.importorskip("torchvision.transforms.v2.functional")
    size, mean, std = [96, 112], proof.MEAN, proof.STD
    for dtype, interpolation in (("float32", "bilinear"), ("float16", "bicubic"), ("bfloat16", "nearest"), ("uint8", "bilinear")):
        transforms = [{"op": "random_resized_crop", "size": size, "interpolation": interpolation},
                      {"op": "random_horizontal_flip"}, {"op": "random_vertical_flip"}]
        if dtype != "uint8":
            transforms.append({"op": "normalize", "mean": mean, "std": std})
        rows = 0
        for line, row in proof.render(tool, {"transforms": transforms, "dtype": dtype, "rows_per_file": 2}, odd, tmp_path):
            crop, horizontal, vertical = line["parameters"][:3]
            image = v2.resized_crop(proof.open_rgb(line["file"]), crop["top"], crop["left"], crop["height"], crop["width"],
                                    size, interpolation=interpolation)
            image = v2.horizontal_flip(image) if horizontal["applied"] else image
            image = v2.vertical_flip(image) if vertical["applied"] else image
            want = v2.pil_to_tensor(image)
            got = torch.from_numpy(row.view({"uint8": np.uint8, "float32": np.float32}.get(dtype, np.int16)).copy())
            if dtype != "uint8":
                want = v2.normalize(want.to(torch.float32).div(255), mean, std).to(getattr(torch, dtype))
                got = got.view(want.dtype)
            assert torch.equal(got.reshape(want.shape), want), (line["file"], dtype)
            rows += 1
        assert rows == 2 * len(odd)


def test_validation_chain_is_torchvisions(tool, odd, tmp_path):
    transforms = pytest.importorskip("torchvision.transforms.v2")
    chain = transforms.Compose([transforms.Resize(70), transforms.CenterCrop((60, 75))])
    config = {"transforms": [{"op": "resize", "size": 70}, {"op": "center_crop", "size": [60, 75]}], "layout": "nhwc"}
    for line, row in proof.render(tool, config, odd, tmp_path):
        want = np.asarray(chain(proof.open_rgb(line["file"])))
        assert np.array_equal(row.reshape(want.shape), want), line["file"]


def drawn(tool, tmp_path, transforms, size, count):
    Image.new("RGB", size).save(tmp_path / "image.png")
    (tmp_path / "config.json").write_text(json.dumps({"transforms": transforms, "seed": 20}))
    done = subprocess.run([tool, "draws", tmp_path / "config.json", tmp_path / "image.png", str(count)], text=True,
                          stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


DRAWS = 100_000


def same_distribution(ours, theirs):
    """Two-sample Kolmogorov-Smirnov for each statistic; seeds are fixed, so this passes always or never."""
    stats = pytest.importorskip("scipy.stats")
    for name in ours:
        a, b = np.asarray(ours[name], float), np.asarray(theirs[name], float)
        assert len(a) == len(b) == DRAWS
        p = stats.ks_2samp(a, b).pvalue
        assert p > 1e-3, f"{name}: p = {p}"


@pytest.mark.parametrize(("size", "scale", "ratio"), [((500, 375), (0.08, 1.0), (3 / 4, 4 / 3)),
                                                      ((90, 400), (0.3, 0.9), (0.5, 2.0))])
def test_random_resized_crop_is_drawn_as_torchvision_draws(tool, tmp_path, size, scale, ratio):
    torch = pytest.importorskip("torch")
    v2 = pytest.importorskip("torchvision.transforms.v2")
    ours = drawn(tool, tmp_path, [{"op": "random_resized_crop", "size": [8, 8], "scale": scale, "ratio": ratio}], size, DRAWS)
    torch.manual_seed(3)
    image, transform = Image.new("RGB", size), v2.RandomResizedCrop(8, scale=scale, ratio=ratio)
    theirs = [transform.make_params([image]) for _ in range(DRAWS)]

    def statistics(all_params):
        p = {k: np.array([q[k] for q in all_params], float) for k in ("top", "left", "height", "width")}
        return {"area": p["height"] * p["width"], "aspect": p["width"] / p["height"], "width": p["width"],
                "height": p["height"], "top": p["top"], "left": p["left"], "center": p["left"] + p["width"] / 2}

    same_distribution(statistics([o[0] for o in ours]), statistics(theirs))


def test_random_crop_is_drawn_as_torchvision_draws(tool, tmp_path):
    torch = pytest.importorskip("torch")
    v2 = pytest.importorskip("torchvision.transforms.v2")
    ours = drawn(tool, tmp_path, [{"op": "random_crop", "size": [32, 30], "padding": [4, 5, 6, 7]}], (33, 38), DRAWS)
    torch.manual_seed(4)
    image, transform = Image.new("RGB", (33, 38)), v2.RandomCrop((32, 30), padding=[4, 5, 6, 7])
    theirs = [transform.make_params([image]) for _ in range(DRAWS)]

    def statistics(all_params):
        top, left = (np.array([q[k] for q in all_params], float) for k in ("top", "left"))
        return {"top": top, "left": left, "sum": top + left, "difference": top - left}

    same_distribution(statistics([o[0] for o in ours]), statistics(theirs))
    assert (max(o[0]["top"] for o in ours), max(o[0]["left"] for o in ours)) == (
        max(t["top"] for t in theirs), max(t["left"] for t in theirs))


def test_flips_are_drawn_with_their_probability_and_independently(tool, tmp_path):
    stats = pytest.importorskip("scipy.stats")
    ours = drawn(tool, tmp_path, [{"op": "center_crop", "size": [2, 2]}, {"op": "random_horizontal_flip", "p": 0.5},
                                  {"op": "random_vertical_flip", "p": 0.2}], (4, 4), DRAWS)
    horizontal, vertical = (np.array([o[i]["applied"] for o in ours]) for i in (1, 2))
    for flips, p in ((horizontal, 0.5), (vertical, 0.2), (horizontal & vertical, 0.1), (horizontal[1:] & horizontal[:-1], 0.25)):
        assert stats.binomtest(int(flips.sum()), len(flips), p).pvalue > 1e-3
