"""A whole lesson on a frozen backbone, against what no lesson can save: decoding and seeing each image once."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks import learning
from benchmarks.measure import Figure, in_turns, undisturbed
from benchmarks.process import bare_decode, photograph
from cotransport.data.evaluation import LARGE_CHUNK, centre_share
from cotransport.learner.choice import PRETRAINED, PRETRAINED_SIDE
from cotransport.learner.snapshots import restored
from cotransport.lessons.options import LessonOptions
from cotransport.lessons.teaching import learn
from cotransport.model.store import ModelStore
from cotransport.networks.efficientnet_lite import is_installed
from cotransport.system.machine import available_cores

CLASSES, EACH = 10, 30
"""New classes of the lesson, and photographs of each."""
WIDTH, HEIGHT = 500, 375
ROUNDS = 4
OPTIONS = LessonOptions({"backbone": PRETRAINED}, device=learning.DEVICE)


def write_photographs(folder: Path, first: int) -> list[bytes]:
    """Photographs of classes numbered from `first` on, in a folder for each class."""
    written: list[bytes] = []
    for number in range(CLASSES * EACH):
        path = folder / f"class-{first + number // EACH}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        written.append(photograph(WIDTH, HEIGHT, seed=first * EACH + number))
        path.write_bytes(written[-1])
    return written


def decode_all(photographs: list[bytes]) -> None:
    """The bare calls of Pillow for each photograph, one after the other."""
    for encoded in photographs:
        bare_decode(encoded, PRETRAINED_SIDE, centre_share(PRETRAINED_SIDE) ** 2 * HEIGHT / WIDTH)


def lesson() -> Iterator[Figure]:
    """New classes for a model with a frozen backbone: the time beyond decoding and one forward pass."""
    if not is_installed(PRETRAINED):
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_photographs(folder / "known", 0)
        photographs = write_photographs(folder / "new", CLASSES)
        learn(folder / "model", str(folder / "known"), OPTIONS)
        network = restored(ModelStore(folder / "model").read(), device=learning.DEVICE)[0].network.frozen()
        chunk = learning.fixed_batch(PRETRAINED_SIDE, CLASSES, LARGE_CHUNK).images
        copies = itertools.count()

        def fresh_model() -> Path:
            return Path(shutil.copytree(folder / "model", folder / f"copy-{next(copies)}"))

        def by_command() -> None:
            program = [str(Path(sys.executable).with_name("cotransport")), "learn", "--quiet"]
            subprocess.run([*program, str(fresh_model()), str(folder / "new")], stdout=subprocess.DEVNULL, check=True)

        seconds = in_turns(
            {
                "decoding": partial(decode_all, photographs),
                "forward": partial(learning.bare_forward, network, chunk, len(photographs) // LARGE_CHUNK + 1),
                "lesson": lambda: learn(fresh_model(), str(folder / "new"), OPTIONS),
                "command": by_command,
            },
            ROUNDS,
        )
    decoding, forward, ours, command = (
        undisturbed(seconds[part]) for part in ("decoding", "forward", "lesson", "command")
    )
    ideal = decoding / available_cores() + forward
    what = (
        f"{CLASSES} new classes with {EACH} photographs each, frozen {PRETRAINED}: beyond decoding and a forward pass"
    )
    note = f"{ours:.1f} s; ideal {ideal:.1f} s"
    yield Figure("lesson", what, ours - ideal, "s", at_most=2, note=note)
    yield Figure("lesson", "the same as a command", command - ideal, "s", note=f"{command:.1f} s, with its start")
