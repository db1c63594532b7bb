"""What a model folder says of itself, and going back to another version. Neither waits for torch."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from torch import nn

from cotransport.errors import ModelError
from cotransport.lessons.information import describe, rollback
from cotransport.model.store import ModelStore
from tests.conftest import blobs, classifier
from tests.imports import imported
from tests.lessons.helpers import learn, stop_after_an_epoch, write
from tests.model.helpers import accept

HEAVY = ["torch", "numpy", "lightning_fabric", "sklearn", "pyarrow", "PIL"]
FORMAT_1 = Path(__file__).parent.parent / "models" / "format-1" / "model"


class TestDescribe:
    def test_names_classes_settings_and_sizes(self, model: Path) -> None:
        facts = describe(model)
        assert facts["current"] == 2
        assert facts["classes"] == [f"class {number}" for number in range(4)]
        assert (facts["method"], facts["backbone"], facts["image_size"]) == ("COIL (tuned)", "resnet8", 8)
        assert (facts["exemplars"], facts["held_out"], facts["unfinished"]) == (16, 8, None)
        files = [path for path in model.rglob("*.*") if path.is_file() and path.name not in {".lock", "manifest.json"}]
        assert facts["bytes"] == sum(path.stat().st_size for path in files)

    @pytest.mark.parametrize("file", ["weights.safetensors", "model.json", "metrics.json"])
    def test_finds_files_of_another_size(self, file: str, model: Path) -> None:
        path = model / "versions" / "0001" / file
        path.write_bytes(path.read_bytes() + b" ")
        damaged = [one["damaged"] for one in describe(model)["versions"]]
        assert damaged[0] is not None
        assert f"{file}: damaged (its size differs)" in damaged[0]
        assert damaged[1] is None

    def test_lists_the_versions(self, model: Path) -> None:
        versions = describe(model)["versions"]
        assert [(one["version"], one["parent"], one["classes"]) for one in versions] == [(1, None, 2), (2, 1, 4)]
        assert [one["new_classes"] for one in versions] == [["class 0", "class 1"], ["class 2", "class 3"]]
        assert [(one["exemplars"], one["held_out"]) for one in versions] == [(8, 4), (16, 8)]
        assert [one["refused"] for one in versions] == [one["damaged"] for one in versions] == [None, None]
        assert all(one["accuracy"] is not None for one in versions)

    def test_the_accuracy_that_a_lesson_lost_is_called_forgetting(self, model: Path) -> None:
        """The key is part of the command's JSON."""
        store = ModelStore(model)
        metrics = [store.metrics(store.manifest().version(number)) for number in (1, 2)]
        assert [one["forgetting"] for one in describe(model)["versions"]] == [None, metrics[1]["forgetting"]]

    def test_is_plain_json(self, model: Path) -> None:
        assert json.loads(json.dumps(describe(model))) == describe(model)

    def test_a_version_that_was_saved_from_python_has_no_report(self, tmp_path: Path) -> None:
        clf = classifier("replay").set_params(backbone=nn.Sequential(nn.Flatten(), nn.Linear(192, 4)))
        clf.learn(blobs(2, 4)).save(tmp_path / "m")
        facts = describe(tmp_path / "m")
        assert facts["backbone"] == "a custom module"
        assert (facts["versions"][0]["accuracy"], facts["versions"][0]["forgetting"]) == (None, None)

    def test_a_damaged_version_does_not_hide_the_others(self, model: Path, tmp_path: Path) -> None:
        rollback(model)
        (model / "versions" / "0002" / "metrics.json").write_text("{}")
        versions = describe(model)["versions"]
        assert versions[0]["damaged"] is None
        assert "0002/metrics.json: damaged" in versions[1]["damaged"]
        assert learn(model, write(blobs(1, 20, first=8), tmp_path / "new")).version == 3
        with pytest.raises(ModelError, match=r"0002/metrics\.json"):
            rollback(model, 2)

    def test_a_damaged_current_version_does_not_hide_the_others(self, model: Path) -> None:
        (model / "versions" / "0002" / "model.json").write_text("{}")
        facts = describe(model)
        assert (facts["current"], facts["method"], facts["image_size"], facts["classes"]) == (2, None, None, [])
        assert [one["damaged"] is None for one in facts["versions"]] == [True, False]
        assert "0002/model.json: damaged" in facts["versions"][1]["damaged"]

    @pytest.mark.parametrize("backbone", [3, {"name": "fast", "wings": 2}])
    def test_settings_that_cannot_be_used_are_the_models_fault(self, backbone: object, model: Path) -> None:
        path = model / "versions" / "0002" / "model.json"
        values = json.loads(path.read_text())
        path.write_text(json.dumps(values | {"settings": values["settings"] | {"backbone": backbone}}))
        accept(model, path)
        with pytest.raises(ModelError, match="the model's settings cannot be used: backbone"):
            describe(model)

    def test_an_unfinished_lesson_is_named(self, beginner: Path, second: Path) -> None:
        stop_after_an_epoch(beginner, second)
        assert describe(beginner)["unfinished"] == str(second)
        (beginner / "unfinished" / "job.json").write_text("{")
        assert describe(beginner)["unfinished"] is None

    def test_imports_no_torch(self) -> None:
        script = f"""
from pathlib import Path
from cotransport.lessons.information import describe
assert describe(Path({str(FORMAT_1)!r}))["current"] == 2"""
        assert imported(script, HEAVY) == []


class TestRollback:
    def test_goes_back_and_forward(self, model: Path) -> None:
        assert rollback(model) == (2, 1)
        assert describe(model)["current"] == 1
        with pytest.raises(ModelError, match="version 1 is the first one"):
            rollback(model)
        assert rollback(model, 2) == (1, 2)
        assert rollback(model, 2) == (2, 2)
        with pytest.raises(ModelError, match="there is no version 7"):
            rollback(model, 7)

    def test_version_0_is_the_model_before_its_first_lesson(self, model: Path, second: Path) -> None:
        assert rollback(model, 0) == (2, 0)
        facts = describe(model)
        assert (facts["current"], facts["classes"], len(facts["versions"])) == (None, [], 2)
        with pytest.raises(ModelError, match="no version is current"):
            rollback(model)
        started = learn(model, second)
        assert (started.version, started.parent) == (3, None)
        assert describe(model)["classes"] == ["class 2", "class 3"]
        assert rollback(model, 0) == (3, 0)
        assert rollback(model, 2) == (0, 2)

    def test_makes_no_lock_where_there_is_no_model(self, tmp_path: Path) -> None:
        (tmp_path / "photos").mkdir()
        with pytest.raises(ModelError, match="not a model"):
            rollback(tmp_path / "photos")
        assert not list((tmp_path / "photos").iterdir())

    def test_imports_no_torch(self, tmp_path: Path) -> None:
        model = Path(shutil.copytree(FORMAT_1, tmp_path / "m"))
        script = f"""
from pathlib import Path
from cotransport.lessons.information import rollback
assert rollback(Path({str(model)!r})) == (2, 1)"""
        assert imported(script, HEAVY) == []
        assert describe(model)["current"] == 1
