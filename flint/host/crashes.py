"""Where a process crashed, by what ``faulthandler`` has written about it.

frames_in(words)        # (("train.py", 31), ...), the innermost first
"""

from __future__ import annotations

import re

#: Files and lines, the innermost first.
Frames = tuple[tuple[str, int], ...]

#: The first line of a thread that the signal met, and of another; a frame; what comes after.
_BEGIN = re.compile(r"^(?:Current thread|Stack) .*\(most recent call first\):$", re.MULTILINE)
_FRAME = re.compile(r'  File "(.*)", line (\d+) in .*')
_REPORT = re.compile(r"^Fatal Python error: ", re.MULTILINE)


def frames_in(words: str) -> Frames:
    """The frames of the thread that crashed; none if nothing was written about a crash."""
    begin = _BEGIN.search(words)
    found = []
    for line in words[begin.end() + 1 :].split("\n") if begin else ():
        frame = _FRAME.fullmatch(line)
        if frame is None:
            break
        found.append((frame[1], int(frame[2])))
    return tuple(found)


def without_report(words: str) -> str:
    """What a process printed before the report."""
    report = _REPORT.search(words)
    return words if report is None else words[: report.start()]
