"""The only evaluation pass: features and logits of images."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from cotransport.data import Images, default_workers, evaluation_chunks
from cotransport.networks.network import Network, Output
from cotransport.settings.sections import Device, View
from cotransport.training.processes import processes_for

PassListener: TypeAlias = Callable[[int, int], None]
"""Called with the number of images that are done, and the number of all images."""


def place(network: Network, device: Device) -> Network:
    """Move a network to the device, and to the channels-last memory format if the settings ask for it."""
    if device.channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs lack it
    return network.to(processes_for(device).device)


def outputs(
    network: Network,
    images: Images,
    device: Device,
    *,
    flip: bool = False,
    view: View = View(),
    progress: PassListener | None = None,
    with_logits: bool = True,
) -> Output:
    """Features and logits of all images, on the CPU; the same in every process.

    flip : average them over each image and its mirror image.
    view : what the network sees of an image.
    progress : hears how many images are done.
    with_logits : whether logits are wanted. With many classes, they take far more memory than the features.
    """
    processes, training = processes_for(device), network.training
    place(network, device).eval()
    features = torch.zeros(len(images), network.dimension)
    logits = torch.zeros(len(images), network.head.classes if with_logits else 0)
    workers = decoding_workers(images, device)
    with torch.inference_mode(), processes.autocast():
        for rows, chunk in evaluation_chunks(
            images, device=processes.device, shard=processes.shard, workers=workers, view=view
        ):
            output = mirrored_mean(network, chunk, with_logits) if flip else network(chunk, with_logits)
            features[rows], logits[rows] = output.features.float().cpu(), output.logits.float().cpu()
            if progress is not None:
                progress(rows.stop, len(images))
    if processes.count > 1:  # each process has filled its own rows and left the others zero
        features, logits = (processes.reduce(part.to(processes.device), "sum").cpu() for part in (features, logits))
    network.train(training)
    return Output(features, logits)


def mirrored_mean(network: Network, images: Tensor, with_logits: bool = True) -> Output:
    """Features and logits of images (n, 3, h, w), averaged over each image and its mirror image."""
    output = network(torch.cat([images, images.flip(3)]), with_logits)
    return Output(*((part[: len(images)] + part[len(images) :]) / 2 for part in output))


def decoding_workers(images: Images, device: Device) -> int:
    """The number of workers that decode images for this process: by default, its share of the machine's workers."""
    if device.workers is not None:
        return device.workers
    return -(-default_workers(len(images)) // device.processes)
