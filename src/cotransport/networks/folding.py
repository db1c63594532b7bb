"""Fold batch norms into convolutions, so that a frozen network takes less time for the same features."""

from __future__ import annotations

from collections import Counter

from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from cotransport.networks.efficientnet_lite import SamePadding


class _Tracer(fx.Tracer):
    """Does not look into padding, which depends on the image's size."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, SamePadding) or super().is_leaf_module(m, module_qualified_name)


def fold_batch_norms(backbone: nn.Module) -> nn.Module:
    """A backbone in evaluation mode, with batch norms folded into convolutions. Unchanged if it cannot be traced."""
    try:
        traced = fx.GraphModule(backbone, _Tracer().trace(backbone))
    except Exception:  # a user's module may contain anything
        return backbone
    calls = Counter(node.target for node in traced.graph.nodes if node.op == "call_module")
    for node in list(traced.graph.nodes):
        before = node.args[0] if node.op == "call_module" and node.args else None
        if not isinstance(before, fx.Node) or before.op != "call_module" or len(before.users) > 1:
            continue
        convolution, norm = (traced.get_submodule(str(place.target)) for place in (before, node))
        # a subclass, or a module with hooks, may compute something else
        plain = type(convolution) is nn.Conv2d and not convolution._forward_pre_hooks and not convolution._forward_hooks
        if not plain or type(norm) is not nn.BatchNorm2d or norm.running_mean is None:
            continue
        if calls[before.target] > 1 or calls[node.target] > 1:  # used in several places
            continue
        assert isinstance(convolution, nn.Conv2d)
        traced.set_submodule(str(before.target), fuse_conv_bn_eval(convolution, norm))
        node.replace_all_uses_with(before)
        traced.graph.erase_node(node)
    traced.recompile()
    traced.delete_all_unused_submodules()
    return traced
