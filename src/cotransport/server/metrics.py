"""Counts and times of requests, in the text format of Prometheus."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram's buckets, in seconds."""
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Counts requests by route, method and status, and measures how long they take."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self._buckets: dict[str, list[int]] = {}
        self._seconds: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count its answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["metrics"] = self
        started, status = time.perf_counter(), 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            route = scope.get("route_name", "other")
            self.requests[route, scope["method"], status] += 1
            if route != "events":  # lasts as long as the page is open
                self._note(route, time.perf_counter() - started)

    def _note(self, route: str, seconds: float) -> None:
        self._buckets.setdefault(route, [0] * (len(BOUNDS) + 1))[bisect_left(BOUNDS, seconds)] += 1
        self._seconds[route] += seconds  # type: ignore[assignment]  # a counter may hold any number

    def text(self, gauges: Mapping[str, tuple[str, float]], counts: Mapping[str, tuple[str, float]]) -> str:
        """All metrics. `gauges` and `counts` have a help text and a value by name."""
        lines = [*_head("requests_total", "counter", "Requests answered.")]
        for (route, method, status), count in sorted(self.requests.items()):
            lines.append(_line("requests_total", count, route=route, method=method, status=str(status)))
        name = "request_seconds"
        lines += _head(name, "histogram", "Seconds from the start of a request to the end of its answer.")
        for route, counts_of_route in sorted(self._buckets.items()):
            total = 0
            for bound, count in zip((*BOUNDS, "+Inf"), counts_of_route, strict=True):
                total += count
                lines.append(_line(f"{name}_bucket", total, route=route, le=str(bound)))
            lines.append(_line(f"{name}_sum", self._seconds[route], route=route))
            lines.append(_line(f"{name}_count", total, route=route))
        for kind, values in (("gauge", gauges), ("counter", counts)):
            for key, (meaning, value) in values.items():
                lines += [*_head(key, kind, meaning), _line(key, value)]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, meaning: str) -> Iterable[str]:
    return f"# HELP cotransport_{name} {meaning}", f"# TYPE cotransport_{name} {kind}"


def _line(name: str, value: float, **labels: str) -> str:
    shown = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return f"cotransport_{name}" + (f"{{{shown}}}" if shown else "") + f" {value:.12g}"
