"""Where an exception came from.

The idea: a traceback ends deep in a framework.  The line to show is the innermost one that does not
belong to a framework, to Python or to Flint.  If it is in a library, the user's line that led there
is shown as well.

    user_frame(error)        # "train.py:31", "optax/_src/base.py:40, called at train.py:31", ""
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

from flint.host.readable import listed

_STDLIB = sysconfig.get_path("stdlib")
#: Folders of packages: those of this environment, and of others that it uses.
_PACKAGES = (
    *(sysconfig.get_path(name) for name in ("purelib", "platlib")),
    *(path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")),
)
_INSTALLED = tuple(f"{folder}{os.sep}" for folder in dict.fromkeys(_PACKAGES))
#: Where packages' commands are: scripts that call them.
_COMMANDS = f"{sysconfig.get_path('scripts')}{os.sep}"
#: Packages whose lines are never shown: their arguments were wrong, not they.
_FRAMEWORKS = ("jax", "jaxlib", "numpy", "scipy", "torch")
_HERE = Path(__file__).parents[1]
_OURS = (f"{_HERE}{os.sep}", f"{_HERE.parent / 'frontends'}{os.sep}")
#: Where programs are started.
STARTS = str(_HERE / "launching" / "running.py")
#: Code that users have not written, in any folder.
_NOBODYS = (*_OURS, f"{_STDLIB}{os.sep}", "<")
#: Up to where the error itself is stated.
_FRAMES = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\s*\n)+")
#: The attribute in which JAX stores the origin of transformed code that raised an error.
_BEFORE = "JaxStackTraceBeforeTransformation"


def user_frame(error: BaseException) -> str:
    """``file:line`` that raised an error, in the user's code or in a library that it calls.

    A syntax error is reported at its place in the text.  "" if no such line was involved.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{short_path(error.filename)}:{error.lineno}"
    return _shown(_frames(error))


def crashed_line(frames: Iterable[tuple[str, int]]) -> str:
    """The same for the frames of a process that crashed, the innermost first."""
    found = [traceback.FrameSummary(file, line, "", lookup_line=False) for file, line in frames]
    return _shown(found[::-1])


def _shown(frames: Iterable[traceback.FrameSummary]) -> str:
    found = [frame for frame in frames if not is_silent(frame.filename)]
    if not found:
        return ""
    raised = _place(found[-1])
    own = [frame for frame in found if not frame.filename.startswith(_INSTALLED)]
    return raised if not own or own[-1] is found[-1] else f"{raised}, called at {_place(own[-1])}"


def running_line(frame: FrameType | None = None) -> tuple[str, int]:
    """File and line of the innermost such running frame, from ``frame`` outwards.

    ("", 0) if there is none.
    """
    frame = running_frame(frame or sys._getframe(1))
    return ("", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def running_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost such frame, from ``frame`` outwards."""
    while frame is not None and is_silent(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def own_line(frame: FrameType | None = None) -> str:
    """``file:line`` of the program's innermost own frame, from ``frame`` outwards.

    Of a program that is a library's module: that of ``running_line``; "" if there is none.  What
    started the program is not its own: the script of Flint's command.
    """
    inner = frame or sys._getframe(1)
    outer: FrameType | None = inner
    while outer is not None and outer.f_code.co_filename != STARTS:
        if is_programs(outer.f_code.co_filename):
            return f"{short_path(outer.f_code.co_filename)}:{outer.f_lineno}"
        outer = outer.f_back
    file, line = running_line(inner)
    return f"{short_path(file)}:{line}" if file else ""


def is_ours(file: str) -> bool:
    """Whether a file is Flint's."""
    return file.startswith(_OURS)


def is_programs(file: str) -> bool:
    """Whether a file belongs to the program: not installed, not Python's, not Flint's."""
    return not (file.startswith(_INSTALLED) or is_silent(file))


def main_package(frame: FrameType | None) -> str:
    """The installed package that is the program: of ``python -m package``, or of a command.

    Args:
        frame: one of the program's, from which the outermost is looked for.

    Returns:
        Its folder, with a separator; "" if the program is a file of its own.
    """
    files: list[str] = []
    while frame is not None and frame.f_code.co_filename != STARTS:
        if not is_silent(frame.f_code.co_filename):
            files.append(frame.f_code.co_filename)
        frame = frame.f_back
    first = next((file for file in reversed(files) if not file.startswith(_COMMANDS)), "")
    for folder in _INSTALLED:
        if first.startswith(folder):
            return f"{folder}{first.removeprefix(folder).partition(os.sep)[0]}{os.sep}"
    return ""


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames from the outermost to the innermost.

    If a framework raised the error for code that JAX has transformed, they continue to that code's
    origin.
    """
    frames = list(traceback.extract_tb(error.__traceback__))
    cause = error.__cause__
    if type(cause).__name__ == _BEFORE and frames and is_silent(frames[-1].filename):
        frames += traceback.extract_tb(cause.__traceback__ if cause else None)
    return frames


def is_silent(file: str) -> bool:
    """Whether a file belongs to a framework, Python or Flint, so that it is not shown."""
    for folder in _INSTALLED:
        if file.startswith(folder):
            return file.removeprefix(folder).partition(os.sep)[0] in _FRAMEWORKS
    # Called for every recorded op: the slow check of loaded modules comes last.
    return file.startswith(_NOBODYS) or file.startswith(_loaded())


def _loaded() -> tuple[str, ...]:
    """Folders of the imported frameworks, from any entry of ``sys.path``."""
    files = (getattr(sys.modules.get(name), "__file__", None) for name in _FRAMEWORKS)
    packages = (os.path.split(file) for file in files if isinstance(file, str))
    return tuple(f"{folder}{os.sep}" for folder, file in packages if file == "__init__.py")


def _place(frame: traceback.FrameSummary) -> str:
    return f"{short_path(frame.filename)}:{frame.lineno}"


def without_frames(text: str) -> str:
    """An error's text without the frames of a traceback that another process has put into it."""
    return _FRAMES.sub("", text)


def one_line(error: BaseException, limit: int = 500) -> str:
    """The first paragraph of an error's text as one line of at most ``limit`` characters.

    An error without text is the source line that raised it: "assert batch % ranks == 0".
    """
    text = " ".join(without_frames(str(error)).strip().split("\n\n")[0].split())
    if not text and error.__traceback__ is not None:
        text = traceback.extract_tb(error.__traceback__)[-1].line or ""
    return text if len(text) <= limit else text[:limit] + " ..."


def named_lines(lines: Iterable[str]) -> str:
    """Some of several places in a sentence: "a.py:1, b.py:2, c.py:3 and 4 more lines"."""
    return listed(list(dict.fromkeys(lines)), noun="line")


def short_path(path: str) -> str:
    """A path as messages show it.

    Of an installed package, it begins with the package's name; inside the working folder it is
    relative to that; else it is unchanged, as no path ("") is.
    """
    for folder in _INSTALLED:
        if path.startswith(folder):
            return path.removeprefix(folder)
    relative = os.path.relpath(path or os.curdir)
    return path if not path or relative.startswith("..") else relative
