"""Errors, and the answers to requests that fail. No answer names a path of the server."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from cotransport.errors import ConfigError, CotransportError, DataError, ModelError

UNEXPECTED = "internal error; the server's log has the details"


class RefusedError(Exception):
    """A request is refused, with this status."""

    def __init__(self, status: int, message: str, unreadable: Sequence[int] = ()) -> None:
        """`unreadable` has the files of a lesson that cannot be read, counted from 0."""
        super().__init__(message)
        self.status, self.unreadable = status, unreadable


def without_paths(text: str, *names: str) -> str:
    """A message without the folders of the server in it.

    >>> without_paths("/home/me/model: no version is current", "/home/me/model", "/home/me")
    'the model: no version is current'
    """
    for number, name in enumerate(sorted(names, key=len, reverse=True)):
        if len(name) > 1:  # the root is in every path
            text = text.replace(name, "the model" if number == 0 else "...")
    return text


async def refused(request: Request, error: Exception) -> JSONResponse:
    """The answer to a request that was refused on purpose."""
    assert isinstance(error, RefusedError)
    headers = {"Retry-After": "1"} if error.status == 429 else None
    values: dict[str, object] = {"error": str(error)}
    if error.unreadable:
        values["unreadable"] = list(error.unreadable)
    return JSONResponse(values, error.status, headers)


async def own_error(request: Request, error: Exception) -> JSONResponse:
    """The answer to an error of this package: a mistake of the user, or a model in an unexpected state."""
    assert isinstance(error, CotransportError)
    status = 409 if isinstance(error, ModelError) else 400 if isinstance(error, ConfigError | DataError) else 500
    model = request.app.state.service.model
    return JSONResponse({"error": without_paths(error.problem, str(model), str(model.parent))}, status)


async def http_error(request: Request, error: Exception) -> JSONResponse:
    """The answer to a wrong path or method."""
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def unexpected(request: Request, error: Exception) -> JSONResponse:
    """The answer to an unexpected error. Its stack trace goes only to the server's log."""
    return JSONResponse({"error": UNEXPECTED}, 500)
