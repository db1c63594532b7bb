"""Access: the token, the host names that the server answers to, and the security headers of every answer.

The token travels in a header that only our own page and the user's programs send, never in a cookie: browsers share
cookies between all ports of a machine. Host and Origin are checked as well, so that a page of another site cannot reach
the server under its own name (DNS rebinding).
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
import socket
from dataclasses import dataclass
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cotransport.errors import ConfigError

PUBLIC = frozenset({"/health", "/docs", "/openapi.json", "/page.css", "/page.js", "/icon.svg"})
"""Paths that need no token: none of them says anything about the model."""
PAGE = "/"
"""The page takes its token from the address."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data: blob:; media-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(self), microphone=(), geolocation=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
"""Headers of every answer."""
SHORTEST_TOKEN = 12
"""Smallest length of a token, if other machines can reach the server."""
_READING = frozenset({"GET", "HEAD"})
_TOKEN = re.compile(r"[A-Za-z0-9._~-]+")


def new_token() -> str:
    """A random token."""
    return secrets.token_urlsafe(24)


def check_token(token: str, *, is_exposed: bool) -> str:
    """The token, if it can be part of an address, and is long enough for a server that other machines can reach."""
    if len(token) < SHORTEST_TOKEN and is_exposed:
        raise ConfigError(
            f"--token: other machines can reach the server. Give a token of {SHORTEST_TOKEN} or more characters"
        )
    if not _TOKEN.fullmatch(token):
        raise ConfigError("--token: use only letters, digits and . _ ~ -, because the token is part of an address")
    return token


def check_name(name: str) -> str:
    """A name that the server answers to, in lower case."""
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise ConfigError(
            f"--allow-host {name}: give a host name alone, without a port or an address, such as birds.lan"
        )
    return name.lower()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server at this address.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class Hosts:
    """The names that the server answers to.

    A numeric address is always allowed, unless the server is for this machine only: DNS rebinding needs a name that
    resolves to another machine first, and to this one later.
    """

    host: str
    names: frozenset[str] = frozenset()
    """Further names, in lower case, such as that of a proxy in front of the server."""

    @property
    def shown(self) -> str:
        """The name in the address that is printed. This machine's name replaces 0.0.0.0."""
        try:
            address = ipaddress.ip_address(self.host)
        except ValueError:
            return self.host
        if address.is_unspecified:
            return socket.gethostname()
        return f"[{self.host}]" if address.version == 6 else self.host

    def allow(self, header: str) -> bool:
        """Whether a Host header has one of these names. Any port is allowed, because a tunnel may change it."""
        name = _host_name(header)
        if name is None:
            return False
        if is_loopback(name) or name == self.host.lower() or name in self.names:
            return True
        if is_loopback(self.host):
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name == socket.gethostname().lower()
        return True

    def allow_origin(self, origin: str, header: str) -> bool:
        """Whether a page of this origin may change something. A proxy may have replaced the Host header."""
        place = origin.partition("://")[2].lower()
        return place == header.lower() or _host_name(place) in self.names


def _host_name(header: str) -> str | None:
    """The name in a Host header, without the port; None if it is malformed."""
    found = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([A-Za-z0-9._-]+))(?::\d{1,5})?", header)
    return (found[1] or found[2]).lower() if found else None


class Guard:
    """Refuses requests for a wrong host, from other sites or without the token. Adds headers to every answer."""

    def __init__(self, app: ASGIApp, token: str, hosts: Hosts) -> None:
        self._app, self._token, self._hosts = app, token.encode(), hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        named = headers.getlist("host")
        if len(named) != 1 or not self._hosts.allow(named[0]):
            return _refused(
                403,
                "Host: the server does not answer to this name. Use the address that it printed, or start the server "
                "with `--allow-host` and this name",
            )
        if scope["method"] not in _READING:
            origin = headers.get("origin")
            if origin is not None and not self._hosts.allow_origin(origin, named[0]):
                return _refused(403, "Origin: pages of other sites may not change anything here")
        path = scope["path"]
        if path in PUBLIC or path == PAGE or self._is_ours(headers):
            scope["authorised"] = self._is_ours(headers) or (path == PAGE and self._has_token(scope))
            return None
        return _refused(
            401, "the token is missing or wrong. Send it as `Authorization: Bearer TOKEN`; the server printed it"
        )

    def _is_ours(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self._equal(given.strip())

    def _has_token(self, scope: Scope) -> bool:
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])
        return self._equal(given[0])

    def _equal(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self._token)


def _refused(status: int, error: str) -> JSONResponse:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return JSONResponse({"error": error}, status, headers)
