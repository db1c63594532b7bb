"""Images and labels from arrays in memory, or from lists of files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from cotransport.data.decoding import Encoded, Item, Pixels, pixels_of
from cotransport.data.images import Images, LabelledImages, PixelImages
from cotransport.data.labels import plain_label
from cotransport.data.loading import images_from
from cotransport.errors import DataError
from cotransport.settings.sections import Fit

_SHAPES = "(n, height, width, 3), or (n, height, width) for grey"


def as_images(images: object, size: int | None = None, fit: Fit = "crop") -> Images:
    """Images from an array (n, h, w, 3), (n, h, w, 1) or (n, h, w), or a list of files, bytes, arrays or Pillow images.

    An array of square RGB images in uint8 is not copied.
    """
    if isinstance(images, str | os.PathLike | bytes | Image.Image):
        images = [images]
    if not isinstance(images, Sequence):
        images = _array(images)
        if images.dtype.kind not in "OU" or images.ndim != 1:
            return _images_of_array(images, size, fit)
    if not len(images):
        raise DataError("no images. Give at least one")
    return images_from([_item(image, f"image {index}") for index, image in enumerate(images)], size, fit)


def as_labelled_images(images: object, labels: object, size: int | None = None, fit: Fit = "crop") -> LabelledImages:
    """Images with a label for each. The classes are the distinct labels, sorted."""
    stored_images = as_images(images, size, fit)
    names = _labels(labels)
    if names.shape != (len(stored_images),):
        raise DataError(f"{len(stored_images)} images but labels of shape {names.shape}. Give one label for each image")
    classes, numbers = np.unique(names, return_inverse=True)
    return LabelledImages(stored_images, torch.from_numpy(numbers).long(), tuple(plain_label(name) for name in classes))


def _labels(labels: object) -> npt.NDArray[Any]:
    values = np.array(labels, dtype=object) if isinstance(labels, Sequence) else _array(labels)
    if values.dtype.kind == "O" and values.ndim == 1:  # NumPy would turn [1, "a"] into ["1", "a"]
        kinds = {type(plain_label(value)) for value in values}
        if len(kinds) > 1:
            raise DataError("some labels are strings and some are whole numbers. Use one type for all")
    elif values.dtype.kind == "f" and np.isfinite(values).all() and (values == np.round(values)).all():
        return values.astype(np.int64)  # some libraries store whole numbers as floats
    elif values.dtype.kind not in "iubUO":
        raise DataError(f"labels of type {values.dtype}: use names (strings) or whole numbers")
    return values


def _images_of_array(array: npt.NDArray[Any], size: int | None, fit: Fit) -> Images:
    if array.ndim == 3 and array.shape[2] in {1, 3, 4} and array.shape[1] > 4:
        raise DataError(f"an array of shape {array.shape} looks like a single image. Give a list: [image]")
    if array.ndim not in {3, 4}:
        raise DataError(f"images of shape {array.shape}: give {_SHAPES}")
    if 0 in array.shape:
        raise DataError(f"no images in an array of shape {array.shape}. Give at least one")
    pixels = _rgb(array, "images")
    height, width = array.shape[1:3]
    if height == width and size in {None, height}:
        return PixelImages(torch.from_numpy(pixels if pixels.flags.writeable else pixels.copy()))
    return images_from(list(pixels), size, fit)


def _item(image: object, name: str) -> Item:
    if isinstance(image, bytes):
        return Encoded(image, name)
    if isinstance(image, str | os.PathLike):
        return Path(image)
    if isinstance(image, Image.Image):
        return pixels_of(image, name)
    if isinstance(image, np.ndarray | Tensor):
        array = _array(image)
        if array.ndim not in {2, 3} or 0 in array.shape:
            raise DataError(f"{name} has the shape {array.shape}: give (height, width, 3), or (height, width) for grey")
        return np.asarray(_rgb(array[None], name)[0], dtype=np.uint8)
    raise DataError(
        f"{name} is of type {type(image).__name__}: give a file's path, its bytes, or an array (height, width, 3)"
    )


def _array(values: object) -> npt.NDArray[Any]:
    """An array from a tensor, an array, or an object that can be converted, such as a column of a table."""
    if isinstance(values, Tensor):
        return np.asarray(values.numpy(force=True))
    if hasattr(values, "__array__"):
        return np.asarray(values)
    raise DataError(
        f"{type(values).__name__} is neither an array nor a list. Give an array or a list, such as list(...)"
    )


def _rgb(array: npt.NDArray[Any], name: str) -> Pixels:
    """Images (n, h, w) or (n, h, w, channels) with 8 or 16 bits as uint8 (n, h, w, 3). Transparency becomes white."""
    if array.dtype == np.uint16:
        array = (array >> 8).astype(np.uint8)
    if array.dtype != np.uint8:
        raise DataError(
            f"{name} of type {array.dtype}: give uint8 from 0 to 255 (for floats from 0 to 1: multiply by 255)"
        )
    if array.ndim == 3:
        array = array[..., None]
    if array.shape[3] == 4:
        alpha = array[..., 3:].astype(np.uint16)
        return np.asarray((array[..., :3] * alpha + 255 * (255 - alpha) + 127) // 255, dtype=np.uint8)
    if array.shape[3] not in {1, 3}:
        raise DataError(f"{name} with {array.shape[3]} channels: give 1 (grey), 3 (RGB) or 4 (RGB and alpha), last")
    return np.ascontiguousarray(array if array.shape[3] == 3 else array.repeat(3, axis=3))
