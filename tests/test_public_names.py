"""The names that users rely on."""

from types import ModuleType

import pytest

import cotransport
from cotransport import data, losses, methods, metrics, report, transport


def test_exported_names() -> None:
    assert cotransport.__all__ == ["IncrementalClassifier", "__version__"]
    assert cotransport.IncrementalClassifier.__name__ == "IncrementalClassifier"
    assert methods.__all__ == ["Method", "known_methods", "make_method"]


@pytest.mark.parametrize("module", [cotransport, data, methods, report])
def test_exported_names_exist(module: ModuleType) -> None:
    assert all(hasattr(module, name) for name in module.__all__)


def test_the_papers_mathematics_is_known_by_these_names() -> None:
    for name in ("class_centres", "transport_cost", "transport_plan", "transport_classifier"):
        assert callable(getattr(transport, name))
    for name in ("prospective_loss", "retrospective_loss"):
        assert callable(getattr(losses, name))
    for name in ("average_incremental_accuracy", "forgetting", "top_k_accuracy"):
        assert callable(getattr(metrics, name))


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Classifier'"):
        cotransport.Classifier  # noqa: B018
