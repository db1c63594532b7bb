"""Whatever the input is, only the package's own errors are raised.

The cases are the same in every run. With FUZZ=10 in the environment, there are ten times as many, and new ones each
time.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from cotransport import IncrementalClassifier
from cotransport.cli import owning as model_commands
from cotransport.data.decoding import Encoded, decode, image_size
from cotransport.errors import CotransportError
from cotransport.experiments.bundled import bundled_recipes
from cotransport.experiments.recipe import load_recipe
from cotransport.lessons.comparison import evaluate
from cotransport.lessons.information import rollback
from cotransport.model.manifest import seal
from tests.conftest import blobs
from tests.model.helpers import accept

pytestmark = pytest.mark.fuzz
OLD = Path(__file__).parent / "models" / "format-1" / "model"


def cases(examples: int) -> Callable[[Any], Any]:
    """The given number of cases, always the same; with FUZZ, more of them, and always others."""
    more = int(os.environ.get("FUZZ", "1"))
    return settings(
        max_examples=examples * more,
        deadline=None,
        derandomize=more == 1,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def mutated(content: bytes, changes: list[tuple[int, int]], cut: int | None) -> bytes:
    """Bytes with some of them replaced, and possibly truncated."""
    changed = bytearray(content)
    for position, value in changes:
        changed[position % len(changed)] = value
    return bytes(changed if cut is None else changed[: cut % len(changed)])


changes = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=12)
early_changes = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=6)
cuts = st.none() | st.integers(1, 10**6)
scalars = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=6)
trees = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


@cache
def pictures() -> list[bytes]:
    """A small image in each format."""
    random = np.random.RandomState(0)
    found = []
    for form, mode in (
        ("PNG", "RGB"), ("PNG", "P"), ("PNG", "I;16"), ("PNG", "RGBA"), ("JPEG", "RGB"), ("JPEG", "CMYK"), ("GIF", "P"),
        ("BMP", "RGB"), ("TIFF", "RGB"), ("TIFF", "L"), ("WEBP", "RGB"), ("PPM", "RGB"),
    ):  # fmt: skip
        image = Image.fromarray(random.randint(0, 255, (12, 16, 3), np.uint8))
        image = image.convert("L").convert("I;16") if mode == "I;16" else image.convert(mode)
        file = io.BytesIO()
        image.save(file, form)
        found.append(file.getvalue())
    return found


def decode_all_ways(content: bytes) -> None:
    """Decode bytes in several ways. Every error must name the image."""
    for use in (image_size, lambda item: decode(item, 8), lambda item: decode(item, 300, 0.875)):
        try:
            use(Encoded(content, "an image"))
        except CotransportError as error:
            assert "an image: " in str(error)


class TestImages:
    @cases(1500)
    @given(st.integers(0, 11), changes, early_changes, cuts)
    def test_damaged(
        self, form: int, late: list[tuple[int, int]], early: list[tuple[int, int]], cut: int | None
    ) -> None:
        decode_all_ways(mutated(pictures()[form], late + early, cut))

    @cases(300)
    @given(
        st.binary(max_size=200),
        st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"BM", b"II*\0", b"P6 "]),
    )
    def test_nonsense(self, content: bytes, start: bytes) -> None:
        decode_all_ways(start + content)

    @pytest.mark.parametrize("size", [(60_000, 60_000), (2**31 - 1, 2**31 - 1)])
    def test_a_small_file_with_an_enormous_image(self, size: tuple[int, int]) -> None:
        width, height = (side.to_bytes(4, "big") for side in size)
        header = b"IHDR" + width + height + b"\x08\x02\0\0\0"
        png = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\x0d" + header + zlib.crc32(header).to_bytes(4, "big")
        with pytest.raises(CotransportError, match=r"more than the .* pixels allowed|damaged"):
            decode(Encoded(png + b"\0\0\0\0IDAT", "bomb.png"), 8)


class TestRecipes:
    @staticmethod
    def load(text: str, folder: Path) -> None:
        path = folder / "recipe.yaml"
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            load_recipe(str(path))
        except CotransportError:
            return

    @cases(400)
    @given(st.text(alphabet=st.characters(codec="utf-8") | st.sampled_from("[]{}:&*-!<>|\n \t'\"#%@"), max_size=80))
    def test_nonsense(self, tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
        self.load(text, tmp_path_factory.getbasetemp())

    @cases(500)
    @given(st.sampled_from(sorted(bundled_recipes())), changes, cuts)
    def test_damaged(
        self, tmp_path_factory: pytest.TempPathFactory, name: str, some: list[tuple[int, int]], cut: int | None
    ) -> None:
        content = mutated(bundled_recipes()[name].read_bytes(), some, cut)
        self.load(
            content.decode("utf-8", "surrogateescape").encode("utf-8", "replace").decode(),
            tmp_path_factory.getbasetemp(),
        )

    @cases(600)
    @given(st.data())
    def test_other_values_anywhere(self, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
        values = yaml.safe_load(bundled_recipes()["cifar100-b0-10-fast"].read_text())
        text = yaml.safe_dump(altered(values, data), allow_unicode=True)
        self.load(text, tmp_path_factory.getbasetemp())

    @cases(300)
    @given(
        st.sampled_from(["schedule.epochs", "methods", "methods.coil.reg", "seeds", "stream", "x", "", "data.source"])
        | st.text(max_size=5).map(lambda text: f"methods.{text}"),
        st.text(max_size=30),
    )
    def test_overrides(self, key: str, text: str) -> None:
        try:
            load_recipe("digits", [f"{key}={text}"])
        except CotransportError:
            return

    @pytest.mark.parametrize(
        "text",
        [
            "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
            + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30)),
            "stream: &a [*a]",
            "stream: &a {classes: *a}",
            "[" * 20_000,
            "{a: " * 20_000,
            "x" * 2_000_000,
            "seeds: [" + "9" * 5000 + "]",
            "seeds: [2026-99-99]",
            "!!python/object/apply:os.system ['true']",
        ],
        ids=["bomb", "itself", "itself in a section", "deep", "deep mapping", "large", "digits", "date", "code"],
    )
    def test_attacks(self, text: str, tmp_path: Path) -> None:
        (tmp_path / "recipe.yaml").write_text(text)
        with pytest.raises(CotransportError, match=r"recipe\.yaml"):
            load_recipe(str(tmp_path / "recipe.yaml"))


def altered(values: Any, data: st.DataObject) -> Any:
    """Values with one of them replaced or removed."""
    if isinstance(values, dict) and values and data.draw(st.booleans()):
        key = data.draw(st.sampled_from(sorted(values)))
        if data.draw(st.integers(0, 5)) == 0:
            return {name: value for name, value in values.items() if name != key}
        return {**values, key: altered(values[key], data)}
    if isinstance(values, list) and values and data.draw(st.booleans()):
        index = data.draw(st.integers(0, len(values) - 1))
        return [*values[:index], altered(values[index], data), *values[index + 1 :]]
    return data.draw(trees)


def actions(model: Path) -> list[Callable[[], object]]:
    """What a user can do with a model, except lessons, which take too long here."""
    return [
        lambda: model_commands.info(model),
        lambda: model_commands.info(model, as_json=True),
        lambda: evaluate(model),
        lambda: IncrementalClassifier.load(model).predict(blobs(2, 1)),
        lambda: IncrementalClassifier.load(model, 1).settings_,
        lambda: IncrementalClassifier.load(model, 1).state_.memory.labelled(("a",)),
        lambda: rollback(model, 1),
        lambda: rollback(model, 2),
    ]


def use(model: Path) -> None:
    """Perform all actions. Errors of the package are expected."""
    manifest = (model / "manifest.json").read_bytes()
    for action in actions(model):
        try:
            action()
        except CotransportError:
            continue
    (model / "manifest.json").write_bytes(manifest)


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "model"
    shutil.copytree(OLD, folder)
    return folder


FILES = sorted(str(path.relative_to(OLD)) for path in OLD.rglob("*.*") if path.is_file())


class TestModels:
    def test_undamaged(self, copies: Path) -> None:
        for action in actions(copies):
            action()

    @cases(150)
    @given(st.sampled_from(FILES), changes, early_changes, cuts)
    def test_damaged(
        self, copies: Path, name: str, late: list[tuple[int, int]], early: list[tuple[int, int]], cut: int | None
    ) -> None:
        path = copies / name
        before = path.read_bytes()
        path.write_bytes(mutated(before, late + early, cut))
        try:
            use(copies)
        finally:
            path.write_bytes(before)

    @cases(150)
    @given(st.sampled_from([name for name in FILES if name != "manifest.json"]), changes, early_changes, cuts)
    def test_damaged_with_right_checksums(
        self, copies: Path, name: str, late: list[tuple[int, int]], early: list[tuple[int, int]], cut: int | None
    ) -> None:
        path = copies / name
        before = path.read_bytes()
        path.write_bytes(mutated(before, late + early, cut))
        self.used_with_right_checksums(copies, path, before)

    @cases(250)
    @given(st.sampled_from([name for name in FILES if name.endswith(("model.json", "metrics.json"))]), st.data())
    def test_other_values_anywhere_with_right_checksums(self, copies: Path, name: str, data: st.DataObject) -> None:
        path = copies / name
        before = path.read_bytes()
        path.write_text(json.dumps(altered(json.loads(before), data)))
        self.used_with_right_checksums(copies, path, before)

    @cases(250)
    @given(st.data())
    def test_another_manifest_with_the_right_checksum(self, copies: Path, data: st.DataObject) -> None:
        path = copies / "manifest.json"
        before = path.read_bytes()
        values = altered(json.loads(before), data)
        if isinstance(values, dict):
            values["checksum"] = seal(values)
        path.write_text(json.dumps(values))
        try:
            use(copies)
        finally:
            path.write_bytes(before)

    @staticmethod
    def used_with_right_checksums(model: Path, path: Path, before: bytes) -> None:
        manifest = model / "manifest.json"
        honest = manifest.read_bytes()
        accept(model, path)
        try:
            use(model)
        finally:
            path.write_bytes(before)
            manifest.write_bytes(honest)
