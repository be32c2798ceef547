"""Where in a user's own code an exception came from.

The idea: a traceback ends deep in a library; the line to show is the innermost one that is neither
a library's nor ours.

    user_frame(error)        # "train.py:31", "" when no line of the user took part
"""

from __future__ import annotations

import os
import sysconfig
import traceback
from pathlib import Path

_INSTALLED = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")})
_HERE = Path(__file__).parents[1]
_OURS = (f"{_HERE}{os.sep}", f"{_HERE.parent / 'frontends'}{os.sep}")


def user_frame(error: BaseException) -> str:
    """``file:line`` of the innermost frame that is no library's, "" when there is none.

    A syntax error is where it stands in the text.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{short_path(error.filename)}:{error.lineno}"
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((*_OURS, *_INSTALLED, "<"))
    ]
    if not own:
        return ""
    return f"{short_path(own[-1].filename)}:{own[-1].lineno}"


def one_line(error: BaseException, limit: int = 500) -> str:
    """The first paragraph of an error's text as one line of at most ``limit`` characters."""
    text = " ".join(str(error).strip().split("\n\n")[0].split())
    return text if len(text) <= limit else text[:limit] + " ..."


def short_path(path: str) -> str:
    """A path relative to the working folder where it lies inside, else as it is."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
