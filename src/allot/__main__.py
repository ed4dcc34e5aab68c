"""Lets `python -m allot` run the command."""

from allot.cli.main import main

if __name__ == "__main__":
    main()
