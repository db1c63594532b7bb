import numpy as np
import pytest

from cotransport.data.labels import check_distinct, plain_label
from cotransport.errors import DataError


@pytest.mark.parametrize(
    ("value", "plain"), [("a", "a"), (np.str_("a"), "a"), (3, 3), (np.uint8(3), 3), (True, 1), (np.bool_(False), 0)]
)
def test_labels_of_any_type_become_pythons_own(value: object, plain: str | int) -> None:
    label = plain_label(value)
    assert label == plain
    assert type(label) is type(plain)


@pytest.mark.parametrize("value", [1.0, None, b"a", ("a",)])
def test_other_types_are_refused(value: object) -> None:
    with pytest.raises(DataError, match=r"as a label: use names \(strings\) or whole numbers"):
        plain_label(value)


def test_text_that_is_not_valid_is_refused() -> None:
    with pytest.raises(DataError, match=r"not valid text\. Use another name"):
        plain_label("caf\udce9")


def test_classes_must_have_different_names() -> None:
    assert check_distinct(iter(["a", "b"]), "here") == ("a", "b")
    with pytest.raises(DataError, match=r"here: 2 classes are named 'a'\. Give every class a different name"):
        check_distinct(["a", "b", "a"], "here")
