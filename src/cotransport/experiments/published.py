"""Numbers that publications print for the same experiments, to be shown beside ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

Averages: TypeAlias = Mapping[str, Mapping[str, float]]
"""Average incremental accuracies in percent, by recipe (without `-fast`) and by the method's title."""

PAPER: Averages = {
    "cifar100-b0-2": {"Finetune": 56.34, "iCaRL": 66.05, "BiC": 69.16, "WA": 67.56, "COIL": 69.64},
    "cifar100-b0-5": {"Finetune": 37.98, "iCaRL": 61.64, "BiC": 65.09, "WA": 64.91, "COIL": 68.26},
    "cifar100-b0-10": {"Finetune": 25.81, "iCaRL": 61.74, "BiC": 62.79, "WA": 57.43, "COIL": 65.48},
    "cifar100-b0-20": {"Finetune": 16.49, "iCaRL": 60.41, "BiC": 59.12, "WA": 55.71, "COIL": 62.98},
}
"""Table 1 of the paper, without its Oracle: that is an accuracy on all classes and not an average."""
PAPER_ORACLE = 70.1
"""The paper's Oracle on CIFAR-100: accuracy on all classes, learned at once."""
SURVEY: Averages = {"cifar100-b0-10": {"Finetune": 26.3, "iCaRL": 64.4, "BiC": 65.1, "WA": 67.1, "COIL": 60.27}}
"""The authors' later survey (arXiv 2302.03648), with ResNet-32 and 2,000 exemplars."""


def published(averages: Averages, recipe: str, title: str) -> float | None:
    """What a publication reports for a method in a recipe, or in its fast version; None if it reports nothing.

    >>> published(PAPER, "cifar100-b0-10-fast", "COIL"), published(PAPER, "digits", "COIL")
    (65.48, None)
    """
    return averages.get(recipe.removesuffix("-fast"), {}).get(title)
