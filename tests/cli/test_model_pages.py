"""The pages about a model as a user asks for them."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from tests.cli.helpers import Command
from tests.conftest import blobs
from tests.lessons.helpers import learn, write
from tests.model.helpers import damage


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model after a lesson. Do not change it."""
    folder = tmp_path_factory.mktemp("taught")
    learn(folder / "pets", write(blobs(2, 20), folder / "first"))
    return folder / "pets"


@pytest.fixture
def model(taught: Path, tmp_path: Path) -> Path:
    """A copy of the model, called pets."""
    return Path(shutil.copytree(taught, tmp_path / "pets"))


def files_in(folder: Path) -> dict[str, str]:
    """The digests of all files."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.usefixtures("model")
class TestReport:
    def test_the_page_is_beside_the_model(self, cotransport: Command) -> None:
        before = files_in(Path("pets"))
        code, printed = cotransport("report", "pets")
        assert (code, "report: pets-report.html" in printed) == (0, True)
        assert "pets knows 2 classes" in Path("pets-report.html").read_text(encoding="utf-8")
        assert files_in(Path("pets")) == before

    def test_from_inside_the_model_too(self, cotransport: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir("pets")
        code, _ = cotransport("report", ".")
        assert code == 0
        assert Path("../pets-report.html").is_file()

    @pytest.mark.parametrize(("out", "page"), [("new/there", "new/there/report.html"), ("new/a.html", "new/a.html")])
    def test_the_page_can_be_elsewhere(self, out: str, page: str, cotransport: Command) -> None:
        code, printed = cotransport("report", "pets", "--out", out)
        assert (code, f"report: {page}" in printed) == (0, True)
        assert Path(page).is_file()

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["pets", "--out", "pets"], "inside the model folder"),
            (["pets", "--out", "pets/a.html"], "inside the model folder"),
            (["pets", "--archive", "all.json"], "Give only its folder"),
            (["pets", "elsewhere"], "Give only its folder"),
        ],
    )
    def test_mistakes(self, words: list[str], message: str, cotransport: Command) -> None:
        before = files_in(Path("pets"))
        code, printed = cotransport("report", *words)
        assert (code, message in printed) == (2, True)
        assert files_in(Path("pets")) == before

    def test_a_damaged_version_is_named(self, cotransport: Command) -> None:
        damage(Path("pets/versions/0001/weights.safetensors"), "changed")
        code, printed = cotransport("report", "pets")
        assert (code, "weights.safetensors: damaged or changed" in printed) == (2, True)
        assert not Path("pets-report.html").exists()


@pytest.mark.usefixtures("model")
class TestImages:
    def test_the_page_is_beside_the_model(self, cotransport: Command) -> None:
        code, printed = cotransport("images", "pets")
        assert (code, "images: pets-images.html" in printed) == (0, True)
        assert "pets keeps 12 images of 2 classes" in Path("pets-images.html").read_text(encoding="utf-8")

    def test_json_lists_the_ids(self, cotransport: Command) -> None:
        _, printed = cotransport("images", "pets", "--class", "class 1", "--json")
        images = json.loads(printed)
        assert [sorted(image) for image in images] == [["class", "exemplar_in", "file", "held_out_in", "id"]] * 6
        assert {image["class"] for image in images} == {"class 1"}
        assert [image["exemplar_in"] for image in images] == [[1]] * 4 + [[]] * 2
        digests = {
            hashlib.sha256(repr((8, 8, 3)).encode() + Image.open(path).tobytes()).hexdigest()[:12]
            for path in blob_files()
        }
        assert {image["id"] for image in images} <= digests

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["--class", "owl"], "no image of this class is stored"),
            (["--out", "pets/i.html"], "inside the model folder"),
        ],
    )
    def test_mistakes(self, words: list[str], message: str, cotransport: Command) -> None:
        code, printed = cotransport("images", "pets", *words)
        assert (code, message in printed) == (2, True)
        assert not Path("pets-images.html").exists()


def blob_files() -> list[Path]:
    """The images of the lesson as files."""
    return sorted(write(blobs(2, 20), Path("again")).rglob("*.png"))
