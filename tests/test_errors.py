"""Errors: what they say everywhere, and what only on the command line."""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path

import pytest

import cotransport
from cotransport import errors
from cotransport.errors import CotransportError, ModelError

SOURCE = Path(cotransport.__file__).parent
SERVED = [
    *(
        "jobs.py",
        "model/folder.py",
        "model/manifest.py",
        "model/store.py",
        "server/routes.py",
        "server/lesson_queue.py",
    ),
    *(f"lessons/{name}.py" for name in ("comparison", "images", "information", "removal", "teaching")),
    *(f"{folder}/{path.name}" for folder in ("learner", "training") for path in (SOURCE / folder).glob("*.py")),
]
"""Modules whose errors can become answers of a server."""
OPTION = re.compile(r"(^|\W)--[a-z]|`cotransport ")


def test_a_hint_is_part_of_the_message_and_can_be_left_out() -> None:
    error = ModelError("m: no version is current", hint="Use --to")
    assert (str(error), error.problem) == ("m: no version is current. Use --to", "m: no version is current")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.problem) == (ModelError, str(error), error.problem)


@pytest.mark.parametrize("kind", [one for one in vars(errors).values() if isinstance(one, type)])
def test_every_error_has_a_problem(kind: type[Exception]) -> None:
    if issubclass(kind, CotransportError):
        assert kind("full", hint="Free it").problem == "full"


@pytest.mark.parametrize("module", SERVED)
def test_options_of_the_command_are_named_in_hints_only(module: str) -> None:
    tree = ast.parse((SOURCE / module).read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    raised = [node for node in calls if getattr(node.func, "id", "").endswith("Error")]
    said = [ast.unparse(node.args[0]) for node in raised]
    assert [text for text in said if OPTION.search(text.strip("f'\""))] == []
