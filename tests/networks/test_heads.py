import torch
from torch import nn

from cotransport.networks.heads import ClippedHead, CorrectedHead, CosineHead, DiscriminantHead, LinearHead


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


class TestKeep:
    KEPT = torch.tensor([0, 2])

    def test_rows_of_every_head(self) -> None:
        features = torch.tensor([[1.0, 2.0], [-0.5, 3.0]])
        for head in (CosineHead(2, 10.0), LinearHead(2, bias=True), LinearHead(2), ClippedHead(2), CorrectedHead(2)):
            head.grow(3)
            for number, name in enumerate(("bias", "alpha", "beta")):
                if getattr(head, name, None) is not None:
                    getattr(head, name).data.copy_(torch.arange(3.0) + number)
            before = head.eval()(features)
            head.keep(self.KEPT)
            assert head.classes == 2
            assert head.weight.requires_grad
            torch.testing.assert_close(head(features), before[:, self.KEPT])
            head.grow(1)
            torch.testing.assert_close(head(features)[:, :2], before[:, self.KEPT])

    def test_a_discriminant_is_the_one_that_never_saw_the_class(self) -> None:
        """Each class has the same deviations from its mean, so the same covariance, as the discriminant assumes."""
        deviations = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.5, 2.0], [-0.5, -2.0]], dtype=torch.float64)
        means = torch.tensor([[4.0, 1.0], [-3.0, 2.0], [0.0, -5.0]], dtype=torch.float64)
        features, labels = (means[:, None] + deviations).flatten(0, 1), torch.arange(3).repeat_interleave(4)
        whole, never = DiscriminantHead(2), DiscriminantHead(2)
        whole.grow(3)
        never.grow(2)
        whole.observe(features, labels)
        never.observe(features[labels != 1], labels[labels != 1] // 2)
        for head in (whole, never):
            head.solve(0.3)
        whole.keep(self.KEPT)
        ours, theirs = whole.state_dict(), never.state_dict()
        assert ours.keys() == theirs.keys()
        for name in ours:
            torch.testing.assert_close(ours[name], theirs[name])
        whole.solve(0.3)
        torch.testing.assert_close(whole.weight, never.weight)

    def test_of_a_discriminant_the_covariance_stays(self) -> None:
        """Also if the removed class is spread more than the others: what it added cannot be told."""
        torch.manual_seed(0)
        labels = torch.arange(3).repeat_interleave(10)
        features = torch.randn(30, 4) * torch.tensor([1.0, 5.0, 1.0])[labels, None] + 3 * labels[:, None]
        head = DiscriminantHead(4)
        head.grow(3)
        head.observe(features, labels)
        head.solve(0.5)
        before = head(features)
        head.keep(self.KEPT)
        head.solve(0.5)
        torch.testing.assert_close(head(features), before[:, self.KEPT], rtol=1e-4, atol=1e-4)
