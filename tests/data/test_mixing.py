"""Mixup and CutMix mix the asked share of the images, and know how much of each pixel is the partner's."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cotransport.data.mixing import Mixture, draw_mixture, mix
from cotransport.settings.sections import Loss

COUNT = 4000
SEEDS = st.integers(0, 10**6)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(count: int, height: int, width: int, seed: int = 0) -> Tensor:
    return 255 * torch.rand(count, height, width, 3, generator=generator(seed))


def drawn(loss: Loss, count: int, seed: int = 0) -> Mixture:
    mixture = draw_mixture(loss, count, generator(seed))
    assert mixture is not None
    return mixture


def mixture_of(share: list[float], is_cut: list[bool], corner: list[tuple[float, float]]) -> Mixture:
    """A mixture of given numbers. `mix` is given the partners, so it does not look at their positions."""
    return Mixture(torch.arange(len(share)), torch.tensor(share), torch.tensor(is_cut), torch.tensor(corner))


class TestDraw:
    @pytest.mark.parametrize("loss", [Loss(), Loss(label_smoothing=0.1, balanced_softmax=True)])
    def test_nothing_is_drawn_unless_asked_for(self, loss: Loss) -> None:
        assert draw_mixture(loss, 5, generator()) is None

    @pytest.mark.parametrize(("mixup", "cutmix"), [(0.3, 0.2), (0.5, 0.0), (0.0, 0.4), (0.25, 0.75)])
    def test_the_asked_share_of_the_images_is_mixed(self, mixup: float, cutmix: float) -> None:
        mixture = drawn(Loss(mixup=mixup, cutmix=cutmix), COUNT)
        is_mixed = mixture.share > 0
        for found, asked in (
            (is_mixed & ~mixture.is_cut, mixup),
            (is_mixed & mixture.is_cut, cutmix),
            (~is_mixed, 1 - mixup - cutmix),
        ):
            deviation = math.sqrt(asked * (1 - asked) / COUNT)
            assert abs(found.float().mean() - asked) <= 4 * deviation

    def test_shares_are_uniform_up_to_a_half(self) -> None:
        mixture = drawn(Loss(mixup=0.5, cutmix=0.5), COUNT)
        for share in (mixture.share[mixture.is_cut], mixture.share[~mixture.is_cut]):
            assert 0 <= share.min() < 0.005
            assert 0.495 < share.max() <= 0.5
            assert abs(share.mean() - 0.25) < 0.0135  # four standard deviations of a mean of about 2000

    def test_corners_are_uniform(self) -> None:
        for column in drawn(Loss(cutmix=0.5), COUNT).corner.unbind(1):
            assert 0 <= column.min() < 0.005
            assert 0.995 < column.max() <= 1
            assert abs(column.mean() - 0.5) < 0.0183  # four standard deviations

    def test_every_image_is_a_partner_once(self) -> None:
        partner = drawn(Loss(mixup=1.0), 50).partner
        assert sorted(partner.tolist()) == list(range(50))
        assert partner.tolist() != list(range(50))

    def test_an_image_that_is_not_mixed_is_its_own_partner(self) -> None:
        """So that no process loads an image that it does not need."""
        mixture = drawn(Loss(mixup=0.5), 50)
        alone = mixture.share == 0
        assert 0 < alone.sum() < 50
        assert torch.equal(mixture.partner[alone], torch.arange(50)[alone])

    def test_the_same_seed_gives_the_same_mixture(self) -> None:
        loss = Loss(mixup=0.4, cutmix=0.4)
        one, two, other = (drawn(loss, 50, seed) for seed in (3, 3, 4))
        assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
        assert not any(torch.equal(a, b) for a, b in zip(one, other, strict=True))

    def test_a_part_has_the_numbers_of_its_images(self) -> None:
        mixture = drawn(Loss(mixup=0.4, cutmix=0.4), 6)
        for chosen, whole in zip(mixture.part(torch.tensor([4, 1])), mixture, strict=True):
            assert torch.equal(chosen, torch.stack([whole[4], whole[1]]))


class TestMix:
    @given(height=st.integers(1, 8), width=st.integers(1, 8), seed=SEEDS)
    @settings(max_examples=50, deadline=None)
    def test_blends_every_pixel(self, height: int, width: int, seed: int) -> None:
        images, partners = noise(4, height, width, seed), noise(4, height, width, seed + 1)
        mixture = drawn(Loss(mixup=1), 4, seed)
        mixed, shares = mix(images, partners, mixture)
        assert shares.tolist() == pytest.approx(mixture.share.tolist())
        for i, share in enumerate(mixture.share.tolist()):
            expected = (1 - share) * images[i].double().numpy() + share * partners[i].double().numpy()
            assert np.abs(mixed[i].numpy() - expected).max() < 1e-3

    @given(height=st.integers(1, 12), width=st.integers(1, 12), seed=SEEDS)
    @settings(max_examples=50, deadline=None)
    def test_pastes_a_rectangle_of_the_partner(self, height: int, width: int, seed: int) -> None:
        """Sides and corners are sixteenths, which are exact in any precision."""
        images, partners = noise(4, height, width, seed), noise(4, height, width, seed + 1)
        sides = torch.randint(0, 12, (4,), generator=generator(seed)) / 16  # 11 / 16 is less than the root of a half
        corners = torch.randint(0, 17, (4, 2), generator=generator(seed)) / 16
        cut = torch.ones(4, dtype=torch.bool)
        mixed, shares = mix(images, partners, Mixture(torch.arange(4), sides**2, cut, corners))
        for i, (side, (down, right)) in enumerate(zip(sides.tolist(), corners.tolist(), strict=True)):
            top, left = round(down * (height - side * height)), round(right * (width - side * width))
            bottom, far = round(top + side * height), round(left + side * width)
            pasted = 0
            for row in range(height):
                for column in range(width):
                    inside = top <= row < bottom and left <= column < far
                    assert torch.equal(mixed[i, row, column], (partners if inside else images)[i, row, column])
                    pasted += inside
            assert shares[i].item() == pytest.approx(pasted / (height * width))

    def test_rectangles_by_hand(self) -> None:
        """A quarter of the area is half of each side."""
        black, white = torch.zeros(3, 4, 8, 3), torch.full((3, 4, 8, 3), 255.0)
        mixed, shares = mix(black, white, mixture_of([0.25] * 3, [True] * 3, [(0, 0), (0, 1), (0.5, 0.5)]))
        assert shares.tolist() == [0.25] * 3
        first, second, third = (mixed[:, :, :, 0] / 255).int().tolist()
        assert first == [[1, 1, 1, 1, 0, 0, 0, 0]] * 2 + [[0] * 8] * 2
        assert second == [[0, 0, 0, 0, 1, 1, 1, 1]] * 2 + [[0] * 8] * 2
        assert third == [[0] * 8, [0, 0, 1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1, 0, 0], [0] * 8]

    @given(height=st.integers(1, 40), width=st.integers(1, 40), seed=SEEDS)
    @settings(max_examples=50, deadline=None)
    def test_the_share_is_that_of_the_partner(self, height: int, width: int, seed: int) -> None:
        """A black image and a white partner: the mean is the share."""
        black, white = torch.zeros(20, height, width, 3), torch.full((20, height, width, 3), 255.0)
        mixed, shares = mix(black, white, drawn(Loss(mixup=0.4, cutmix=0.4), 20, seed))
        assert shares.tolist() == pytest.approx((mixed / 255).mean(dim=(1, 2, 3)).tolist(), abs=1e-5)

    @given(height=st.integers(2, 40), width=st.integers(2, 40), seed=SEEDS)
    @settings(max_examples=50, deadline=None)
    def test_a_rectangle_has_the_proportions_of_the_image(self, height: int, width: int, seed: int) -> None:
        """Its sides are those of the image times the root of the share, up to half a pixel: none is beyond the edge."""
        black, white = torch.zeros(20, height, width, 3), torch.full((20, height, width, 3), 255.0)
        mixture = drawn(Loss(cutmix=1), 20, seed)
        pasted = mix(black, white, mixture)[0][:, :, :, 0] == 255
        for own, root in zip(pasted, mixture.share.sqrt().tolist(), strict=True):
            rows, columns = int(own.any(dim=1).sum()), int(own.any(dim=0).sum())
            if rows and columns:
                assert abs(rows - root * height) < 0.501
                assert abs(columns - root * width) < 0.501
            else:
                assert root * min(height, width) < 0.501
            assert own.sum() == rows * columns

    def test_images_with_share_0_stay_as_they_are(self) -> None:
        images, partners = noise(6, 9, 7), noise(6, 9, 7, seed=1)
        is_cut = [True, False, True, False, True, False]
        mixture = mixture_of([0, 0, 0.4, 0.4, 0, 0], is_cut, [(0.3, 0.6)] * 6)
        mixed, shares = mix(images, partners, mixture)
        assert [torch.equal(mixed[i], images[i]) for i in range(6)] == [True, True, False, False, True, True]
        assert [share == 0 for share in shares.tolist()] == [True, True, False, False, True, True]

    def test_the_images_are_not_changed_themselves(self) -> None:
        images, partners = noise(6, 9, 7), noise(6, 9, 7, seed=1)
        mix(images, partners, drawn(Loss(mixup=0.5, cutmix=0.5), 6))[0].zero_()
        assert torch.equal(images, noise(6, 9, 7))
        assert torch.equal(partners, noise(6, 9, 7, seed=1))

    def test_equals_one_image_at_a_time(self) -> None:
        """To the last bit: a batch may be computed by any number of processes."""
        images, partners = noise(40, 9, 7), noise(40, 9, 7, seed=1)
        mixture = drawn(Loss(mixup=0.4, cutmix=0.4), 40)
        mixed, shares = mix(images, partners, mixture)
        for i in range(40):
            row = torch.tensor([i])
            alone, share = mix(images[row], partners[row], mixture.part(row))
            assert torch.equal(alone, mixed[row])
            assert torch.equal(share, shares[row])
