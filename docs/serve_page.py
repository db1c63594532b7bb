"""Draw the page of `cotransport serve`, with a model of digits that is taught on it.

    python docs/serve_page.py docs/serve.png

It needs `make browser`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from cotransport.data.examples import write_digits

IMAGES = 30
"""Images of each class that is taught on the page."""
LONGEST = 600_000
"""Milliseconds that a lesson may take."""


def main(picture: Path) -> None:
    """Teach four digits on the command line and two on the page, ask for three images, and write the picture."""
    with tempfile.TemporaryDirectory() as folder:
        digits, model = Path(folder) / "digits", Path(folder) / "digits-model"
        write_digits(digits)
        command = [sys.executable, "-m", "cotransport"]
        subprocess.run([*command, "learn", str(model), str(digits / "first")], check=True)
        server = subprocess.Popen([*command, "serve", str(model), "--port", "0"], stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            address = re.sub(r"\s", "", server.stdout.readline())
            draw(address, digits, picture)
        finally:
            server.terminate()
            server.wait(60)


def draw(address: str, digits: Path, picture: Path) -> None:
    """Teach, ask and write the picture."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1180, "height": 1180})
        page.set_default_timeout(LONGEST)
        page.goto(address)
        page.get_by_text("version 1 · 4 classes", exact=True).wait_for()
        page.get_by_role("button", name="Add another class").click()
        for place, name in enumerate(("four", "five")):
            page.get_by_label("Name of the class").nth(place).fill(name)
            page.locator(".rows input[type=file]").nth(place).set_input_files(
                sorted((digits / "second" / name).iterdir())[:IMAGES]
            )
        page.get_by_role("button", name="Teach").click()
        page.get_by_role("button", name="Undo").wait_for()
        page.get_by_text("version 2 · 6 classes", exact=True).wait_for()
        page.locator("#ask-files").set_input_files(
            [digits / "unseen" / f"{name}-0.png" for name in ("two", "five", "nine")]
        )
        page.locator("#answers li").nth(2).wait_for()
        page.evaluate("scrollTo(0, 0)")
        page.screenshot(path=picture)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
