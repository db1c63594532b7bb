"""Runs of one recipe that count as runs of another, because their settings are the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cotransport import jobs
from cotransport.experiments.preparation import runs_of, with_usual_augmentation
from cotransport.experiments.recipe import Recipe, with_new_settings
from cotransport.experiments.results import Result
from cotransport.experiments.run_folders import is_finished, is_started, request_of
from cotransport.system.files import make_folder, storage_errors


def keep(results: Sequence[Result], out: Path) -> None:
    """Save adopted results into `out`, as if they had been run there. Runs that were started there stay as they are."""
    for result in results:
        folder = out / result.folder
        if not is_finished(folder) and not is_started(folder):
            with storage_errors(folder):
                make_folder(folder)
            result.save(folder)


def adopted(recipe: Recipe, results: Sequence[Result]) -> list[Result]:
    """Those results that are runs of the recipe, with its labels and its name.

    A result is a run of the recipe if its seed and all settings that affect it are the recipe's. If it has the accuracy
    before training and the recipe does not ask for it, the accuracy is left out.
    """
    found = []
    for one in runs_of(recipe):
        candidates = [result for result in results if result.seed == one.seed]
        for result in sorted(candidates, key=lambda result: result.label != one.label):  # those of the same label first
            own_recipe = _as_run_with(recipe, result)
            measures_more = {"initial_accuracy": recipe.initial_accuracy or bool(result.recipe.get("initial_accuracy"))}
            wanted = request_of({**own_recipe, **measures_more}, one.label)
            request = with_new_settings(request_of(result.recipe, result.label))
            if not jobs.differences(_without_label(wanted), _without_label(request)):
                steps = result.steps
                if not recipe.initial_accuracy:
                    steps = [step.model_copy(update={"initial": None}) for step in steps]
                found.append(result.model_copy(update={"label": one.label, "recipe": own_recipe, "steps": steps}))
                break
    return found


def _as_run_with(recipe: Recipe, result: Result) -> dict[str, Any]:
    """A recipe with the augmentation that a run of it has, and with the device of a result."""
    values = with_usual_augmentation(recipe).model_dump(mode="json")
    return values | {"device": result.recipe.get("device", values["device"])}


def _without_label(request: Mapping[str, Any]) -> dict[str, Any]:
    method = request["method"]
    return {**request, "method": None if method is None else {**method, "label": None}}
