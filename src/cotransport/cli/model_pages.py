"""The pages about a model that `report` and `images` write."""

from __future__ import annotations

from pathlib import Path

from cotransport.cli.console import err, out
from cotransport.errors import ConfigError
from cotransport.system.text import markup

PAGE = ".html"
"""Suffix of a page."""


def is_model(place: Path) -> bool:
    """Whether a path is a model folder."""
    from cotransport.model.folder import ModelFolder

    return ModelFolder(place).exists


def report_model(model: Path, place: Path | None) -> None:
    """Write the page on what a model knows.

    place : the page, or a folder for it; by default, the page is beside the model.
    """
    if place is not None and place.suffix != PAGE:
        place = place / "report.html"
    page = _page(model, place, "report")
    from cotransport.lessons.inspection import inspect
    from cotransport.report.model_page import render_model_page

    with err.status("reading the model") as status:
        overview = inspect(model, lambda text: status.update(markup(text)))
        status.update("writing the page")
        _write(page, render_model_page(overview))
    out.print(f"report: [bold]{markup(page)}[/]", soft_wrap=True)


def show_images(model: Path, class_name: str | None, page: Path | None) -> None:
    """Write the page of the images that a model keeps. By default, it is beside the model."""
    page = _page(model, page, "images")
    from cotransport.lessons.stored_images import image_overview
    from cotransport.report.model_page import render_image_page

    with err.status("reading the list of images") as status:
        images = image_overview(model, class_name, lambda text: status.update(markup(text)))
        _write(page, render_image_page(images))
    out.print(f"images: [bold]{markup(page)}[/]", soft_wrap=True)


def _page(model: Path, page: Path | None, what: str) -> Path:
    """Where a page goes. A model folder holds nothing but its own files."""
    name = model.name or model.resolve().name
    page = page or (model.parent if model.name else model.resolve().parent) / f"{name}-{what}{PAGE}"
    if model.resolve() in page.resolve().parents:
        raise ConfigError(
            f"--out {page}: inside the model folder, which holds only its own files. Choose another place"
        )
    return page


def _write(page: Path, text: str) -> None:
    from cotransport.system.files import storage_errors, write_text

    with storage_errors(page):
        page.parent.mkdir(parents=True, exist_ok=True)
    write_text(page, text)
