"""Augmentations with given parameters, as PIL does them; and the chains of the proof that have them."""
import numpy as np
from PIL import Image, ImageEnhance

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


REPLAY = {"color_jitter": color_jitter, "random_grayscale": random_grayscale}


def chains(rrc, flip, normalize):
    jitter = {"op": "color_jitter", "brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}
    strong = {"op": "color_jitter", "brightness": [0, 3], "contrast": [0, 5], "saturation": [0, 9], "hue": 0.5}
    gray = {"op": "random_grayscale", "p": 0.5}
    vflip = {"op": "random_vertical_flip"}
    yield "colour", {"transforms": [rrc, flip, jitter, dict(gray, p=0.2), normalize], "dtype": "float32"}
    yield "colour, strong, twice", {"transforms": [dict(rrc, size=[61, 83]), strong, gray, strong, flip, vflip], "layout": "nhwc"}
    yield "colour before geometry", {"transforms": [
        strong, flip, {"op": "random_crop", "size": [48, 52], "padding": [4, 5, 6, 7], "pad_if_needed": True, "fill": [9, 200, 31]},
        dict(jitter, contrast=0), {"op": "resize", "size": [40, 44]}, vflip, gray]}
    for name in ("brightness", "contrast", "saturation", "hue"):
        yield f"{name} alone", {"transforms": [{"op": "color_jitter", name: strong[name]}, {"op": "center_crop", "size": [70, 60]}]}
