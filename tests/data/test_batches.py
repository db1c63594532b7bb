"""Batches do not depend on the number of processes and workers, and every image comes once in an epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cotransport.data import (
    Batch,
    EncodedImages,
    Images,
    LabelledImages,
    Mixed,
    PixelImages,
    Shard,
    Vectors,
    evaluation_chunks,
    steps_per_epoch,
    training_batches,
)
from cotransport.data.augmentation import draw
from cotransport.data.decoding import Encoded, decode
from cotransport.data.mixing import draw_mixture
from cotransport.errors import DataError
from cotransport.settings.sections import Augmentation, Fit, Loss
from cotransport.system.randomness import generator
from tests.data.helpers import numbered, photos, png

CPU = torch.device("cpu")
NOTHING = Augmentation(crop_padding=0, flip=False, min_area=1)
"""No random changes, so that images can be recognised."""
MIXED = Loss(mixup=0.4, cutmix=0.4)


def batches_of(
    data: LabelledImages,
    *,
    augmentation: Augmentation = NOTHING,
    fit: Fit = "crop",
    loss: Loss = Loss(),
    batch_size: int = 128,
    epochs: int = 1,
    first_step: int = 0,
    seed: int = 5,
    place: tuple[int, ...] = (0,),
    shard: Shard | None = None,
    workers: int | None = 0,
) -> list[Batch]:
    return list(
        training_batches(
            data,
            settings=augmentation,
            fit=fit,
            loss=loss,
            batch_size=batch_size,
            epochs=epochs,
            first_step=first_step,
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
        assert (a.mixed is None) == (b.mixed is None)
        if a.mixed is not None and b.mixed is not None:
            assert torch.equal(a.mixed.labels, b.mixed.labels)
            assert torch.equal(a.mixed.share, b.mixed.share)


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

    @pytest.mark.parametrize("first_step", [0, 1, 3, 5, 6])
    def test_a_training_may_start_at_any_step(self, first_step: int) -> None:
        for data in (numbered(20), photos(20)):
            options: dict[str, Any] = {"augmentation": Augmentation(brightness=0.3), "batch_size": 8, "epochs": 2}
            assert_same(batches_of(data, **options, first_step=first_step), batches_of(data, **options)[first_step:])

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
    def test_images_are_channels_last(self, data: LabelledImages) -> None:
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
        torch.rand(7)  # the global generator is not used
        assert labels_of(batches_of(data)) == orders["first"]
        assert labels_of(batches_of(data, epochs=2))[:50] == orders["first"]

    def test_the_global_generator_is_not_changed(self) -> None:
        before = torch.get_rng_state()
        batches_of(photos(3), augmentation=Augmentation())
        batches_of(numbered(3), augmentation=Augmentation(policy="trivial"), loss=MIXED)
        assert torch.equal(torch.get_rng_state(), before)

    def test_augmentation_differs_between_steps_and_epochs(self) -> None:
        data = numbered(4)
        pixels = torch.randint(0, 256, (4, 8, 8, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
        data = LabelledImages(PixelImages(pixels), data.labels, data.classes)
        one, two = batches_of(data, augmentation=Augmentation(), batch_size=4, epochs=2)
        assert not torch.equal(one.images[one.labels.argsort()], two.images[two.labels.argsort()])

    def test_brightness_changes_both_storages(self) -> None:
        bright = NOTHING.model_copy(update={"brightness": 0.5})
        colour = np.full((9, 9, 3), 100, dtype=np.uint8)
        encoded: Images = EncodedImages.of([png(colour, str(i)) for i in range(40)], 9)
        pixels: Images = PixelImages(torch.from_numpy(np.stack([colour] * 40)))
        for images in (encoded, pixels):
            (batch,) = batches_of(LabelledImages(images, torch.arange(40), tuple(range(40))), augmentation=bright)
            values = batch.images.mean(dim=(1, 2, 3))
            assert 50 <= values.min() < 60
            assert 140 < values.max() <= 150

    def test_encoded_images_are_cropped_and_flipped(self) -> None:
        # black on the left, white on the right: a flip swaps them
        half = np.zeros((40, 40, 3), dtype=np.uint8)
        half[:, 20:] = 255
        data = LabelledImages(EncodedImages.of([png(half, str(i)) for i in range(60)], 8), torch.zeros(60), ("a",))
        (batch,) = batches_of(data, augmentation=Augmentation())
        left_minus_right = batch.images[:, 0, :, 0].mean(dim=1) - batch.images[:, 0, :, -1].mean(dim=1)
        assert 10 < (left_minus_right > 0).sum() < 50
        assert len({tuple(image.flatten().tolist()) for image in batch.images}) > 20

    @pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
    def test_the_drawn_window_is_decoded(self, fit: Fit) -> None:
        data, config = photos(1), Augmentation(flip=False)
        (batch,) = batches_of(data, augmentation=config, fit=fit)
        window = draw(config, 1, generator(5, 0, 0, 1, 0)).windows()[0]  # seed, place, epoch, changes, step
        assert (batch.images[0].permute(1, 2, 0).numpy() == decode(data.images.item(0), 6, window, fit)).all()


class TestShards:
    @pytest.mark.parametrize("processes", [1, 2, 3])
    @pytest.mark.parametrize("make", [numbered, photos], ids=["pixels", "encoded"])
    def test_shards_together_are_the_global_batch(self, processes: int, make: Callable[[int], LabelledImages]) -> None:
        data = make(22)
        options: dict[str, Any] = {"augmentation": Augmentation(brightness=0.3), "batch_size": 8, "epochs": 2}
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
    def test_weighted_means_average_to_the_mean(self, count: int, processes: int) -> None:
        losses = torch.arange(1.0, count + 1) ** 2
        shards = [Shard(rank, processes) for rank in range(processes)]
        weighted = [shard.weight(count) * losses[shard.of(count)].mean() for shard in shards]
        assert sum(weighted) / processes == pytest.approx(losses.mean().item())

    def test_weights_by_hand(self) -> None:
        # the first process has three of five images: 3 * 2 / 5
        assert Shard(0, 2).weight(5) == pytest.approx(1.2)
        assert Shard(1, 2).weight(5) == pytest.approx(0.8)
        assert Shard(1, 2).of(5).tolist() == [1, 3]

    def test_a_process_without_an_image_computes_the_first_with_weight_0(self) -> None:
        (batch,) = batches_of(numbered(1), shard=Shard(1, 2))
        assert (batch.weight, len(batch.images), batch.total) == (0.0, 1, 1)


def flat(count: int, side: int = 8) -> LabelledImages:
    """Grey images of one value, which is also their label."""
    pixels = torch.arange(count, dtype=torch.uint8).reshape(count, 1, 1, 1).expand(count, side, side, 3)
    return LabelledImages(PixelImages(pixels), torch.arange(count), tuple(range(count)))


def mixed_of(batch: Batch) -> Mixed:
    assert batch.mixed is not None
    return batch.mixed


class TestMixing:
    def test_without_mixing_there_are_no_second_labels(self) -> None:
        for data in (numbered(20), photos(20)):
            assert all(batch.mixed is None for batch in batches_of(data, batch_size=8))

    def test_blended_images_have_their_partners_label(self) -> None:
        for batch in batches_of(flat(100), loss=Loss(mixup=1), batch_size=30):
            labels, share = mixed_of(batch)
            expected = (1 - share) * batch.labels + share * labels
            assert torch.allclose(batch.images, expected[:, None, None, None].expand_as(batch.images), atol=1e-3)
            assert sorted(labels.tolist()) == sorted(batch.labels.tolist())  # partners are of the same batch
            assert (labels != batch.labels).float().mean() > 0.8

    def test_pasted_rectangles_have_their_partners_label(self) -> None:
        for batch in batches_of(flat(100), loss=Loss(cutmix=1), batch_size=30):
            labels, share = mixed_of(batch)
            for image, first, second, part in zip(batch.images, batch.labels, labels, share, strict=True):
                if first == second:  # an image is its own partner
                    assert (image == first).all()
                    continue
                assert ((image == first) | (image == second)).all()
                assert (image == second).float().mean().item() == pytest.approx(part.item())
            assert share.max() > 0.3

    def test_mixing_changes_neither_the_order_nor_the_other_images(self) -> None:
        options: dict[str, Any] = {"augmentation": Augmentation(policy="strong"), "batch_size": 30}
        for data in (flat(100), photos(100)):
            pairs = zip(batches_of(data, **options), batches_of(data, **options, loss=Loss(mixup=0.4)), strict=True)
            for plain, mixed in pairs:
                assert torch.equal(plain.labels, mixed.labels)
                left_alone = mixed_of(mixed).share == 0
                assert 5 < left_alone.sum() < 28
                assert torch.equal(plain.images[left_alone], mixed.images[left_alone])

    @pytest.mark.parametrize("augmentation", [NOTHING, Augmentation(policy="strong"), Augmentation(policy="trivial")])
    @pytest.mark.parametrize("processes", [2, 3, 10])
    @pytest.mark.parametrize("make", [flat, photos], ids=["pixels", "encoded"])
    def test_shards_together_are_the_global_batch(
        self, processes: int, make: Callable[[int], LabelledImages], augmentation: Augmentation
    ) -> None:
        options: dict[str, Any] = {"augmentation": augmentation, "loss": MIXED, "batch_size": 8, "epochs": 2}
        data = make(22)
        whole = batches_of(data, **options)
        for rank in range(processes):
            for part, batch in zip(batches_of(data, **options, shard=Shard(rank, processes)), whole, strict=True):
                own = slice(rank, None, processes) if rank < batch.total else slice(0, 1)  # the first, with weight 0
                assert part.total == batch.total
                assert torch.equal(part.images, batch.images[own])
                assert torch.equal(part.labels, batch.labels[own])
                assert torch.equal(mixed_of(part).labels, mixed_of(batch).labels[own])
                assert torch.equal(mixed_of(part).share, mixed_of(batch).share[own])

    @pytest.mark.parametrize("first_step", [1, 3, 5])
    @pytest.mark.parametrize("make", [flat, photos], ids=["pixels", "encoded"])
    def test_a_training_may_start_at_any_step(self, first_step: int, make: Callable[[int], LabelledImages]) -> None:
        options: dict[str, Any] = {"augmentation": Augmentation(policy="strong"), "loss": MIXED, "batch_size": 8}
        whole = batches_of(make(20), **options, epochs=2)
        assert_same(batches_of(make(20), **options, epochs=2, first_step=first_step), whole[first_step:])

    def test_every_step_mixes_anew(self) -> None:
        shares = [mixed_of(batch).share.tolist() for batch in batches_of(flat(20), loss=MIXED, batch_size=10, epochs=2)]
        assert all(one != two for i, one in enumerate(shares) for two in shares[:i])

    def test_the_drawn_partners_are_mixed_in(self) -> None:
        """Their numbers have a place of their own, so that they do not depend on those of the augmentation."""
        (batch,) = batches_of(flat(40), loss=MIXED)
        mixture = draw_mixture(MIXED, 40, generator(5, 0, 0, 2, 0))  # seed, place, epoch, mixture, step
        assert mixture is not None
        assert torch.equal(mixed_of(batch).labels, batch.labels[mixture.partner])

    @pytest.mark.parametrize("make", [flat, photos], ids=["pixels", "encoded"])
    def test_the_policy_none_changes_nothing_whatever_else_is_set(self, make: Callable[[int], LabelledImages]) -> None:
        loud = Augmentation(policy="none", crop_padding=1, flip=True, rotation=90, cutout=0.9)
        assert_same(
            batches_of(make(8), augmentation=loud), batches_of(make(8), augmentation=Augmentation(policy="none"))
        )

    @pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
    def test_the_policy_none_shows_what_evaluation_sees_of_a_photograph(self, fit: Fit) -> None:
        """The photographs are not square: with `crop`, it is the largest central square."""
        data = photos(8)
        (batch,) = batches_of(data, augmentation=Augmentation(policy="none"), fit=fit)
        for pixels, label in zip(batch.images, batch.labels.tolist(), strict=True):
            assert (pixels.permute(1, 2, 0).numpy() == decode(data.images.item(label), 6, 1.0, fit)).all()

    def test_features_are_never_mixed(self) -> None:
        features = torch.rand(20, 5, generator=torch.Generator().manual_seed(0))
        data = LabelledImages(Vectors(features), torch.arange(20), tuple(range(20)))
        shards = [Shard(rank, 3) for rank in range(3)]  # no process is given the images of another one, as partners
        batches = [batch for shard in shards for batch in batches_of(data, loss=MIXED, batch_size=8, shard=shard)]
        assert sorted(labels_of(batches)) == list(range(20))
        for batch in batches:
            assert batch.mixed is None
            assert torch.equal(batch.images, features[batch.labels])

    @pytest.mark.parametrize("make", [flat, photos], ids=["pixels", "encoded"])
    def test_mixed_images_are_channels_last(self, make: Callable[[int], LabelledImages]) -> None:
        for shard in (Shard(), Shard(1, 3)):
            (batch,) = batches_of(make(8), loss=MIXED, shard=shard)
            assert batch.images.is_contiguous(memory_format=torch.channels_last)


class TestWorkers:
    def test_batches_do_not_depend_on_workers(self) -> None:
        data = photos(30)
        options: dict[str, Any] = {"augmentation": Augmentation(brightness=0.2), "batch_size": 7, "epochs": 2}
        for loss in (Loss(), MIXED):
            assert_same(*(batches_of(data, **options, loss=loss, workers=workers) for workers in (0, 2)))

    @pytest.mark.parametrize("workers", [0, 2])
    def test_a_damaged_image_keeps_its_message(self, workers: int) -> None:
        data = photos(12)
        items = list(data.images.origins[0])  # type: ignore[union-attr]
        items[5] = Encoded(items[5].data[:60], "fifth.png")
        broken = EncodedImages.of(items, 6)
        for use in (
            lambda: batches_of(LabelledImages(broken, data.labels, data.classes), batch_size=4, workers=workers),
            lambda: list(evaluation_chunks(broken, device=CPU, shard=Shard(), workers=workers)),
        ):
            with pytest.raises(DataError) as caught:
                use()
            assert str(caught.value).startswith("fifth.png: damaged or truncated image")
            assert "\n" not in str(caught.value)
            assert len(str(caught.value)) < 150
