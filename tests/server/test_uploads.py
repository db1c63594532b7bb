"""Bodies that take too long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from starlette.requests import Request

from cotransport.server import uploads
from cotransport.server.failures import RefusedError


class Slow(Request):
    """A request whose body does not arrive."""

    async def stream(self) -> AsyncIterator[bytes]:  # type: ignore[override]
        yield b"{"
        await asyncio.sleep(60)


def test_a_body_that_does_not_arrive_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MOST_SECONDS", 0.05)
    request = Slow({"type": "http", "method": "POST", "headers": []})
    with pytest.raises(RefusedError) as caught:
        asyncio.run(uploads.read_body(request))
    assert caught.value.status == 408
