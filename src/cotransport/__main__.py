"""`python -m cotransport` is the command `cotransport`."""

import atexit
import gc
import sys

OBJECTS_BETWEEN_COLLECTIONS = 10_000
"""With the 700 of Python 3.11, torch takes 0.1 s longer to load."""


def main() -> None:
    """Run the command. A signal that comes while its modules are loaded ends it without a stack trace, too."""
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    atexit.register(gc.freeze)  # a last collection of what torch loaded would take 0.25 s
    try:
        from cotransport.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
