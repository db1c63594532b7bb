"""Replay: cross-entropy on new images and exemplars together (Eq. 1)."""

from __future__ import annotations

from cotransport.methods.base import Method


class Replay(Method):
    """Cross-entropy on new images and exemplars."""

    name = "replay"
    title = "Replay"
