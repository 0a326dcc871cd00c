"""Compares augmentations with torchvision and PIL: every color, every operation of torchvision's lists, and the distributions of the draws."""
import math
import statistics

import numpy as np
import pytest
from PIL import Image
from test_pixels import DRAWS, drawn, find_tool, odd_images, proof

# The smallest accepted p-value: correct code fails with one seed in a million. The seed is fixed, so a test always passes or always fails.
RARE = 1e-6


@pytest.fixture(scope="module")
def tool():
    return find_tool()


@pytest.fixture(scope="module")
def every_color(tmp_path_factory):
    """One picture of all 2^24 colors."""
    number = np.arange(1 << 24, dtype=np.uint32)
    colors = np.stack([number >> 16, number >> 8, number], -1).astype(np.uint8).reshape(4096, 4096, 3)
    path = tmp_path_factory.mktemp("colors") / "all.png"
    Image.fromarray(colors).save(path, compress_level=1)
    return path


@pytest.mark.parametrize("transform", [
    {"op": "color_jitter", "hue": [0.3, 0.3]}, {"op": "color_jitter", "hue": [-0.11, -0.11]},
    {"op": "color_jitter", "saturation": [0.37, 0.37]}, {"op": "color_jitter", "saturation": [4.3, 4.3]},
    {"op": "color_jitter", "brightness": [0.71, 0.71], "contrast": [1.9, 1.9]}, {"op": "random_grayscale", "p": 1},
], ids=str)
def test_every_color_is_changed_as_pil_changes_it(tool, every_color, tmp_path, transform):
    chain = {"transforms": [transform, {"op": "center_crop", "size": [4096, 4096]}], "layout": "nhwc"}
    _, rows, different, complaints = proof.compare(tool, chain, [every_color], tmp_path)
    assert (rows, different, complaints) == (1, 0, [])


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
@pytest.mark.parametrize("op", ["rand_augment", "trivial_augment_wide"])
def test_each_operation_equals_torchvisions(tool, tmp_path, op, interpolation):
    v2 = pytest.importorskip("torchvision.transforms.v2")
    files = [path for path in odd_images.write_all(tmp_path / "odd", tool) if path.suffix == ".jpg"][:40]
    more = {"num_ops": 3, "magnitude": 21} if op == "rand_augment" else {}
    config = {"transforms": [{"op": "resize", "size": [70, 83]}, {"op": op, "interpolation": interpolation, "fill": [1, 90, 200], **more}],
              "layout": "nhwc", "rows_per_file": 12}
    chain = v2.RandAugment(**more) if op == "rand_augment" else v2.TrivialAugmentWide()
    seen = set()
    for line, row in proof.render(tool, config, files, tmp_path):
        image = proof.open_rgb(line["file"]).resize((83, 70), Image.Resampling.BILINEAR)
        for step in line["parameters"][1]["ops"]:
            image = chain._apply_image_or_video_transform(
                image, step["name"], step["magnitude"], interpolation=v2.InterpolationMode(interpolation),
                fill=dict.fromkeys([Image.Image, type(image)], [1, 90, 200]))
            seen.add(step["name"])
        assert np.array_equal(row.reshape(70, 83, 3), np.asarray(image)), line
    assert seen == set(chain._AUGMENTATION_SPACE)


@pytest.mark.parametrize("size", [(224, 224), (331, 97), (1000, 667)])
@pytest.mark.parametrize("op", ["rand_augment", "trivial_augment_wide"])
def test_magnitudes_are_torchvisions(tool, tmp_path, op, size):
    v2 = pytest.importorskip("torchvision.transforms.v2")
    for bins, magnitude in ((31, 9), (31, 30), (10, 0), (11, 7)):
        more = {"magnitude": magnitude} if op == "rand_augment" else {}
        ours = drawn(tool, tmp_path, [{"op": op, "num_magnitude_bins": bins, **more}, {"op": "center_crop", "size": [8, 8]}], size, 3000)
        space = (v2.RandAugment if op == "rand_augment" else v2.TrivialAugmentWide)._AUGMENTATION_SPACE
        seen = {}
        for parameters in ours:
            for step in parameters[0]["ops"]:
                seen.setdefault(step["name"], set()).add(step["magnitude"])
        assert set(seen) == set(space)
        for name, (magnitudes, signed) in space.items():
            values = magnitudes(bins, size[1], size[0])
            if values is None:
                assert seen[name] == {0.0}
                continue
            allowed = {float(v) for v in (values if op == "trivial_augment_wide" else values[magnitude:magnitude + 1])}
            assert {abs(v) for v in seen[name]} <= allowed
            assert signed == any(v < 0 for v in seen[name]) or allowed == {0.0}


def test_blur_is_within_one_of_torchvision(tool, tmp_path):
    v2 = pytest.importorskip("torchvision.transforms.v2.functional")
    random, rows, off = np.random.default_rng(1), 0, 0
    for kernel in (1, 5, 23, [3, 9]):
        for i, (height, width) in enumerate([(12, 12), (224, 224), (40, 90), (13, 300)]):
            Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(tmp_path / f"{i}.png")
            config = {"transforms": [{"op": "gaussian_blur", "kernel_size": kernel, "p": 0.8},
                                     {"op": "center_crop", "size": [height, width]}], "layout": "nhwc", "rows_per_file": 6}
            image = proof.open_rgb(tmp_path / f"{i}.png")
            for line, row in proof.render(tool, config, [tmp_path / f"{i}.png"], tmp_path):
                drawn_now = line["parameters"][0]
                want = image
                if drawn_now["applied"]:
                    sides = kernel if isinstance(kernel, list) else [kernel, kernel]
                    want = v2.gaussian_blur(image, sides, [drawn_now["sigma"]] * 2)
                apart = np.abs(row.reshape(height, width, 3).astype(int) - np.asarray(want))
                assert apart.max() <= 1 and (apart > 0).mean() < 1e-3
                off += int((apart > 0).sum())
                rows += 1
    assert rows == 96 and off < 500


def test_an_image_too_small_for_the_kernel_is_a_bad_sample(tool, tmp_path):
    Image.new("RGB", (11, 40)).save(tmp_path / "thin.png")
    config = {"transforms": [{"op": "gaussian_blur", "kernel_size": 23}, {"op": "center_crop", "size": [8, 8]}]}
    ((line, row),) = proof.render(tool, config, [tmp_path / "thin.png"], tmp_path)
    assert row is None and line["bad"] == "unsupported" and "gaussian_blur: an image of 11 x 40 pixels is too small" in line["detail"]


def fits(values, cdf):
    stats = pytest.importorskip("scipy.stats")
    assert len(values) > 1000
    assert stats.kstest(np.asarray(values, float), cdf).pvalue > RARE


def uniform(low, high):
    return lambda x: np.clip((x - low) / (high - low), 0, 1)


def equally_often(values, kinds):
    stats = pytest.importorskip("scipy.stats")
    counts = {kind: 0 for kind in kinds}
    for value in values:
        counts[value] += 1
    assert stats.chisquare(list(counts.values())).pvalue > RARE


def with_probability(flags, p):
    stats = pytest.importorskip("scipy.stats")
    assert stats.binomtest(int(sum(flags)), len(flags), p).pvalue > RARE


def test_color_jitter_is_drawn_uniformly_in_every_order(tool, tmp_path):
    import itertools

    jitter = {"op": "color_jitter", "brightness": 0.4, "contrast": 1.5, "saturation": [0.3, 0.8], "hue": 0.2}
    ours = [o[0] for o in drawn(tool, tmp_path, [jitter, {"op": "center_crop", "size": [2, 2]}], (4, 4), DRAWS)]
    bounds = {"brightness": (0.6, 1.4), "contrast": (0, 2.5), "saturation": (0.3, 0.8), "hue": (-0.2, 0.2)}
    for name, (low, high) in bounds.items():
        fits([o[name] for o in ours], uniform(low, high))
    for a, b in itertools.combinations(bounds, 2):
        assert abs(np.corrcoef([o[a] for o in ours], [o[b] for o in ours])[0, 1]) < 0.02
    equally_often([tuple(o["order"]) for o in ours], list(itertools.permutations(bounds)))


def test_color_jitter_omits_factors_that_are_not_configured(tool, tmp_path):
    (parameters,) = drawn(tool, tmp_path, [{"op": "color_jitter", "brightness": 0.4, "hue": 0}, {"op": "center_crop", "size": [2, 2]}],
                          (4, 4), 1)
    assert parameters[0]["order"] == ["brightness"]


def test_probabilities_sigmas_and_operations_are_drawn_as_torchvision_draws(tool, tmp_path):
    chain = [{"op": "random_grayscale", "p": 0.2}, {"op": "gaussian_blur", "kernel_size": 3, "sigma": [0.1, 2.0], "p": 0.5},
             {"op": "color_jitter", "hue": 0.1, "p": 0.8}, {"op": "rand_augment", "num_ops": 1}, {"op": "trivial_augment_wide"},
             {"op": "center_crop", "size": [9, 9]}]
    ours = drawn(tool, tmp_path, chain, (9, 9), DRAWS)
    with_probability([o[0]["applied"] for o in ours], 0.2)
    with_probability([o[1]["applied"] for o in ours], 0.5)
    with_probability([bool(o[2]["order"]) for o in ours], 0.8)
    fits([o[1]["sigma"] for o in ours if o[1]["applied"]], uniform(0.1, 2.0))
    names = {o[3]["ops"][0]["name"] for o in ours}
    assert len(names) == 14
    for position in (3, 4):
        equally_often([o[position]["ops"][0]["name"] for o in ours], names)
    turns = [o[4]["ops"][0]["magnitude"] for o in ours if o[4]["ops"][0]["name"] == "Rotate"]
    equally_often([round(abs(t) / 4.5) for t in turns], range(31))
    with_probability([t < 0 for t in turns if t], 0.5)


def test_random_erasing_is_drawn_as_torchvision_draws(tool, tmp_path):
    torch = pytest.importorskip("torch")
    v2 = pytest.importorskip("torchvision.transforms.v2")
    stats = pytest.importorskip("scipy.stats")
    ours = drawn(tool, tmp_path, [{"op": "center_crop", "size": [120, 90]}, {"op": "random_erasing", "p": 1}], (90, 120), DRAWS)
    ours = [o[1] for o in ours if o[1]["applied"]]
    torch.manual_seed(5)
    image, transform = torch.zeros(3, 120, 90), v2.RandomErasing(p=1)
    theirs = [p for p in (transform.make_params([image]) for _ in range(DRAWS)) if p["v"] is not None]
    assert abs(len(ours) - len(theirs)) < 600
    for mine, their in (("height", "h"), ("width", "w"), ("top", "i"), ("left", "j")):
        assert stats.ks_2samp([o[mine] for o in ours], [t[their] for t in theirs]).pvalue > RARE
    area = [o["height"] * o["width"] for o in ours]
    assert stats.ks_2samp(area, [t["h"] * t["w"] for t in theirs]).pvalue > RARE


def test_random_erasing_values_are_standard_normal_and_differ_by_row(tool, tmp_path):
    Image.new("RGB", (200, 200), (255, 255, 255)).save(tmp_path / "white.png")
    config = {"transforms": [{"op": "center_crop", "size": [200, 200]},
                             {"op": "random_erasing", "p": 1, "value": "random", "scale": [0.3, 0.3]}],
              "dtype": "float32", "rows_per_file": 4}
    values = []
    for line, row in proof.render(tool, config, [tmp_path / "white.png"], tmp_path):
        p = line["parameters"][1]
        picture = row.view(np.float32).reshape(3, 200, 200)
        inside = picture[:, p["top"]:p["top"] + p["height"], p["left"]:p["left"] + p["width"]]
        outside = np.ones((200, 200), bool)
        outside[p["top"]:p["top"] + p["height"], p["left"]:p["left"] + p["width"]] = False
        assert (picture[:, outside] == 1).all()
        values.append(inside.ravel())
    assert len({v[0] for v in values}) == 4
    together = np.concatenate(values)
    fits(together, np.vectorize(statistics.NormalDist().cdf))
    assert abs(np.corrcoef(together[1:], together[:-1])[0, 1]) < 6 / math.sqrt(len(together))
