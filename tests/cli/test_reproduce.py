"""The commands `reproduce` and `compare` as a user types them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from cotransport.experiments import reproductions
from cotransport.experiments.reproductions import Reproduction
from cotransport.experiments.results import find_results
from tests.cli.helpers import Command
from tests.report.results import RECIPE, make_result


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Mapping[str, Reproduction]:
    """A table of two quick recipes."""
    names = []
    for tasks in (2, 3):
        path = tmp_path / f"digits-{tasks}.yaml"
        path.write_text(
            f"extends: digits\nstream: {{tasks: {tasks}, subset: 6}}\nschedule: {{epochs: 1}}\n"
            "methods: [finetune, {name: coil, label: COIL}]\nseeds: [1]\ndevice: {accelerator: cpu}\n"
        )
        names.append(str(path))
    known = {"table1": Reproduction("Digits", tuple(names), "Nothing.")}
    monkeypatch.setattr(reproductions, "REPRODUCTIONS", known)
    monkeypatch.setattr(reproductions, "bundled_recipes", lambda: dict.fromkeys(names))
    return known


@pytest.mark.usefixtures("small")
class TestReproduce:
    def test_the_table_and_its_figure(self, cotransport: Command) -> None:
        code, printed = cotransport("reproduce", "table1", "--methods", "COIL", "--out", "here")
        assert code == 0, printed
        assert "digits-2 (1 of 2)" in printed
        assert "digits-3 (2 of 2)" in printed
        for suffix in ("html", "md", "tex", "png", "svg"):
            assert Path(f"here/table1.{suffix}").is_file()
        assert Path("here/report.html").is_file()
        title, _, *rows = Path("here/table1.md").read_text(encoding="utf-8").splitlines()
        assert (title, rows[0]) == ("# Digits", "| Method | 2 tasks | 3 tasks |")
        averages = {len(one.tasks): one.average_incremental_accuracy for one in find_results(Path("here"))}
        assert rows[2] == f"| COIL | {averages[2]:.1f} | {averages[3]:.1f} |"
        code, printed = cotransport("reproduce", "table1", "--methods", "coil", "--out", "here")
        assert code == 0
        assert printed.count("nothing is left to run") == 2
        code, printed = cotransport("reproduce", "table1", "--methods", "finetune", "--out", "here")
        assert code == 0
        rows = Path("here/table1.md").read_text(encoding="utf-8").splitlines()[2:]
        assert [row.split(" | ")[0] for row in rows[2:4]] == ["| Finetune", "| COIL"]  # with what was there before

    @pytest.mark.slow
    def test_jobs_of_all_recipes_run_at_a_time(self, cotransport: Command) -> None:
        code, printed = cotransport("reproduce", "table1", "--methods", "COIL", "--jobs", "2", "--out", "here")
        assert code == 0, printed
        assert {"digits-2/COIL-seed1: started", "digits-3/COIL-seed1: started"} <= set(printed.splitlines())
        rows = Path("here/table1.md").read_text(encoding="utf-8").splitlines()[2:]
        averages = {len(one.tasks): one.average_incremental_accuracy for one in find_results(Path("here"))}
        assert rows[2] == f"| COIL | {averages[2]:.1f} | {averages[3]:.1f} |"
        code, printed = cotransport("reproduce", "table1", "--methods", "COIL", "--jobs", "2", "--out", "here")
        assert (code, "nothing is left to run" in printed) == (0, True)

    def test_an_unfinished_run_is_found_before_anything_is_trained(self, cotransport: Command) -> None:
        job = Path("here/digits-3/COIL-seed1/unfinished/job.json")
        job.parent.mkdir(parents=True)
        job.write_text("{}")
        code, printed = cotransport("reproduce", "table1", "--methods", "COIL", "--out", "here")
        assert (code, "an unfinished run. Resume it with --resume" in printed) == (2, True)
        assert not Path("here/digits-2").exists()
        words = (
            "reproduce",
            "table1",
            "--methods",
            "COIL",
            "--out",
            "here",
            "--overwrite",
            "--set",
            "schedule.epochs=2",
        )
        code, printed = cotransport(*words)
        assert code == 0, printed
        assert {one.recipe["schedule"]["epochs"] for one in find_results(Path("here"))} == {2}

    def test_archived_results_are_not_run_again(self, cotransport: Command) -> None:
        words = ["reproduce", "table1", "--methods", "COIL", "--out"]
        assert cotransport(*words, "here")[0] == 0
        Path("archives").mkdir()
        assert cotransport("report", "here", "--archive", "archives/digits.json")[0] == 0
        code, printed = cotransport(*words, "there", "--from", "archives")
        assert code == 0, printed
        assert printed.count("nothing is left to run") == 2
        assert Path("there/table1.md").read_text() == Path("here/table1.md").read_text()

    def test_results_of_another_recipe_with_the_same_settings_count(
        self, cotransport: Command, small: Mapping[str, Reproduction]
    ) -> None:
        name = small["table1"].recipes[0]
        Path("other.yaml").write_text(Path(name).read_text(encoding="utf-8"), encoding="utf-8")
        changes = ("methods=[{name: coil, label: other}]", "initial_accuracy=true")
        assert cotransport("run", "other.yaml", *(f"--set={change}" for change in changes), "--out", "here")[0] == 0
        words = ["--methods", "COIL", "--from", "here", "--no-run", "--out", "there"]
        code, printed = cotransport("reproduce", "table1", *words)
        assert code == 0, printed
        (adopted,) = find_results(Path("there"))
        assert (adopted.recipe["name"], adopted.label, adopted.folder) == ("digits-2", "COIL", "COIL-seed1")
        assert [one["label"] for one in adopted.recipe["methods"]] == ["COIL"]
        (own,) = find_results(Path("here"))
        assert adopted.curve == own.curve
        assert [step.initial is None for step in (own.steps[-1], adopted.steps[-1])] == [False, True]  # not asked for
        code, printed = cotransport("reproduce", "table1", "--methods", "COIL", "--out", "there")
        assert (code, printed.count("nothing is left to run")) == (0, 1)  # the other recipe is run

    def test_results_with_other_settings_are_run_again(self, cotransport: Command) -> None:
        words = ["reproduce", "table1", "--methods", "COIL", "--out"]
        assert cotransport(*words, "here")[0] == 0
        code, printed = cotransport(*words, "there", "--from", "here", "--no-run", "--set", "memory.total=30")
        assert (code, "--no-run: no run of table1 with these settings is finished" in printed) == (2, True)

    def test_without_running_the_table_has_what_is_finished(self, cotransport: Command) -> None:
        assert cotransport("reproduce", "table1", "--methods", "COIL", "--out", "here")[0] == 0
        code, printed = cotransport("reproduce", "table1", "--from", "here", "--no-run", "--out", "there")
        assert code == 0, printed
        assert sorted(one.label for one in find_results(Path("there"))) == ["COIL", "COIL"]  # and no Finetune
        text = Path("there/table1.md").read_text(encoding="utf-8")
        assert text.splitlines()[2] == "| Method | 2 tasks | 3 tasks |"
        missing = "Not run yet: digits-2: finetune. digits-3: finetune."
        assert missing in text
        assert missing in printed
        code, printed = cotransport("reproduce", "table1", "--no-run", "--seeds", "1,2", "--out", "there")
        assert code == 0, printed
        assert "digits-2: finetune; seed 2 of COIL. digits-3" in printed

    @pytest.mark.parametrize("change", [["--set", "schedule.epochs=2"], ["--methods", "finetune"], ["--seeds", "7"]])
    def test_without_running_other_runs_than_those_asked_for_are_left_out(
        self, cotransport: Command, change: list[str]
    ) -> None:
        assert cotransport("reproduce", "table1", "--methods", "COIL", "--out", "here")[0] == 0
        code, printed = cotransport("reproduce", "table1", "--no-run", *change, "--out", "here")
        assert (code, "no run of table1 with these settings is finished" in printed) == (2, True)

    @pytest.mark.parametrize("change", ["augmentation.cutout=0.5", "augmentation.policy=trivial", "memory.total=30"])
    def test_runs_with_other_settings_are_not_taken(self, cotransport: Command, change: str) -> None:
        """The recipe leaves the augmentation open: a run of it has the usual one."""
        words = ("reproduce", "table1", "--methods", "COIL", "--no-run", "--from", "here", "--out", "there")
        assert cotransport("reproduce", "table1", "--methods", "COIL", "--set", change, "--out", "here")[0] == 0
        code, printed = cotransport(*words)
        assert (code, "--from here: none of the 2 results has the settings of digits-2" in printed) == (2, True)
        assert cotransport(*words, "--set", change)[0] == 0

    def test_a_run_that_follows_another_is_no_run_of_the_recipe_itself(
        self, cotransport: Command, small: Mapping[str, Reproduction]
    ) -> None:
        recipe, only = small["table1"].recipes[0], ("--set", "methods=[{name: coil, label: COIL}]")
        assert cotransport("run", recipe, *only, "--out", "short")[0] == 0
        longer = ("--set", "schedule.epochs=2", "--set", "follow=short")
        assert cotransport("run", recipe, *only, *longer, "--out", "here")[0] == 0
        words = ("reproduce", "table1", "--methods", "COIL", "--no-run", "--set", "schedule.epochs=2", "--from", "here")
        assert cotransport(*words)[0] == 2

    def test_a_dry_run_estimates_the_time(self, cotransport: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("cotransport.experiments.estimate.images_per_second", lambda *_: 10.0)
        code, printed = cotransport("reproduce", "table1", "--dry-run", "--seeds", "1,2")
        assert code == 0, printed
        cells = [line.split() for line in printed.splitlines() if line.strip().startswith("digits-2")]
        assert cells[0][1:6] == ["2", "1,", "2", "4", "0"]
        assert "of training on this machine" in printed
        assert not Path("runs").exists()

    def test_a_dry_run_counts_what_is_finished_elsewhere_and_writes_nothing(
        self, cotransport: Command, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("cotransport.experiments.estimate.images_per_second", lambda *_: 10.0)
        assert cotransport("reproduce", "table1", "--methods", "COIL", "--out", "here")[0] == 0
        for change, finished in (("seeds=[1]", "1"), ("schedule.epochs=2", "0")):
            words = ("--dry-run", "--from", "here", "--set", change, "--out", "there")
            code, printed = cotransport("reproduce", "table1", *words)
            assert code == 0, printed
            cells = [line.split() for line in printed.splitlines() if line.strip().startswith("digits-2")]
            assert cells[0][1:5] == ["2", "1", "2", finished]
        assert not Path("there").exists()

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["tabel1"], "did you mean 'table1'?"),
            (["table2"], "Choose one of: table1"),
            (["table1", "--seeds", "one"], "whole numbers separated by commas"),
            (["table1", "--seeds", "1" * 5000], "whole numbers separated by commas"),
            (["table1", "--fast"], "no fast version of table1"),
            (["table1", "--methods", "coyl"], "'coyl' is not in digits-2. It has: finetune, COIL"),
            (["table1", "--methods", ","], "give some methods"),
            (["table1", "--resume", "--overwrite"], "--overwrite cannot be combined with --resume, --from or --no-run"),
            (["table1", "--from", "nowhere"], "nowhere: no such file or folder"),
        ],
    )
    def test_mistakes(self, cotransport: Command, words: list[str], message: str) -> None:
        code, printed = cotransport("reproduce", *words)
        assert code == 2
        assert message in printed


def test_decision_boundaries_with_what_the_paper_says(cotransport: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"boundary": Reproduction("Boundaries", ("digits-boundary",), "The two are told apart.")}
    monkeypatch.setattr(reproductions, "REPRODUCTIONS", known)
    words = ("--set", "schedule.epochs=1", "--set", "device.accelerator=cpu", "--out", "here")
    code, printed = cotransport("reproduce", "boundary", *words)
    assert code == 0, printed
    assert "\\xa0" not in printed
    page = Path("here/boundary.html").read_text(encoding="utf-8")
    assert "The paper: The two are told apart." in page
    assert "built from" in page
    assert "What it cost" not in page


def test_what_can_be_reproduced(cotransport: Command) -> None:
    code, printed = cotransport("reproduce")
    assert code == 0
    for name in ("table1", "base50", "imagenet", "cub", "rafdb", "ablation", "initial", "retrospection", "boundary"):
        assert f" {name} " in printed


class TestCompare:
    @pytest.fixture
    def runs(self, tmp_path: Path) -> Path:
        """Two methods with three seeds; one is better by 11, 12 and 13 points after the last task. And another seed."""
        results = [make_result("finetune", 9)]
        for seed in (1, 2, 3):
            results += [make_result("replay", seed), make_result("coil", seed, ((90.0,), (70.0 + seed, 90.0 + seed)))]
        for one in results:
            folder = tmp_path / "runs" / one.folder
            folder.mkdir(parents=True)
            one.save(folder)
        return tmp_path / "runs"

    def test_curves_measures_and_differences(self, cotransport: Command, runs: Path) -> None:
        code, printed = cotransport("compare", str(runs), "--against", "replay")
        assert code == 0, printed
        lines = [" ".join(line.split()) for line in printed.splitlines()]
        assert "method seeds 2 4" in lines
        assert "COIL 3 90.0 82.0" in lines
        assert "COIL +6.0 ± 0.5 +4.8 to +7.2 +12.0 ± 1.0 3 < 0.01 unlikely" in lines
        assert "Finetune 0 not paired" in lines

    def test_one_seed_is_a_tendency(self, cotransport: Command, runs: Path) -> None:
        code, printed = cotransport("compare", str(runs / "coil-seed1"), str(runs / "replay-seed1"))
        assert code == 0
        assert "difference from COIL" in printed
        assert "one seed" in printed

    def test_some_labels(self, cotransport: Command, runs: Path) -> None:
        code, printed = cotransport("compare", str(runs), "--methods", "COIL,finetune")
        assert (code, "Replay" in printed) == (0, False)

    def test_methods_by_label_name_or_title_in_any_case(self, cotransport: Command, tmp_path: Path) -> None:
        methods = [{"name": "coil-tuned", "label": "CE+KD"}, {"name": "coil-tuned", "label": "COIL"}, {"name": "wa"}]
        for label, method in (("CE+KD", "coil-tuned"), ("COIL", "coil-tuned"), ("wa", "wa")):
            one = make_result(label, method=method, title=method.upper(), recipe={**RECIPE, "methods": methods})
            (tmp_path / "runs" / one.folder).mkdir(parents=True)
            one.save(tmp_path / "runs" / one.folder)
        compared = ("compare", str(tmp_path / "runs"), "--methods")
        for wanted, shown in {"coil,Wa": "COIL,WA", "coil-tuned": "CE+KD,COIL"}.items():
            code, printed = cotransport(*compared, wanted)
            assert code == 0, printed
            assert {name for name in ("CE+KD", "COIL", "WA") if name in printed} == set(shown.split(","))
        code, printed = cotransport("compare", str(tmp_path / "runs"), "--against", "coil-tuned")
        assert (code, "several methods have this name. Give one of: 'CE+KD', 'COIL'" in printed) == (2, True)
        code, printed = cotransport(*compared, "wa", "--against", "ce+kd")
        assert (code, "difference from CE+KD" in printed, "COIL" in printed) == (0, True, False)

    def test_an_unknown_label(self, cotransport: Command, runs: Path) -> None:
        code, printed = cotransport("compare", str(runs), "--methods", "coyl")
        assert code == 2
        assert "'coyl': no run of this method. There are: COIL, Finetune, Replay" in printed
