"""Random numbers have the distributions that the settings ask for, and change the images that they belong to."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from cotransport.data import transformations as change
from cotransport.data.augmentation import TRIVIAL_CHANGES, Draws, augment, crop, draw, flip
from cotransport.settings.sections import Augmentation

EVERYTHING: dict[str, Any] = {
    "rotation": 20,
    "shear": 0.2,
    "zoom": 0.2,
    "brightness": 0.4,
    "contrast": 0.4,
    "saturation": 0.4,
    "cutout": 0.2,
}
"""Settings that change every image."""
CONFIGS = {
    "none": Augmentation(policy="none").in_effect,
    "basic": Augmentation(policy="basic"),
    "trivial": Augmentation(policy="trivial"),
    "trivial and everything": Augmentation(policy="trivial", padding="reflect", **EVERYTHING),
    "strong": Augmentation(policy="strong"),
    "strong and explicit": Augmentation(policy="strong", padding="reflect", cutout=0, shear=0),
}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(count: int, side: int = 18) -> Tensor:
    """Images with more pixels than levels, so that they can be equalised."""
    return torch.randint(0, 256, (count, side, side, 3), generator=generator(), dtype=torch.uint8)


def neutral(count: int) -> Draws:
    """Draws that change nothing."""
    return draw(Augmentation(policy="none").in_effect, count, generator())


class TestCropAndFlip:
    @pytest.mark.parametrize("padding", ["zero", "reflect"])
    def test_images_are_cropped_and_mirrored_as_drawn(self, padding: str) -> None:
        config = Augmentation.model_validate({"crop_padding": 2, "padding": padding})
        pixels, indices, draws = noise(3, 5), torch.tensor([2, 0, 0, 1]), draw(config, 4, generator(1))
        cropped = crop(pixels, indices, draws, config)
        expected = change.crop(pixels, indices, draws.shift, draws.flip, pad=2, reflect=padding == "reflect")
        assert torch.equal(cropped, expected)
        assert (cropped != pixels[indices]).flatten(1).any(dim=1).all()

    def test_a_shift_by_hand(self) -> None:
        row = torch.tensor([1, 2, 3, 4], dtype=torch.uint8).reshape(1, 1, 4, 1).expand(1, 1, 4, 3)
        draws = neutral(2)._replace(shift=torch.tensor([[0, 2], [0, -1]]), flip=torch.tensor([False, True]))
        cropped = crop(row, torch.tensor([0, 0]), draws, Augmentation(crop_padding=2))
        assert cropped[:, 0, :, 0].tolist() == [[3, 4, 0, 0], [3, 2, 1, 0]]

    def test_drawn_images_are_mirrored(self) -> None:
        images = noise(2)
        mirrored = flip(images, neutral(2)._replace(flip=torch.tensor([False, True])))
        assert torch.equal(mirrored[0], images[0])
        assert (mirrored[1].numpy() == images[1].numpy()[:, ::-1]).all()


class TestDraw:
    def test_shifts_are_uniform_over_the_padding(self) -> None:
        shift = draw(Augmentation(crop_padding=2), 2000, generator()).shift
        for axis in range(2):
            counts = torch.bincount(shift[:, axis] + 2, minlength=5)
            assert counts.sum() == 2000
            assert len(counts) == 5
            assert (counts - 400).abs().max() < 80  # four standard deviations of 18
        assert not (shift[:, 0] == shift[:, 1]).all()

    def test_about_half_are_flipped(self) -> None:
        share = draw(Augmentation(), 4000, generator()).flip.float().mean()
        assert abs(share - 0.5) < 0.032  # four standard deviations
        assert not draw(Augmentation(flip=False), 4000, generator()).flip.any()

    @pytest.mark.parametrize(
        ("name", "centre", "most"),
        [
            ("brightness", 1, 0.4),
            ("contrast", 1, 0.4),
            ("saturation", 1, 0.4),
            ("zoom", 1, 0.3),
            ("rotation", 0, 25),
            ("shear", 0, 0.2),
        ],
    )
    def test_ranges_around_a_neutral_value(self, name: str, centre: float, most: float) -> None:
        values = getattr(draw(Augmentation.model_validate({name: most}), 4000, generator()), name)
        for column in values.reshape(4000, -1).unbind(1):
            assert centre - most - 1e-6 <= column.min() < centre - 0.98 * most
            assert centre + 0.98 * most < column.max() <= centre + most + 1e-6
            assert abs(column.mean() - centre) < 0.037 * most  # four standard deviations of a uniform mean
        assert (getattr(draw(Augmentation(), 9, generator()), name) == centre).all()

    def test_numbers_of_an_image_differ(self) -> None:
        same = {"brightness": 0.5, "contrast": 0.5, "saturation": 0.5, "zoom": 0.5}
        draws = draw(Augmentation.model_validate({**same, "shear": 0.5}), 50, generator())
        columns = [
            *draws.shear.unbind(1),
            *(getattr(draws, name) - 1 for name in same),
            *(draws.cutout - 0.5).unbind(1),
        ]
        assert not any((one == two).any() for i, one in enumerate(columns) for two in columns[:i])

    def test_cutout_is_centred_anywhere(self) -> None:
        for column in draw(Augmentation(cutout=0.5), 4000, generator()).cutout.unbind(1):
            assert 0 <= column.min() < 0.01
            assert 0.99 < column.max() <= 1
            assert abs(column.mean() - 0.5) < 0.0183  # four standard deviations

    def test_window_ranges(self) -> None:
        area, ratio, x, y = draw(Augmentation(min_area=0.3), 4000, generator()).window.unbind(1)
        assert 0.3 <= area.min() < 0.31
        assert 0.99 < area.max() <= 1
        assert 0.75 - 1e-6 <= ratio.min() < 0.76
        assert 1.32 < ratio.max() <= 4 / 3 + 1e-6
        assert abs(ratio.log().mean()) < 0.011  # wide and high windows are equally frequent
        for place in (x, y):
            assert 0 <= place.min() < 0.01
            assert 0.99 < place.max() <= 1

    def test_the_whole_area_is_the_whole_image(self) -> None:
        window = draw(Augmentation(min_area=1), 50, generator()).window
        assert (window[:, :2] == 1).all()

    def test_the_same_seed_gives_the_same_draws(self) -> None:
        config = Augmentation(policy="trivial", **EVERYTHING)
        one, two, other = (draw(config, 60, generator(seed)) for seed in (3, 3, 4))
        assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
        assert not any(torch.equal(a, b) for a, b in zip(one, other, strict=True))

    def test_part_and_windows_belong_to_the_same_images(self) -> None:
        draws = draw(Augmentation(policy="trivial", **EVERYTHING), 6, generator())
        part = draws.part(torch.tensor([4, 1]))
        columns: list[tuple[Tensor, Tensor]] = list(zip(part, draws, strict=True))
        for chosen, whole in columns:
            assert torch.equal(chosen[0], whole[4])
            assert torch.equal(chosen[1], whole[1])
        assert [list(window) for window in part.windows()] == [
            pytest.approx(draws.window[index].tolist()) for index in (4, 1)
        ]


OTHER_VALUES: dict[str, tuple[object, set[str]]] = {
    "policy": ("trivial", set(Draws._fields) - {"shift", "window", "flip", "zoom", "cutout"}),
    "crop_padding": (0, {"shift"}),
    "padding": ("reflect", set()),
    "min_area": (1, {"window"}),
    "flip": (False, {"flip"}),
    "rotation": (0, {"rotation"}),
    "shear": (0, {"shear"}),
    "zoom": (0, {"zoom"}),
    "brightness": (0, {"brightness"}),
    "contrast": (0, {"contrast"}),
    "saturation": (0, {"saturation"}),
    "cutout": (0, set()),
}
"""A value of each setting that differs from `EVERYTHING`, and the draws that it changes."""


class TestSettingsAreIndependent:
    def test_every_setting_is_tested(self) -> None:
        assert OTHER_VALUES.keys() == Augmentation.model_fields.keys()

    @pytest.mark.parametrize("name", OTHER_VALUES)
    def test_a_setting_does_not_change_the_draws_of_the_others(self, name: str) -> None:
        value, own = OTHER_VALUES[name]
        before = draw(Augmentation.model_validate(EVERYTHING), 80, generator())
        after = draw(Augmentation.model_validate({**EVERYTHING, name: value}), 80, generator())
        assert {
            field for field in Draws._fields if not torch.equal(getattr(before, field), getattr(after, field))
        } == own


class TestPolicies:
    @pytest.mark.parametrize("explicit", [{}, {**EVERYTHING, "crop_padding": 3, "min_area": 0.5, "flip": True}])
    def test_none_changes_nothing(self, explicit: dict[str, Any]) -> None:
        config, pixels = Augmentation(policy="none", **explicit).in_effect, noise(40)
        draws = draw(config, 40, generator())
        cropped = crop(pixels, torch.arange(40), draws, config)
        assert torch.equal(cropped, pixels)
        assert torch.equal(flip(pixels, draws), pixels)
        assert torch.equal(augment(cropped, draws, config), pixels.float())
        assert (draws.window[:, :2] == 1).all()

    def test_basic_only_crops_and_flips(self) -> None:
        config, images = Augmentation(policy="basic"), noise(40)
        draws = draw(config, 40, generator())
        ones, zeros = torch.ones(40), torch.zeros(40)
        for factor in (draws.brightness, draws.contrast, draws.saturation, draws.zoom):
            assert torch.equal(factor, ones)
        for amount in (draws.rotation, *draws.shear.unbind(1), *draws.translation.unbind(1)):
            assert torch.equal(amount, zeros)
        assert (draws.bits == 8).all()
        assert (draws.threshold > 255).all()
        assert not draws.equalised.any()
        assert torch.equal(augment(images, draws, config), images.float())
        assert draws.shift.any()
        assert draws.flip.any()
        assert (draws.window[:, 0] < 1).any()

    def test_an_explicit_setting_takes_precedence(self) -> None:
        upright = draw(Augmentation(policy="strong", rotation=0, flip=False), 40, generator())
        assert not upright.rotation.any()
        assert not upright.flip.any()
        assert upright.shear.all()
        turned = draw(Augmentation(policy="trivial", rotation=170), 40, generator())
        assert turned.rotation.abs().max() > 150

    def test_strong_changes_every_image_in_every_way(self) -> None:
        draws = draw(Augmentation(policy="strong"), 4000, generator())
        for name, centre, most in (
            ("rotation", 0, 15),
            ("shear", 0, 0.15),
            ("zoom", 1, 0.15),
            ("brightness", 1, 0.3),
            ("contrast", 1, 0.3),
            ("saturation", 1, 0.3),
        ):
            distance = (getattr(draws, name) - centre).abs()
            assert 0.99 * most < distance.max() <= most + 1e-6
            assert abs(distance.mean() - most / 2) < 0.019 * most  # four standard deviations


def trivial_changes(draws: Draws) -> dict[str, Tensor]:
    """The difference from no change (n,), for each of TRIVIAL_CHANGES but the identity."""
    return {
        "shear right": draws.shear[:, 0],
        "shear down": draws.shear[:, 1],
        "translate right": draws.translation[:, 0],
        "translate down": draws.translation[:, 1],
        "rotate": draws.rotation,
        "brightness": draws.brightness - 1,
        "contrast": draws.contrast - 1,
        "saturation": draws.saturation - 1,
        "posterise": 8 - draws.bits,
        "solarise": 256 - draws.threshold,
        "equalise": draws.equalised.float(),
    }


class TestTrivial:
    COUNT = 12000
    CHANGES = trivial_changes(draw(Augmentation(policy="trivial"), COUNT, generator()))

    def test_every_image_is_changed_in_one_way_at_most(self) -> None:
        assert set(TRIVIAL_CHANGES) == {"identity", *self.CHANGES}
        ways = torch.stack([values != 0 for values in self.CHANGES.values()]).sum(dim=0)
        assert set(ways.tolist()) == {0, 1}

    def test_all_changes_are_equally_frequent(self) -> None:
        deviation = (self.COUNT * 1 / 12 * 11 / 12) ** 0.5
        for name, values in self.CHANGES.items():
            # a fifth of the posterised images keep all bits
            expected = self.COUNT / 12 * (4 / 5 if name == "posterise" else 1)
            assert abs(int((values != 0).sum()) - expected) < 4 * deviation, name
        unchanged = torch.stack([values == 0 for values in self.CHANGES.values()]).all(dim=0).sum()
        assert abs(int(unchanged) - self.COUNT / 12 * 6 / 5) < 4 * 1.1 * deviation

    @pytest.mark.parametrize(
        ("names", "most"),
        [
            (("shear right", "shear down", "translate right", "translate down"), 0.3),
            (("rotate",), 30),
            (("brightness", "contrast", "saturation"), 0.9),
        ],
    )
    def test_strengths_in_both_directions(self, names: tuple[str, ...], most: float) -> None:
        for name in names:
            values = self.CHANGES[name][self.CHANGES[name] != 0]
            assert -most - 1e-6 <= values.min() < -0.97 * most
            assert 0.97 * most < values.max() <= most + 1e-6
            assert abs(values.mean()) < 0.08 * most  # more than four standard deviations of the mean of about 1000

    def test_strengths_in_one_direction(self) -> None:
        assert set(self.CHANGES["posterise"].tolist()) == {0, 1, 2, 3, 4}
        for bits in range(1, 5):
            assert abs(int((self.CHANGES["posterise"] == bits).sum()) - 200) < 57  # four standard deviations
        inverted = self.CHANGES["solarise"][self.CHANGES["solarise"] != 0]
        assert inverted.min() < 8
        assert 248 < inverted.max() <= 256
        assert abs(inverted.mean() - 128) < 10  # more than four standard deviations

    def test_explicit_settings_come_on_top(self) -> None:
        alone = draw(Augmentation(**EVERYTHING), 400, generator())
        both = draw(Augmentation(policy="trivial", **EVERYTHING), 400, generator())
        one_more = trivial_changes(draw(Augmentation(policy="trivial"), 400, generator()))
        assert torch.allclose(both.rotation, alone.rotation + one_more["rotate"])
        assert torch.allclose(both.shear[:, 1], alone.shear[:, 1] + one_more["shear down"])
        assert torch.allclose(both.contrast, alone.contrast * (1 + one_more["contrast"]))


def augmented_slowly(image: Tensor, draws: Draws, config: Augmentation) -> Tensor:
    """One image (1, h, w, 3) after all changes in turn. Those with a neutral value are left out."""
    image, reflect = image.float(), config.padding == "reflect"
    geometry = (draws.rotation, draws.shear, draws.zoom - 1, draws.translation)
    if any(bool(values.any()) for values in geometry):
        maps = change.affine_maps(draws.rotation, draws.shear, draws.zoom, draws.translation)
        image = change.warp(image, maps, reflect=reflect)
    if draws.equalised.item():
        image = change.equalise(image)
    if draws.bits.item() != 8:
        image = change.posterise(image, draws.bits)
    if draws.threshold.item() <= 255:
        image = change.solarise(image, draws.threshold)
    for changed, factor in (
        (change.brighten, draws.brightness),
        (change.contrast, draws.contrast),
        (change.saturate, draws.saturation),
    ):
        if factor.item() != 1:
            image = changed(image, factor)
    return change.cut_out(image, draws.cutout, config.cutout) if config.cutout else image


class TestAugment:
    @pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
    def test_equals_one_image_at_a_time(self, config: Augmentation) -> None:
        """To the last bit: a batch may be computed by any number of processes."""
        images, draws = noise(60), draw(config, 60, generator())
        changed = augment(images, draws, config)
        assert (changed.dtype, changed.shape) == (torch.float32, images.shape)
        for i in range(60):
            rows = torch.tensor([i])
            assert torch.equal(changed[rows], augmented_slowly(images[rows], draws.part(rows), config))

    @pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
    def test_pixels_stay_within_their_range(self, config: Augmentation) -> None:
        extreme = noise(60) // 128 * 255
        changed = augment(extreme, draw(config, 60, generator()), config)
        assert changed.min() >= 0
        assert changed.max() <= 255.001  # an interpolation is rounded

    @pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
    def test_the_images_are_not_changed_themselves(self, config: Augmentation) -> None:
        images = noise(60)
        augment(images, draw(config, 60, generator()), config).zero_()
        assert torch.equal(images, noise(60))

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("brightness", 0.5),
            ("contrast", 0.5),
            ("saturation", 0.5),
            ("rotation", 20.0),
            ("shear", (0.2, 0.0)),
            ("shear", (0.0, 0.2)),
            ("zoom", 1.2),
            ("translation", (0.2, 0.0)),
            ("translation", (0.0, 0.2)),
            ("bits", 4.0),
            ("threshold", 100.0),
            ("equalised", True),
        ],
    )
    def test_only_the_images_concerned_are_changed(self, name: str, value: object) -> None:
        images, config = noise(5), Augmentation(policy="none").in_effect
        numbers = getattr(neutral(5), name).clone()
        numbers[[1, 3]] = torch.tensor(value)
        changed = augment(images, neutral(5)._replace(**{name: numbers}), config)
        assert [torch.equal(changed[i], images[i].float()) for i in range(5)] == [True, False, True, False, True]

    def test_cutout_is_cut_out_where_drawn(self) -> None:
        images = noise(2)
        draws = neutral(2)._replace(cutout=torch.tensor([[0.0, 0.0], [0.5, 1.0]]))
        changed = augment(images, draws, Augmentation(cutout=2 / 9))  # 4 of 18 pixels
        cut = (changed != images).any(dim=-1)
        assert cut[0].nonzero().tolist() == [[row, column] for row in (0, 1) for column in (0, 1)]
        assert cut[1].nonzero().tolist() == [[row, column] for row in (7, 8, 9, 10) for column in (16, 17)]

    def test_padding_says_what_lies_beyond_the_edge(self) -> None:
        white = torch.full((1, 8, 8, 3), 255, dtype=torch.uint8)
        draws = neutral(1)._replace(translation=torch.tensor([[0.25, 0.0]]))
        black_edge = augment(white, draws, Augmentation(padding="zero"))[0, :, :, 0]
        assert black_edge.tolist() == [[0, 0, 255, 255, 255, 255, 255, 255]] * 8
        assert (augment(white, draws, Augmentation(padding="reflect")) == 255).all()

    @pytest.mark.parametrize("name", CONFIGS)
    def test_a_batch_may_be_split_in_any_way(self, name: str) -> None:
        """To the last bit: the result does not depend on the number of processes."""
        images, draws = noise(60), draw(CONFIGS[name], 60, generator())
        whole = augment(images, draws, CONFIGS[name])
        for parts in (2, 7, 60):
            for rows in torch.arange(60).tensor_split(parts):
                assert torch.equal(augment(images[rows], draws.part(rows), CONFIGS[name]), whole[rows])

    def test_a_single_equalised_image_has_the_layout_of_a_batch(self) -> None:
        draws = neutral(1)._replace(equalised=torch.tensor([True]))
        assert augment(noise(1), draws, Augmentation()).is_contiguous()
