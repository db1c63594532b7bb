from __future__ import annotations

import pytest
import torch

from cotransport.data import PixelImages, evaluation
from cotransport.settings.sections import Device, PredictionSettings, Schedule, View
from cotransport.training import inference
from cotransport.training.inference import decoding_workers, outputs, place
from tests.conftest import blobs
from tests.data.helpers import photos
from tests.helpers import CPU, pixels, quick_trainer, small_network


def test_outputs_are_those_of_the_network_in_evaluation_mode() -> None:
    network, data = small_network(), blobs(2, 150)  # more than one chunk
    output = outputs(network.train(), data.images, CPU)
    assert network.training
    network.eval()
    with torch.no_grad():
        expected = network(pixels(data.images).permute(0, 3, 1, 2))
    torch.testing.assert_close(output.features, expected.features)
    torch.testing.assert_close(output.logits, expected.logits)


@pytest.mark.parametrize("flip", [False, True])
def test_features_can_be_had_without_logits(flip: bool) -> None:
    network, data = small_network(), blobs(2, 20)
    output = outputs(network, data.images, CPU, flip=flip, with_logits=False)
    assert torch.equal(output.features, outputs(network, data.images, CPU, flip=flip).features)
    assert output.logits.shape == (40, 0)


def test_outputs_over_a_flip_are_the_mean_of_both() -> None:
    network, data = small_network().eval(), blobs(2, 150)
    output = outputs(network, data.images, CPU, flip=True)
    mirrored = PixelImages(pixels(data.images).flip(2))
    for part, one, other in zip(
        output, outputs(network, data.images, CPU), outputs(network, mirrored, CPU), strict=True
    ):
        assert not torch.allclose(one, other)
        torch.testing.assert_close(part, (one + other) / 2)


def test_a_trainer_gives_the_same_outputs_with_any_batch_size() -> None:
    network, data = small_network(), blobs(2, 150)
    expected = outputs(network, data.images, CPU)
    for size in (1, 7, 512):
        trainer = quick_trainer(schedule=Schedule(batch_size=size))
        assert torch.equal(trainer.features(network, data.images), expected.features)
        assert torch.equal(trainer.outputs(network, data.images).logits, expected.logits)


def test_a_trainer_sees_the_part_of_large_images_that_predictions_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "IN_MEMORY_SIDE", 7)  # 8 pixels count as large
    network, images = small_network(), photos(3, 8).images
    trainer = quick_trainer(prediction=PredictionSettings(crop=0.5))
    expected = outputs(network, images, CPU, view=View(crop=0.5))
    assert not torch.allclose(outputs(network, images, CPU).features, expected.features)
    assert torch.equal(trainer.features(network, images), expected.features)
    assert torch.equal(trainer.predictions(network, images).logits, expected.logits)


def test_outputs_may_be_used_in_training() -> None:
    features = outputs(small_network(), blobs(1, 4).images, CPU).features
    weight = torch.ones(1, 16, requires_grad=True)
    (features * weight).sum().backward()
    assert weight.grad is not None


def test_outputs_of_no_images_are_empty() -> None:
    output = outputs(small_network(), PixelImages(torch.zeros(0, 8, 8, 3, dtype=torch.uint8)), CPU)
    assert output.features.shape == (0, 16)
    assert output.logits.shape == (0, 2)


@pytest.mark.parametrize("channels_last", [True, False])
def test_weights_are_stored_in_the_order_of_the_device(channels_last: bool) -> None:
    network = place(small_network(), Device(accelerator="cpu", channels_last=channels_last))
    weight = network.backbone[0].weight  # type: ignore[index]
    assert weight.is_contiguous(memory_format=torch.channels_last) == channels_last


@pytest.mark.parametrize(
    ("device", "workers"),
    [(Device(), 4), (Device(processes=3), 2), (Device(workers=7, processes=2), 7), (Device(workers=0), 0)],
)
def test_the_processes_of_a_machine_share_the_decoding_workers(
    device: Device, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inference, "default_workers", lambda images: 4)
    assert decoding_workers(blobs(1, 4).images, device) == workers
