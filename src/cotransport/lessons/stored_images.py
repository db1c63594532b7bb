"""The images that a model folder stores: of which class, under which id, and what each version keeps them for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from cotransport.data.decoding import thumbnail
from cotransport.errors import ConfigError
from cotransport.model.folder import ModelFolder
from cotransport.model.manifest import ImageRows, Manifest
from cotransport.model.pool import Place, PoolDigests, image_id, places_of, read_column, read_images
from cotransport.overview import ImageClass, ImageOverview, Picture, StoredImage, Use

MOST_PICTURES = 1000
"""Pictures on a page, at most."""


class _Reference(NamedTuple):
    """An image that a version keeps."""

    version: int
    class_name: str
    use: Use
    place: Place


def list_images(path: Path, class_name: str | None = None) -> list[StoredImage]:
    """Every image that some version of a model keeps, by class: exemplars first, then held-out images.

    An image of a renamed class is listed under the name that the current version gives it.

    class_name : this class only.
    """
    return [image for image, _ in _found(ModelFolder(path), class_name)]


def image_overview(
    path: Path, class_name: str | None = None, progress: Callable[[str], None] = lambda _: None
) -> ImageOverview:
    """The images of a model with their pictures, of which each class gets the same number at most."""
    folder = ModelFolder(path)
    progress("reading the list of images")
    by_class: dict[str, list[tuple[StoredImage, Place]]] = {}
    for image, place in _found(folder, class_name):
        by_class.setdefault(image.class_name, []).append((image, place))
    shown = {name: images[: max(1, MOST_PICTURES // len(by_class))] for name, images in by_class.items()}
    shown = dict(list(shown.items())[:MOST_PICTURES])
    pictures: dict[Place, Picture] = {}
    wanted = sorted({place for images in shown.values() for _, place in images})
    for file in sorted({file for file, _ in wanted}):
        stored = read_images(folder.image_file(file))  # its checksum was verified on the way
        for place in wanted:
            if place[0] == file:
                pictures[place] = thumbnail(stored[place[1]])
                progress(f"making thumbnails: {len(pictures):,} of {len(wanted):,}")
    return ImageOverview(
        model=path.resolve().name,
        current=folder.manifest().current,
        classes=tuple(
            ImageClass(name, len(images), tuple((image, pictures[place]) for image, place in shown.get(name, ())))
            for name, images in by_class.items()
        ),
    )


def _found(folder: ModelFolder, class_name: str | None) -> list[tuple[StoredImage, Place]]:
    """The images with their places, in the order of the newest version's classes."""
    manifest = folder.manifest()
    digests = PoolDigests(folder, manifest)
    names = {file: read_column(folder.image_file(file), "name") for file in digests.files}
    references = _present_names(list(_references(folder, manifest, digests)), manifest.current)
    order: dict[str, None] = dict.fromkeys(one.class_name for one in references)
    if class_name is not None and class_name not in order:
        raise ConfigError(f"--class {class_name!r}: no image of this class is stored. Classes: {', '.join(order)}")
    versions: dict[tuple[str, bytes], dict[Use, list[int]]] = {}
    places: dict[tuple[str, bytes], Place] = {}
    for one in references:
        key = (one.class_name, digests.files[one.place[0]][one.place[1]])
        places.setdefault(key, one.place)
        numbers = versions.setdefault(key, {"exemplar": [], "held out": []})[one.use]
        if one.version not in numbers:
            numbers.append(one.version)
    found: list[tuple[StoredImage, Place]] = []
    for (name, digest), uses in versions.items():
        file, row = places[name, digest]
        image = StoredImage(
            id=image_id(digest),
            class_name=name,
            file_name=names[file][row],
            exemplar_in=tuple(sorted(uses["exemplar"])),
            held_out_in=tuple(sorted(uses["held out"])),
        )
        if class_name in {None, name}:
            found.append((image, (file, row)))
    place_of = {name: number for number, name in enumerate(order)}
    return sorted(found, key=lambda one: (place_of[one[0].class_name], not one[0].exemplar_in))


def _references(folder: ModelFolder, manifest: Manifest, digests: PoolDigests) -> Iterator[_Reference]:
    """Every image of every version, the current version first and then the newest ones."""
    newest = sorted(manifest.versions, key=lambda one: (one.number != manifest.current, -one.number))
    for version in newest:
        model = folder.model(version)
        uses: tuple[tuple[Use, Sequence[ImageRows]], ...] = (
            ("exemplar", model.exemplars),
            ("held out", model.held_out),
        )
        for use, classes in uses:
            for name, own in zip(model.classes, classes, strict=False):  # the last classes may have no held-out images
                for place in places_of(own, digests.files):
                    yield _Reference(version.number, str(name), use, place)


def _present_names(references: Sequence[_Reference], current: int | None) -> list[_Reference]:
    """The references with the class names of the current version, for the images that it keeps too."""
    names: dict[Place, set[str]] = {}
    for one in references:
        if one.version == current:
            names.setdefault(one.place, set()).add(one.class_name)
    return [
        one if one.class_name in (own := names.get(one.place, {one.class_name})) else one._replace(class_name=min(own))
        for one in references
    ]
