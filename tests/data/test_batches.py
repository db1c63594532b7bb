"""Batches are the same whatever the number of processes and workers, and every image comes once in an epoch."""

from __future__ import annotations

import io
import multiprocessing
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from cotransport.data import (
    Batch,
    EncodedImages,
    Images,
    LabelledImages,
    PixelImages,
    Shard,
    channel_statistics,
    evaluation_chunks,
    steps_per_epoch,
    training_batches,
)
from cotransport.data import batches as module
from cotransport.data.augmentation import draw
from cotransport.data.decoding import Encoded, decode
from cotransport.data.workers import FEW, default_workers
from cotransport.errors import DataError
from cotransport.settings.sections import Augmentation
from cotransport.system.randomness import generator

CPU = torch.device("cpu")
NOTHING = Augmentation(crop_padding=0, flip=False, min_area=1)
"""No change at all, so that images can be recognised."""


def numbered(count: int) -> LabelledImages:
    """Images in memory whose pixels tell their number, with the number as the label."""
    numbers = torch.arange(count)
    colours = torch.stack([numbers % 256, numbers // 256, torch.full_like(numbers, 7)], dim=1).to(torch.uint8)
    pixels = colours[:, None, None, :].expand(count, 2, 2, 3).contiguous()
    return LabelledImages(PixelImages(pixels), numbers, tuple(range(count)))


def png(pixels: np.ndarray, name: str) -> Encoded:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return Encoded(buffer.getvalue(), name)


def photos(count: int, size: int = 6) -> LabelledImages:
    """Encoded images of noise, larger than what is seen of them and of different shapes."""
    random = np.random.RandomState(0)
    items = [png(random.randint(0, 256, (9 + i % 4, 12 - i % 3, 3), dtype=np.uint8), f"{i}.png") for i in range(count)]
    return LabelledImages(EncodedImages.of(items, size), torch.arange(count), tuple(range(count)))


def batches_of(
    data: LabelledImages,
    *,
    augmentation: Augmentation = NOTHING,
    batch_size: int = 128,
    epochs: int = 1,
    seed: int = 5,
    place: tuple[int, ...] = (0,),
    shard: Shard | None = None,
    workers: int | None = 0,
) -> list[Batch]:
    return list(
        training_batches(
            data,
            settings=augmentation,
            batch_size=batch_size,
            epochs=epochs,
            seed=seed,
            place=place,
            device=CPU,
            shard=shard or Shard(),
            workers=workers,
        )
    )


def labels_of(batches: Sequence[Batch]) -> list[int]:
    return torch.cat([batch.labels for batch in batches]).tolist()


def assert_same(one: Sequence[Batch], other: Sequence[Batch]) -> None:
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert torch.equal(a.images, b.images)
        assert torch.equal(a.labels, b.labels)
        assert (a.weight, a.total) == (b.weight, b.total)


class TestEpochs:
    @pytest.mark.parametrize(
        ("count", "sizes"),
        [(1, [1]), (2, [2]), (127, [127]), (128, [128]), (129, [65, 64]), (257, [86, 86, 85])],
    )
    def test_every_image_once_in_steps_of_equal_size(self, count: int, sizes: list[int]) -> None:
        batches = batches_of(numbered(count), epochs=2)
        assert [batch.total for batch in batches] == sizes * 2
        assert [len(batch.images) for batch in batches] == sizes * 2
        assert [batch.weight for batch in batches] == [1.0] * len(batches)
        for epoch in (batches[: len(sizes)], batches[len(sizes) :]):
            assert sorted(labels_of(epoch)) == list(range(count))
        assert steps_per_epoch(count, 128) == len(sizes)

    @given(count=st.integers(1, 600), batch_size=st.integers(1, 200))
    @settings(max_examples=50, deadline=None)
    def test_steps(self, count: int, batch_size: int) -> None:
        totals = [batch.total for batch in batches_of(numbered(count), batch_size=batch_size)]
        assert len(totals) == steps_per_epoch(count, batch_size)
        assert sum(totals) == count
        assert max(totals) <= batch_size
        assert max(totals) - min(totals) <= 1
        assert (len(totals) - 1) * batch_size < count  # no more steps than are needed

    def test_images_belong_to_their_labels(self) -> None:
        for batch in batches_of(numbered(300)):
            assert batch.images.dtype == torch.float32
            assert batch.images.shape[1:] == (3, 2, 2)
            numbers = batch.images[:, 0, 0, 0] + 256 * batch.images[:, 1, 0, 0]
            assert numbers.tolist() == batch.labels.tolist()

    def test_encoded_images_belong_to_their_labels(self) -> None:
        items = [png(np.full((9, 9, 3), number, dtype=np.uint8), str(number)) for number in range(20)]
        data = LabelledImages(EncodedImages.of(items, 6), torch.arange(20), tuple(range(20)))
        for batch in batches_of(data, batch_size=8, augmentation=Augmentation()):
            assert batch.images.shape[1:] == (3, 6, 6)
            assert batch.images.mean(dim=(1, 2, 3)).tolist() == batch.labels.tolist()

    @pytest.mark.parametrize("data", [numbered(5), photos(5)], ids=["pixels", "encoded"])
    def test_channels_are_last_in_memory(self, data: LabelledImages) -> None:
        (batch,) = batches_of(data)
        assert batch.images.is_contiguous(memory_format=torch.channels_last)

    def test_order_depends_on_seed_place_and_epoch_alone(self) -> None:
        data = numbered(50)
        orders = {
            "first": labels_of(batches_of(data)),
            "seed": labels_of(batches_of(data, seed=6)),
            "place": labels_of(batches_of(data, place=(1,))),
            "epoch": labels_of(batches_of(data, epochs=2))[50:],
        }
        assert all(orders[one] != orders[two] for one in orders for two in orders if one < two)
        torch.rand(7)  # the global generator has no say
        assert labels_of(batches_of(data)) == orders["first"]
        assert labels_of(batches_of(data, epochs=2))[:50] == orders["first"]

    def test_the_global_generator_is_left_alone(self) -> None:
        before = torch.get_rng_state()
        batches_of(photos(3), augmentation=Augmentation())
        batches_of(numbered(3), augmentation=Augmentation())
        assert torch.equal(torch.get_rng_state(), before)

    def test_augmentation_differs_between_steps_and_epochs(self) -> None:
        data = numbered(4)
        pixels = torch.randint(0, 256, (4, 8, 8, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
        data = LabelledImages(PixelImages(pixels), data.labels, data.classes)
        one, two = batches_of(data, augmentation=Augmentation(), batch_size=4, epochs=2)
        assert not torch.equal(one.images[one.labels.argsort()], two.images[two.labels.argsort()])

    def test_brightness_reaches_both_storages(self) -> None:
        bright = NOTHING.model_copy(update={"brightness": 0.5})
        colour = np.full((9, 9, 3), 100, dtype=np.uint8)
        encoded: Images = EncodedImages.of([png(colour, str(i)) for i in range(40)], 9)
        pixels: Images = PixelImages(torch.from_numpy(np.stack([colour] * 40)))
        for images in (encoded, pixels):
            (batch,) = batches_of(LabelledImages(images, torch.arange(40), tuple(range(40))), augmentation=bright)
            values = batch.images.mean(dim=(1, 2, 3))
            assert 50 <= values.min() < 60
            assert 140 < values.max() <= 150

    def test_random_windows_and_flips_reach_encoded_images(self) -> None:
        # black on the left, white on the right: a flip swaps them
        half = np.zeros((40, 40, 3), dtype=np.uint8)
        half[:, 20:] = 255
        data = LabelledImages(EncodedImages.of([png(half, str(i)) for i in range(60)], 8), torch.zeros(60), ("a",))
        (batch,) = batches_of(data, augmentation=Augmentation())
        left_minus_right = batch.images[:, 0, :, 0].mean(dim=1) - batch.images[:, 0, :, -1].mean(dim=1)
        assert 10 < (left_minus_right > 0).sum() < 50
        assert len({tuple(image.flatten().tolist()) for image in batch.images}) > 20

    def test_the_drawn_window_is_what_is_decoded(self) -> None:
        data, config = photos(1), Augmentation(flip=False)
        (batch,) = batches_of(data, augmentation=config)
        window = draw(config, 1, generator(5, 0, 0, 1, 0)).windows()[0]  # seed, place, epoch, changes, step
        assert (batch.images[0].permute(1, 2, 0).numpy() == decode(data.images.item(0), 6, window)).all()


class TestShards:
    @pytest.mark.parametrize("processes", [1, 2, 3])
    @pytest.mark.parametrize("make", [numbered, photos], ids=["pixels", "encoded"])
    def test_together_make_the_global_batch(self, processes: int, make: type) -> None:
        data = make(22)
        options = {"augmentation": Augmentation(brightness=0.3), "batch_size": 8, "epochs": 2}
        whole = batches_of(data, **options)
        shards = [batches_of(data, **options, shard=Shard(rank, processes)) for rank in range(processes)]
        for step, batch in enumerate(whole):
            parts = [shard[step] for shard in shards]
            assert all(part.total == batch.total == len(batch.labels) for part in parts)
            labels = torch.cat([part.labels for part in parts])
            images = torch.cat([part.images for part in parts])
            assert Counter(labels.tolist()) == Counter(batch.labels.tolist())
            assert torch.equal(images[labels.argsort()], batch.images[batch.labels.argsort()])

    @pytest.mark.parametrize(("count", "processes"), [(5, 2), (7, 3), (1, 2), (1, 3), (2, 3), (6, 3)])
    def test_weights_make_the_mean_of_means_the_mean(self, count: int, processes: int) -> None:
        losses = torch.arange(1.0, count + 1) ** 2
        shards = [Shard(rank, processes) for rank in range(processes)]
        weighted = [shard.weight(count) * losses[shard.of(count)].mean() for shard in shards]
        assert sum(weighted) / processes == pytest.approx(losses.mean().item())

    def test_weights_by_hand(self) -> None:
        # of five images the first process has three: 3 * 2 / 5
        assert Shard(0, 2).weight(5) == pytest.approx(1.2)
        assert Shard(1, 2).weight(5) == pytest.approx(0.8)
        assert Shard(1, 2).of(5).tolist() == [1, 3]

    def test_a_process_without_an_image_computes_the_first_for_nothing(self) -> None:
        (batch,) = batches_of(numbered(1), shard=Shard(1, 2))
        assert (batch.weight, len(batch.images), batch.total) == (0.0, 1, 1)


class TestWorkers:
    def test_batches_do_not_depend_on_them(self) -> None:
        data, options = photos(30), {"augmentation": Augmentation(brightness=0.2), "batch_size": 7, "epochs": 2}
        assert_same(batches_of(data, **options, workers=0), batches_of(data, **options, workers=2))

    @pytest.mark.parametrize("workers", [0, 2])
    def test_a_damaged_image_comes_out_as_the_error_itself(self, workers: int) -> None:
        data = photos(12)
        items = list(data.images.origins[0])  # type: ignore[union-attr]
        items[5] = Encoded(items[5].data[:60], "fifth.png")
        broken = EncodedImages.of(items, 6)
        for go in (
            lambda: batches_of(LabelledImages(broken, data.labels, data.classes), batch_size=4, workers=workers),
            lambda: list(evaluation_chunks(broken, device=CPU, shard=Shard(), workers=workers)),
        ):
            with pytest.raises(DataError) as caught:
                go()
            assert str(caught.value).startswith("fifth.png: damaged or truncated image")
            assert "\n" not in str(caught.value)
            assert len(str(caught.value)) < 150

    def test_none_for_a_few_images_nor_where_none_may_be_started(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert default_workers(FEW - 1) == 0
        assert 1 <= default_workers(FEW) <= 4
        monkeypatch.setattr(multiprocessing, "current_process", lambda: SimpleNamespace(daemon=True))
        assert default_workers(FEW) == 0


def chunks_of(images: Images, shard: Shard | None = None, workers: int = 0) -> list[tuple[slice, Tensor]]:
    return list(evaluation_chunks(images, device=CPU, shard=shard or Shard(), workers=workers))


class TestEvaluation:
    @pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 600])
    def test_covers_everything_in_order(self, count: int) -> None:
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

    @pytest.mark.parametrize("workers", [0, 2])
    def test_encoded_images_show_their_central_part(self, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "EVALUATION_CHUNK", 4)
        images = photos(10).images
        chunks = chunks_of(images, workers=workers)
        assert [(rows.start, rows.stop) for rows, _ in chunks] == [(0, 4), (4, 8), (8, 10)]
        squares = torch.cat([chunk for _, chunk in chunks]).permute(0, 2, 3, 1)
        for index, square in enumerate(squares):
            assert (square.numpy() == decode(images.item(index), 6, 224 / 256)).all()


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
        squares = np.stack([decode(images.item(i), 6, 0.875) for i in range(8)])
        mean, deviation = channel_statistics(images, workers=0)
        assert mean.numpy() == pytest.approx(squares.mean(axis=(0, 1, 2)), rel=1e-6)
        assert deviation.numpy() == pytest.approx(squares.std(axis=(0, 1, 2)), rel=1e-6)

    def test_images_of_one_colour_can_still_be_divided_by_it(self) -> None:
        pixels = torch.tensor([10, 20, 30], dtype=torch.uint8).expand(4, 3, 3, 3)
        mean, deviation = channel_statistics(PixelImages(pixels))
        assert mean.tolist() == [10, 20, 30]
        assert deviation.tolist() == [1, 1, 1]

    def test_of_a_sample_from_the_first_to_the_last(self) -> None:
        # of the values 0, 10, 20 ... 100 a sample of three takes 0, 50 and 100
        pixels = (torch.arange(11, dtype=torch.uint8) * 10)[:, None, None, None].expand(11, 2, 2, 3)
        mean, deviation = channel_statistics(PixelImages(pixels), at_most=3)
        assert mean.tolist() == [50] * 3
        assert deviation.tolist() == pytest.approx([np.std([0, 50, 100])] * 3)
