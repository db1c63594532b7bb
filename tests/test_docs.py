"""The documentation: examples run, links lead somewhere, and the commands, recipes and settings that it names exist."""

from __future__ import annotations

import gc
import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer
from PIL import Image

from cotransport.__main__ import main
from cotransport.cli.main import app
from cotransport.errors import ConfigError
from cotransport.experiments.recipe import bundled_recipes, load_recipe
from cotransport.experiments.results import Archive
from cotransport.methods import known_methods, make_method
from tests.conftest import blobs
from tests.report.results import make_result

ROOT = Path(__file__).parent.parent
SERVING = ROOT / "docs" / "serving.md"
"""Its examples need a server: `tests/server/test_examples.py` runs them."""
README, TEACHING, EXPERIMENTS = ROOT / "README.md", ROOT / "docs" / "teaching.md", ROOT / "docs" / "experiments.md"
PAGES = sorted(path for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")] if "_build" not in path.parts)
IMAGES_KEPT = 10
"""Images of each class of digits that the examples learn from, so that they take seconds."""
PLACEHOLDERS = {"KEY=VALUE", "key=value", "section.key=value"}

Command = Callable[[list[str]], None]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    """The fenced code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def commands(page: Path) -> list[list[str]]:
    """The command lines in a page's shell blocks, as lists of words after `cotransport`."""
    lines = [shlex.split(line, comments=True) for block in blocks(page, "sh") for line in block.splitlines()]
    return [words[1:] for words in lines if words and Path(words[0]).name == "cotransport"]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def spans(page: Path) -> list[str]:
    """The inline code of a page, each on one line."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose(page))]


def parse(words: list[str]) -> dict[str, Any]:
    """A command's arguments and options, by the command's own parser; nothing is run."""
    command = typer.main.get_command(app).commands[words[0]]  # type: ignore[attr-defined]
    parameters: dict[str, Any] = command.make_context(words[0], list(words[1:])).params
    return parameters


def check(words: list[str]) -> None:
    """An error unless a command line is accepted, with its recipe and settings."""
    parameters = parse(words)
    overrides = list(parameters.get("overrides") or [])
    if "recipe" in parameters:
        load_recipe(parameters["recipe"], overrides, parameters["data"])
    else:
        for override in overrides:
            check_setting(override)


def check_setting(override: str) -> None:
    """An error unless `key=value` is a setting of the digits recipe, or `method.key=value` one of some method."""
    key, _, value = override.partition("=")
    if not key.startswith("method."):
        load_recipe("digits", [override])
        return
    refused = []
    for name in known_methods():
        try:
            make_method({"name": name, key.removeprefix("method."): float(value)})
            return
        except ConfigError as error:
            refused.append(str(error))
    raise AssertionError(f"no method has the setting {override}: {refused}")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_and_pictures_lead_to_files(page: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    files = [target.partition("#")[0] for target in targets if not re.match(r"https?:|mailto:|#", target)]
    missing = [target for target in files if not (page.parent / target).exists()]
    assert not missing


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name_of)
def test_every_command_line_is_accepted_by_the_command(page: Path) -> None:
    for words in commands(page):
        check(words)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_recipes_and_settings_in_the_text_exist(page: Path) -> None:
    known = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for span in spans(page):
        words = shlex.split(span.replace("METHOD", "replay")) if re.search("^cotransport |--set ", span) else []
        if words[:1] == ["cotransport"] and words[1].islower() and not words[1].startswith("-"):
            assert words[1] in known, span
        if words[:2] in (["cotransport", "run"], ["cotransport", "visualize"]):
            check(words[1:])
            continue
        for option, value in pairwise(words):
            if option == "--set" and value not in PLACEHOLDERS:
                check_setting(value)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_recipe_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"(?<![\w/])(?:digits|cifar100)(?:-[a-z0-9]+)+\b", text))
    assert named <= set(bundled_recipes())


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "yaml")], ids=name_of)
def test_recipes_shown_can_be_loaded(page: Path, tmp_path: Path) -> None:
    for number, block in enumerate(blocks(page, "yaml")):
        path = tmp_path / f"{number}.yaml"
        path.write_text(block, encoding="utf-8")
        load_recipe(str(path))


def test_the_readme_fits_on_one_screen_and_a_half() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 130
    assert max(map(len, lines)) <= 120


def test_the_commands_of_make_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page in PAGES:
        code = [*blocks(page, "sh"), *spans(page)]
        named = {name for text in code for name in re.findall(r"\bmake ([\w-]+)", text)}
        assert named <= targets, name_of(page)
    contributing = README.read_text(encoding="utf-8").partition("## Contribute")[2]
    for name in ("lint", "test", "test-all", "check", "bench", "soak", "help"):
        assert f"make {name}" in contributing
    shown = set(re.findall(r"echo \"make ([\w-]+) ", (ROOT / "Makefile").read_text(encoding="utf-8")))
    assert shown == targets - {"help"}


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the photographs that the examples name."""
    for number, week in enumerate(("week1", "week2")):
        data = blobs(2, 10, first=2 * number, seed=number)
        for place, label in enumerate(data.labels.tolist()):
            folder = tmp_path / "photos" / week / str(data.classes[label])
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(data.images.item(place)).save(folder / f"{place}.png")  # type: ignore[arg-type]
    for name in ("a.jpg", "b.png"):
        Image.new("RGB", (8, 8), "red").save(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python") and page != SERVING], ids=name_of)
@pytest.mark.usefixtures("photos")
def test_python_examples_run(page: Path) -> None:
    before = set(known_methods())
    names: dict[str, Any] = {"__name__": f"example in {page.name}"}
    for block in blocks(page, "python"):
        exec(compile(block, str(page), "exec"), names)
    names.clear()
    gc.collect()  # a method that an example defines must not be found by other tests
    assert set(known_methods()) == before


@pytest.fixture
def command(photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command in a new folder; anything but success is an error."""

    def run(words: list[str]) -> None:
        monkeypatch.setattr(sys, "argv", ["cotransport", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code in {0, None}, (words, capsys.readouterr())
        if words[0] == "example-data":
            for path in Path(words[1]).glob("*/*/*.png"):
                if int(path.stem) >= IMAGES_KEPT:
                    path.unlink()

    return run


def test_the_commands_of_the_readme_run(command: Command) -> None:
    for words in commands(README):
        if words[0] not in {"run", "compare", "reproduce", "serve"}:  # take long, need results, or never end
            command(words)


@pytest.mark.slow
def test_the_commands_of_the_guide_run(command: Command) -> None:
    for words in commands(TEACHING):
        command(words)


@pytest.mark.slow
@pytest.mark.filterwarnings("default::cotransport.errors.CotransportWarning")  # such a short time budget is reported
def test_the_experiments_of_the_guide_run(command: Command, tmp_path: Path) -> None:
    quick = shlex.split("--set stream.subset=4 --set stream.tasks=2 --set device.accelerator=cpu")
    for words in commands(EXPERIMENTS):
        if words[0] == "reproduce" or any(re.search("cifar100|processes|monday", word) for word in words):
            continue  # needs data, runs or processes of its own; its settings are checked above
        timed = any("seconds_per_task" in word for word in words)
        shortened = [*quick, "--set", "schedule.seconds_per_task=0.1" if timed else "schedule.epochs=1"]
        command([*words, *shortened] if words[0] == "run" and "--data" not in words else words)
    assert (tmp_path / "runs" / "digits" / "report.html").is_file()


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    words = ["-b", "html", "-W", "--keep-going", "-n", "-q", str(ROOT / "docs"), str(tmp_path / "site")]
    done = subprocess.run([sys.executable, "-m", "sphinx", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def tables() -> Any:
    """The script that writes tables of results into pages."""
    spec = importlib.util.spec_from_file_location("tables", ROOT / "docs" / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_tables_of_results_agree_with_the_archives(page: Path, tables: Any) -> None:
    """`python docs/tables.py` writes them anew."""
    text = page.read_text(encoding="utf-8")
    assert tables.with_tables(text) == text


def test_the_table_of_a_soak_has_its_counts_and_says_what_is_missing(tables: Any) -> None:
    failure = {"case": "faults/learn/3/EIO-once", "problem": "a trace"}
    found = {
        "commit": "abc",
        "minutes": 30.0,
        "workers": 2,
        "started": "2026-11-18",
        "machine": "2 cores of a processor, Linux 6.1, tmpfs",
        "python": "3.11.7",
        "seconds": 1805,
        "rows": [
            {"part": "faults", "what": "`learn`, 9 calls", "planned": 63, "tried": 60, "failures": [failure]},
            {"part": "faults", "what": "`prune`, 2 calls", "planned": 14, "tried": 14, "failures": []},
            {"part": "kills", "what": "`learn`", "planned": None, "tried": 999, "failures": []},
            {"part": "inputs", "what": "images", "planned": None, "tried": 100_000, "failures": []},
        ],
    }
    lines = tables.soak(found).splitlines()
    assert lines[3:7] == [
        "| `learn`, 9 calls | 60 | 63 | 1 |",
        "| `prune`, 2 calls | 14 | 14 | 0 |",
        "| **a fault at every call that changes a file** | 74 | 77 | 1 |",
        "| **a power cut in every state of the disk** | 0 | 0 | 0 |",
    ]
    assert "| **SIGKILL at random moments** | 999 | target of 1,000: not reached | 0 |" in lines
    assert "| **generated inputs** | 100,000 | target of 100,000: reached | 0 |" in lines
    assert "commit abc" in " ".join(lines)


def test_tables_of_results_have_the_numbers_of_their_archive(
    tables: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Averages (90 + 70) / 2 and (90 + 74) / 2; Replay's (90 + 68) / 2 and (90 + 70) / 2: 1 and 2 points less."""
    (tmp_path / "results").mkdir()
    lasts = {("coil", 1): 70.0, ("coil", 2): 74.0, ("replay", 1): 68.0, ("replay", 2): 70.0}
    ran = "cotransport run digits --set methods=[coil, replay] --set memory.total=50 --set device.threads=2"
    ran += " --out runs/here --set seeds=[1] --resume -q"
    recipe = load_recipe("digits", ["memory.total=50", "schedule.epochs=7"])  # the recipe had 7 epochs then
    results = [
        make_result(
            label,
            seed,
            [[90.0], [last, last]],
            seconds=90.0 if seed == 1 else 120.0,  # for each task; the fastest seed counts
            ncm=50.0,
            parameters=1_234_567,
            recipe=recipe.model_dump(mode="json"),
            environment={"command": ran, "commit": "abc", "threads": 2, "device": "cpu"},
        )
        for (label, seed), last in lasts.items()
    ]
    Archive.of(results).save(tmp_path / "results" / "two.json")
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    end = "<!-- end of table -->"
    monkeypatch.setattr(tables, "PAPER", {"digits": {"COIL": 65.48}})
    names = ("two", "two against replay", "coil on two", "coil against replay on two (few images), two (more)")
    page = "before\n" + "\n".join(f"<!-- table: {name} -->\nold\n{end}" for name in names)
    lines = tables.with_tables(page).splitlines()
    assert lines[:2] == ["before", "<!-- table: two -->"]
    measures = "81.0 ± 1.4 | 72.0 ± 2.8 | 18.0 ± 2.8 | 81.0 ± 1.4 | 50.0 ± 0.0"
    assert f"| COIL | {measures} | 3 | 1.2 M | basic | 2 |" in lines
    command = "cotransport run digits --set memory.total=50 --set schedule.epochs=7"
    assert f"*`{command}`; seeds 1, 2; commits abc; 2 threads of cpu.*" in lines
    # the differences 1 and 2: t = 1.5 / (0.707 / sqrt(2)) = 3, so p = 1 - 2 atan(3) / pi = 0.20; the interval is
    # 1.5 +- tan(0.475 pi) / 2; two pairs are too few for a test over tasks
    assert "| COIL | +1.5 ± 0.7 | −4.9 to +7.9 | +3.0 ± 1.4 | 0.20 | – | 2 |" in lines
    assert "| 2 | 7 | 81.0 ± 1.4 | 65.48 | 72.0 ± 2.8 | 18.0 ± 2.8 | 3 | 1.2 M | basic | 2 |" in lines
    for words in ("few images", "more"):
        assert f"| {words} | 79.5 ± 0.7 | +1.5 ± 0.7 | −4.9 to +7.9 | +3.0 ± 1.4 | 0.20 | – | 2 |" in lines
    assert "old" not in lines
