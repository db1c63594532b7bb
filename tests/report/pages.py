"""A page of the report, parsed."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any


class ParsedPage(HTMLParser):
    """A page: its start tags, addresses they load or link, descriptions of images, rows, text, elements left open."""

    VOID = ("meta", "br", "img", "wbr")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.descriptions: list[str] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(self.html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action", "data")]
        self.descriptions += [value or "" for name, value in attrs if name == "alt"]
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data

    @property
    def words(self) -> str:
        """The text with single spaces."""
        return " ".join(self.text.split())

    @property
    def chart_script(self) -> str:
        (script,) = re.findall(r'<script type="application/json" id="charts">(.*?)</script>', self.html, re.DOTALL)
        return str(script)

    @property
    def charts(self) -> dict[str, Any]:
        return dict(json.loads(self.chart_script))
