"""What comes before and after the learning of a lesson, the same for the command and for Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from cotransport.data import LabelledImages
from cotransport.data.memory import Memory
from cotransport.data.splits import Splits
from cotransport.learner.choice import Way
from cotransport.learner.first_network import choose_network, later_network
from cotransport.learner.held_out import divide, merge_held_out, resized, without_kept
from cotransport.learner.lesson_settings import lesson_fit, lesson_settings
from cotransport.learner.settings import LearnerSettings
from cotransport.learner.state import State
from cotransport.learner.suggestions import suggest
from cotransport.learner.wording import WHOLE_IMAGE, unseen_note
from cotransport.settings.sections import Device
from cotransport.training.feature_cache import FeatureCache, digests_of
from cotransport.training.listener import Listener
from cotransport.training.processes import processes_for


class Preparation(NamedTuple):
    """The images and settings of a lesson."""

    settings: LearnerSettings
    train: LabelledImages
    """Images to train on, in the size that the network sees."""
    test: LabelledImages
    """Images to hold out, in the same size."""
    features: FeatureCache | None
    """Features that are known already."""


def prepare(
    images: Splits,
    before: tuple[State, LearnerSettings] | None,
    chosen: Mapping[str, Any],
    *,
    held_out: float,
    device: Device,
    listener: Listener,
    decided: Way | None = None,
) -> Preparation:
    """Divide a lesson's images, and choose its settings.

    images : in their own size.
    before : the state and settings so far; None before the first lesson.
    chosen : the user's settings. The others are suggested from the images.
    held_out : share of each new class that is held out; 0 for none.
    decided : how the network was chosen when the same lesson was started before, which is kept.
    """
    is_gpu = processes_for(device).device.type != "cpu"
    state = None if before is None else before[0]
    known, kept, exemplars = ((), Memory(), 0) if state is None else (state.classes, state.held_out, len(state.memory))
    if state is not None:
        images = without_kept(images, known, state.held_out, state.memory)
    divided = divide(images, known, kept, held_out)
    fit = lesson_fit(None if before is None else before[1], chosen)
    if before is None:
        if (unseen := unseen_note(divided.train.images, fit)) is not None:
            listener.note(unseen, WHOLE_IMAGE)
        network = choose_network(divided.train, chosen, device, decided, is_gpu=is_gpu, listener=listener)
    else:
        network = later_network(before[1], before[0].image_size, chosen)
    train, test = (resized(part, network.image_size, fit) for part in divided)
    usual = suggest(train, exemplars, is_gpu=is_gpu, is_fine_tuned=network.is_fine_tuned)
    suggestion = {**usual, **network.suggestion}
    settings = lesson_settings(None if before is None else before[1], chosen, suggestion, device)
    return Preparation(settings, train, test, network.features)


def with_held_out(state: State, test: LabelledImages, settings: LearnerSettings) -> State:
    """The state after a lesson with the images that the lesson holds out.

    If the backbone is frozen, it has the features of its exemplars and held-out images, and of no others.
    """
    state = replace(state, held_out=merge_held_out(state.held_out, test, state.classes))
    if state.features is None:
        return state
    kept: set[bytes] = set()
    for memory in (state.memory, state.held_out):
        images = memory.labelled(state.classes)
        if images is not None:
            state.features.features(state.network, images.images, settings.device)
            kept.update(digests_of(images.images))
    return replace(state, features=state.features.only(kept))
