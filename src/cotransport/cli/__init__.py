"""The command: verbs over the library's nouns."""

from cotransport.cli.main import main

__all__ = ["main"]
