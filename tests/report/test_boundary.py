"""The figure of decision boundaries."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cotransport.errors import RunError
from cotransport.experiments.boundary import Boundary, View
from cotransport.experiments.results import Origin, SourceShare, Transport
from cotransport.report import boundary as boundary_module
from cotransport.report.boundary import accuracy_text, classes_table, draw_boundary

EAST, NORTH, BETWEEN = [1.0, 0.0], [0.0, 1.0], [0.8, 0.6]
TRANSPORT = Transport(
    plan=[[0.5], [0.5]],
    origins=[Origin(name="between", sources=[SourceShare(name="east", share=0.5)], effective_sources=2.0)],
)


def view(*names: str) -> View:
    """Classes of two test images each, at their own directions, except that the last class has none."""
    weights = np.array([EAST, NORTH, BETWEEN][: len(names)])
    labels = np.repeat(np.arange(len(names) - 1), 2)
    return View(names, weights[labels], labels, weights)


OLD, GROWN = view("east", "north"), view("east", "north", "between")


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that were drawn. They are not rendered."""
    drawn: list[Figure] = []
    monkeypatch.setattr(boundary_module, "save_figure", lambda figure, _: drawn.append(figure))
    return drawn


def names(axes: Axes) -> list[str]:
    """The first line of every text in a view."""
    return [text.get_text().split("\n")[0] for text in axes.texts if text.get_text()]


def test_the_figure_is_written_as_png_and_svg(tmp_path: Path) -> None:
    path = draw_boundary(Boundary(OLD, GROWN, TRANSPORT), tmp_path / "here")
    assert path == tmp_path / "here" / "boundary.png"
    assert path.read_bytes()[:4] == b"\x89PNG"
    assert "<svg" in (tmp_path / "here" / "boundary.svg").read_text(encoding="utf-8")


def test_old_and_new_classes_are_shown_side_by_side(tmp_path: Path, figures: list[Figure]) -> None:
    draw_boundary(Boundary(OLD, GROWN, TRANSPORT), tmp_path)
    old, grown = figures[0].axes
    assert names(old) == ["east", "north"]
    assert names(grown) == ["east", "north", "between"]


@pytest.mark.parametrize(("transport", "shares"), [(TRANSPORT, "east 0.50"), (None, "")])
def test_the_table_has_what_new_classes_are_built_from(transport: Transport | None, shares: str) -> None:
    rows = classes_table(Boundary(OLD, GROWN, transport)).rows
    assert [row[0] for row in rows] == ["east", "north", "between"]
    assert rows[2][1:] == ["new", accuracy_text(GROWN, 2), shares]
    assert [row[1] for row in rows[:2]] == [accuracy_text(OLD, number) for number in range(2)]


@pytest.mark.parametrize(
    ("transport", "title"),
    [
        (TRANSPORT, "and 1 new class initialised by transport, untrained"),
        (None, "and 1 new class initialised at random, untrained"),
    ],
)
def test_the_title_says_where_the_new_weights_come_from(
    transport: Transport | None, title: str, tmp_path: Path, figures: list[Figure]
) -> None:
    draw_boundary(Boundary(OLD, GROWN, transport), tmp_path)
    assert [axes.get_title(loc="left") for axes in figures[0].axes] == ["2 old classes, trained", title]


def test_regions_are_shaded_by_the_nearest_direction(tmp_path: Path, figures: list[Figure]) -> None:
    draw_boundary(Boundary(OLD, GROWN, None), tmp_path)
    shades = np.asarray(figures[0].axes[0].images[0].get_array())
    side = np.linspace(-1, 1, len(shades))
    above_diagonal = side[:, None] > side[None, :]  # rows go north, columns east
    assert (shades[above_diagonal] == 1).all()
    assert (shades[~above_diagonal] == 0).all()


def test_names_do_not_cover_each_other(tmp_path: Path, figures: list[Figure]) -> None:
    """Five classes at the same place, as after a poor training."""
    same = View(tuple("abcde"), np.array([EAST] * 5), np.arange(5), np.array([EAST] * 5))
    draw_boundary(Boundary(same, same, None), tmp_path)
    places = [np.array(text.get_position()) for text in figures[0].axes[0].texts if text.get_text()]
    assert len(places) == 5
    assert all(np.linalg.norm(one - other) > 0.3 for one, other in combinations(places, 2))


def test_a_class_without_test_images_has_no_accuracy(tmp_path: Path, figures: list[Figure]) -> None:
    seen = view("east", "north", "unseen")
    assert accuracy_text(seen, 0) == "100.0\N{NO-BREAK SPACE}%"
    assert accuracy_text(seen, 2) == "–\N{NO-BREAK SPACE}%"
    draw_boundary(Boundary(OLD, seen, None), tmp_path)
    assert "unseen\n–\N{NO-BREAK SPACE}%" in [text.get_text() for text in figures[0].axes[1].texts]


def test_long_and_hostile_names_are_shortened_to_one_line(tmp_path: Path, figures: list[Figure]) -> None:
    named = view("a_very_long_name_of_a_class", "two\nlines $x$", "</svg>")
    draw_boundary(Boundary(OLD, named, None), tmp_path)
    assert names(figures[0].axes[1]) == ["a very long nam…", "two lines $x$", "</svg>"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"file.*: the figure cannot be written .*--out"):
        draw_boundary(Boundary(OLD, OLD, None), tmp_path / "file" / "inside")
