"""Where in the user's code a unit was issued, if a profile has Python's stack.

The idea: with ``with_stack=True`` the profiler records every Python call on its thread.  A unit's
source is the innermost function around its launch that belongs neither to PyTorch nor to Python,
and its layer is the chain of modules around it.  The line is that of the function's definition,
because the profiler records that.  Autograd's threads run no Python, so the backward pass has no
lines.

    found, line = lines_of(units.thread, units.issued, links.frames)
    found[line[0]]              # Line("Net_0/Linear_1", "train.py", 31)
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from flint.mesh.ragged import Ints
from flint.post_execution.links import Span

_FUNCTION: Final = re.compile(r"(?P<file>.+\.py)\((?P<line>\d{1,9})\): ")
_MODULE: Final = "nn.Module: "
#: Packages whose functions are not the user's, by the first part of a path below ``sys.path``.
_LIBRARIES: Final = frozenset({"torch", "functorch", "triton"}) | sys.stdlib_module_names
_INSTALLED: Final = re.compile(r"(^|/)(torch|functorch|triton)/|/lib/python3[.\d]*/[^/]+(\.py$|/)")


class Line(NamedTuple):
    """A place: layer ("" unknown), file ("" unknown) and line (0 unknown)."""

    layer: str = ""
    file: str = ""
    line: int = 0


def names_line(name: str) -> bool:
    """Whether an event of Python's stack names a place: a user's function, or a module."""
    return name.startswith(_MODULE) or _function(name) is not None


def _function(name: str) -> tuple[str, int] | None:
    """File and line of a function of the user's."""
    found = _FUNCTION.match(name)
    if found is None:
        return None
    file = found["file"]
    first = file.partition("/")[0].removesuffix(".py")
    installed = _INSTALLED.search(file) and "-packages/" not in file
    packaged = re.search(r"-packages/(torch|functorch|triton)/", file)
    if first in _LIBRARIES or installed or packaged or file.startswith("<"):
        return None
    return file, int(found["line"])


def lines_of(thread: Ints, issued: Ints, frames: Sequence[Span]) -> tuple[list[Line], Ints]:
    """The distinct places of units, and the one of each; 0 is an unknown one.

    Args:
        thread, issued: thread of each unit, and time of issue, ns on the host; shape [units].
        frames: calls that name a place, in order of time.
    """
    numbers: dict[Line, int] = {Line(): 0}
    found = np.zeros(len(thread), np.int64)
    for number in sorted({frame.thread for frame in frames}):
        own = sorted((f for f in frames if f.thread == number), key=lambda f: (f.start, -f.end))
        parents, places = _nested(own)
        starts = np.array([frame.start for frame in own], np.int64)
        for unit in np.flatnonzero(thread == number).tolist():
            time = int(issued[unit])
            at = int(np.searchsorted(starts, time, "right")) - 1
            while at >= 0 and own[at].end <= time:
                at = parents[at]
            if at >= 0:
                found[unit] = numbers.setdefault(places[at], len(numbers))
    return list(numbers), found


def _nested(frames: Sequence[Span]) -> tuple[list[int], list[Line]]:
    """For each frame of a thread, the enclosing one, -1 for none, and its place."""
    parents: list[int] = []
    places: list[Line] = []
    stack: list[int] = []
    for number, frame in enumerate(frames):
        while stack and frames[stack[-1]].end <= frame.start:
            stack.pop()
        parents.append(stack[-1] if stack else -1)
        around = places[stack[-1]] if stack else Line()
        function = _function(frame.name)
        if function is not None:
            around = around._replace(file=function[0], line=function[1])
        else:
            name = frame.name.removeprefix(_MODULE)
            around = around._replace(layer=f"{around.layer}/{name}" if around.layer else name)
        places.append(around)
        stack.append(number)
    return parents, places
