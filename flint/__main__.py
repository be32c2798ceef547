"""``python -m flint``: the command line."""

from flint.cli import main

if __name__ == "__main__":
    main()
