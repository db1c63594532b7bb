"""Synthetic results whose expected numbers can be derived by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from cotransport import metrics
from cotransport.experiments.results import InitialAccuracy, Origin, Result, TaskResult, Transport

HOSTILE = ["</script><b>", "a_b & 50%", r"$x^2$ {~}#\|", "日本語 <br>%{x}", "two\nlines", "../../escape"]
"""Names that break out of HTML, LaTeX, Markdown, CSV, hover templates or folders if they are not escaped."""
TITLES = {"coil": "COIL", "finetune": "Finetune", "oracle": "Oracle", "replay": "Replay"}
RECIPE = {
    "name": "digits",
    "data": {"source": "digits", "image_size": 8},
    "memory": {"total": 2000, "per_class": None},
    "backbone": {"name": "resnet8", "stem": "auto"},
    "schedule": {"epochs": 20, "batch_size": 64, "learning_rate": 0.1, "shape": "one-cycle"},
    "methods": [{"name": "replay", "label": None}],
    "seeds": [1],
}
ENVIRONMENT = {
    "cotransport": "0.1.0",
    "python": "3.11.7",
    "torch": "2.13.0",
    "device": "cpu",
    "threads": 2,
    "commit": None,
}


def make_result(
    label: str = "replay",
    seed: int = 1,
    per_task: Sequence[Sequence[float | None]] = ((90.0,), (60.0, 80.0)),
    **changes: Any,
) -> Result:
    """A result whose numbers follow from the accuracies per task; by default, a task has two classes."""
    matrix = metrics.accuracy_matrix(per_task)
    tasks = changes.get("tasks", [2] * len(per_task))
    curve = [float(np.mean([value for value in row if value is not None])) for row in per_task]
    seconds = changes.pop("seconds", 10.0)
    ncm = changes.pop("ncm", None)
    steps = [
        TaskResult(
            classes_seen=sum(tasks[: i + 1]),
            top1=accuracy,
            top5=100.0,
            head_top1=accuracy,
            ncm_top1=ncm,
            per_task=list(row),
            train_seconds=seconds,
            images_per_second=500.0,
        )
        for i, (row, accuracy) in enumerate(zip(per_task, curve, strict=True))
    ]
    values = {
        "recipe": RECIPE,
        "label": label,
        "method": label,
        "title": TITLES.get(label, label),
        "seed": seed,
        "class_order_seed": 1993,
        "class_order": list(range(sum(tasks))),
        "classes": [f"class {number}" for number in range(sum(tasks))],
        "tasks": tasks,
        "metric": "top1",
        "steps": steps,
        "average_incremental_accuracy": float(np.mean(curve)),
        "last_accuracy": curve[-1],
        "forgetting": metrics.forgetting(matrix),
        "forgetting_per_task": [None if math.isnan(f) else float(f) for f in metrics.forgetting_per_task(matrix)],
        "backward_transfer": metrics.backward_transfer(matrix),
        "confusion": np.diag([9] * sum(tasks)).tolist(),
        "environment": ENVIRONMENT,
    }
    return Result(**{**values, **changes})


def with_transport(
    result: Result,
    plans: Sequence[Sequence[Sequence[float]] | None],
    effective: Sequence[Sequence[float]],
    initial: Sequence[dict[str, tuple[float | None, float | None]]] = (),
) -> Result:
    """The result with transport plans for the tasks from the second on, and with accuracies before training."""
    steps = list(result.steps)
    for task, (plan, effective_sources) in enumerate(zip(plans, effective, strict=True), start=1):
        if plan is not None:
            origins = [Origin(name="unused", sources=[], effective_sources=number) for number in effective_sources]
            transport = Transport(plan=[list(row) for row in plan], origins=origins)
            steps[task] = steps[task].model_copy(update={"transport": transport})
    for task, classifiers in enumerate(initial, start=1):
        accuracies = {
            name: InitialAccuracy(among_new=among_new, among_all=among_all)
            for name, (among_new, among_all) in classifiers.items()
        }
        steps[task] = steps[task].model_copy(update={"initial": accuracies})
    return result.model_copy(update={"steps": steps})


def transported_results(names: Sequence[str] = ("cat", "dog", "tiger", "wolf", "lynx")) -> list[Result]:
    """Two seeds of three tasks (of 2, 2 and 1 class), with transport plans and accuracies before training."""
    per_task = [[90.0], [80.0, 80.0], [70.0, 70.0, 70.0]]
    first, second = (
        make_result("coil", seed=seed, tasks=[2, 2, 1], per_task=per_task, classes=list(names)) for seed in (1, 2)
    )
    return [
        with_transport(
            first,
            [[[0.4, 0.1], [0.1, 0.4]], [[0.5], [0.0], [0.5], [0.0]]],
            [[1.6, 1.6], [2.0]],
            [{"pt": (60.0, 20.0), "ncm": (80.0, 50.0), "random": (40.0, 0.0)}, {"pt": (100.0, None)}],
        ),
        with_transport(
            second,
            [[[0.3, 0.2], [0.2, 0.3]], [[0.3], [0.2], [0.3], [0.2]]],
            [[2.0, 2.0], [4.0]],
            [{"pt": (70.0, 30.0), "ncm": (80.0, 60.0), "random": (50.0, 4.0)}],
        ),
    ]


def many_sources() -> Result:
    """300 old classes and a new class, which takes 1 part of the first old class, 2 of the second, 300 of the last."""
    parts = np.arange(1, 301)
    result = make_result("coil", tasks=[300, 1], confusion=[])
    return with_transport(result, [(parts / parts.sum())[:, None].tolist()], [[250.0]])
