"""The page in a real browser: teach, ask, undo, and come back while a lesson is learned."""

from __future__ import annotations

import re
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
    """Whether the console shows an error. A refused request is none, such as that of a page that is loaded again."""
    return said.type == "error" and not re.search(r"status of 40[01]", said.text)


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
        page.get_by_label("New name of zero").fill("one")
        page.keyboard.press("Enter")
        page.get_by_role("dialog").get_by_text("another class has this name").wait_for()
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
        other.get_by_label("Token").fill("another-token")
        other.keyboard.press("Enter")
        other.get_by_text("The server does not accept this token").wait_for()
        other.get_by_label("Token").fill("a-token")
        other.keyboard.press("Enter")
        other.get_by_text("version 4 · 1 class", exact=True).wait_for()


DROP = """([target, folders]) => {
    const entries = Object.entries(folders).map(([folder, names]) => ({
        isFile: false, name: folder, createReader: () => {
            const left = names.map((name) => ({
                isFile: true, name, file: (take) => take(new File(["no image"], name, { type: "image/png" })),
            }));
            return { readEntries: (take) => take(left.splice(0, 2)) };
        },
    }));
    const event = new Event("drop", { bubbles: true, cancelable: true });
    event.dataTransfer = { items: entries.map((entry) => ({ kind: "file", webkitGetAsEntry: () => entry })) };
    document.querySelector(target).dispatchEvent(event);
}"""
"""Drops folders, by the names of their files. A browser reads a folder in parts, and a test cannot drop a real one."""


def test_photographs_can_be_dropped_as_folders_and_left_out_again(page: Any, tmp_path: Path) -> None:
    write_digits(tmp_path / "digits")
    pictures = sorted((tmp_path / "digits/first/zero").iterdir())[:IMAGES]
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    with served(tmp_path / "digits-model") as server:
        page.goto(server.address)
        page.get_by_text("a new model", exact=True).wait_for()
        page.evaluate(DROP, ["#teach", {"zero": ["1.png", "2.png", "3.png", ".DS_Store"], "one": ["4.png"]}])
        page.get_by_text("1 photograph", exact=True).wait_for()
        assert [field.input_value() for field in page.get_by_label("Name of the class").all()] == ["zero", "one"]
        page.evaluate(DROP, ["#teach", {"zero": ["5.png"], ".git": ["6.png"]}])  # to the row of this name
        page.get_by_text("4 photographs", exact=True).wait_for()
        page.get_by_role("button", name="Leave out 5.png").click()
        page.get_by_role("button", name="Leave out 2.png").click()
        page.get_by_text("2 photographs", exact=True).wait_for()
        page.get_by_role("button", name="Leave this class out").last.click()
        page.get_by_role("button", name="Leave all photographs out").click()
        page.locator(".rows input[type=file]").set_input_files([*pictures, broken])
        page.get_by_role("button", name="Teach").click()
        page.get_by_text("1 file is not an image that can be read: broken.png. It was left out.").wait_for()
        page.get_by_text(f"{IMAGES} photographs", exact=True).wait_for()
        page.get_by_role("button", name="Teach").click()
        page.get_by_text("which are too few to be sure").wait_for(timeout=LONGEST)

        page.locator("#ask-files").set_input_files([broken, *pictures[:6]])
        page.get_by_text("7 photographs: 6 zero, 1 not an image.").wait_for()
        assert page.locator("#answers .file").nth(1).inner_text() == pictures[0].name
        page.get_by_role("button", name="Empty the model").click()
        page.get_by_role("dialog").get_by_role("button", name="Empty the model").click()
        page.get_by_text("an empty model", exact=True).wait_for()
        assert page.errors == []
