"""The paper's tables and figures as files."""

from __future__ import annotations

from pathlib import Path

from cotransport.report.aggregate import summarise
from cotransport.report.paper_tables import contents_of
from cotransport.report.reproduction import latex, markdown, write_reproduction
from tests.report.paper import TABLE, before_training, some_streams
from tests.report.results import HOSTILE, make_result


def test_markdown_and_latex() -> None:
    contents = contents_of(some_streams(), TABLE)
    lines = markdown(contents).splitlines()
    assert lines[2] == "| Finetune | 30.0 | 56.34 | 30.0 | 25.81 | 26.3 |"
    assert "The paper: It is 20 % better." in lines
    assert lines[-1] == "| 10 tasks | cifar100-b0-10-fast | 1 to 2 | – | basic | 1 to 2 |"
    lines = latex(contents).splitlines()
    assert "% The paper: It is 20 % better." in lines
    assert r"\begin{tabular}{lrrrrr}" in lines
    assert r"COIL & 62.0 & 69.64 & 71.0 $\pm$ 1.4 & 65.48 & 60.27 \\" in lines
    assert r"Oracle & -- & -- & 80.0 & -- & -- \\" in lines
    assert lines.count(r"\end{tabular}") == 2


def test_tables_with_titles() -> None:
    contents = contents_of(before_training(), TABLE)
    assert len(contents.tables) == 1
    named = contents_of(before_training(), type(TABLE)("Title", (), "Nothing.", before_training=True))
    assert "Among the new classes:" in markdown(named).splitlines()
    assert "% Among the new classes" in latex(named).splitlines()


def test_all_files_are_written_and_names_are_escaped(tmp_path: Path) -> None:
    results = [make_result(f"{name.replace('/', '')}{number}") for number, name in enumerate(HOSTILE)]
    paths = write_reproduction(summarise(results), "table1", TABLE, tmp_path)
    assert sorted(path.suffix for path in paths) == [".html", ".md", ".png", ".svg", ".tex"]
    assert all(path.stat().st_size for path in paths)
    page = (tmp_path / "table1.html").read_text(encoding="utf-8")
    assert "&lt;i&gt;Title" in page
    assert "<b>" not in page
    assert "<script" not in page
