"""Where a training step's time goes, largest first: `python -m benchmarks.profile [METHOD [BACKBONE]]`."""

from __future__ import annotations

import sys
import time
from collections import defaultdict

from torch.profiler import ProfilerActivity, profile

from benchmarks import learning
from cotransport.methods import make_method
from cotransport.settings.sections import Loss
from cotransport.training.task_data import TaskData

STEPS = 32
KINDS = {
    "convolution_backward": "convolutions, backward",
    "convolution": "convolutions, forward",
    "batch_norm_backward": "norms, backward",
    "batch_norm": "norms, forward",
    "max_pool": "pools",
    "SGD": "optimiser",
    "index": "gathering images",
    "flip": "gathering images",
    "mm": "head",
    "softmax": "loss",
    "nll_loss": "loss",
    "threshold": "activations, sums and copies",
    "clamp_min": "activations, sums and copies",
    "relu": "activations, sums and copies",
}
OTHER = "activations, sums and copies"


def main(method: str = "replay", backbone: str = "fast") -> None:
    """Profile a training and show the kinds of operations by their share of the time."""
    chosen = learning.DISTILLING if method == "distilling" else make_method(method)
    network, data = learning.make_network(backbone, 32, 20), learning.noise(STEPS * learning.BATCH, 32, 20)
    run = learning.our_training(chosen, network, TaskData(data, None, 10, 10, Loss()))
    run()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        started = time.perf_counter()
        run()
        seconds = time.perf_counter() - started
    spent: dict[str, float] = defaultdict(float)
    for event in profiler.key_averages():
        spent[kind_of(event.key)] += event.self_cpu_time_total / 1e6
    spent["Python and everything between operations"] = seconds - sum(spent.values())
    print(f"{method} on {backbone}: {1000 * seconds / STEPS:.1f} ms a step of {learning.BATCH} images")
    for kind, own in sorted(spent.items(), key=lambda item: -item[1]):
        print(f"{100 * own / seconds:5.1f} %  {kind}")


def kind_of(operation: str) -> str:
    """The kind of an operation, by the first part of its name that tells."""
    return next((kind for part, kind in KINDS.items() if part in operation), OTHER)


if __name__ == "__main__":
    main(*sys.argv[1:])
