"""Example image files: scikit-learn's handwritten digits, in folders like those of a user."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from cotransport.errors import DataError
from cotransport.system.files import storage_errors

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
LESSONS = {"first": range(4), "second": range(4, 7), "third": range(7, 10)}
SIDE = 32
"""Side of the images, in pixels. The digits have 8 x 8 pixels, which is too small to look at."""
UNSEEN = 5
"""Number of images of each digit that are in no lesson."""


def write_digits(folder: Path) -> dict[Path, str]:
    """Write all digits into a new folder: three lessons and some other images. Returns what each folder contains."""
    from sklearn.datasets import load_digits

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder}: exists already. Give the name of a new folder")
    digits = load_digits()
    written = [0] * len(NAMES)
    with storage_errors(folder):
        for pixels, number in zip(digits.images, digits.target, strict=True):
            index = written[number]
            written[number] += 1
            lesson = next(name for name, numbers in LESSONS.items() if number in numbers)
            path = folder / lesson / NAMES[number] / f"{index:03d}.png"
            if index < UNSEEN:
                path = folder / "unseen" / f"{NAMES[number]}-{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            image = Image.fromarray(np.round(pixels * (255 / 16)).astype(np.uint8))
            image.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(path)
    contents = {
        folder / lesson: f"a subfolder of images for each of {', '.join(NAMES[number] for number in numbers)}"
        for lesson, numbers in LESSONS.items()
    }
    return contents | {folder / "unseen": f"{UNSEEN} images of each digit that are in no lesson"}
