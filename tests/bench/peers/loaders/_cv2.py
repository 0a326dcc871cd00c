"""The transforms of torchvision for OpenCV's arrays. Its resize has no antialiasing as Pillow's: INTER_AREA where it shrinks."""

from __future__ import annotations

import math
from typing import Any

import cv2
import numpy as np

from peers.workloads import COLOR_SIDE, Job

cv2.setNumThreads(0)
SIDE = 224


def read(file: str) -> Any:
    return cv2.cvtColor(cv2.imread(file, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)


def resize(image: Any, side: int) -> Any:
    shrinks = image.shape[0] > side and image.shape[1] > side
    return cv2.resize(image, (side, side), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)


def random_resized_crop(image: Any) -> Any:
    """torchvision's draw of area and aspect ratio, its fallback (the center) included."""
    height, width = image.shape[:2]
    for _ in range(10):
        area = height * width * np.random.uniform(0.08, 1)
        ratio = math.exp(np.random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            break
    else:
        w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    top, left = np.random.randint(height - h + 1), np.random.randint(width - w + 1)
    return resize(image[top : top + h, left : left + w], SIDE)


def color_jitter(image: Any) -> Any:
    """Brightness, contrast, saturation, hue in a random order, then gray with probability 0.2."""
    for step in np.random.permutation(4):
        by = np.random.uniform(0.7, 1.3)
        if step == 0:
            image = cv2.convertScaleAbs(image, alpha=by)
        elif step == 1:
            mean = cv2.mean(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY))[0]
            image = cv2.addWeighted(image, by, image, 0, mean * (1 - by))
        elif step == 2:
            gray = cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
            image = cv2.addWeighted(image, by, gray, 1 - by, 0)
        else:
            hsv = cv2.cvtColor(image, cv2.COLOR_RGB2HSV_FULL)
            hsv[..., 0] += np.uint8(round(np.random.uniform(-0.1, 0.1) * 256) % 256)
            image = cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB_FULL)
    if np.random.random() < 0.2:
        image = cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
    return image


class Transform:
    def __init__(self, job: Job) -> None:
        self._workload = job.workload
        if job.workload.normalized:
            mean, std = np.array(job.mean()), np.array(job.std())
            self._scale, self._shift = (1 / (255 * std)).astype(np.float32), (mean / std).astype(np.float32)

    def __call__(self, image: Any) -> Any:
        if self._workload.family == "imagenet":
            image = random_resized_crop(image)
        else:
            image = resize(image, COLOR_SIDE)
        if np.random.random() < 0.5:
            image = cv2.flip(image, 1)
        if self._workload.family == "color":
            if np.random.random() < 0.5:
                image = cv2.flip(image, 0)
            image = color_jitter(image)
        if self._workload.normalized:
            image = image * self._scale
            image -= self._shift
        return np.ascontiguousarray(image.transpose(2, 0, 1)) if self._workload.layout == "NCHW" else image
