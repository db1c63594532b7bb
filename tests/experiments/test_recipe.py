from pathlib import Path

import pytest
import yaml

from cotransport.errors import ConfigError
from cotransport.experiments.recipe import Recipe, load_recipe
from cotransport.methods import known_methods, make_method
from cotransport.settings.validation import descriptions

MINIMAL = {"stream": {"tasks": 2}, "methods": ["replay"]}


def written(folder: Path, values: object) -> str:
    path = folder / "mine.yaml"
    path.write_text(values if isinstance(values, str) else yaml.safe_dump(values), encoding="utf-8")
    return str(path)


def test_a_recipe_extends_another(tmp_path: Path) -> None:
    """Sections are merged, lists are replaced, and the name and description are not inherited."""
    written(tmp_path, MINIMAL | {"description": "the base", "schedule": {"epochs": 9, "batch_size": 8}})
    later = tmp_path / "later.yaml"
    later.write_text("extends: mine.yaml\nschedule: {epochs: 4}\nmethods: [coil]\nbackbone: {width: 8}\n")
    recipe = load_recipe(str(later))
    assert (recipe.name, recipe.description) == ("later", "")
    assert (recipe.schedule.epochs, recipe.schedule.batch_size) == (4, 8)
    assert [method.name for method in recipe.methods] == ["coil"]
    assert (recipe.backbone.name, recipe.backbone.width) == ("resnet32", 8)


def test_chosen_methods_keep_the_recipes_settings(tmp_path: Path) -> None:
    """Chosen by a label or by a name that one item has; any other name has the method's own defaults."""
    sharp, sharper = ({"name": "coil", "label": f"reg {reg}", "reg": reg} for reg in (0.1, 0.05))
    quiet = {"name": "icarl", "label": "quiet", "rt_weight": 0.1}
    listed = [{"name": "wa", "rt_weight": 2}, sharp, sharper, quiet, "replay"]
    path = written(tmp_path, MINIMAL | {"methods": listed})
    chosen = load_recipe(path, ["methods=[wa, reg 0.05, coil, icarl, bic]"]).methods
    expected = [{"name": "wa", "rt_weight": 2}, sharper, "coil", quiet, "bic"]
    assert list(chosen) == [make_method(method) for method in expected]  # type: ignore[arg-type]
    (changed,) = load_recipe(path, ["methods=[wa]", "methods.wa.combine=additive"]).methods
    assert changed == make_method({"name": "wa", "rt_weight": 2, "combine": "additive"})
    (plain,) = load_recipe(path, ["methods=[{name: wa}]"]).methods
    assert plain == make_method("wa")


def test_a_recipe_changes_the_settings_of_some_methods(tmp_path: Path) -> None:
    """A mapping in place of the list names methods of the recipe that it extends."""
    sharp = {"name": "coil", "label": "reg 0.1", "reg": 0.1}
    written(tmp_path, MINIMAL | {"methods": ["replay", {"name": "wa", "rt_weight": 2}, sharp]})
    later = tmp_path / "later.yaml"
    later.write_text("extends: mine.yaml\nmethods: {wa: {combine: ratio}, reg 0.1: {reg: 0.2}, replay: {label: CE}}\n")
    expected = [
        {"name": "replay", "label": "CE"},
        {"name": "wa", "rt_weight": 2, "combine": "ratio"},
        {"name": "coil", "label": "reg 0.1", "reg": 0.2},
    ]
    assert list(load_recipe(str(later)).methods) == [make_method(method) for method in expected]


def test_a_bundled_recipe_may_be_extended(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("extends: cifar100-b0-10-fast\nbackbone: {width: 16}\n", encoding="utf-8")
    recipe, base = load_recipe(str(path)), load_recipe("cifar100-b0-10-fast")
    assert (recipe.backbone.name, recipe.backbone.width) == ("fast", 16)
    assert recipe.schedule == base.schedule


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extends: loop.yaml\n", "extends itself"),
        ("extends: ./../{here}/loop.yaml\n", "extends itself"),
        ("extends: [digits]\n", "extends: give the name"),
        ("extends: nowhere\n", "nowhere: no such file"),
        ("extends: digits\nmethods: {bci: {label: mine}}\n", r"loop\.yaml: methods\.bci: .*did you mean 'bic'\?"),
        ("extends: digits\nseeds: {0: {a: 1}}\n", "seeds: "),
        ("extends: digits\nmethods: {bic: mine}\n", r"loop\.yaml: methods\.bic: give a mapping of the settings"),
        ('extends: "\\ud800"\n', "cannot be the path of a recipe"),
        ('extends: "\\0"\n', "cannot be the path of a recipe"),
    ],
)
def test_wrong_values_of_extends(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "loop.yaml").write_text(text.replace("{here}", tmp_path.name), encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        load_recipe(str(tmp_path / "loop.yaml"))


def test_a_recipe_from_a_file(tmp_path: Path) -> None:
    recipe = load_recipe(written(tmp_path, MINIMAL))
    assert recipe.name == "mine"
    assert [method.name for method in recipe.methods] == ["replay"]
    assert recipe.seeds == (1,)


def test_overrides(tmp_path: Path) -> None:
    overrides = [
        "schedule.epochs=7",
        "seeds=[1, 2]",
        "methods.0.predict_with=ncm",
        "backbone.stem=large",
        "stream.tasks=null",
        "stream.step=3",
    ]
    recipe = load_recipe(written(tmp_path, MINIMAL | {"backbone": "resnet18"}), overrides, data="photos")
    assert recipe.schedule.epochs == 7
    assert recipe.seeds == (1, 2)
    assert recipe.methods[0].predict_with == "ncm"
    assert (recipe.backbone.name, recipe.backbone.stem) == ("resnet18", "large")
    assert (recipe.stream.tasks, recipe.stream.step) == (None, 3)
    assert recipe.data.source == "photos"


@pytest.mark.parametrize(
    ("values", "overrides", "message"),
    [
        (MINIMAL, ["schedule.epoch=7"], r"schedule\.epoch: unknown key; did you mean 'epochs'\?"),
        (MINIMAL, ["schedul.epochs=7"], r"schedul: unknown key; did you mean 'schedule'\?"),
        (MINIMAL, ["schedule.shape=step"], r"schedule\.shape: 'step' is not allowed; did you mean 'steps'\?"),
        (MINIMAL, ["methods.3=replay"], r"not a position in a list of 1"),
        (MINIMAL, ["methods=[{name: [coil]}]"], r"method.name: \['coil'\] is not a method"),
        (MINIMAL, ["methods=[{name: coil, pt_epochs: 1.5}]"], r"pt_epochs: give a whole number of epochs, or a share"),
        (
            MINIMAL,
            ["methods=[repaly]"],
            r"'repaly' is not a method; did you mean 'replay'\? Known: analytic, bic, coil, coil-tuned",
        ),
        (MINIMAL, ["methods.0.predictwith=ncm"], r"predictwith: unknown key; did you mean 'predict_with'\?"),
        (MINIMAL, ["methods=[replay, replay]"], r"several have the label 'replay'"),
        (MINIMAL, ["methods=[]"], r"methods: "),
        (MINIMAL, ["methods=[3]"], r"3 is neither a method's name"),
        (MINIMAL, ["methods=[{label: x}]"], r"name is missing"),
        (MINIMAL, ["methods.0.label=a/b"], r"label"),
        (MINIMAL, ["seeds=[1, 1]"], r"listed twice"),
        (MINIMAL, ["seeds=3"], r"seeds: give a list"),
        (MINIMAL, ["data=photos"], r"data: give a section with keys"),
        (MINIMAL, ["backbone=resnet99"], r"backbone.name: 'resnet99' is not known"),
        (MINIMAL, ["schedule.learning_rate=.inf"], r"learning_rate: .*finite"),
        ("stream: {tasks: 2}\nstream: {tasks: 3}\n", [], r"not valid YAML: the key 'stream' appears twice.*line 2"),
        (MINIMAL, ["metric=top3"], r"metric: 'top3' is not allowed"),
        ({"methods": ["replay"]}, [], r"stream: is missing"),
        ("- a\n- b\n", [], r"a recipe is a mapping"),
        ("a: [", [], r"not valid YAML.*line 1"),
    ],
)
def test_wrong_recipes(tmp_path: Path, values: object, overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=r"(?s)" + message):
        load_recipe(written(tmp_path, values), overrides)


def test_an_unknown_recipe_lists_the_bundled_ones() -> None:
    with pytest.raises(ConfigError, match=r"digit: no such file.*did you mean 'digits'\? Bundled: .*digits"):
        load_recipe("digit")


def test_a_dumped_recipe_can_be_read_again() -> None:
    recipe = load_recipe("digits", ["methods.0.label=lower"])
    assert Recipe.model_validate(recipe.model_dump(mode="json")) == recipe


def test_every_method_is_found() -> None:
    assert {"finetune", "replay", "oracle"} <= set(known_methods())


def test_every_field_of_a_recipe_is_described() -> None:
    for name, text in descriptions(Recipe).items():
        assert text.endswith("."), name
