"""The command: verbs over the library's nouns. Heavy libraries are imported by the command that needs them."""

from cotransport.cli.main import main

__all__ = ["main"]
