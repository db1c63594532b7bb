"""What a whole process costs: start-up and peak memory, and the way from image files to answers."""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks import learning
from benchmarks.measure import Figure, in_turns, ratio, undisturbed
from cotransport import IncrementalClassifier
from cotransport.data.decoding import Encoded, Window, central_box, decode, draft_side
from cotransport.data.evaluation import centre_share
from cotransport.learner.prediction import predict_files
from cotransport.system.machine import available_cores

LIGHT, WITH_TORCH = 1.0, 2.0
"""Seconds that a command may take to answer, without and with torch."""


def startup() -> Iterator[Figure]:
    """How long the command takes to answer."""
    with tempfile.TemporaryDirectory() as folder:
        model, image = Path(folder) / "model", Path(folder) / "image.png"
        classifier = IncrementalClassifier("replay", "fast", schedule={"epochs": 1}, device=learning.DEVICE)
        for task in range(2):
            classifier.learn(learning.noise(64, 32, 2, first=2 * task)).save(model)
        Image.fromarray(np.zeros((32, 32, 3), np.uint8)).save(image)
        cases = [("--help", 0.5), ("recipes", LIGHT), ("methods", LIGHT), ("report --help", LIGHT)]
        cases += [(f"info {model}", LIGHT), (f"rollback {model} --to 1", LIGHT)]
        cases += [(f"predict {model} {image}", WITH_TORCH), ("run --dry-run", WITH_TORCH)]
        for arguments, at_most in cases:
            command = [str(Path(sys.executable).with_name("cotransport")), *arguments.split()]
            ask = partial(subprocess.run, command, stdout=subprocess.DEVNULL, check=True)
            seconds = in_turns({"ask": ask}, rounds=3)["ask"]
            name = arguments.replace(str(model), "MODEL").replace(str(image), "IMAGE")
            yield Figure("startup", f"cotransport {name}", undisturbed(seconds), "s", at_most=at_most)


_SMALL_TRAINING = """
    import time
    from benchmarks import learning
    from cotransport.learner.learning import learned
    from cotransport.learner.settings import LearnerSettings

    values = dict(method="replay", backbone="{backbone}", schedule=dict(epochs={epochs}, batch_size={batch}))
    settings, data = LearnerSettings.validate(values), learning.noise({images}, {size}, 10)
    learned(None, data, settings)
    begun = time.perf_counter()
    learned(None, data, settings)
    print(time.perf_counter() - begun)
"""


def neighbours() -> Iterator[Figure]:
    """Training beside other busy processes, against its fair share of the cores."""
    cores = available_cores()
    busy = cores + 1
    cases = [("resnet8", 8, 32, 1024, 6), ("fast", 32, 128, 1280, 2)]
    for backbone, size, batch, images, epochs in cases:
        code = _SMALL_TRAINING.format(backbone=backbone, size=size, batch=batch, images=images, epochs=epochs)
        alone = undisturbed([_seconds(code) for _ in range(3)])
        others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
        try:
            beside = undisturbed([_seconds(code) for _ in range(3)])
        finally:
            for process in others:
                process.kill()
        yield Figure(
            "neighbours",
            f"{backbone} at {size} pixels beside {busy} busy processes on {cores} cores, "
            "speed relative to a fair share of the cores",
            alone / beside / (cores / (busy + 1)),
            at_least=0.7 if backbone == "resnet8" else None,
            note=f"{alone:.2f} s alone, {beside:.2f} s beside them; fair would be {alone * (busy + 1) / cores:.2f} s",
        )


def jobs() -> Iterator[Figure]:
    """Two methods at once in processes of their own, against one after the other in one process."""
    if available_cores() < 2:
        return
    settings = ["methods=[wa, coil]", "device.accelerator=cpu"]
    words = ["run", "digits", "--quiet", "--overwrite", *(word for one in settings for word in ("--set", one))]
    for epochs, at_least in ((20, None), (80, 1.5)):
        with tempfile.TemporaryDirectory() as folder:
            command = [
                sys.executable,
                "-m",
                "cotransport",
                *words,
                "--set",
                f"schedule.epochs={epochs}",
                "--out",
                folder,
            ]
            ask = partial(subprocess.run, stdout=subprocess.DEVNULL, check=True)
            seconds = in_turns(
                {"in turn": partial(ask, command), "at once": partial(ask, [*command, "--jobs", "2"])}, rounds=1
            )
        one, two = undisturbed(seconds["in turn"]), undisturbed(seconds["at once"])
        yield Figure(
            "jobs",
            f"two methods on the digits, {epochs} epochs a task, with --jobs 2, times as fast as one after the other",
            one / two,
            at_least=at_least,
            note=f"{one:.1f} s one after the other, {two:.1f} s at once; from the start of the command to its report",
        )


def _seconds(code: str) -> float:
    """The seconds that a script in a process of its own prints."""
    answer = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    return float(answer.stdout)


def photograph(width: int, height: int, seed: int = 0) -> bytes:
    """A JPEG file of a size and detail as cameras make them: noise of several scales."""
    random = np.random.default_rng(seed)
    total = np.zeros((height, width, 3))
    for scale in (1, 4, 16, 64):
        coarse = random.normal(0, scale**0.5, (-(-height // scale), -(-width // scale), 3))
        total += coarse.repeat(scale, axis=0).repeat(scale, axis=1)[:height, :width]
    file = io.BytesIO()
    Image.fromarray((128 + 12 * total).clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


def bare_decode(encoded: bytes, size: int, area: float) -> np.ndarray:
    """The calls of Pillow that cut the central square with a share of the area and scale it."""
    with Image.open(io.BytesIO(encoded)) as image:
        side = (area * image.width * image.height) ** 0.5
        image.draft("RGB", (round(image.width * size / side), round(image.height * size / side)))
        side = (area * image.width * image.height) ** 0.5
        left, top = (image.width - side) / 2, (image.height - side) / 2
        box = (left, top, left + side, top + side)
        return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, box=box, reducing_gap=2.0))


def bare_centre(encoded: bytes, size: int, share: float) -> np.ndarray:
    """The calls of Pillow for the central square that a network sees in prediction."""
    with Image.open(io.BytesIO(encoded)) as image:
        image.draft("RGB", (draft_side(size, share),) * 2)
        square = image.crop(central_box(image.width, image.height, share, "crop"))
        return np.asarray(square.resize((size, size), Image.Resampling.BILINEAR))


def repeated(times: int, function: Callable[..., object], *arguments: object) -> None:
    """Call a function again and again."""
    for _ in range(times):
        function(*arguments)


def decoding() -> Iterator[Figure]:
    """One core's decoding of a random part of a large image to 224 pixels, against the bare Pillow calls for it."""
    for width, height in ((500, 375), (2000, 1500)):
        encoded, times = photograph(width, height), 100 if width == 500 else 10
        ours = partial(repeated, times, decode, Encoded(encoded, "photograph"), 224, Window(0.6, 1.0, 0.5, 0.5))
        bare = partial(repeated, times, bare_decode, encoded, 224, 0.6)
        seconds = in_turns({"bare": bare, "ours": ours}, rounds=8)
        yield Figure(
            "decoding",
            f"{width} x {height} to 224 pixels, share of bare Pillow",
            ratio(seconds, "bare", "ours"),
            at_least=0.85,
            note=f"{times / undisturbed(seconds['ours']):,.0f} images/s on one core",
        )


def answered(classifier: IncrementalClassifier, paths: list[Path]) -> None:
    """Predict all files."""
    for _ in predict_files(classifier.predictor(), paths):
        pass


def prediction() -> Iterator[Figure]:
    """Answers for image files, against bare decoding shared by all cores and then the bare forward pass.

    On a CPU the decoding processes and the network contend for the same cores, which the ideal does not.
    """
    width, height = 500, 375
    encoded = photograph(width, height)
    count = 2048
    for size in (64, 224):
        classifier = IncrementalClassifier(
            "replay", "fast", schedule={"epochs": 1}, device=learning.DEVICE, image_size=size
        )
        classifier.learn(learning.noise(64, size, 10))
        network, chunk = classifier.state_.network, learning.fixed_batch(size, 10, 256).images
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / f"{number}.jpg" for number in range(count)]
            for path in paths:
                path.write_bytes(encoded)
            seconds = in_turns(
                {
                    "decoding": partial(repeated, count, bare_centre, encoded, size, centre_share(size)),
                    "forward": partial(learning.bare_forward, network, chunk, count // 256),
                    "ours": partial(answered, classifier, paths),
                },
                rounds=3,
            )
        decoding, forward, ours = (undisturbed(seconds[name]) for name in ("decoding", "forward", "ours"))
        yield Figure(
            "prediction",
            f"files of {width} x {height} to {size} pixels, fast net, speed relative to bare decoding and forward pass",
            (decoding / available_cores() + forward) / ours,
            at_least=0.7,
            note=f"{count / ours:,.0f} images/s",
        )


_TRAINING = """
    from pathlib import Path
    from benchmarks import learning
    from cotransport import IncrementalClassifier

    def peak():
        [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1])

    learning.processes_for(learning.DEVICE).fabric
    before = peak()
    clf = IncrementalClassifier(
        "replay", "{backbone}", schedule=dict(epochs=1, batch_size={batch}), image_size={size}
    )
    clf.learn(learning.noise({images}, {size}, 10))
    print(before, peak())
"""


def memory() -> Iterator[Figure]:
    """Peak memory of a process that trains (as Linux tells it), and how much is there before any image is read."""
    if not Path("/proc/self/status").exists():
        return
    cases = [("fast", 32, 128, 1280), ("fast", 32, 128, 12_800), ("resnet32", 32, 128, 1280), ("fast", 224, 32, 256)]
    for backbone, size, batch, images in cases:
        code = textwrap.dedent(_TRAINING.format(images=images, backbone=backbone, size=size, batch=batch))
        answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        before, peak = (int(kibibytes) / 1024 for kibibytes in answer.stdout.split())
        yield Figure(
            "memory",
            f"{backbone}, batches of {batch}, {images:,} images of {size} pixels",
            peak,
            "MiB",
            note=f"{before:,.0f} MiB are libraries, {images * 3 * size**2 / 2**20:,.0f} MiB are pixels",
        )
