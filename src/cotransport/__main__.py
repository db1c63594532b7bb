"""`python -m cotransport` is the command `cotransport`."""

import sys


def main() -> None:
    """Run the command. A signal that comes while its modules are loaded ends it without a stack trace, too."""
    try:
        from cotransport.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
