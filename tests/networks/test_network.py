import torch
from torch import Tensor, nn

from cotransport.networks.heads import CosineHead
from cotransport.networks.network import HeadAlone, Network


def small_network() -> Network:
    backbone = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    head = CosineHead(4, 10.0)
    head.grow(2)
    return Network(backbone, head, torch.tensor([10.0, 20.0, 30.0]), torch.tensor([1.0, 2.0, 3.0]))


class Recorder(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        self.seen = images
        return images.mean(dim=(2, 3))


def test_images_are_normalised_by_colour() -> None:
    recorder = Recorder()
    head = CosineHead(3, 10.0)
    network = Network(recorder, head, torch.tensor([10.0, 20.0, 30.0]), torch.tensor([1.0, 2.0, 4.0]))
    network(torch.full((1, 3, 2, 2), 30, dtype=torch.uint8))
    # (30 - 10) / 1, (30 - 20) / 2, (30 - 30) / 4
    assert recorder.seen[0, :, 0, 0].tolist() == [20.0, 5.0, 0.0]


def test_a_frozen_copy_does_not_change() -> None:
    network = small_network().train()
    frozen = network.frozen()
    images = torch.randint(0, 255, (4, 3, 8, 8)).float()
    before = frozen(images).logits
    output = network(images)  # changes the running statistics of the original
    output.logits.sum().backward()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1.0)
    torch.testing.assert_close(frozen(images).logits, before)
    assert not frozen.training
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    assert network.training
    assert all(parameter.requires_grad for parameter in network.parameters())


def test_the_normalisation_is_part_of_the_state() -> None:
    state = small_network().state_dict()
    assert state["mean"].flatten().tolist() == [10.0, 20.0, 30.0]
    assert "head.scale" in state


def test_a_head_alone_takes_features() -> None:
    head = CosineHead(4, 10.0)
    head.grow(2)
    network, features = HeadAlone(head), torch.randn(3, 4)
    output = network(features)
    assert torch.equal(output.features, features)
    assert torch.equal(output.logits, head(features))
    assert network.dimension == 4
