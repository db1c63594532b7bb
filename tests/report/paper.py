"""Results of Table 1 on small numbers, for the tests of its tables, figures and files."""

from __future__ import annotations

from cotransport.experiments.reproductions import Reproduction
from cotransport.experiments.results import InitialAccuracy, Result
from cotransport.report.aggregate import summarise
from cotransport.report.summaries import StreamSummary
from tests.report.results import RECIPE, make_result

TABLE = Reproduction("<i>Title</i>", ("cifar100-b0-2", "cifar100-b0-10"), "It is 20 % better.")
METHODS = [{"name": "finetune"}, {"name": "coil-tuned", "label": "COIL", "combine": "ratio"}, {"name": "oracle"}]


def result(label: str, tasks: int, accuracy: float, seed: int = 1, **changes: object) -> Result:
    """A result of Table 1, whose accuracy is the same after each task."""
    recipe = {**RECIPE, "name": f"cifar100-b0-{tasks}-fast", "data": {"source": "cifar100"}, "methods": METHODS}
    recipe["memory"] = {"total": 2000, "per_class": None}
    per_task = [[accuracy] * (number + 1) for number in range(tasks)]
    return make_result(label, seed, per_task, recipe=recipe, tasks=[100 // tasks] * tasks, **changes)


def some_streams() -> list[StreamSummary]:
    """COIL (two seeds in ten tasks) and Finetune in two and ten tasks, and Oracle in ten."""
    results = [
        *(result("COIL", tasks, 60.0 + tasks, method="coil-tuned", title="COIL (tuned)") for tasks in (2, 10)),
        result("COIL", 10, 72.0, seed=2, method="coil-tuned", title="COIL (tuned)", seconds=6.0),
        *(result("finetune", tasks, 30.0) for tasks in (2, 10)),
        result("oracle", 10, 80.0),
    ]
    return summarise(results)


def before_training() -> list[StreamSummary]:
    """Three tasks, in which new classes were evaluated before training."""
    found = make_result("coil", per_task=((90.0,), (60.0, 80.0), (50.0, 60.0, 70.0)))
    initial = [
        None,
        {"pt": InitialAccuracy(among_new=70.0, among_all=40.0), "random": InitialAccuracy(among_new=50, among_all=0)},
        {"pt": InitialAccuracy(among_new=80.0, among_all=20.0), "random": InitialAccuracy(among_new=52, among_all=0)},
    ]
    steps = [step.model_copy(update={"initial": one}) for step, one in zip(found.steps, initial, strict=True)]
    return summarise([found.model_copy(update={"steps": steps})])
