"""Learning a task, as a function from one state to the next.

A task is learned on a copy of the network. If anything fails on the way, the state before is unchanged.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from cotransport.data import Images, Label, LabelledImages, Vectors, concatenate
from cotransport.data.memory import Memory, herding, herding_in_one_pass
from cotransport.data.workers import in_chunks
from cotransport.errors import ConfigError, CotransportWarning, DataError
from cotransport.learner.building import new_network
from cotransport.learner.settings import LearnerSettings
from cotransport.learner.state import State
from cotransport.methods import Method
from cotransport.model.manifest import LONGEST_NAME
from cotransport.networks.network import HeadAlone, Network
from cotransport.settings.sections import PRETRAINED_NAMES, Budget
from cotransport.system.randomness import generator, seeded
from cotransport.training.feature_cache import FeatureCache, digests_of
from cotransport.training.inference import place
from cotransport.training.loop import Trainer, TrainingControl
from cotransport.training.task_data import TaskData

NEW_CLASSES = 1
"""Place of the random draws for new classes' weights."""
CANDIDATES = 2
"""Place of the random draws for the images that exemplars are chosen from."""
PART = 4096
"""Images whose features are computed at a time, if exemplars are chosen from a sample."""
NAMED = 5
"""Classes, at most, that an error lists."""


def learned(
    before: State | None,
    data: LabelledImages,
    settings: LearnerSettings,
    *,
    extend: bool = False,
    control: TrainingControl = TrainingControl(),
    features: FeatureCache | None = None,
) -> State:
    """The state after learning a task.

    before : the state so far; None before the first task.
    extend : whether known classes may get more images; otherwise such images are an error.
    control : how the training is watched and resumed.
    features : features that are known already, of the backbone that these settings freeze.
    """
    return _next_state(before, data, settings, extend=extend, control=control, features=features, train=True)


def initialised(before: State | None, data: LabelledImages, settings: LearnerSettings) -> State:
    """The first half of `learned`: the state knows the new classes, but has not been trained on them."""
    return _next_state(before, data, settings, extend=False, control=TrainingControl(), features=None, train=False)


def _next_state(
    before: State | None,
    data: LabelledImages,
    settings: LearnerSettings,
    *,
    extend: bool,
    control: TrainingControl,
    features: FeatureCache | None,
    train: bool,
) -> State:
    method = settings.method
    known, sizes, memory = (before.classes, before.task_sizes, before.memory) if before else ((), (), Memory())
    _check_images(data, known)
    if not extend:
        check_new_classes(data.classes, known)
    data = data.renumbered((*known, *(name for name in data.classes if name not in known)))
    new, task = len(data.classes) - len(known), len(sizes)
    if method.needs_frozen_backbone and not settings.freeze_backbone:
        raise ConfigError(
            f"method: {method.title} keeps sums of features and no images, so the backbone must not change",
            hint=f"Choose a pretrained one ({', '.join(PRETRAINED_NAMES)}, timm:NAME, ...) and freeze it: "
            "freeze_backbone, or learn --freeze. To train the backbone, start a new model with another method",
        )
    if method.needs_exemplars:
        _check_exemplars(method, settings.memory, memory, data)
    trainer = _trainer(settings, task, fresh=before is None or method.from_scratch, control=control)
    exemplars = memory.labelled(data.classes) if _uses_exemplars(settings) else None
    task_data = TaskData(data, exemplars, len(known), new, method.loss_settings(settings.loss))

    network = _grown_network(before, settings, task_data, task)
    if trainer.processes.count > 1:
        network.load_state_dict(trainer.processes.broadcast(network.state_dict()))
    place(network, settings.device)
    embed: Callable[[Images], Tensor] = partial(trainer.features, network)
    cache, trained, inputs = None, network, task_data
    if settings.freeze_backbone:
        cache = _cache(before, settings) if features is None or features.view != settings.prediction.view else features
        embed = partial(cache.features, network, device=settings.device, progress=control.features)
        trained, inputs = HeadAlone(network.head), _features_only(task_data, embed)
    plan = method.initialise(trained, inputs, trainer)
    if train:
        method.learn(trained, inputs, trainer)

    memory = _updated_memory(settings, memory, data, embed, task)
    if cache is not None:  # features of images that are not kept are not kept either
        before_task = set() if before is None or before.features is None else before.features.digests
        cache = cache.only({*before_task, *(one for images in memory.exemplars for one in digests_of(images))})
    held_out = Memory() if before is None else before.held_out
    return State(data.classes, (*sizes, new), data.images.size, network.eval(), memory, plan, cache, held_out)


def _cache(before: State | None, settings: LearnerSettings) -> FeatureCache:
    """The features that are known before a task: those of the last state, if they are of the same kind."""
    view = settings.prediction.view
    known = None if before is None or settings.method.from_scratch else before.features
    return FeatureCache(view) if known is None or known.view != view else known.copy()


def _uses_exemplars(settings: LearnerSettings) -> bool:
    """Whether the method may see exemplars; a method without a memory must not see those of an earlier method."""
    budget = settings.method.budget(settings.memory)
    return budget is None or bool(budget.total or budget.per_class)


def check_new_classes(classes: Sequence[Label], known: Sequence[Label]) -> None:
    """Raise an error if some classes are known already."""
    both = [repr(name) for name in classes if name in known]
    if both:
        more = f" and {len(both) - NAMED} more" if len(both) > NAMED else ""
        them = "it" if len(both) == 1 else "them"
        raise DataError(
            f"{'class' if len(both) == 1 else 'classes'} {', '.join(both[:NAMED])}{more}: known already",
            hint=f"Leave {them} out, or add the images to {them} with known_classes='extend' (--known-classes extend)",
        )


def _check_images(data: LabelledImages, known: Sequence[Label]) -> None:
    """Raise an error if some class has no images, or a name that cannot be used."""
    for name, count in zip(data.classes, data.counts().tolist(), strict=True):
        if count == 0:
            raise DataError(f"the class {name!r} has no images. Give at least one, or leave the class out")
        if isinstance(name, str) and len(name) > LONGEST_NAME:
            raise DataError(f"the class {name[:40]!r}... has a name of {len(name):,} characters. Shorten it")
    if len({type(name) for name in (*known, *data.classes)}) > 1:
        raise DataError("some classes are named by strings and some by whole numbers. Use one kind for all")
    if not len(data):
        raise DataError("no images. Give at least one")


def _check_exemplars(method: Method, allowed: Budget, memory: Memory, data: LabelledImages) -> None:
    """Raise an error unless every class has images now, and will have an exemplar after the task."""
    needs = f"{method.title} with these settings needs an exemplar of every class"
    budget = method.budget(allowed)
    if budget is not None and not budget.quota(len(data.classes)):
        raise ConfigError(f"memory: {needs}", hint="Raise memory.total or memory.per_class (--memory)")
    counts = data.counts()
    without = [number for number, kept in enumerate(memory.exemplars) if not len(kept) and not counts[number]]
    if without:
        names = ", ".join(repr(data.classes[number]) for number in without)
        raise ConfigError(
            f"memory: {needs}, and there is none of {names}",
            hint="Give images of them too, with partial_fit or --known-classes extend",
        )


def _trainer(settings: LearnerSettings, task: int, *, fresh: bool, control: TrainingControl) -> Trainer:
    schedule = settings.schedule
    if not fresh and schedule.later_learning_rate is not None:
        schedule = schedule.model_copy(update={"learning_rate": schedule.later_learning_rate})
    return Trainer(
        task=task,
        seed=settings.seed,
        schedule=schedule,
        optimiser=settings.optimiser,
        augmentation=settings.augmentation,
        loss=settings.loss,
        prediction=settings.prediction,
        device=settings.device,
        control=control,
    )


def _grown_network(before: State | None, settings: LearnerSettings, data: TaskData, task: int) -> Network:
    """A network with a head for all classes: a copy of the last one, or a fresh one."""
    method = settings.method
    if before is None or method.from_scratch:
        network, grown = new_network(settings, data, before, task), data.classes
    else:
        network, grown = copy.deepcopy(before.network), data.new_classes
        if type(network.head) is not type(method.make_head(network.dimension, settings.head)):
            raise ConfigError(
                f"method: {method.title} with these settings needs another head than this model has. Keep the "
                "method that it started with, or start a new model"
            )
    with seeded(settings.seed, NEW_CLASSES, task):
        network.head.grow(grown)
    return network


def _features_only(data: TaskData, embed: Callable[[Images], Tensor]) -> TaskData:
    """The data with features in place of images."""

    def embedded(images: LabelledImages) -> LabelledImages:
        return replace(images, images=Vectors(embed(images.images)))

    memory = None if data.memory is None else embedded(data.memory)
    return replace(data, new=embedded(data.new), memory=memory)


def _updated_memory(
    settings: LearnerSettings, memory: Memory, data: LabelledImages, embed: Callable[[Images], Tensor], task: int
) -> Memory:
    """The memory after a task: exemplars of the new images added, every class cut to its quota."""
    budget = settings.method.budget(settings.memory)
    quota = None if budget is None else budget.quota(len(data.classes))
    if quota == 0 and budget is not None and budget.total:
        classes = len(data.classes)
        message = f"memory.total: {budget.total} is too few: no exemplar for each of {classes} classes. Raise it"
        warnings.warn(message, CotransportWarning, stacklevel=5)
    candidates: dict[int, Images] = {}
    for number in torch.nonzero(data.counts()).flatten().tolist():
        candidates[number] = data.images.take(torch.nonzero(data.labels == number).flatten())
        if number < len(memory.exemplars):  # a known class: its exemplars compete with the new images
            candidates[number] = concatenate([memory.exemplars[number], candidates[number]])
    if quota is None:
        return memory.updated(candidates, quota)
    if not quota:  # empty, and without a reference to the task's images
        return memory.updated({number: images.first(0).detached() for number, images in candidates.items()}, quota)
    if budget is not None and budget.candidates is not None:
        places = {
            number: herding_in_one_pass(
                _features_in_parts(images, embed),
                quota,
                budget.candidates,
                generator(settings.seed, CANDIDATES, task, number),
            )
            for number, images in candidates.items()
        }
    else:
        features = embed(concatenate(list(candidates.values())))
        parts = torch.split(features, [len(images) for images in candidates.values()])
        places = {number: herding(part, quota) for number, part in zip(candidates, parts, strict=True)}
    return memory.updated({number: candidates[number].take(places[number]).detached() for number in candidates}, quota)


def _features_in_parts(images: Images, embed: Callable[[Images], Tensor]) -> Iterator[Tensor]:
    """The features of images, a part at a time."""
    for rows in in_chunks(len(images), PART):
        yield embed(images.take(torch.arange(rows.start, rows.stop)))
