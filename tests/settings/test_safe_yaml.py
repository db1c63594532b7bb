import pytest

from cotransport.settings.safe_yaml import parse_yaml

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30)
)
"""Each line has nine times as many values as the line before, when its aliases are followed."""


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", None),
        ("3", 3),
        ("a: [1, 2.5, x, null]", {"a": [1, 2.5, "x", None]}),
        ("a: &b [1]\nc: *b", {"a": [1], "c": [1]}),
    ],
)
def test_yaml_is_parsed(text: str, values: object) -> None:
    assert parse_yaml(text) == values


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", r"line 1"),
        ("a: 1\na: 2\n", r"(?s)the key 'a' appears twice.*line 2"),
        ("a: 1\n---\nb: 2", r"expected a single document"),
        (LAUGHS, r"more than 100,000 values when its aliases are followed"),
        ("&a [*a]", r"an alias refers to a value that contains it"),
        ("a: &a {b: *a}", r"an alias refers to a value that contains it"),
        ("[" * 20_000, r"nested too deeply"),
        ("x" * 2_000_000, r"more than 1,048,576 characters"),
        ("9" * 5000, r"limit"),
        ("2026-99-99", r"month"),
        ("!!python/object/apply:os.system ['true']", r"could not determine a constructor"),
        ("{[a]: 1}", r"unhashable"),
    ],
    ids=[
        "half",
        "twice",
        "two documents",
        "laughs",
        "itself",
        "in itself",
        "deep",
        "long",
        "digits",
        "date",
        "code",
        "key",
    ],
)
def test_text_that_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_yaml(text)
