"""`python -m cotransport` is the command `cotransport`."""

from cotransport.cli import main

if __name__ == "__main__":
    main()
