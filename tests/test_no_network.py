"""Work on local data opens no network connection and looks no host up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import datasets
import pytest
from PIL import Image

from tests.conftest import blobs
from tests.lessons.helpers import write

pytestmark = pytest.mark.slow
GUARD = """
import socket

def refuse(*arguments, **options):
    raise SystemExit(f"a network connection: {arguments}")

socket.getaddrinfo = socket.gethostbyname = socket.socket.connect = socket.socket.connect_ex = refuse
"""
"""Python runs a module of this name at its start."""


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return write(blobs(2, 6), tmp_path / "photos")


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    kinds = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    images = [Image.new("RGB", (8, 8), (10 * number, 0, 0)) for number in range(12)]
    folder = tmp_path / "table"
    (folder / "data").mkdir(parents=True)
    rows = datasets.Dataset.from_dict({"image": images, "label": [0, 1] * 6}, features=kinds)
    rows.to_parquet(folder / "data" / "train-0.parquet")
    return folder


def test_the_commands_stay_local(tmp_path: Path, photos: Path, parquet: Path) -> None:
    (tmp_path / "guard").mkdir()
    (tmp_path / "guard" / "sitecustomize.py").write_text(GUARD)
    paths = os.pathsep.join([str(tmp_path / "guard"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "HF_HOME": str(tmp_path / "hf")}

    def cotransport(*words: object) -> str:
        command = [sys.executable, "-m", "cotransport", *map(str, words)]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        return done.stderr if done.returncode else ""

    digits = ("--set", "methods=[replay]", "--set", "stream={subset: 4, tasks: 2}", "--set", "schedule.epochs=1")
    assert cotransport("learn", "model", photos, "--epochs", 1) == ""
    assert cotransport("learn", "model", parquet, "--epochs", 1) == ""
    assert cotransport("predict", "model", photos) == ""
    assert cotransport("report", "model") == ""
    assert cotransport("run", "digits", *digits, "--out", "runs") == ""
    assert cotransport("report", "runs") == ""
    assert "a network connection" in cotransport("run", "digits", "--data", "some/set", "--out", "hub")  # it would tell
