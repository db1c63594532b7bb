"""The charts of a model's page, in the same form as those of the runs' page."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cotransport.overview import Answers, Choice, Overview, Version
from cotransport.report.charts import (
    HOVER,
    MARGIN,
    NEUTRAL,
    Chart,
    confusion_chart,
    escape_name,
    heat_map,
    horizontal_names,
    line_chart,
    vertical_names,
    wrap,
)
from cotransport.report.confusion import Confusion
from cotransport.report.estimates import Estimate, Line
from cotransport.report.style import COLOURS, line_styles
from cotransport.report.text import plural, shorten

MAX_HISTORY = 60
"""With more classes than this, there is no map of classes by versions."""
MAX_GROUPS = 6
"""Groups of classes with a line of their own, at most; the earliest ones are drawn."""
ALL_CLASSES = "all classes"


def model_charts(overview: Overview) -> dict[str, Chart]:
    """All charts of a model's page, by the identifiers of their elements."""
    charts: dict[str, Chart] = {}
    lessons = measured_lessons(overview)
    if len(lessons) > 1:
        charts["versions"] = _versions_chart(overview, lessons)
        if len(overview.classes) <= MAX_HISTORY:
            charts["history"] = _history_chart(overview, lessons)
    answers = overview.answers
    if answers is not None:
        if answers.confusion is not None and len(overview.classes) > 1:
            names = [one.name for one in overview.classes]
            arrived = [one.arrived for one in overview.classes]
            starts = [place for place, version in enumerate(arrived) if place == 0 or version != arrived[place - 1]]
            charts["confusion"] = confusion_chart(Confusion(names, np.asarray(answers.confusion), starts))
        charts["trade-off"] = _trade_off_chart(answers)
        charts["reliability"] = _reliability_chart(answers)
    return charts


def measured_lessons(overview: Overview) -> list[Version]:
    """The lessons behind the current version that were tested, in their order."""
    return [one for one in overview.versions if one.is_ancestor and one.changes and one.accuracy is not None]


def _versions_chart(overview: Overview, lessons: Sequence[Version]) -> Chart:
    """Accuracy after each lesson: on all classes, and on the classes of each lesson."""
    groups = [lesson for lesson in lessons if lesson.new_classes][:MAX_GROUPS]
    titles = {f"classes of version {lesson.number}": set(lesson.new_classes) for lesson in groups}
    values = {ALL_CLASSES: [lesson.accuracy for lesson in lessons]}
    values |= {title: [_accuracy(lesson, names) for lesson in lessons] for title, names in titles.items()}
    styles = line_styles(values)
    lines = [Line(title, styles[title], [Estimate.of([value]) for value in own]) for title, own in values.items()]
    hover = [(f"% after version {lesson.number}", f"taught: {lesson.taught or ''}") for lesson in lessons]
    chart = line_chart(lines, [lesson.number for lesson in lessons], "version", hover)
    chart["layout"] |= {"height": 380}
    chart["layout"]["yaxis"] |= {"autorangeoptions": {"clipmin": 0, "clipmax": 101}}
    return chart


def _accuracy(lesson: Version, names: set[str]) -> float | None:
    """Percentage of the held-out images of some classes that are recognised after a lesson."""
    own = [(one.after, one.images) for one in lesson.changes if one.name in names and one.after is not None]
    images = sum(count for _, count in own)
    return sum(after * count for after, count in own) / images if images else None


def _history_chart(overview: Overview, lessons: Sequence[Version]) -> Chart:
    """Accuracy of each class after each lesson."""
    names = [one.name for one in overview.classes]
    after = [{one.name: one for one in lesson.changes} for lesson in lessons]
    cells = [[found.get(name) for found in after] for name in names]
    shares = np.array([[np.nan if one is None or one.after is None else one.after for one in row] for row in cells])
    hover = [
        [
            None
            if one is None or one.after is None
            else wrap(f"{one.name}: {one.after:.1f} % of {plural(one.images, 'image')} after version {lesson.number}")
            for one, lesson in zip(row, lessons, strict=True)
        ]
        for row in cells
    ]
    versions = horizontal_names("version", [str(lesson.number) for lesson in lessons])
    chart = heat_map(shares, hover, versions, vertical_names("", [escape_name(shorten(name, 24)) for name in names]))
    is_small = max(len(names), len(lessons)) <= 30
    chart["data"][0]["texttemplate"] = "%{z:.0f}" if is_small else ""
    chart["layout"] |= {"height": 90 + 22 * len(names)}
    chart["layout"]["coloraxis"]["showscale"] = not is_small
    return chart


def _trade_off_chart(answers: Answers) -> Chart:
    """Share of right answers over the share of images that are answered, with the wanted shares marked."""
    line = {
        "type": "scatter",
        "mode": "lines",
        "x": [round(point.answered, 3) for point in answers.curve],
        "y": [round(point.right, 3) for point in answers.curve],
        "line": {"color": COLOURS[0], "width": 2.2},
        "customdata": [_choice_text(point) for point in answers.curve],
        "hovertemplate": HOVER,
        "showlegend": False,
    }
    reached = [(at_least, choice) for at_least, choice in answers.wanted if choice is not None]
    together: dict[tuple[float, float], list[str]] = {}  # one mark may stand for several shares
    for at_least, choice in reached:
        together.setdefault((choice.answered, choice.right), []).append(f"{at_least} %")
    marks = {
        "type": "scatter",
        "mode": "markers+text",
        "x": [round(answered, 3) for answered, _ in together],
        "y": [round(right, 3) for _, right in together],
        "text": [", ".join(texts) for texts in together.values()],
        "textposition": "bottom left",
        "marker": {"color": COLOURS[1], "size": 11, "symbol": "diamond"},
        "hoverinfo": "skip",
        "showlegend": False,
        "cliponaxis": False,
    }
    lowest = min(point.right for point in answers.curve)
    layout = {
        "height": 380,
        "margin": MARGIN,
        "xaxis": {"title": {"text": "images that are answered (%)"}, "range": [-3, 106], "zeroline": False},
        "yaxis": {"title": {"text": "answers that are right (%)"}, "range": [max(-2, lowest - 12), 102]},
    }
    return {"data": [line, marks], "layout": layout}


def _choice_text(choice: Choice) -> str:
    shares = f"{choice.answered:.1f} % answered, {choice.right:.1f} % of these right"
    return f"<b>threshold {choice.threshold:.4g}</b><br>{shares}"


def _reliability_chart(answers: Answers) -> Chart:
    """Share of right answers over their mean probability, and the diagonal on which both agree."""
    diagonal = {
        "type": "scatter",
        "mode": "lines",
        "x": [0, 100],
        "y": [0, 100],
        "line": {"color": NEUTRAL, "width": 1.5, "dash": "dash"},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    most = max(part.answers for part in answers.parts)
    points = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [round(100 * part.probability, 3) for part in answers.parts],
        "y": [round(100 * part.right, 3) for part in answers.parts],
        "line": {"color": COLOURS[0], "width": 1.5},
        "marker": {"size": [round(7 + 7 * math.sqrt(part.answers / most), 1) for part in answers.parts]},
        "customdata": [
            f"<b>mean probability {100 * part.probability:.1f} %</b><br>"
            f"{100 * part.right:.1f} % of {plural(part.answers, 'answer')} right"
            for part in answers.parts
        ],
        "hovertemplate": HOVER,
        "showlegend": False,
        "cliponaxis": False,
    }
    layout = {
        "height": 380,
        "margin": MARGIN,
        "xaxis": {"title": {"text": "probability of the answer (%)"}, "range": [-2, 102], "zeroline": False},
        "yaxis": {"title": {"text": "answers that are right (%)"}, "range": [-2, 104], "zeroline": False},
    }
    return {"data": [diagonal, points], "layout": layout}
