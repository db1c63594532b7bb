"""Generated images, recipes and model folders. Only the package's own errors may follow."""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
import time
import traceback
from pathlib import Path
from typing import Any

import yaml

from cotransport.errors import CotransportError
from cotransport.experiments.bundled import bundled_recipes
from cotransport.experiments.recipe import load_recipe
from tests.model.helpers import accept
from tests.soak.judgement import Tally
from tests.test_fuzz import decode_all_ways, mutated, pictures, use

KINDS = ("images", "recipes", "model folders")
SLOWEST_SECONDS = 20.0
"""Time that one input may take."""
SCALARS: list[Any] = [None, True, -1, 0, 1, 10**20, 0.5, float("nan"), float("inf"), "", "x", "\ud800", [], {}, [[]]]


def try_inputs(kind: str, model: Path, folder: Path, end: float, tally: Tally) -> None:
    """Generate inputs of a kind and use them, until the time ends."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(model, folder / "model")
    own = {"images": _image, "recipes": _recipe, "model folders": _model}[kind]
    seed = 0
    while time.monotonic() < end:
        chance, began, problem = random.Random(seed), time.monotonic(), None
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                own(chance, folder)
        except CotransportError:
            pass
        except Exception:
            problem = traceback.format_exc()
        took = time.monotonic() - began
        if took > SLOWEST_SECONDS:
            problem = f"took {took:.0f} s"
        tally.add(f"seed {seed}", problem)
        seed += 1


def _image(chance: random.Random, _: Path) -> None:
    decode_all_ways(_damaged(chance, chance.choice(pictures())))


def _damaged(chance: random.Random, content: bytes) -> bytes:
    """Content with some bytes replaced, more of them near its start, and sometimes truncated."""
    where = [chance.randrange(len(content)) for _ in range(chance.randint(0, 8))]
    where += [chance.randrange(60) for _ in range(chance.randint(0, 6))]
    cut = chance.randrange(1, 10**6) if chance.random() < 0.3 else None
    return mutated(content, [(place, chance.randrange(256)) for place in where], cut)


def _recipe(chance: random.Random, folder: Path) -> None:
    path = folder / "recipe.yaml"
    name = chance.choice(sorted(bundled_recipes()))
    content = bundled_recipes()[name].read_bytes()
    if chance.random() < 0.5:
        path.write_bytes(_damaged(chance, content))
    else:
        path.write_text(yaml.safe_dump(_altered(chance, yaml.safe_load(content))), errors="replace")
    load_recipe(str(path))


def _altered(chance: random.Random, values: Any) -> Any:
    """Values with one of them replaced or removed."""
    if isinstance(values, dict) and values and chance.random() < 0.7:
        key = chance.choice(sorted(values))
        if chance.random() < 0.15:
            return {name: value for name, value in values.items() if name != key}
        return {**values, key: _altered(chance, values[key])}
    if isinstance(values, list) and values and chance.random() < 0.7:
        index = chance.randrange(len(values))
        return [*values[:index], _altered(chance, values[index]), *values[index + 1 :]]
    return chance.choice(SCALARS)


def _model(chance: random.Random, folder: Path) -> None:
    """A model with one file changed, often with the right checksum."""
    model = folder / "model"
    path = chance.choice(sorted(path for path in model.rglob("*.*") if path.is_file() and path.name != ".lock"))
    before, manifest = path.read_bytes(), (model / "manifest.json").read_bytes()
    try:
        if path.suffix == ".json" and chance.random() < 0.7:
            path.write_text(json.dumps(_altered(chance, json.loads(before))), errors="replace")
        else:
            path.write_bytes(_damaged(chance, before))
        if path.name != "manifest.json" and chance.random() < 0.8:
            accept(model, path)
        use(model)
    finally:
        path.write_bytes(before)
        (model / "manifest.json").write_bytes(manifest)
