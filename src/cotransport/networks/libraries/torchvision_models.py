"""Classification networks of torchvision, by the names of the network and of its weights."""

from __future__ import annotations

from torch import nn

from cotransport.errors import ConfigError
from cotransport.networks.libraries.source import (
    PublishedNetwork,
    colours,
    first_line,
    image_side,
    import_library,
)
from cotransport.settings.validation import nearest

UNSUITABLE = ("densenet", "googlenet", "inception", "squeezenet")
"""Networks with several outputs, without a last linear layer, or with weights that must be renamed."""


def find(name: str, weights: str) -> PublishedNetwork:
    """A network of torchvision."""
    models = import_library("torchvision").models
    _check_known(name)
    known = models.get_model_weights(name).__members__
    if weights not in known:
        names = ", ".join(choice for choice in known if choice != "DEFAULT")
        raise ConfigError(f"backbone: torchvision has no weights {weights!r} of {name}. Known: {names}")
    chosen = known[weights]
    seen = chosen.transforms()
    side = seen.crop_size[0]

    def load() -> tuple[nn.Module, str]:
        network: nn.Module = models.get_model(name, weights=None)
        try:  # without running code from the file, which the library itself would allow
            tensors = chosen.get_state_dict(progress=False, check_hash=True, weights_only=True, map_location="cpu")
            network.load_state_dict(tensors)
        except Exception as error:  # torch and the network raise many types
            raise ConfigError(
                f"backbone: the weights {weights} of torchvision's {name} cannot be loaded ({first_line(error)}). "
                "Check your connection"
            ) from None
        return _without_classifier(network), str(chosen.url)

    return PublishedNetwork(
        library="torchvision",
        model=name,
        weights=str(chosen.url),
        image_size=image_side(side, f"torchvision:{name}@{weights}"),
        crop=min(1.0, side / seen.resize_size[0]),
        mean=colours(seen.mean),
        deviation=colours(seen.std),
        load=load,
    )


def build(name: str) -> nn.Module:
    """The architecture of a network, with random weights and without a classifier. Nothing is downloaded."""
    models = import_library("torchvision").models
    _check_known(name)
    return _without_classifier(models.get_model(name, weights=None))


def _check_known(name: str) -> None:
    """Raise a ConfigError unless the installed torchvision has a suitable network of this name."""
    models = import_library("torchvision").models
    suitable = [known for known in models.list_models(module=models) if not known.startswith(UNSUITABLE)]
    if name not in suitable:
        raise ConfigError(f"backbone: torchvision has no suitable network {name!r}{nearest(name, suitable)}")


def _without_classifier(network: nn.Module) -> nn.Module:
    """The network without its last linear layer, which is the classifier."""
    place = [path for path, module in network.named_modules() if isinstance(module, nn.Linear)][-1]
    network.set_submodule(place, nn.Identity())
    return network
