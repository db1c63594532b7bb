"""The tables and figures of the paper by name, and the recipes behind each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cotransport.errors import ConfigError
from cotransport.experiments.bundled import FAST, bundled_recipes
from cotransport.experiments.recipe import Recipe, label_of, load_recipe
from cotransport.methods import Method


@dataclass(frozen=True)
class Reproduction:
    """A table or figure of the paper."""

    shows: str
    """What it shows, in a few words."""
    recipes: tuple[str, ...]
    paper: str
    """What the paper reports, in a sentence."""
    before_training: bool = False
    """Whether it shows how new classes are recognised before any training on them, instead of average accuracies."""


REPRODUCTIONS: Mapping[str, Reproduction] = {
    "table1": Reproduction(
        "CIFAR-100 in equal tasks (Table 1, Figure 4)",
        ("cifar100-b0-2", "cifar100-b0-5", "cifar100-b0-10", "cifar100-b0-20"),
        "COIL has the best average and the best last accuracy of the compared methods in all four streams.",
    ),
    "base50": Reproduction(
        "CIFAR-100 with 50 base classes (Figure 5)",
        ("cifar100-b50-2", "cifar100-b50-5", "cifar100-b50-10"),
        "COIL is ahead of the others, by slightly more than in equal tasks. There are curves; the averages are in the "
        "paper's supplement.",
    ),
    "imagenet": Reproduction(
        "ImageNet in ten tasks (Figure 4)",
        ("imagenet100-b0-10", "imagenet1000-b0-10"),
        "COIL is ahead in top-5 accuracy on ImageNet-1000; BiC works especially well on ImageNet-100. There are "
        "curves, but no averages.",
    ),
    "cub": Reproduction(
        "CUB with three exemplars per class (Figure 4)",
        ("cub100-b0-10", "cub200-b0-10"),
        "COIL is ahead of BiC by 20 %; the paper does not say of which measure. There are curves, but no averages.",
    ),
    "rafdb": Reproduction(
        "Facial expressions, RAF-DB (Figure 7)",
        ("rafdb-2", "rafdb-3"),
        "COIL is best, and WA and BiC are better than iCaRL. There are curves, but no averages.",
    ),
    "ablation": Reproduction(
        "The parts of COIL, in five tasks (Figure 8, right)",
        ("cifar100-ablation",),
        "Distillation improves a little on cross-entropy. Prospective and retrospective transport each improve on "
        "distillation, RT more than PT, and both together are best. There are curves, but no averages.",
    ),
    "initial": Reproduction(
        "New classes before any training (Figure 8, left)",
        ("cifar100-initial",),
        "Among ten new classes, random weights reach 10 %, the nearest class mean much more, and prospective "
        "transport the most. Accuracy rises with the number of known classes. Other numbers are not given.",
        before_training=True,
    ),
    "retrospection": Reproduction(
        "Retrospective transport in other methods",
        ("cifar100-retrospection",),
        "The results are in the paper's supplement, which we do not have. The ten tasks and the weight of 1 are our "
        "choice.",
    ),
    "boundary": Reproduction(
        "Decision boundaries in two dimensions (Figure 6)",
        ("cifar100-boundary",),
        "The transported classifier tells old and new classes apart before it is trained on the new ones.",
    ),
}


def recipes_of(
    name: str,
    *,
    fast: bool = False,
    seeds: Sequence[int] | None = None,
    methods: Sequence[str] | None = None,
    data: str | None = None,
    overrides: Sequence[str] = (),
) -> list[Recipe]:
    """The recipes behind a table or figure.

    fast : the versions for a laptop.
    seeds : other seeds.
    methods : some of the recipes' methods, by label, name or title; capital letters do not matter.
    """
    known = bundled_recipes()
    names = [f"{recipe}{FAST}" if fast else recipe for recipe in REPRODUCTIONS[name].recipes]
    if any(recipe not in known for recipe in names):
        raise ConfigError(f"--fast: there is no fast version of {name}. Leave the option out")
    chosen = [] if seeds is None else [f"seeds=[{', '.join(map(str, seeds))}]"]
    recipes = [load_recipe(recipe, [*overrides, *chosen], data) for recipe in names]
    return recipes if methods is None else [_with_methods(recipe, methods) for recipe in recipes]


def _with_methods(recipe: Recipe, wanted: Sequence[str]) -> Recipe:
    """A recipe with some of its methods, in the recipe's order. A label is preferred to a name or title."""
    kept: set[Method] = set()
    for one in wanted:
        found = [method for method in recipe.methods if label_of(method).casefold() == one.casefold()] or [
            method for method in recipe.methods if one.casefold() in {method.name.casefold(), method.title.casefold()}
        ]
        if not found:
            labels = ", ".join(label_of(method) for method in recipe.methods)
            raise ConfigError(f"--methods: {one!r} is not in {recipe.name}. It has: {labels}")
        kept.update(found)
    return recipe.model_copy(update={"methods": tuple(method for method in recipe.methods if method in kept)})
