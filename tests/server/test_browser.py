"""The page in a real browser: teach, ask, undo, and come back while a lesson is learned."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cotransport.data.examples import write_digits
from tests.server.helpers import served

pytestmark = pytest.mark.slow
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
IMAGES = 20
LONGEST = 120_000
"""Milliseconds that a lesson may take."""


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Any]:
    """A page of a new browser, whose errors are collected in `page.errors`."""
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no browser is installed; `make browser` installs Chromium on Debian")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            tmp_path / "profile", executable_path=program, args=FLAGS, viewport={"width": 1180, "height": 900}
        )
        opened = browser.new_page()
        opened.set_default_timeout(30_000)
        opened.errors = []
        opened.on("pageerror", lambda error: opened.errors.append(str(error)))
        opened.on("console", lambda said: opened.errors.append(said.text) if is_error(said) else None)
        yield opened
        browser.close()


def is_error(said: Any) -> bool:
    """Whether the console shows an error. A page that is loaded again has the status 401, and is no error."""
    return said.type == "error" and "401" not in said.text


def teach(page: Any, name: str, files: list[Path]) -> None:
    """Fill in the form for one class, and send it."""
    page.get_by_label("Name of the class").last.fill(name)
    page.locator(".rows input[type=file]").last.set_input_files(files)
    page.get_by_text(f"{len(files)} photographs", exact=True).first.wait_for()
    page.get_by_role("button", name="Teach").click()


def test_classes_are_taught_asked_for_and_undone(page: Any, tmp_path: Path) -> None:
    write_digits(tmp_path / "digits")
    pictures = {name: sorted((tmp_path / "digits/first" / name).iterdir()) for name in ("zero", "one")}
    with served(tmp_path / "digits-model") as server:
        page.goto(server.address)
        page.get_by_text("a new model", exact=True).wait_for()
        assert "token" not in page.url
        assert page.get_by_role("button", name="Use the camera").first.is_disabled()
        teach(page, "zero", pictures["zero"][:IMAGES])
        page.get_by_text("learning", exact=True).first.wait_for()
        page.get_by_label("Name of the class").fill("zero")
        page.get_by_text("A lesson is about to teach this class").wait_for()
        page.reload()  # the token is kept, and the lesson goes on
        page.get_by_role("progressbar", name="Progress of zero").wait_for()
        page.get_by_role("button", name="Undo").press("Enter", timeout=LONGEST)
        page.get_by_text("an empty model", exact=True).wait_for()
        page.wait_for_function("document.activeElement.id === 'classes-title'")  # its button is gone
        page.get_by_role("button", name="Use version 1").click()
        page.get_by_text("version 1 · 1 class", exact=True).wait_for()
        teach(page, "one", pictures["one"][:IMAGES])
        page.get_by_role("button", name="Undo").wait_for(timeout=LONGEST)
        page.get_by_text("version 2 · 2 classes", exact=True).wait_for()
        assert page.get_by_role("heading", name="one", exact=True).count() == 2  # the lesson and the class

        page.locator("#ask-files").set_input_files([pictures["zero"][IMAGES], pictures["one"][IMAGES]])
        page.locator("#answers li").nth(1).wait_for()
        assert len(page.locator("#answers .best").all_inner_texts()) == 2

        page.get_by_role("button", name="Undo").click()
        page.get_by_text("version 1 · 1 class", exact=True).wait_for()
        page.get_by_role("button", name="Use version 2").click()
        page.get_by_text("version 2 · 2 classes", exact=True).wait_for()

        page.get_by_role("button", name="Rename zero").click()
        page.get_by_label("New name of zero").fill("<b>nought")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="<b>nought").wait_for()
        page.get_by_role("button", name="Remove one").click()
        page.get_by_role("dialog").get_by_role("button", name="Remove").click()
        page.get_by_text("version 4 · 1 class", exact=True).wait_for()
        assert page.errors == []

        stranger = page.context.browser or page.context
        other = stranger.new_page()
        other.goto(server.address.partition("?")[0])
        other.get_by_label("Token").fill("a-token")
        other.keyboard.press("Enter")
        other.get_by_text("version 4 · 1 class", exact=True).wait_for()
