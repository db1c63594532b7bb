"""What a classifier knows, as a small piece of HTML for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from cotransport.learner.settings import LearnerSettings
from cotransport.learner.state import State
from cotransport.learner.wording import backbone_name, exemplar_budget
from cotransport.system.text import visible

NAMED = 12
"""Classes, at most, that are named."""
LONGEST = 200
"""Longest text of a chosen setting, in characters."""
_CELL = "text-align:left;vertical-align:top;padding:2px 12px 2px 0"


def known_html(state: State, settings: LearnerSettings) -> str:
    """The classes, tasks, method, backbone and stored images of a classifier."""
    classes, tasks = state.classes, len(state.task_sizes)
    named = ", ".join(str(name) for name in classes[:NAMED]) + (", ..." if len(classes) > NAMED else "")
    size = f"{state.image_size} x {state.image_size} pixels"
    frozen = ", frozen" if settings.freeze_backbone else ""
    rows = {
        "classes": f"{len(classes):,}: {named}",
        "tasks": f"{tasks}, with {', '.join(str(count) for count in state.task_sizes)} new classes",
        "method": settings.method.title,
        "backbone": f"{backbone_name(settings)}{frozen}, {size}",
        "exemplars": f"{len(state.memory):,} (at most: {exemplar_budget(settings)})",
        "held out": f"{len(state.held_out):,} images",
    }
    return _table(rows)


def new_html(chosen: Mapping[str, object]) -> str:
    """A classifier that has learned nothing: what is chosen, and that the images decide the rest."""
    rows = {name: _shortened(repr(value)) for name, value in chosen.items()}
    return _table({**rows, "learned": "nothing yet; settings that are not given are chosen from the first images"})


def _table(rows: Mapping[str, str]) -> str:
    cells = "".join(
        f'<tr><th style="{_CELL}">{_safe(name)}</th><td style="{_CELL}">{_safe(text)}</td></tr>'
        for name, text in rows.items()
    )
    return f"<div><strong>IncrementalClassifier</strong><table>{cells}</table></div>"


def _safe(text: str) -> str:
    """Text for HTML. Names of classes may be hostile."""
    return escape(visible(text))


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
