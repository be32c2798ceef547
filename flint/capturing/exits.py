"""Code that ends its process at once (``os._exit``), which raises nothing.

with exits_named(lambda text: sys.stderr.write(text) > 0):
    step()          # "left at train.py:31 (os._exit(3))"
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import NoReturn

from flint.capturing.user_frames import running_line, short_path


def name_exits(report: Callable[[str], bool]) -> Callable[[], None]:
    """From now on, report the user's line that exits.

    Args:
        report: called with the text; returns whether the process then fails.

    Returns:
        What undoes it.
    """
    plain: Callable[[int], NoReturn] = os._exit

    def leaving(status: int) -> NoReturn:
        file, line = running_line()
        user = sys._getframe(1).f_code.co_filename == file
        if user and report(f"left at {short_path(file)}:{line} (os._exit({status}))"):
            status = 1
        plain(status)

    os._exit = leaving
    return lambda: setattr(os, "_exit", plain)


@contextlib.contextmanager
def exits_named(report: Callable[[str], bool]) -> Iterator[None]:
    """``name_exits`` in this context."""
    undo = name_exits(report)
    try:
        yield
    finally:
        undo()
