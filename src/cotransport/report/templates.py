"""The templates `*.j2` of the report's pages. They have the text and the elements, and escape all values."""

from __future__ import annotations

from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def render(template: str, **values: object) -> str:
    """A template with values filled in."""
    environment = Environment(
        loader=PackageLoader("cotransport.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment.get_template(template).render(**values)


def own_file(name: str) -> Markup:
    """A file of this package. It holds no data, so it is not escaped."""
    return Markup(files("cotransport.report").joinpath(name).read_text(encoding="utf-8"))
