"""Names of pretrained backbones from other libraries, and what a model keeps about one of them.

Nothing here imports these libraries.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field

from cotransport.errors import ConfigError
from cotransport.settings.validation import Settings, quoted

FORMS = {
    "timm": "timm:NAME",
    "torchvision": "torchvision:NAME@WEIGHTS",
    "hf": "hf:ID@REVISION",
    "folder": "folder:PATH",
}
"""How a backbone of each source is named."""
_EXAMPLES = {
    "timm": "timm:resnet18.a1_in1k",
    "torchvision": "torchvision:resnet18@IMAGENET1K_V1",
    "hf": "hf:microsoft/resnet-18@COMMIT",
    "folder": "folder:models/resnet",
}
_WORD = r"[a-z0-9_]{1,100}"
_PATTERNS = {
    "timm": rf"(?P<model>{_WORD}(\.{_WORD})?)",
    "torchvision": rf"(?P<model>{_WORD})@(?P<revision>[A-Z0-9_]{{1,100}})",
    "hf": r"(?P<model>[A-Za-z0-9][\w.-]{0,99}(/[A-Za-z0-9][\w.-]{0,99})?)@(?P<revision>[A-Za-z0-9][\w.-]{0,99})",
    "folder": r"(?P<model>.{1,4096})",
}
MOVING = {"main", "master", "DEFAULT"}
"""Revisions that do not always mean the same weights."""
LARGEST_SIDE = 1024
"""Largest side, in pixels, of the images that published weights were trained on. More is a mistake or an attack."""
LARGEST_NUMBER = 100_000
MOST_VALUES = 500
"""Limits of an architecture's settings, far above those of any published network, so that building one is safe."""


class LibraryName(NamedTuple):
    """The parts of a backbone's name."""

    source: str
    model: str
    """The network's name in its library, its id on the hub, or the path of its folder."""
    revision: str | None = None
    """The name of the weights, or a commit or tag on the hub."""


def parse_library_name(name: str) -> LibraryName | None:
    """The parts of a backbone's name; None if it does not name another library. A wrong name is a ConfigError.

    >>> parse_library_name("torchvision:resnet18@IMAGENET1K_V1")
    LibraryName(source='torchvision', model='resnet18', revision='IMAGENET1K_V1')
    >>> parse_library_name("resnet18")
    """
    source, colon, rest = name.partition(":")
    if not colon or source not in FORMS:
        return None
    found = re.fullmatch(_PATTERNS[source], rest, re.ASCII if source != "folder" else re.DOTALL)
    if found is None:
        raise ConfigError(f"backbone.name: {quoted(name)}: write {FORMS[source]}, such as {_EXAMPLES[source]}")
    revision = found.groupdict().get("revision")
    if revision in MOVING:
        raise ConfigError(
            f"backbone.name: {name!r}: {revision} may stand for other weights later. Give a fixed "
            f"{'commit or tag' if source == 'hf' else 'name'}: {FORMS[source]}"
        )
    return LibraryName(source, found["model"], revision)


def _check_plain(config: dict[str, Any]) -> dict[str, Any]:
    """Refuse values that no network's settings have: deep, many, large or long ones."""
    waiting: list[object] = [config]
    seen = 0
    while waiting:
        value = waiting.pop()
        seen += 1
        if seen > MOST_VALUES:
            raise ValueError(f"more than {MOST_VALUES} values")
        if isinstance(value, Mapping):
            waiting += [*value, *value.values()]
        elif isinstance(value, list | tuple):
            waiting += value
        elif isinstance(value, int | float) and not abs(value) <= LARGEST_NUMBER:
            raise ValueError(f"a number above {LARGEST_NUMBER:,}")
        elif isinstance(value, str) and len(value) > 100:
            raise ValueError("a text of more than 100 characters")
        elif not isinstance(value, int | float | str | None):
            raise ValueError("a value that is not a number, a text, a list or a section")
    return config


Colour = Annotated[float, Field(ge=-1e6, le=1e6)]
Deviation = Annotated[float, Field(gt=0, le=1e6)]


class LibraryRecord(Settings):
    """How a pretrained network of another library is built again, and how it sees images."""

    library: Literal["timm", "torchvision", "transformers"]
    """The library that builds the network."""
    model: Annotated[str, Field(pattern=r"^[a-z0-9_.-]{1,201}$")]
    """The network's name in the library; of transformers, the type of the model."""
    config: Annotated[dict[str, Any], AfterValidator(_check_plain)] = Field(default_factory=dict)
    """transformers: the network's settings. timm: how it pools, if not as usual."""
    weights: Annotated[str, Field(max_length=5000)]
    """Where the weights came from, with their revision."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """Checksum of the published weights, before any training."""
    image_size: Annotated[int, Field(gt=0, le=LARGEST_SIDE)]
    """Side of the images that the weights were trained on."""
    crop: Annotated[float, Field(gt=0, le=1)]
    """Share of an image's shorter side that the library's own evaluation shows."""
    mean: tuple[Colour, Colour, Colour]
    """Means of the colours, from 0 to 255, that the weights expect."""
    deviation: tuple[Deviation, Deviation, Deviation]
    """Standard deviations of the colours."""
