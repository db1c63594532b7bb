"""What a classifier knows, as text and as a small piece of HTML for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from cotransport.learner.settings import LearnerSettings
from cotransport.learner.state import State
from cotransport.learner.wording import backbone_name, exemplar_budget
from cotransport.system.text import visible

NAME = "IncrementalClassifier"
NAMED = 12
"""Classes, at most, that are named."""
LONGEST = 200
"""Longest text of a chosen setting, in characters."""
_CELL = "text-align:left;vertical-align:top;padding:2px 12px 2px 0"


def known_text(state: State, settings: LearnerSettings) -> str:
    """What a classifier knows, with a line per fact."""
    lines = [f"  {name}: {visible(text)}" for name, text in _known(state, settings).items()]
    return "\n".join([NAME, *lines])


def known_html(state: State, settings: LearnerSettings) -> str:
    """What a classifier knows, as a table."""
    return _table(_known(state, settings))


def _known(state: State, settings: LearnerSettings) -> dict[str, str]:
    """The classes, tasks, method, backbone and stored images of a classifier."""
    classes, tasks = state.classes, len(state.task_sizes)
    named = ", ".join(str(name) for name in classes[:NAMED]) + (", ..." if len(classes) > NAMED else "")
    size = f"{state.image_size} x {state.image_size} pixels"
    frozen = ", frozen" if settings.freeze_backbone else ""
    return {
        "classes": f"{len(classes):,}: {named}",
        "tasks": f"{tasks}, with {', '.join(str(count) for count in state.task_sizes)} new classes",
        "method": settings.method.title,
        "backbone": f"{backbone_name(settings)}{frozen}, {size}",
        "exemplars": f"{len(state.memory):,} (at most: {exemplar_budget(settings)})",
        "held out": f"{len(state.held_out):,} images",
    }


def new_html(chosen: Mapping[str, object]) -> str:
    """A classifier that has learned nothing: what is chosen, and that the images decide the rest."""
    rows = {name: _shortened(repr(value)) for name, value in chosen.items()}
    return _table({**rows, "learned": "nothing yet; settings that are not given are chosen from the first images"})


def _table(rows: Mapping[str, str]) -> str:
    cells = "".join(
        f'<tr><th style="{_CELL}">{_safe(name)}</th><td style="{_CELL}">{_safe(text)}</td></tr>'
        for name, text in rows.items()
    )
    return f"<div><strong>{NAME}</strong><table>{cells}</table></div>"


def _safe(text: str) -> str:
    """Text for HTML. Names of classes may be hostile."""
    return escape(visible(text))


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
