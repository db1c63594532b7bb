"""A classifier as a snapshot for the model folder, and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from cotransport.errors import ConfigError, ModelError
from cotransport.learner.learning import learned
from cotransport.learner.prediction import Predictor
from cotransport.learner.settings import LearnerSettings
from cotransport.learner.snapshots import restored, snapshot_of
from cotransport.learner.state import State
from cotransport.settings.sections import Device, PredictionSettings, Schedule, View
from tests.conftest import blobs
from tests.learner.helpers import learner_settings, module

QUICK = Schedule(epochs=1, batch_size=16)
CPU = Device(accelerator="cpu")


@pytest.fixture(scope="module", params=["coil", "icarl", "bic"])
def known(request: pytest.FixtureRequest) -> tuple[State, LearnerSettings]:
    """Two tasks, learned by several methods."""
    settings = learner_settings(request.param, schedule=QUICK)
    first = learned(None, blobs(2, 8), settings)
    return learned(first, blobs(2, 8, first=2), settings), settings


def test_everything_that_was_learned_comes_back(known: tuple[State, LearnerSettings]) -> None:
    state, settings = known
    again, same_settings = restored(snapshot_of(state, settings), device=CPU)
    assert same_settings == settings
    assert (again.classes, again.task_sizes, again.image_size) == (state.classes, state.task_sizes, state.image_size)
    assert again.memory is state.memory
    assert again.built_from() == state.built_from()
    assert not again.network.training
    test = blobs(4, 3, seed=5)
    found, expected = (Predictor(one, settings).probabilities(test) for one in (again, state))
    np.testing.assert_array_equal(found, expected)


def test_what_comes_back_learns_on_like_the_original(known: tuple[State, LearnerSettings]) -> None:
    state, settings = known
    again, _ = restored(snapshot_of(state, settings), device=CPU)
    one, two = (learned(before, blobs(1, 8, first=5), settings).network.state_dict() for before in (state, again))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_snapshot_has_plain_settings_and_the_plan(known: tuple[State, LearnerSettings]) -> None:
    state, settings = known
    snapshot = snapshot_of(state, settings)
    assert snapshot.settings == settings.plain()
    assert ("plan" in snapshot.tensors) == (state.plan is not None) == settings.method.transports
    assert len(snapshot.held_out) == 0
    assert snapshot.metrics == {}


@pytest.mark.parametrize("view", [View(), View(crop=0.5), View(fit="pad"), View(0.9, "stretch")])
def test_features_come_back_with_what_was_seen(view: View) -> None:
    prediction = PredictionSettings(crop=view.crop, fit=view.fit)
    settings = learner_settings(backbone=module(), freeze_backbone=True, schedule=QUICK, prediction=prediction)
    snapshot = snapshot_of(learned(None, blobs(2, 8), settings), settings)
    again, _ = restored(snapshot, backbone=module(), device=CPU)
    assert again.features is not None
    assert again.features.view == view
    for wrong in (torch.tensor(3, dtype=torch.uint8), torch.tensor(0.0), torch.zeros(2, dtype=torch.uint8)):
        damaged = replace(snapshot, tensors={**snapshot.tensors, "features.fit": wrong})
        with pytest.raises(ModelError, match="do not say what was seen"):
            restored(damaged, backbone=module(), device=CPU)


def test_a_device_may_be_chosen_anew(known: tuple[State, LearnerSettings]) -> None:
    device = Device(accelerator="cpu", workers=0)
    assert restored(snapshot_of(*known), device=device)[1].device is device


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": {"name": "nonsense"}}, "'nonsense' is not a method"),
        ({"backbone": {"name": "fast", "width": 10**9}}, "larger than the stored weights"),
        ({"backbone": {"name": "fast", "width": 10**5}}, "larger than the stored weights"),
        ({"backbone": {"name": "resnet9"}}, "'resnet9' is not known"),
        ({"surprise": 1}, "'surprise', which belongs to a later release"),
        ({"seed": "x"}, "seed: give a whole number"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings: dict[str, Any], message: str) -> None:
    own = learner_settings(schedule=QUICK)
    one = snapshot_of(learned(None, blobs(2, 4), own), own)
    with pytest.raises(ModelError, match=message):
        restored(replace(one, settings={**one.settings, **settings}))


def test_weights_that_cannot_be_used_are_refused() -> None:
    own = learner_settings(schedule=QUICK)
    one = snapshot_of(learned(None, blobs(2, 4), own), own)
    weight = one.tensors["network.head.weight"]
    for change, message in (
        ({"network.head.weight": weight * float("nan")}, "not numbers"),
        ({"network.head.weight": weight.to(torch.float8_e4m3fn)}, "mixed or unsupported dtypes"),
        ({"network.head.weight": torch.zeros(2, 3)}, r"do not fit the network, first at 'head\.weight'"),
        ({"network.more": torch.zeros(1)}, "do not fit the network, first at 'more'"),
    ):
        with pytest.raises(ModelError, match=message):
            restored(replace(one, tensors={**one.tensors, **change}))


def test_a_users_own_module_is_given_again() -> None:
    settings = learner_settings(backbone=module(), schedule=QUICK)
    state = learned(None, blobs(2, 6), settings)
    snapshot = snapshot_of(state, settings)
    with pytest.raises(ModelError, match=r"load\(\.\.\., backbone=module\)"):
        restored(snapshot)
    with pytest.raises(ConfigError, match="give the torch module"):
        restored(snapshot, backbone="resnet8")  # type: ignore[arg-type]
    again, own = restored(snapshot, backbone=module(seed=1), device=CPU)
    test = blobs(2, 3)
    assert torch.equal(Predictor(again, own).decision(test), Predictor(state, settings).decision(test))
