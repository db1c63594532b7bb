"""Networks: backbones that map images to features, and heads that map features to logits."""
