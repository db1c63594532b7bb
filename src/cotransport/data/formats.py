"""The image formats that can be read, which depends on the installed libraries, and the suffixes of their files."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

from PIL import features

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""Formats that are always read. Pillow passes some others to external programs, such as EPS files to Ghostscript."""
SUFFIXES = frozenset(
    {".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"}
)
"""Suffixes of their files."""
_OPTIONAL = {".avif": "AVIF", ".heic": "HEIF", ".heif": "HEIF", ".hif": "HEIF"}
"""Suffixes of files whose formats need something more."""
_REMEDIES = {
    "AVIF": "this Pillow cannot read AVIF images. pip install --upgrade pillow, or save it as JPEG",
    "HEIF": "HEIC images need one more library. pip install 'cotransport[heif]', or save it as JPEG",
}


@cache
def readable_formats() -> tuple[str, ...]:
    """All formats that can be read, by Pillow's names."""
    found: tuple[str, ...] = FORMATS
    if features.check("avif"):
        found += ("AVIF",)
    if find_spec("pillow_heif") is not None:
        import pillow_heif

        pillow_heif.register_heif_opener()
        found += ("HEIF",)
    return found


def is_image(name: str) -> bool:
    """Whether a file is named like an image that can be read, and is not hidden."""
    suffix = _suffix(name)
    return suffix in SUFFIXES or _OPTIONAL.get(suffix) in readable_formats()


def remedy(name: str) -> str | None:
    """What to do with a file that is named like an image of a format that cannot be read; None for all others."""
    needed = _OPTIONAL.get(_suffix(name))
    return None if needed is None or needed in readable_formats() else _REMEDIES[needed]


def _suffix(name: str) -> str:
    """The suffix of a file in small letters; empty for hidden files."""
    base = name.rpartition("/")[2]
    stem, _, ending = base.rpartition(".")
    return f".{ending.lower()}" if stem and not base.startswith(".") else ""
