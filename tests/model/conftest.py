"""A model folder that many tests of this folder damage, each in a copy of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conftest import blobs, classifier


@pytest.fixture(scope="session")
def learned_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with two versions of a classifier. Do not change it."""
    folder = tmp_path_factory.mktemp("learned") / "model"
    clf = classifier("coil").learn(blobs(2, 8))
    clf.save(folder)
    clf.learn(blobs(2, 8, first=2)).save(folder)
    return folder


@pytest.fixture
def model(learned_model: Path, tmp_path: Path) -> Path:
    """A copy of the model folder, for one test."""
    return Path(shutil.copytree(learned_model, tmp_path / "model"))
