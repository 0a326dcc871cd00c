"""Augmentations with given parameters in PIL, and the proof's chains that use them."""
import math

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

ENHANCERS = {"brightness": ImageEnhance.Brightness, "contrast": ImageEnhance.Contrast, "saturation": ImageEnhance.Color}


def adjust_hue(image, turns):
    h, s, v = (np.asarray(channel) for channel in image.convert("HSV").split())
    h = (h.astype(np.int32) + int(turns * 255)) % 256
    return Image.merge("HSV", [Image.fromarray(c.astype(np.uint8)) for c in (h, s, v)]).convert("RGB")


def color_jitter(image, _, p):
    for name in p["order"]:
        image = adjust_hue(image, p[name]) if name == "hue" else ENHANCERS[name](image).enhance(p[name])
    return image


def random_grayscale(image, _, p):
    return image.convert("L").convert("RGB") if p["applied"] else image


def affine(image, translate, shear, center, resample, fill):
    """torchvision's functional.affine without rotation: its _get_inverse_affine_matrix, and Pillow."""
    sx, sy = (math.radians(math.degrees(math.atan(s))) for s in shear)
    a, c = math.cos(-sy) / math.cos(sy), math.sin(-sy) / math.cos(sy)
    b = -math.cos(-sy) * math.tan(sx) / math.cos(sy)
    d = -math.sin(-sy) * math.tan(sx) / math.cos(sy) + 1.0
    (cx, cy), (tx, ty) = center, translate
    matrix = [d, -b, d * (-cx - tx) - b * (-cy - ty) + cx, -c, a, -c * (-cx - tx) + a * (-cy - ty) + cy]
    return image.transform(image.size, Image.Transform.AFFINE, matrix, resample, fillcolor=fill)


def augmented(image, name, m, resample, fill):
    """torchvision's _AutoAugmentBase._apply_image_or_video_transform."""
    middle = (image.width * 0.5, image.height * 0.5)
    match name:
        case "Identity":
            return image
        case "ShearX" | "ShearY":
            return affine(image, (0, 0), (m, 0.0) if name == "ShearX" else (0.0, m), (0, 0), resample, fill)
        case "TranslateX" | "TranslateY":
            return affine(image, (int(m), 0) if name == "TranslateX" else (0, int(m)), (0.0, 0.0), middle, resample, fill)
        case "Rotate":
            return image.rotate(m, resample, fillcolor=fill)
        case "Posterize":
            return ImageOps.posterize(image, int(m))
        case "Solarize":
            return ImageOps.solarize(image, 255.0 * m)
        case "AutoContrast":
            return ImageOps.autocontrast(image)
        case "Equalize":
            return ImageOps.equalize(image)
    return getattr(ImageEnhance, name)(image).enhance(1.0 + m)


def augmentations(image, t, p):
    resample = {"nearest": Image.Resampling.NEAREST, "bilinear": Image.Resampling.BILINEAR}[t.get("interpolation", "nearest")]
    fill = t.get("fill", 0)
    for op in p["ops"]:
        image = augmented(image, op["name"], op["magnitude"], resample, tuple(fill) if isinstance(fill, list) else (fill,) * 3)
    return image


def erased(pixels, transforms, parameters, bits_of):
    """RandomErasing of constants, in rows of (height, width, channels)."""
    for t, p in zip(transforms, parameters, strict=True):
        if t["op"] != "random_erasing" or not p["applied"]:
            continue
        pixels = pixels.copy()
        value = np.broadcast_to(np.array(t.get("value", 0), np.float32), 3).copy()
        pixels[p["top"]:p["top"] + p["height"], p["left"]:p["left"] + p["width"]] = bits_of(value)
    return pixels


REPLAY = {"color_jitter": color_jitter, "random_grayscale": random_grayscale, "rand_augment": augmentations,
          "trivial_augment_wide": augmentations}


def chains(rrc, flip, normalize):
    jitter = {"op": "color_jitter", "brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}
    strong = {"op": "color_jitter", "brightness": [0, 3], "contrast": [0, 5], "saturation": [0, 9], "hue": 0.5}
    gray = {"op": "random_grayscale", "p": 0.5}
    vflip = {"op": "random_vertical_flip"}
    yield "color", {"transforms": [rrc, flip, jitter, dict(gray, p=0.2), normalize], "dtype": "float32"}
    yield "color, strong, twice", {"transforms": [dict(rrc, size=[61, 83]), strong, gray, strong, flip, vflip], "layout": "nhwc"}
    yield "color before geometry", {"transforms": [
        strong, flip, {"op": "random_crop", "size": [48, 52], "padding": [4, 5, 6, 7], "pad_if_needed": True, "fill": [9, 200, 31]},
        dict(jitter, contrast=0), {"op": "resize", "size": [40, 44]}, vflip, gray]}
    for name in ("brightness", "contrast", "saturation", "hue"):
        yield f"{name} alone", {"transforms": [{"op": "color_jitter", name: strong[name]}, {"op": "center_crop", "size": [70, 60]}]}
    rand, wide = {"op": "rand_augment"}, {"op": "trivial_augment_wide"}
    yield "RandAugment", {"transforms": [rrc, flip, rand, normalize], "dtype": "float32"}
    yield "RandAugment, much", {"transforms": [
        dict(rrc, size=[97, 130]), dict(rand, num_ops=5, magnitude=29, fill=[9, 200, 31]), flip, vflip], "layout": "nhwc"}
    yield "RandAugment before geometry", {"transforms": [dict(rand, fill=7, magnitude=3, num_magnitude_bins=10), flip, rrc]}
    yield "TrivialAugmentWide", {"transforms": [rrc, flip, wide]}
    yield "TrivialAugmentWide, square", {"transforms": [dict(rrc, size=[90, 90]), dict(wide, num_magnitude_bins=4), vflip, jitter]}
    for op in (dict(rand, magnitude=17, num_ops=3), wide):
        yield f"{op['op']}, bilinear", {"transforms": [dict(rrc, size=[83, 61]), dict(op, interpolation="bilinear", fill=128), flip]}
    erasing = {"op": "random_erasing", "p": 0.7}
    yield "erasing", {"transforms": [rrc, flip, normalize, dict(erasing, value=[0.5, -1.25, 3.0])], "dtype": "float32"}
    yield "erasing, half, nhwc", {"transforms": [dict(rrc, size=[40, 31]), normalize, dict(erasing, value=0.3)],
                                  "dtype": "float16", "layout": "nhwc"}
    yield "erasing of bytes", {"transforms": [dict(rrc, size=[50, 60]), jitter, dict(erasing, value=[1, 2, 255]), erasing]}
