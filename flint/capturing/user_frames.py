"""Where an exception came from.

The idea: a traceback ends deep in a framework.  The line to show is the innermost one that is
neither a framework's, nor Python's, nor ours.  Where that is in a library, the user's own line that
led there is shown beside it.

    user_frame(error)        # "train.py:31", "optax/_src/base.py:40, called at train.py:31", ""
"""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

from flint.host.readable import counted

_STDLIB = sysconfig.get_path("stdlib")
#: Where packages lie: this environment's, and others' that it looks into.
_PACKAGES = (
    *(sysconfig.get_path(name) for name in ("purelib", "platlib")),
    *(path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")),
)
_INSTALLED = tuple(f"{folder}{os.sep}" for folder in dict.fromkeys(_PACKAGES))
#: Packages that a line never stands in for: what they were given was wrong, not they.
_FRAMEWORKS = ("jax", "jaxlib", "numpy", "scipy", "torch")
_HERE = Path(__file__).parents[1]
_OURS = (f"{_HERE}{os.sep}", f"{_HERE.parent / 'frontends'}{os.sep}")
#: What no user has written, wherever packages lie.
_NOBODYS = (*_OURS, f"{_STDLIB}{os.sep}", "<")
#: Lines that a sentence names.
_NAMED = 3
#: What JAX attaches to an error in code that it has transformed: where that code came from.
_BEFORE = "JaxStackTraceBeforeTransformation"


def user_frame(error: BaseException) -> str:
    """``file:line`` that raised an error, in the user's code or in a library that it calls.

    A syntax error is where it stands in the text.  "" where no such line took part.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{short_path(error.filename)}:{error.lineno}"
    found = [frame for frame in _frames(error) if not is_silent(frame.filename)]
    if not found:
        return ""
    raised = _place(found[-1])
    own = [frame for frame in found if not frame.filename.startswith(_INSTALLED)]
    return raised if not own or own[-1] is found[-1] else f"{raised}, called at {_place(own[-1])}"


def running_line(frame: FrameType | None = None) -> tuple[str, int]:
    """File and line of the innermost such frame that runs now, from ``frame`` outwards.

    ("", 0) where there is none.
    """
    frame = running_frame(frame or sys._getframe(1))
    return ("", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def running_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost such frame, from ``frame`` outwards."""
    while frame is not None and is_silent(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def own_line() -> str:
    """``file:line`` of the innermost frame that is the program's own; "" where there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_programs(frame.f_code.co_filename):
        frame = frame.f_back
    return "" if frame is None else f"{short_path(frame.f_code.co_filename)}:{frame.f_lineno}"


def is_programs(file: str) -> bool:
    """Whether a file is the program's own: not installed, not Python's, not ours."""
    return not (file.startswith(_INSTALLED) or is_silent(file))


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    """From the outermost to the innermost.

    Where a framework has raised it over code that JAX has transformed, on to where that came from.
    """
    frames = list(traceback.extract_tb(error.__traceback__))
    cause = error.__cause__
    if type(cause).__name__ == _BEFORE and frames and is_silent(frames[-1].filename):
        frames += traceback.extract_tb(cause.__traceback__ if cause else None)
    return frames


def is_silent(file: str) -> bool:
    """Whether a file is a framework's, Python's or ours: no place to name."""
    for folder in _INSTALLED:
        if file.startswith(folder):
            return file.removeprefix(folder).partition(os.sep)[0] in _FRAMEWORKS
    # This is asked for every recorded op: what is loaded is looked at last.
    return file.startswith(_NOBODYS) or file.startswith(_loaded())


def _loaded() -> tuple[str, ...]:
    """Folders of the frameworks that are imported, wherever ``sys.path`` has had them."""
    files = (getattr(sys.modules.get(name), "__file__", None) for name in _FRAMEWORKS)
    packages = (os.path.split(file) for file in files if isinstance(file, str))
    return tuple(f"{folder}{os.sep}" for folder, file in packages if file == "__init__.py")


def _place(frame: traceback.FrameSummary) -> str:
    file = frame.filename
    for folder in _INSTALLED:
        if file.startswith(folder):
            return f"{file.removeprefix(folder)}:{frame.lineno}"
    return f"{short_path(file)}:{frame.lineno}"


def one_line(error: BaseException, limit: int = 500) -> str:
    """The first paragraph of an error's text as one line of at most ``limit`` characters."""
    text = " ".join(str(error).strip().split("\n\n")[0].split())
    return text if len(text) <= limit else text[:limit] + " ..."


def named_lines(lines: Iterable[str]) -> str:
    """Some of several places in a sentence: "a.py:1, b.py:2, c.py:3 and 4 more lines"."""
    every = list(dict.fromkeys(lines))
    more = f" and {counted(len(every) - _NAMED, 'more line')}" if len(every) > _NAMED else ""
    return ", ".join(every[:_NAMED]) + more


def short_path(path: str) -> str:
    """A path relative to the working folder where it lies inside, else as it is."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
