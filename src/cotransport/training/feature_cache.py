"""Features of a frozen backbone, computed once for each image."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import torch
from torch import Tensor

from cotransport.data import Images
from cotransport.data.fingerprint import image_digest
from cotransport.networks.network import Network
from cotransport.settings.sections import Device, View
from cotransport.training import inference

DIGEST = 32
"""Bytes of a digest."""


class FeatureCache:
    """Features by the digests of their images. They are valid as long as the backbone does not change.

    view : what the backbone has seen of the images.
    parts : digests (n, 32) and features (n, d), in the order in which they were computed.
    """

    def __init__(self, view: View, parts: Iterable[tuple[Tensor, Tensor]] = ()) -> None:
        self.view, self._parts = view, tuple(parts)
        self._places = {
            digest: (part, row)
            for part, (digests, _) in enumerate(self._parts)
            for row, digest in enumerate(_rows(digests))
        }

    @property
    def parts(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """Digests and features, in the order in which they were computed."""
        return self._parts

    @property
    def digests(self) -> set[bytes]:
        """The digests of all images whose features are known."""
        return set(self._places)

    def features(
        self, network: Network, images: Images, device: Device, progress: inference.PassListener | None = None
    ) -> Tensor:
        """The features (n, d) of images, on the CPU. Those that are missing are computed first, and kept."""
        digests = digests_of(images)
        missing = {digest: index for index, digest in enumerate(digests) if digest not in self._places}
        if missing:
            new = images.take(torch.tensor(list(missing.values())))
            frozen = network.frozen()
            if progress is not None:
                progress(0, len(new))
            output = inference.outputs(frozen, new, device, view=self.view, progress=progress, with_logits=False)
            self._places |= {digest: (len(self._parts), row) for row, digest in enumerate(missing)}
            self._parts = (*self._parts, (_table(missing), output.features))
        return self._take(digests, network.dimension)

    def known(self, images: Images, view: View) -> Tensor | None:
        """The features (n, d) of images; None unless all of them are known, for the same view."""
        if view != self.view or not self._parts or not len(images):
            return None
        digests = digests_of(images)
        if any(digest not in self._places for digest in digests):
            return None
        return self._take(digests, self._parts[0][1].shape[1])

    def only(self, digests: Collection[bytes]) -> FeatureCache:
        """A cache without the features of other images."""
        parts: list[tuple[Tensor, Tensor]] = []
        for table, features in self._parts:
            kept = torch.tensor([digest in digests for digest in _rows(table)], dtype=torch.bool)
            if bool(kept.any()):
                parts.append((table, features) if bool(kept.all()) else (table[kept], features[kept]))
        return FeatureCache(self.view, parts)

    def add(self, other: FeatureCache) -> None:
        """Take over the features of another cache of the same backbone and crop. Known ones stay as they are."""
        for table, features in other.parts:
            new = {digest: (len(self._parts), row) for row, digest in enumerate(_rows(table))}
            self._places = new | self._places
            self._parts = (*self._parts, (table, features))

    def copy(self) -> FeatureCache:
        """A cache with the same features, which may grow on its own."""
        return FeatureCache(self.view, self._parts)

    def _take(self, digests: list[bytes], dimension: int) -> Tensor:
        if not digests:
            return torch.zeros(0, dimension)
        return torch.stack([self._parts[part][1][row] for part, row in map(self._places.__getitem__, digests)])


def digests_of(images: Images) -> list[bytes]:
    """The digest of each image."""
    return [image_digest(images.item(index)) for index in range(len(images))]


def _rows(table: Tensor) -> Iterator[bytes]:
    return (bytes(row) for row in table.numpy())


def _table(digests: Iterable[bytes]) -> Tensor:
    return torch.stack([torch.frombuffer(bytearray(digest), dtype=torch.uint8) for digest in digests])
