"""The registry: methods by name, and their settings as a recipe or a saved model writes them."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import pytest

from cotransport.errors import ConfigError
from cotransport.methods import Method, known_methods, make_method
from cotransport.methods.coil import Coil, CoilTuned
from cotransport.settings.validation import descriptions
from tests.helpers import run_python

OWN: dict[str, object] = {"label": None, "predict_with": "head", "balanced_softmax": None}
MAPPING: dict[str, object] = {"reg": 0.45, "centres": "unit"}
REHEARSAL: dict[str, object] = {"temperature": 2.0, "distil_over": "old", "combine": "convex", "kd_weight": None}
RETROSPECTION: dict[str, object] = {
    "rt_weight": 0.0,
    "rt_every": 10,
    "rt_images": "all",
    "rt_scale": "head",
    "rt_share": "one",
    "rt_centres": "running",
}
PARTS = OWN | MAPPING | REHEARSAL | RETROSPECTION
TRANSPORT: dict[str, object] = {
    "prospective_init": True,
    "pt_source": "weights",
    "pt_length": "origin",
    "pt_weight": 1.0,
    "pt_epochs": 5,
}
COIL = PARTS | TRANSPORT | {"rt_weight": 1.0}
DEFAULTS: dict[str, dict[str, object]] = {
    "analytic": OWN | {"power": 0.5, "shrinkage": 0.6},
    "bic": PARTS | {"validate_every": 10, "correction_prior": 1.0},
    "coil": COIL,
    "coil-tuned": COIL | {"combine": "additive", "rt_weight": 0.3, "pt_length": "fresh", "pt_epochs": 0.03},
    "finetune": OWN,
    "icarl": PARTS | {"predict_with": "ncm"},
    "oracle": OWN,
    "replay": OWN,
    "wa": PARTS | {"clip_weights": True},
}
"""The keys of every method, flat, with their defaults. Recipes and saved models rely on them."""
FORMAT_1 = Path(__file__).parent.parent / "models" / "format-1" / "model"
every_method = pytest.mark.parametrize("name", sorted(DEFAULTS))


def test_every_method_of_the_package_is_found() -> None:
    assert list(known_methods()) == sorted(DEFAULTS)


def test_methods_are_listed_without_torch() -> None:
    """So that `cotransport methods` answers at once."""
    script = (
        "import sys; from cotransport.methods import known_methods, make_method; "
        "make_method({'name': 'coil', 'reg': 0.1}).dumped(); "
        "print(len(known_methods()), [name for name in ('torch', 'numpy', 'lightning_fabric') if name in sys.modules])"
    )
    assert run_python("-c", script).strip() == f"{len(DEFAULTS)} []"


def test_a_method_from_anywhere_is_found_by_its_name() -> None:
    class Mine(Method):
        name = "mine"
        title = "Mine"

    try:
        assert known_methods()["mine"] is Mine
        assert make_method("mine") == Mine()
    finally:
        del Mine.name  # so that other tests do not find it


def test_a_method_from_its_name_or_settings_or_itself() -> None:
    assert make_method("coil") == Coil()
    assert make_method({"name": "coil-tuned", "pt_weight": 0.5}) == CoilTuned(pt_weight=0.5)
    method = Coil(pt_epochs=3)
    assert make_method(method) is method


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, r"method: 3 is neither a method's name nor a mapping"),
        ({}, r"method: the method's name is missing\. Known: analytic, bic, coil,"),
        ("Coyl", r"method\.name: 'Coyl' is not a method; did you mean 'coil'\? Known: analytic, bic, coil,"),
        ({"name": 3}, r"method\.name: 3 is not a method"),
        ({"name": "wa", "rt_wieght": 1}, r"method \(wa\): rt_wieght: unknown key; did you mean 'rt_weight'\? Allowed"),
        ({"name": "wa", "rt_weight": -1}, r"method \(wa\): rt_weight: .*greater than or equal to 0.*got -1"),
        ({"name": "coil", "combine": "convx"}, r"method \(coil\): combine: 'convx' .* did you mean 'convex'\?"),
        ({"name": "coil", "kd_weight": 2}, r"method \(coil\): kd_weight: above 1 .*combine: additive"),
        (
            {"name": "replay", "rt_weight": 1},
            r"method \(replay\): rt_weight: unknown key.* Allowed here: balanced_softmax, ",
        ),
    ],
)
def test_wrong_methods_and_settings_are_named(value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_method(value)  # type: ignore[arg-type]


def test_an_unknown_key_lists_all_keys_that_may_be_written() -> None:
    for name, defaults in DEFAULTS.items():
        with pytest.raises(ConfigError) as caught:
            make_method({"name": name, "unheard": 1})
        assert str(caught.value).endswith(f"Allowed here: {', '.join(sorted(defaults))}")


@every_method
def test_keys_and_defaults(name: str) -> None:
    assert make_method(name).dumped() == {"name": name, **DEFAULTS[name]}


@every_method
def test_a_method_can_be_made_again_from_what_it_dumps(name: str) -> None:
    method = make_method(name)
    assert make_method(json.loads(json.dumps(method.dumped()))) == method


OTHER_VALUES: dict[str, object] = {
    "power": 0.25,
    "shrinkage": 0.2,
    "label": "mine",
    "predict_with": "head",
    "balanced_softmax": False,
    "reg": 0.1,
    "centres": "raw",
    "temperature": 1.0,
    "distil_over": "all",
    "combine": "additive",
    "kd_weight": 0.2,
    "rt_weight": 0.7,
    "rt_every": 3,
    "rt_images": "new",
    "rt_scale": "one",
    "rt_share": "new",
    "rt_centres": "exact",
    "prospective_init": False,
    "pt_source": "centres",
    "pt_length": "fresh",
    "pt_weight": 0.1,
    "pt_epochs": 0.5,
    "validate_every": 4,
    "correction_prior": 2.0,
    "clip_weights": False,
}


@every_method
def test_one_key_changes_one_setting(name: str) -> None:
    """All others keep the method's own defaults, also those of the same part."""
    for key in DEFAULTS[name]:
        value = OTHER_VALUES[key]
        method = make_method({"name": name, key: value})
        assert method.dumped() == {"name": name, **DEFAULTS[name], key: value}
        assert make_method(method.dumped()) == method


@every_method
def test_every_key_is_described(name: str) -> None:
    described = descriptions(known_methods()[name])
    assert described.keys() == DEFAULTS[name].keys()
    assert all(described.values())


@every_method
def test_a_key_belongs_to_one_part_only(name: str) -> None:
    """Otherwise a flat key would be ambiguous."""
    kind = known_methods()[name]
    sections = kind.inline_sections()
    owners = [set(kind.model_fields) - set(sections), *(set(part.model_fields) for part in sections.values())]
    assert not any(first & second for first, second in combinations(owners, 2))


@pytest.mark.parametrize("model", sorted(FORMAT_1.glob("versions/*/model.json")), ids=lambda path: path.parent.name)
def test_models_of_format_1_keep_their_keys(model: Path) -> None:
    """Keys that were added later have their defaults, which do what the method did before."""
    stored = json.loads(model.read_text())["settings"]["method"]
    added: dict[str, object] = {"balanced_softmax": None}
    added |= {"rt_scale": "head", "rt_share": "one"} if "rt_weight" in stored else {}
    added |= {"pt_source": "weights"} if "pt_length" in stored else {}
    assert make_method(stored).dumped() == added | stored
