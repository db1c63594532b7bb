"""A classifier in a notebook, and when it is printed."""

from __future__ import annotations

from html.parser import HTMLParser

from cotransport import IncrementalClassifier
from tests.conftest import blobs, classifier


class Cells(HTMLParser):
    """Collects the text of each cell, and all tags."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.tags: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: object) -> None:
        self.tags.add(tag)
        if tag in {"th", "td"}:
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells:
            self.cells[-1] += data


def cells(clf: IncrementalClassifier) -> dict[str, str]:
    found = Cells(clf._repr_html_())
    assert found.tags == {"div", "strong", "table", "tr", "th", "td"}
    return dict(zip(found.cells[::2], found.cells[1::2], strict=True))


def test_before_learning_it_says_what_is_given_and_that_the_images_decide() -> None:
    nothing = "nothing yet; settings that are not given are chosen from the first images"
    assert cells(IncrementalClassifier()) == {"learned": nothing}
    found = cells(IncrementalClassifier(backbone="<i>fast</i>", schedule={"epochs": 3}, seed=1))
    assert found == {"backbone": "'<i>fast</i>'", "schedule": "{'epochs': 3}", "seed": "1", "learned": nothing}


def test_after_learning_it_says_what_is_known() -> None:
    data = blobs(2, 8)
    names = [("<script>alert(1)</script>", "b & c\x1b")[label] for label in data.labels.tolist()]
    clf = classifier("coil", held_out=0.25).learn(data.images.pixels, names)  # type: ignore[union-attr]
    clf.learn(blobs(1, 8, first=5))
    assert cells(clf) == {
        "classes": r"3: <script>alert(1)</script>, b & c\x1b, class 5",
        "tasks": "2, with 2, 1 new classes",
        "method": "COIL",
        "backbone": "resnet8, 8 x 8 pixels",
        "exemplars": "12 (at most: 4 of each class)",
        "held out": "6 images",
    }


def test_it_is_printed_with_what_it_knows() -> None:
    clf = classifier("coil")
    assert str(clf) == repr(clf)
    lines = str(clf.learn(blobs(2, 8))).splitlines()
    assert lines[:3] == ["IncrementalClassifier", "  classes: 2: class 0, class 1", "  tasks: 1, with 2 new classes"]
    assert repr(clf).startswith("IncrementalClassifier(")


def test_notebooks_show_it_instead_of_scikit_learns_diagram() -> None:
    clf = IncrementalClassifier(seed=2)
    assert clf._repr_mimebundle_() == {"text/plain": "IncrementalClassifier(seed=2)", "text/html": clf._repr_html_()}
