"""Serve a model: bind the address, announce it, and answer until a signal arrives."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn

from cotransport.errors import ConfigError
from cotransport.model.folder import ModelFolder
from cotransport.server.app import make_app
from cotransport.server.lesson_folder import LessonFolder
from cotransport.server.security import Hosts, check_name, check_token, is_loopback, new_token

SECONDS_TO_FINISH = 2
"""Time that open connections get when the server stops."""
MOST_CONNECTIONS = 512
BACKLOG = 512


def serve(
    model: Path,
    host: str,
    port: int,
    token: str | None,
    started: Callable[[str], None],
    names: Sequence[str] = (),
    tell: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve a model until a signal arrives.

    token : by default, a random one. Required if other machines can reach the address.
    started : is called with the address of the page.
    names : further host names that the server answers to.
    tell : is called with a line about everything else that happens.
    """
    if token is None and not is_loopback(host):
        raise ConfigError(
            f"--host {host}: other machines can reach this address. Give a long --token, or set COTRANSPORT_TOKEN"
        )
    token = new_token() if token is None else check_token(token, is_exposed=bool(names) or not is_loopback(host))
    hosts = Hosts(host, frozenset(map(check_name, names)))
    _check(model)
    listening = bind(host, port)
    number = listening.getsockname()[1]
    name = hosts.shown
    config = uvicorn.Config(
        make_app(model, token, hosts, tell),
        access_log=False,  # addresses may contain the token
        log_level="warning",
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=SECONDS_TO_FINISH,
        server_header=False,
        date_header=False,
        ws="none",
    )
    server = _Server(
        config,
        lambda: started(f"http://{name}:{number}/?token={token}"),
        lambda: tell("stopping; unfinished lessons go on when the server is started again"),
    )
    with listening:
        with LessonFolder(model.resolve()).locked():
            pass  # a second server is an error before anything is started
        server.run(sockets=[listening])
    if not server.started:
        raise ConfigError(f"{model}: the server could not start; see above")


class _Server(uvicorn.Server):
    """A server that reports when it is ready, and when it stops."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None], stopping: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready, self._stopping = ready, stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and report."""
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Report, and stop."""
        self._stopping()
        await super().shutdown(sockets)


def _check(model: Path) -> None:
    """Raise an error for a folder that is neither a model nor new."""
    folder = ModelFolder(model)
    if folder.exists:
        folder.manifest()
    elif model.exists():
        with folder.locked():
            pass
    if not model.resolve().parent.is_dir():
        raise ConfigError(f"{model}: its parent folder does not exist. Create it, or choose another place")


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens. Answers on its connections are sent at once."""
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    except ValueError:
        family = socket.AF_INET
    # asyncio sets TCP_NODELAY only if the socket names TCP; without it, answers wait for 40 ms
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        found.close()
        raise ConfigError(f"--host {host} --port {port}: {error}. Choose another port or address") from None
    return found
