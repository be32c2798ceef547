"""``flint`` and ``python -m flint``: the command line, and Ctrl-C while it is being imported."""

import sys


def main() -> None:
    """Run the command line."""
    try:
        from flint.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("flint: interrupted\n")
        raise SystemExit(130) from None  # as ``flint.cli`` does
    run()


if __name__ == "__main__":
    main()
