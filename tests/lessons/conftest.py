"""Folders of images, and models that were taught with them. Tests get copies."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conftest import blobs
from tests.lessons.helpers import write


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """Images of two classes."""
    return write(blobs(2, 20), tmp_path / "first")


@pytest.fixture
def second(tmp_path: Path) -> Path:
    """Images of two other classes."""
    return write(blobs(2, 20, first=2, seed=1), tmp_path / "second")


@pytest.fixture
def beginner(taught_models: Path, tmp_path: Path) -> Path:
    """A model that has learned the images in `first`."""
    return Path(shutil.copytree(taught_models / "one", tmp_path / "m"))


@pytest.fixture
def model(taught_models: Path, tmp_path: Path) -> Path:
    """A model that has learned the images in `first`, and then those in `second`."""
    return Path(shutil.copytree(taught_models / "two", tmp_path / "m"))
