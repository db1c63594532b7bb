"""The command `cotransport`. Heavy libraries are imported only by the subcommands that need them."""
