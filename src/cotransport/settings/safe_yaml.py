"""YAML from untrusted text: limited in size, without repeated keys, and never executed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import yaml

MAX_CHARACTERS = 1 << 20
"""Longest text that is parsed."""
MAX_VALUES = 100_000
"""Most values that a text may hold when its aliases are followed."""


def parse_yaml(text: str) -> Any:  # noqa: ANN401 (whatever the text holds)
    """The values in a YAML text. Raises ValueError if the text is not valid YAML or exceeds a limit."""
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"more than {MAX_CHARACTERS:,} characters")
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _count(node, {})
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except (TypeError, OverflowError) as error:
        raise ValueError(str(error)) from None


def yaml_text(values: object) -> str:
    """Plain values as YAML, with short lists and mappings on one line."""
    text: str = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, default_flow_style=None)
    return text


class _Loader(yaml.SafeLoader):
    """Refuses a repeated key. YAML would silently drop the first value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping with distinct keys."""
        counts = Counter(str(key.value) for key, _ in node.value)
        for key, _ in node.value:
            if counts[str(key.value)] > 1:
                problem = f"the key {key.value!r} appears twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.value[-1][0].start_mark)
        return super().construct_mapping(node, deep)


def _count(node: yaml.Node, counts: dict[int, int]) -> int:
    """The number of values at and below a node when all aliases are followed."""
    if id(node) in counts:
        if not counts[id(node)]:
            raise ValueError("an alias refers to a value that contains it")
        return counts[id(node)]
    counts[id(node)] = 0  # marks a node whose count is not finished
    parts: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        parts = [part for pair in node.value for part in pair]
    elif isinstance(node, yaml.SequenceNode):
        parts = node.value
    total = 1 + sum(_count(part, counts) for part in parts)
    if total > MAX_VALUES:
        raise ValueError(f"more than {MAX_VALUES:,} values when its aliases are followed")
    counts[id(node)] = total
    return total
