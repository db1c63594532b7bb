"""The subcommand that serves a model to browsers and programs."""

from __future__ import annotations

from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from cotransport.cli.console import err
from cotransport.errors import ConfigError
from cotransport.system.text import markup

app = typer.Typer()
NEEDED = ("starlette", "uvicorn", "python_multipart")


@app.command(
    epilog="Examples:\n\n"
    "[bold]cotransport serve model[/]  a page to teach and use the model, on this machine only\n\n"
    "[bold]COTRANSPORT_TOKEN=a-long-secret cotransport serve model --host 0.0.0.0[/]  for other machines too"
)
def serve(
    model: Annotated[
        Path, typer.Argument(help="The model's folder. The first lesson creates a new one.", metavar="MODEL")
    ],
    host: Annotated[
        str, typer.Option(help="The address to listen on. By default, only this machine can reach it.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on; 0 chooses a free one.", min=0, max=65535)] = 8000,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="A further name that the server answers to, such as that of a proxy.", metavar="NAME"),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            help="The secret that every request needs.", envvar="COTRANSPORT_TOKEN", show_default="a random one"
        ),
    ] = None,
) -> None:
    """Teach and use a model in the browser, or through an API.

    Open the address that is printed. Lessons are learned one after another, in a process of their own; meanwhile, the
    current version answers. If the server ends, the next one resumes the unfinished lessons.
    """
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise ConfigError(f"serve needs {missing[0]}, which is not installed. pip install 'cotransport[serve]'")
    from cotransport.server.process import serve as serve_model

    def started(address: str) -> None:
        print(address, flush=True)
        err.print(f"serving {markup(model)}; press Ctrl-C to stop", style="dim", soft_wrap=True)

    def tell(line: str) -> None:
        err.print(f"[dim]{datetime.now():%H:%M:%S}[/] {markup(line)}", soft_wrap=True, highlight=False)

    serve_model(model, host, port, token or None, started, allow_host or (), tell)
