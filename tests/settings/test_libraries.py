"""Names of other libraries' backbones, and what a model keeps about one."""

from __future__ import annotations

from typing import Any

import pytest

from cotransport.errors import ConfigError
from cotransport.settings.libraries import LibraryName, LibraryRecord, parse_library_name
from cotransport.settings.sections import Backbone, check_backbone_name, is_pretrained_name
from cotransport.settings.validation import validated

RECORD: dict[str, Any] = {
    "library": "transformers",
    "model": "vit",
    "config": {"hidden_size": 8, "depths": [1, 2]},
    "weights": "owner/name@0123",
    "sha256": "0" * 64,
    "image_size": 224,
    "crop": 0.875,
    "mean": [1, 2, 3],
    "deviation": [4, 5, 6],
}


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("timm:resnet18.a1_in1k", ("timm", "resnet18.a1_in1k", None)),
        ("timm:resnet18", ("timm", "resnet18", None)),
        ("torchvision:resnet18@IMAGENET1K_V1", ("torchvision", "resnet18", "IMAGENET1K_V1")),
        ("hf:microsoft/resnet-18@v1.0", ("hf", "microsoft/resnet-18", "v1.0")),
        ("hf:gpt2@0123abc", ("hf", "gpt2", "0123abc")),
        ("folder:../my models/ü: 1", ("folder", "../my models/ü: 1", None)),
    ],
)
def test_a_name_has_parts(name: str, parts: tuple[str, str, str | None]) -> None:
    assert parse_library_name(name) == LibraryName(*parts)
    assert is_pretrained_name(name)
    check_backbone_name(Backbone(name=name))


@pytest.mark.parametrize("name", ["resnet18", "fast", "other:resnet18", "C:/models"])
def test_other_names_are_not_of_a_library(name: str) -> None:
    assert parse_library_name(name) is None
    assert not is_pretrained_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *("timm:", "timm:hf-hub:owner/evil", "timm:local-dir:/tmp", "timm:a/b", "timm:a.b.c", "timm:../a", "timm:a\n"),
        *("torchvision:resnet18", "torchvision:resnet18@", "torchvision:a@b", "torchvision:a.b@V1"),
        *("hf:owner/name", "hf:owner/name@", "hf:../name@v1", "hf:a/b/c@v1", "hf:owner/name@../v1", "hf:a@v1/b"),
        "folder:",
    ],
)
def test_a_wrong_name_is_refused_with_the_right_form(name: str) -> None:
    with pytest.raises(ConfigError, match=r"backbone\.name: .*: write (timm|torchvision|hf|folder):.*, such as"):
        parse_library_name(name)


@pytest.mark.parametrize("name", ["hf:owner/name@main", "torchvision:resnet18@DEFAULT"])
def test_weights_that_may_change_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="may stand for other weights later"):
        parse_library_name(name)


def test_a_record_comes_back_from_plain_values() -> None:
    record = validated(LibraryRecord, RECORD, "record")
    assert validated(LibraryRecord, record.model_dump(mode="json"), "record") == record


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"library": "os"}, "library: 'os' is not allowed"),
        ({"model": "../evil"}, "model"),
        ({"sha256": "0"}, "sha256"),
        ({"image_size": 10**6}, "image_size"),
        ({"deviation": [1, 0, 1]}, r"deviation\.1"),
        ({"config": {"hidden_size": 10**9}}, "config: a number above 100,000"),
        ({"config": {"drop": float("nan")}}, "config: a number above 100,000"),
        ({"config": {"depths": [1] * 1000}}, "config: more than 500 values"),
        ({"config": {"name": "x" * 1000}}, "config: a text of more than 100 characters"),
        ({"config": {"x": {"y": {1, 2}}}}, "config: a value that is not a number"),
    ],
)
def test_a_record_has_limits(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        validated(LibraryRecord, RECORD | change, "record")


def test_only_a_librarys_network_has_a_record() -> None:
    assert validated(Backbone, {"name": "timm:vit", "library": RECORD}, "backbone").library is not None
    with pytest.raises(ConfigError, match="library: resnet8 is not a network of another library"):
        validated(Backbone, {"name": "resnet8", "library": RECORD}, "backbone")
