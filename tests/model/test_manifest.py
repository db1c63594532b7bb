"""The records of a model folder: what they accept, and the checksum that protects them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from pydantic import ValidationError

from cotransport.errors import ModelError
from cotransport.model.manifest import (
    LONGEST_NAME,
    FileRecord,
    ImageRows,
    Manifest,
    ModelRecord,
    VersionRecord,
    seal,
)

VERSION = {"number": 1, "parent": None, "files": {}, "images": [1], "made": "2026-01-01T00:00:00+00:00"}
MODEL: dict[str, Any] = {
    "release": "0.1.0",
    "classes": ["a", "b"],
    "task_sizes": [2],
    "image_size": 8,
    "settings": {},
    "exemplars": [],
    "held_out": [],
}


class TestSeal:
    def test_is_the_hash_of_all_values_but_itself(self) -> None:
        expected = hashlib.sha256(b'{"current": 1, "format": 1}').hexdigest()
        assert seal({"format": 1, "current": 1, "checksum": "of an earlier manifest"}) == expected
        assert seal({"current": 1, "format": 1}) == expected  # in any order

    def test_covers_keys_of_later_releases(self) -> None:
        assert seal({"current": 1, "later": 2}) != seal({"current": 1})


class TestManifest:
    def test_gives_a_version_by_its_number(self) -> None:
        versions = [VersionRecord(**(VERSION | {"number": number})) for number in (1, 3)]
        manifest = Manifest(current=3, versions=versions)
        assert manifest.version(3) is versions[1]
        with pytest.raises(ModelError, match=r"there is no version 2. Versions: 1, 3"):
            manifest.version(2)
        with pytest.raises(ModelError, match="Versions: none"):
            Manifest().version(1)

    def test_cannot_be_changed(self) -> None:
        with pytest.raises(ValidationError, match="frozen"):
            Manifest().current = 2  # type: ignore[misc]

    def test_ignores_what_a_later_release_has_added(self) -> None:
        record = Manifest.model_validate({"current": 1, "later": True, "versions": [VERSION | {"later": 1}]})
        assert record.version(1).number == 1

    @pytest.mark.parametrize(
        "wrong",
        [
            {"current": 0},
            {"current": 10**6},
            {"current": "1"},
            {"format": -1},
            {"versions": [VERSION | {"number": 0}]},
            {"versions": [VERSION | {"images": [0]}]},
            {"images": {"0": {"sha256": "", "bytes": 1}}},
            {"images": {"../1": {"sha256": "", "bytes": 1}}},
            {"images": {"1": {"sha256": "", "bytes": -1}}},
            {"images": {"1": {"sha256": "", "bytes": 2**63}}},
        ],
    )
    def test_refuses_numbers_that_no_folder_has(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(ValidationError):
            Manifest.model_validate(wrong)


class TestModelRecord:
    def test_class_names_are_strings_or_whole_numbers_never_both(self) -> None:
        assert ModelRecord.model_validate(MODEL).classes == ["a", "b"]
        assert ModelRecord.model_validate(MODEL | {"classes": [7, 3]}).classes == [7, 3]
        with pytest.raises(ValidationError):
            ModelRecord.model_validate(MODEL | {"classes": ["a", 3]})

    @pytest.mark.parametrize(
        "wrong",
        [
            {"classes": ["a" * (LONGEST_NAME + 1), "b"]},
            {"image_size": 0},
            {"image_size": 8193},
            {"task_sizes": [-1]},
            {"exemplars": [{"pixels": True, "rows": [[0, 0, 1]]}]},
            {"exemplars": [{"pixels": True, "rows": [[1, -1, 1]]}]},
            {"exemplars": [{"pixels": True, "rows": [[1, 0]]}]},
            {"exemplars": [{"pixels": "yes", "rows": []}]},
        ],
    )
    def test_refuses_what_no_version_has(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(ValidationError):
            ModelRecord.model_validate_json(json.dumps(MODEL | wrong))


@pytest.mark.parametrize(
    "record",
    [
        FileRecord(sha256="ab", bytes=3),
        ImageRows(pixels=True, rows=[(1, 0, 5), (2, 3, 1)]),
        Manifest(current=1, versions=[VersionRecord(**VERSION)], images={"1": FileRecord(sha256="ab", bytes=3)}),
    ],
)
def test_what_is_written_is_read(record: FileRecord | ImageRows | Manifest) -> None:
    assert type(record).model_validate_json(record.model_dump_json()) == record
