"""Images, recipes and model folders that are damaged, or made by someone who means harm."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from cotransport.experiments.bundled import bundled_recipes
from cotransport.experiments.recipe import load_recipe
from cotransport.model.manifest import seal
from tests.model.helpers import accept
from tests.test_fuzz import decode_all_ways, mutated, pictures, use

STORED = Path(__file__).resolve().parents[1] / "models"
SCALARS: list[Any] = [
    None, True, -1, 0, 1, 2**31, 2**63, 10**20, 1e308, 0.5, float("nan"), float("inf"),
    "", "x", "\ud800", "\x00", "../../x", "/etc/passwd", "coil", "__class__", "x" * 10_000,
    [], {}, [[]], [0] * 1000, {"name": "resnet18"},
]  # fmt: skip
STARTS = [b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"BM", b"II*\0", b"MM\0*", b"RIFF", b"P6 ", b"P5 9 9 "]
SETTINGS = [
    "schedule.epochs",
    "methods",
    "methods.coil.reg",
    "seeds",
    "stream",
    "x",
    "",
    "data.source",
    "device.threads",
]
TEXTS = [
    "[",
    "{",
    "&a [*a]",
    "!!python/object/apply:os.system ['true']",
    "9" * 5000,
    "2026-99-99",
    "{a: b",
    "\t",
    "null",
]


def damaged(chance: random.Random, content: bytes) -> bytes:
    """Content with some bytes replaced, more of them near its start, and sometimes truncated."""
    if not content:
        return chance.randbytes(20)
    where = [chance.randrange(len(content)) for _ in range(chance.randint(0, 8))]
    where += [chance.randrange(60) for _ in range(chance.randint(0, 6))]
    cut = chance.randrange(1, 10**6) if chance.random() < 0.3 else None
    return mutated(content, [(place, chance.randrange(256)) for place in where], cut)


def altered(chance: random.Random, values: Any) -> Any:
    """Values with one of them replaced or removed."""
    if isinstance(values, dict) and values and chance.random() < 0.8:
        key = chance.choice(sorted(values))
        others = {name: value for name, value in values.items() if name != key}
        how = chance.random()
        if how < 0.1:
            return others
        name = key if how < 0.95 else str(chance.choice(SCALARS))
        return {**others, name: altered(chance, values[key])}
    if isinstance(values, list) and values and chance.random() < 0.8:
        index = chance.randrange(len(values))
        other = altered(chance, values[index])
        return values * 2 if chance.random() < 0.1 else [*values[:index], other, *values[index + 1 :]]
    if isinstance(values, int) and chance.random() < 0.3:
        return values + chance.choice([-1, 1, 10, 10**6])
    return chance.choice(SCALARS)


def use_image(chance: random.Random) -> None:
    """Decode an image."""
    if chance.random() < 0.15:
        content = chance.choice(STARTS) + chance.randbytes(chance.randrange(300))
    else:
        content = damaged(chance, chance.choice(pictures()))
    decode_all_ways(content)


def use_recipe(folder: Path, chance: random.Random) -> None:
    """Load a recipe."""
    kind = chance.random()
    if kind < 0.2:
        key = chance.choice(SETTINGS)
        value = chance.choice(TEXTS) if chance.random() < 0.5 else str(chance.choice(SCALARS))
        load_recipe("digits", [f"{key}={value}"])
        return
    path = folder / "recipe.yaml"
    content = chance.choice([path.read_bytes() for path in bundled_recipes().values()])
    if kind < 0.5:
        path.write_bytes(damaged(chance, content))
    elif kind < 0.6:
        lines = content.decode().splitlines()
        lines.insert(chance.randrange(len(lines) + 1), chance.choice(["", "  ", "a: "]) + chance.choice(TEXTS))
        path.write_text("\n".join(lines))
    else:
        values = yaml.safe_load(content)
        for _ in range(chance.randint(1, 3)):
            values = altered(chance, values)
        path.write_text(yaml.safe_dump(values, allow_unicode=True), errors="surrogatepass")
    load_recipe(str(path))


def use_model(folder: Path, start: Path, chance: random.Random) -> None:
    """Use a model with some changed files, most of the time with the right checksums."""
    model = folder / "model"
    shutil.rmtree(model, ignore_errors=True)
    shutil.copytree(chance.choice([start, STORED / "format-1" / "model", STORED / "format-3" / "model"]), model)
    paths = [path for path in model.rglob("*.*") if path.is_file() and path.name not in {".lock", "manifest.json"}]
    for path in chance.sample(sorted(paths), chance.randint(1, 2)):
        path.write_bytes(_changed(chance, path))
        if chance.random() < 0.85:
            accept(model, path)
    if chance.random() < 0.3:
        path = model / "manifest.json"
        values = altered(chance, json.loads(path.read_bytes()))
        if isinstance(values, dict):
            with contextlib.suppress(ValueError, UnicodeError):
                values["checksum"] = seal(values)
        path.write_text(json.dumps(values))
    use(model)


def _changed(chance: random.Random, path: Path) -> bytes:
    """Other content for a file of a model: damaged bytes, or a valid file with other values."""
    content = path.read_bytes()
    if chance.random() < 0.25:
        return damaged(chance, content)
    if path.suffix == ".json":
        return json.dumps(altered(chance, json.loads(content))).encode()
    if path.suffix == ".safetensors":
        return _other_header(chance, content)
    return _other_table(chance, path)


def _other_header(chance: random.Random, content: bytes) -> bytes:
    """A safetensors file with another header."""
    (size,) = struct.unpack("<Q", content[:8])
    header = json.dumps(altered(chance, json.loads(content[8 : 8 + size]))).encode()
    length = len(header) if chance.random() < 0.9 else chance.choice([0, 2**40, len(header) + 1])
    return struct.pack("<Q", length) + header + content[8 + size :]


def _other_table(chance: random.Random, path: Path) -> bytes:
    """An image file with other rows or columns."""
    columns = pq.read_table(path).to_pydict()
    name = chance.choice(sorted(columns))
    column, kind = columns[name], chance.random()
    if kind < 0.5 and column:
        column[chance.randrange(len(column))] = _other_value(chance, column)
    elif kind < 0.7:
        columns = {key: value[: len(value) // 2] for key, value in columns.items()}
    elif kind < 0.8:
        columns[chance.choice(["x", "", "digest"])] = columns.pop(name)
    elif kind < 0.9:
        columns[name] = list(range(len(column)))
    else:
        columns = {key: value * 50 for key, value in columns.items()}
    pq.write_table(pa.table(columns), path)
    return path.read_bytes()


def _other_value(chance: random.Random, column: list[Any]) -> Any:
    """Another value of the same kind, or None."""
    if isinstance(column[0], bytes):
        return chance.choice([None, b"", chance.randbytes(30), damaged(chance, chance.choice(pictures())), column[-1]])
    return chance.choice([None, "", "../../x", "x" * 10_000, "\x00"])
