"""The command `cotransport`. Heavy libraries are imported only by the subcommands that need them."""

from cotransport.cli.main import main

__all__ = ["main"]
