"""The running line of the user's code.

The idea: frames of PyTorch, of the standard library, of this frontend and of what runs programs are
skipped; the innermost remaining frame is the user's.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from types import FrameType, TracebackType

import torch

from flint import capturing, launching
from flint.capturing.user_frames import short_path

#: Code whose frames are not the user's: PyTorch, the standard library, this frontend, and what the
#: user's code calls in the place of other functions (to be followed, to make up data).
_OURS = os.path.dirname(__file__) + os.sep
_LAUNCHES = os.path.dirname(launching.__file__) + os.sep
_CAPTURES = os.path.dirname(capturing.__file__) + os.sep
_TORCH = os.path.dirname(torch.__file__) + os.sep
_DECORATED = os.sep + "typing_extensions.py"  # whose wrapper calls PyTorch's deprecated functions
_LAUNCHING = f"{os.sep}triton{os.sep}runtime{os.sep}"  # launches the user's kernels
_STDLIB = sysconfig.get_paths()["stdlib"] + os.sep

#: The most frames of the engine and of wrappers that are searched above an op.
_DEPTH = 400


def is_frontends(file: str) -> bool:
    """Whether a file's code is this frontend's, or what it calls in the program's place."""
    return file.startswith((_OURS, _LAUNCHES, _CAPTURES))


def is_standard(file: str) -> bool:
    """Whether a file's code is of Python's standard library."""
    return file.startswith("<frozen ") or (file.startswith(_STDLIB) and "-packages" not in file)


@functools.lru_cache(maxsize=4096)
def _is_users(file: str) -> bool:
    if file.startswith((_OURS, _LAUNCHES, _TORCH, "<")):
        return False
    if file.endswith(_DECORATED) or _LAUNCHING in file:
        return False
    return not is_standard(file)  # a library that the user runs also counts as the user's code


def users_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame that is the user's, from ``frame`` outwards."""
    for _ in range(_DEPTH):
        if frame is None or _is_users(frame.f_code.co_filename):
            return frame
        frame = frame.f_back
    return None


def users_line(frame: FrameType | None) -> tuple[str, int]:
    """File and line of the innermost frame that is the user's; ("", 0) when there is none."""
    found = users_frame(frame)
    return ("", 0) if found is None else (found.f_code.co_filename, found.f_lineno)


def users_line_of(trace: TracebackType | None) -> tuple[str, int]:
    """File and line of the innermost frame of a traceback that is the user's."""
    innermost = "", 0
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if _is_users(file):
            innermost = file, trace.tb_lineno
        trace = trace.tb_next
    return innermost


def at_line(file: str, line: int) -> str:
    """`` at file:line``; "" where there is no file."""
    return f" at {short_path(file)}:{line}" if file else ""


def at_user_line() -> str:
    """`` at file:line`` of the user's code that runs; "" where there is none."""
    return at_line(*users_line(sys._getframe(1)))


def inside_torch(frame: FrameType) -> bool:
    """Whether code is PyTorch's or this package's."""
    return _is_torchs(frame.f_globals.get("__name__"))


@functools.cache
def _is_torchs(module: object) -> bool:
    name = str(module)
    return name.partition(".")[0] == "torch" or name.startswith("flint.frontends.torch.")
