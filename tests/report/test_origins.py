"""What new classes were built from."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cotransport.experiments.results import Result
from cotransport.report.aggregate import summarise
from cotransport.report.origins import Origins
from tests.report.results import make_result, many_sources, transported_results, with_transport


def origins_of(*results: Result) -> Origins:
    origins = summarise(results)[0].methods[0].origins
    assert origins is not None
    return origins


def test_shares_of_old_classes_are_averaged_over_seeds() -> None:
    origins = origins_of(*transported_results())
    assert (origins.old, origins.new) == (["cat", "dog", "tiger", "wolf"], ["tiger", "wolf", "lynx"])
    # times the number of new classes: tiger 80 and 60 % from cat, lynx 50 and 30 % from cat, 0 and 20 % from dog
    unknown = math.nan
    np.testing.assert_allclose(
        origins.shares, [[70, 30, 40], [30, 70, 10], [unknown, unknown, 40], [unknown, unknown, 10]]
    )
    np.testing.assert_allclose(np.nansum(origins.shares, axis=0), 100.0)
    assert (origins.old_task_starts, origins.new_task_starts) == ([0, 2], [0, 2])
    assert origins.description(0, 2) == "lynx: 40\N{NO-BREAK SPACE}% from cat"


def test_a_seed_without_a_usable_plan_is_left_out_of_the_mean() -> None:
    first, second = transported_results()
    early = second.model_copy(update={"steps": second.steps[:2]})
    malformed = with_transport(second, [None, [[0.5, 0.5]]], [[], [1.0]])
    for other in (early, malformed):
        origins = origins_of(first, other)
        np.testing.assert_allclose(origins.shares[:, 2], [50, 0, 50, 0])
        assert origins.largest_shares(2, 3).count(",") == 1, "a share of zero is not named"
        assert origins.effective_sources[2].text == "2.0"
        assert origins.shares[0, 0] == pytest.approx(70.0)


def test_there_is_no_map_of_very_many_classes() -> None:
    assert origins_of(*transported_results()).has_map
    assert not origins_of(many_sources()).has_map


def test_a_method_without_transport_has_no_origins() -> None:
    assert summarise([make_result()])[0].methods[0].origins is None
