import torch
from torch import nn

from cotransport.networks.heads import CosineHead, LinearHead


def head_with(weight: list[list[float]], scale: float) -> CosineHead:
    head = CosineHead(len(weight[0]), scale)
    head.weight = nn.Parameter(torch.tensor(weight))
    return head


def test_cosine_head_by_hand() -> None:
    head = head_with([[3.0, 4.0], [-1.0, 0.0]], scale=10.0)
    # the feature (0, 2) has cosine 4 / 5 with the first class and 0 with the second
    torch.testing.assert_close(head(torch.tensor([[0.0, 2.0]])), torch.tensor([[8.0, 0.0]]))


def test_cosine_logits_do_not_depend_on_lengths() -> None:
    head = head_with([[1.0, 2.0], [2.0, -1.0]], scale=5.0)
    longer = head_with([[3.0, 6.0], [4.0, -2.0]], scale=5.0)
    features = torch.tensor([[0.3, -0.7]])
    torch.testing.assert_close(head(features), longer(10 * features))


def test_growing_keeps_old_weights_and_scale() -> None:
    head = head_with([[1.0, 2.0]], scale=7.0)
    head.grow(3)
    assert head.classes == 4
    assert head.weight[0].tolist() == [1.0, 2.0]
    assert head.weight.requires_grad
    assert head.scale.item() == 7.0
    assert len({tuple(row) for row in head.weight.tolist()}) == 4


def test_linear_head_by_hand() -> None:
    head = LinearHead(2, 0.5, bias=True)
    head.grow(2)
    assert head.bias is not None
    assert head.bias.tolist() == [0.0, 0.0]
    head.weight, head.bias = (
        nn.Parameter(torch.tensor([[3.0, 4.0], [-1.0, 0.0]])),
        nn.Parameter(torch.tensor([0.0, 2.0])),
    )
    features = torch.tensor([[1.0, 2.0]])
    # dot products 11 and -1, halved, and a bias
    torch.testing.assert_close(head(features), torch.tensor([[5.5, 1.5]]))
    torch.testing.assert_close(head.logits(features, torch.tensor([[2.0, 1.0]])), torch.tensor([[2.0]]))
    head.grow(1)
    torch.testing.assert_close(head(features)[:, :2], torch.tensor([[5.5, 1.5]]))
    assert head.bias[2].item() == 0


def test_growing_by_no_classes_changes_nothing() -> None:
    head = head_with([[1.0, 2.0]], scale=7.0)
    head.grow(0)
    assert head.weight.tolist() == [[1.0, 2.0]]
