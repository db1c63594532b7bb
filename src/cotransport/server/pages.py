"""The two pages: one to teach and use the model, and the documentation of the API. They contain no model data."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from cotransport.server.openapi import MEANINGS, OPERATIONS, Operation, document
from cotransport.version import __version__


def _render(template: str, **values: Any) -> str:  # noqa: ANN401 (whatever the template needs)
    environment = Environment(
        loader=PackageLoader("cotransport.server", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(release=__version__, **values)


@cache
def page() -> str:
    """The page to teach and use the model."""
    return _render("page.html.j2")


@cache
def documentation() -> str:
    """The documentation of the API."""
    schemas = document()["components"]["schemas"]
    types = [
        (name, schema["description"], [(field, _meaning(one)) for field, one in schema["properties"].items()])
        for name, schema in schemas.items()
    ]
    return _render("docs.html.j2", operations=[_described(one, schemas) for one in OPERATIONS], types=types)


def _described(one: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    """What the template shows of an operation."""
    takes = [(name, f"query parameter: {meaning}") for name, _, meaning in one.query]
    takes += [(name, f"form field: {field['description']}") for name, field in one.form]
    if one.body is not None:
        fields = schemas[one.body.__name__]["properties"].items()
        takes += [(name, f"field of a JSON object: {_meaning(field)}") for name, field in fields]
    kind = one.answer.__name__ if isinstance(one.answer, type) else None
    success = (
        one.answer if isinstance(one.answer, str) else "Done." if one.answer is None else "A list of" * one.is_list
    )
    answers = [(one.status, success, kind), *((status, MEANINGS[status], None) for status in one.all_failures)]
    return {"method": one.method, "path": one.path, "summary": one.summary, "takes": takes, "answers": answers}


def _meaning(field: dict[str, Any]) -> str:
    return str(field.get("description") or field.get("type") or field.get("const") or "")
