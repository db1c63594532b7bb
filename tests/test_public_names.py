"""The names that users rely on."""

import cotransport
from cotransport import data, methods


def test_exported_names() -> None:
    assert cotransport.__all__ == ["IncrementalClassifier", "__version__"]
    assert cotransport.IncrementalClassifier.__name__ == "IncrementalClassifier"
    assert methods.__all__ == ["Lesson", "Method", "known_methods", "make_method"]
    assert all(hasattr(data, name) for name in data.__all__)
