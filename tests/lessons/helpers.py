"""What the tests of lessons share."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from cotransport.data import LabelledImages


def write(data: LabelledImages, folder: Path) -> Path:
    """Write labelled images as files, in a subfolder for each class."""
    for place in range(len(data)):
        path = folder / str(data.classes[data.labels[place]]) / f"{place}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(data.images.item(place)).save(path)  # type: ignore[arg-type]
    return folder
