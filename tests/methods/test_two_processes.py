"""Every method in two processes, against one process."""

from __future__ import annotations

from typing import TypeAlias

import pytest
import torch

from cotransport.methods import known_methods
from tests.helpers import run_python

pytestmark = pytest.mark.processes
METHODS = sorted(name for name, kind in known_methods().items() if not kind.needs_frozen_backbone)
every_method = pytest.mark.parametrize("method", METHODS)
Results: TypeAlias = dict[str, dict[tuple[str, str], dict[str, torch.Tensor]]]


@pytest.fixture(scope="module")
def in_processes(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """The tensors of one process ("1-0"), and of each of two processes ("2-0" and "2-1")."""
    out = tmp_path_factory.mktemp("processes")
    for processes in ("1", "2"):
        run_python("-m", "tests.methods.two_processes", str(out), processes, *METHODS)
    return {path.stem: torch.load(path) for path in sorted(out.glob("*.pt"))}


@every_method
@pytest.mark.parametrize("backbone", ["plain", "resnet8"])
def test_two_processes_have_the_same_result(method: str, backbone: str, in_processes: Results) -> None:
    first, second = in_processes["2-0"][method, backbone], in_processes["2-1"][method, backbone]
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("why", [("time", "budget"), ("early", "end")], ids="-".join)
def test_two_processes_agree_on_the_number_of_epochs(why: tuple[str, str], in_processes: Results) -> None:
    first, second = in_processes["2-0"][why], in_processes["2-1"][why]
    assert all(torch.equal(first[name], second[name]) for name in first)


@every_method
def test_two_processes_learn_what_one_learns(method: str, in_processes: Results) -> None:
    one, two = in_processes["1-0"][method, "plain"], in_processes["2-0"][method, "plain"]
    for name in one:
        if not name.startswith("exemplars"):  # the last digits of weights differ, so other exemplars may be chosen
            torch.testing.assert_close(one[name], two[name], rtol=1e-3, atol=1e-4)


def test_given_weights_choose_the_same_exemplars_in_any_number_of_processes(in_processes: Results) -> None:
    one, two = in_processes["1-0"]["given", "weights"], in_processes["2-0"]["given", "weights"]
    torch.testing.assert_close(one["features"], two["features"])
    assert torch.equal(one["exemplars"], two["exemplars"])
