"""What a user installs: the contents of the archives, the extras, the version, and the container's command."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from cotransport.version import __version__
from tests.distribution import CHECKS, WITHOUT_CHECK, extras_of
from tests.test_docs import check

ROOT = Path(__file__).parent.parent
BUILD = "from setuptools import build_meta as b; print(b.build_sdist('dist'), b.build_wheel('dist'), sep='\\n')"


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[set[str], set[str]]:
    """The files in the sdist and in the wheel, built from a copy."""
    pytest.importorskip("setuptools", minversion="77")
    copy = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"):
        shutil.copy(ROOT / name, copy)
    shutil.copy(ROOT / "constraints.txt", copy)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    output = subprocess.run([sys.executable, "-c", BUILD], cwd=copy, capture_output=True, text=True, check=True).stdout
    sdist, wheel = output.splitlines()[-2:]
    with tarfile.open(copy / "dist" / sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    with zipfile.ZipFile(copy / "dist" / wheel) as archive:
        in_wheel = set(archive.namelist())
    return in_sdist, in_wheel


def test_the_archives_have_every_file_of_the_package(archives: tuple[set[str], set[str]]) -> None:
    in_sdist, in_wheel = archives
    files = [path for path in (ROOT / "src" / "cotransport").rglob("*") if path.is_file()]
    expected = {str(path.relative_to(ROOT / "src")) for path in files if "__pycache__" not in path.parts}
    for name in ("py.typed", "experiments/recipes/digits.yaml", "report/page.html.j2", "report/page.js"):
        assert f"cotransport/{name}" in expected
    assert expected <= in_wheel
    assert {f"src/{name}" for name in expected} <= in_sdist
    assert {"pyproject.toml", "LICENSE", "CITATION.cff", "constraints.txt"} <= in_sdist


def test_the_wheel_has_nothing_else(archives: tuple[set[str], set[str]]) -> None:
    tops = {name.partition("/")[0] for name in archives[1]}
    assert tops == {"cotransport", f"cotransport-{__version__}.dist-info"}


def test_every_extra_is_checked_by_make_dist() -> None:
    extras = extras_of((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert set(extras) == set(CHECKS) | WITHOUT_CHECK


def test_every_extra_is_part_of_the_development_environment() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    [included] = re.findall(r'"cotransport\[(.*)\]"', text)
    assert set(included.split(",")) == set(CHECKS)


def test_a_tag_names_the_version_and_so_does_the_citation() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == __version__
    found = subprocess.run(
        ["git", "tag", "--points-at", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    assert [tag for tag in found if tag.startswith("v") and tag != f"v{__version__}"] == []
    if f"v{__version__}" in found:
        assert f"\n## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_container_runs_the_demo_as_an_ordinary_user() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    values = {line.split()[0]: line.partition(" ")[2] for line in lines if line and not line.startswith("#")}
    assert values["USER"] != "root"
    assert json.loads(values["ENTRYPOINT"]) == ["cotransport"]
    check(json.loads(values["CMD"]))
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY") and "--from" not in line]
    for name in (name for names in copied for name in names):
        assert (ROOT / name).exists()
        assert f"!{name}" in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
