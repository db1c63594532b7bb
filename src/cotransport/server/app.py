"""The server as an ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from cotransport.errors import CotransportError
from cotransport.server import routes
from cotransport.server.failures import RefusedError, http_error, own_error, refused, unexpected
from cotransport.server.metrics import Metrics
from cotransport.server.security import Guard, Hosts
from cotransport.server.service import Service

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]

ROUTES: tuple[tuple[str, str, Endpoint], ...] = (
    ("GET", "/", routes.page),
    ("GET", "/page.css", routes.own_file),
    ("GET", "/page.js", routes.own_file),
    ("GET", "/icon.svg", routes.own_file),
    ("GET", "/health", routes.health),
    ("GET", "/metrics", routes.metrics_text),
    ("GET", "/docs", routes.documentation),
    ("GET", "/openapi.json", routes.openapi_document),
    ("POST", "/api/predict", routes.predict),
    ("POST", "/api/teach", routes.teach),
    ("GET", "/api/lessons", routes.lessons),
    ("GET", "/api/lessons/{lesson_id}", routes.lesson),
    ("DELETE", "/api/lessons/{lesson_id}", routes.remove_lesson),
    ("GET", "/api/classes", routes.classes),
    ("GET", "/api/versions", routes.versions),
    ("POST", "/api/rollback", routes.rollback),
    ("POST", "/api/rename", routes.rename),
    ("POST", "/api/remove", routes.remove),
    ("GET", "/api/events", routes.events),
)
"""Method, path and function of every route."""


def make_app(
    model: Path, token: str, hosts: Hosts = Hosts("127.0.0.1"), tell: Callable[[str], None] = lambda _: None
) -> ASGIApp:
    """The application for a model.

    hosts : the names that it answers to.
    tell : is called with a line about every step of a lesson.
    """
    model = model.resolve()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        service = Service(model, tell)
        app.state.service = service
        async with service.running():
            yield

    app = Starlette(
        routes=[Route(path, _named(endpoint), methods=[method]) for method, path, endpoint in ROUTES],
        lifespan=lifespan,
        exception_handlers={
            RefusedError: refused,
            CotransportError: own_error,
            HTTPException: http_error,
            Exception: unexpected,
        },
    )
    return Metrics(Guard(app, token, hosts))


def _named(endpoint: Endpoint) -> Endpoint:
    """The same function, which also records its name for the metrics."""

    async def answer(request: Request) -> Response:
        request.scope["route_name"] = endpoint.__name__
        return await endpoint(request)

    return answer
