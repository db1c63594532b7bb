"""Evaluation sees every image once, in order, and always the same part of it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from cotransport.data import (
    EncodedImages,
    Images,
    PixelImages,
    Shard,
    channel_statistics,
    evaluation,
    evaluation_chunks,
    evaluation_squares,
    sample,
)
from cotransport.data.decoding import Encoded, decode
from cotransport.data.evaluation import centre_share
from cotransport.errors import DataError
from cotransport.settings.sections import Fit, View
from tests.data.helpers import grey_png, numbered, photos, pixel_images

CPU = torch.device("cpu")


def chunks_of(
    images: Images, shard: Shard | None = None, workers: int = 0, view: View = View()
) -> list[tuple[slice, Tensor]]:
    return list(evaluation_chunks(images, device=CPU, shard=shard or Shard(), workers=workers, view=view))


class TestChunks:
    @pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 600])
    def test_chunks_cover_all_images_in_order(self, count: int) -> None:
        images = numbered(count).images
        assert isinstance(images, PixelImages)
        chunks = chunks_of(images)
        assert [rows.start for rows, _ in chunks] == list(range(0, count, 256))
        assert all(one.stop == two.start for (one, _), (two, _) in pairwise(chunks))
        for rows, chunk in chunks:
            assert chunk.dtype == torch.uint8
            assert torch.equal(chunk, images.pixels[rows].permute(0, 3, 1, 2))
        assert sum(len(chunk) for _, chunk in chunks) == count

    def test_processes_share_the_chunks(self) -> None:
        images = numbered(700).images
        parts = [chunks_of(images, Shard(rank, 2)) for rank in range(2)]
        assert [[rows.start for rows, _ in part] for part in parts] == [[0, 512], [256]]
        assert chunks_of(numbered(10).images, Shard(1, 2)) == []

    @pytest.mark.parametrize(
        ("size", "crop", "share", "workers"),
        [(80, None, 224 / 256, 0), (80, None, 224 / 256, 2), (80, 1.0, 1.0, 0), (80, 0.5, 0.5, 0), (6, None, 1.0, 0)],
    )
    def test_the_central_part_of_encoded_images_is_used(
        self, size: int, crop: float | None, share: float, workers: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(evaluation, "chunk_size", lambda _: 4)
        images = photos(10, size).images
        chunks = chunks_of(images, workers=workers, view=View(crop=crop))
        assert [(rows.start, rows.stop) for rows, _ in chunks] == [(0, 4), (4, 8), (8, 10)]
        squares = torch.cat([chunk for _, chunk in chunks]).permute(0, 2, 3, 1)
        for index, square in enumerate(squares):
            assert (square.numpy() == decode(images.item(index), size, share)).all()


class TestSquares:
    @pytest.mark.parametrize(("size", "share"), [(4, 1.0), (64, 1.0), (65, 0.875)])
    def test_the_central_part_depends_on_the_size(self, size: int, share: float) -> None:
        items = [photos(3).images.item(i) for i in range(3)]
        assert centre_share(size) == share
        ((rows, squares),) = evaluation_squares(items, size, lambda *_: None)
        assert rows == slice(0, 3)
        for square, item in zip(squares.pixels, items, strict=True):
            assert (square.numpy() == decode(item, size, share)).all()

    def test_the_central_part_can_be_chosen(self) -> None:
        items = [photos(1).images.item(0)]
        ((_, squares),) = evaluation_squares(items, 65, lambda *_: None, view=View(crop=0.5))
        assert (squares.pixels[0].numpy() == decode(items[0], 65, 0.5)).all()

    @pytest.mark.parametrize("fit", ["pad", "stretch"])
    @pytest.mark.parametrize("size", [6, 65])
    def test_images_can_be_seen_whole(self, fit: Fit, size: int) -> None:
        items = [photos(3).images.item(i) for i in range(3)]
        ((_, squares),) = evaluation_squares(items, size, lambda *_: None, view=View(fit=fit))
        chunks = chunks_of(EncodedImages.of(items, size), view=View(fit=fit))
        for index, item in enumerate(items):
            expected = decode(item, size, 1.0, fit)
            assert (squares.pixels[index].numpy() == expected).all()
            assert (chunks[0][1][index].permute(1, 2, 0).numpy() == expected).all()
            assert (expected != decode(item, size)).any()

    @pytest.mark.parametrize("workers", [0, 2])
    def test_undecodable_images_are_reported_and_black(self, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(evaluation, "chunk_size", lambda _: 2)
        errors: dict[int, DataError] = {}
        items = [grey_png(1), Encoded(b"nonsense", "b.png"), grey_png(3)]
        chunks = list(evaluation_squares(items, 4, errors.__setitem__, workers=workers))
        assert [(rows.start, rows.stop) for rows, _ in chunks] == [(0, 2), (2, 3)]
        assert [int(pixels.float().mean()) for _, squares in chunks for pixels in squares.pixels] == [1, 0, 3]
        assert list(errors) == [1]
        assert str(errors[1]).startswith("b.png: not an image")


def test_a_sample_is_evenly_spaced() -> None:
    images = pixel_images(range(0, 110, 10))
    assert sample(images, 3)[:, 0, 0, 0].tolist() == [0, 50, 100]
    assert sample(images, 99).shape == (11, 3, 4, 4)


class TestChannelStatistics:
    def test_against_numpy(self) -> None:
        pixels = np.random.RandomState(0).randint(0, 256, (300, 5, 5, 3), dtype=np.uint8) // np.array(
            [1, 2, 4], np.uint8
        )
        mean, deviation = channel_statistics(PixelImages(torch.from_numpy(pixels)))
        assert mean.numpy() == pytest.approx(pixels.mean(axis=(0, 1, 2)), rel=1e-6)
        assert deviation.numpy() == pytest.approx(pixels.std(axis=(0, 1, 2)), rel=1e-6)

    def test_encoded_images(self) -> None:
        images = photos(8).images
        squares = np.stack([decode(images.item(i), 6) for i in range(8)])
        mean, deviation = channel_statistics(images, workers=0)
        assert mean.numpy() == pytest.approx(squares.mean(axis=(0, 1, 2)), rel=1e-6)
        assert deviation.numpy() == pytest.approx(squares.std(axis=(0, 1, 2)), rel=1e-6)

    def test_the_deviation_of_images_of_one_colour_is_1(self) -> None:
        pixels = torch.tensor([10, 20, 30], dtype=torch.uint8).expand(4, 3, 3, 3)
        mean, deviation = channel_statistics(PixelImages(pixels))
        assert mean.tolist() == [10, 20, 30]
        assert deviation.tolist() == [1, 1, 1]

    def test_a_sample_is_enough(self) -> None:
        # the values are 0, 10, 20 ... 100; a sample of three has 0, 50 and 100
        pixels = (torch.arange(11, dtype=torch.uint8) * 10)[:, None, None, None].expand(11, 2, 2, 3)
        mean, deviation = channel_statistics(PixelImages(pixels), at_most=3)
        assert mean.tolist() == [50] * 3
        assert deviation.tolist() == pytest.approx([np.std([0, 50, 100])] * 3)
