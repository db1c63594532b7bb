"""The templates `*.j2` of the report's pages. They have the text and the elements, and escape all values."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape


def render(template: str, **values: object) -> str:
    """A template with values filled in."""
    environment = Environment(
        loader=PackageLoader("cotransport.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = breakable
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment.get_template(template).render(**values)


def render_with_charts(template: str, charts: Mapping[str, Any], **values: object) -> str:
    """A page that extends `base.html.j2`, with charts by the identifiers of their elements; or without any."""
    from plotly.offline import get_plotlyjs

    return render(
        template,
        charts=charts,
        plotly=base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode() if charts else "",
        css=own_file("page.css"),
        script=own_file("page.js"),
        **values,
    )


def breakable(name: str) -> Markup:
    """An escaped name that may be broken into lines after its underscores.

    >>> breakable("Blue_Jay <3")
    Markup('Blue_<wbr>Jay &lt;3')
    """
    return escape(name).replace("_", Markup("_<wbr>"))


def own_file(name: str) -> Markup:
    """A file of this package. It holds no data, so it is not escaped."""
    return Markup(files("cotransport.report").joinpath(name).read_text(encoding="utf-8"))
