"""The results that every engine has to reach."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engines.helpers import in_this_process


@pytest.fixture(scope="session")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The results of the sweep in a single process, without times."""
    return in_this_process(tmp_path_factory.mktemp("in-process"))
