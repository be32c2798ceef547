"""Where this process writes: every file, folder and link that Python is asked to make or change."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

#: Audit events of the standard library (docs: "Audit events table") -> the arguments that are paths
#: and, where there is one, the descriptor of the folder that a relative one starts at.
_EVENTS = {
    "os.mkdir": ((0, 2),),
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((1, 3),),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, None),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.utime": ((0, 3),),
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_seen: list[Path] | None = None
_installed = False


def _place(path, descriptor):
    folder = os.curdir
    if isinstance(descriptor, int) and descriptor >= 0:
        folder = os.readlink(f"/proc/self/fd/{descriptor}")
    parent, name = os.path.split(os.path.join(folder, os.fsdecode(path)))
    return Path(os.path.realpath(parent), name)


def _hook(event, arguments):
    if _seen is None:
        return
    if event == "open":
        path, _, flags = arguments
        if isinstance(path, (str, bytes, os.PathLike)) and flags & _WRITING:
            # A file is opened where its link leads to.
            _seen.append(Path(os.path.realpath(os.fsdecode(path))))
    for path, descriptor in _EVENTS.get(event, ()):
        if not isinstance(arguments[path], int):
            at = None if descriptor is None else arguments[descriptor]
            _seen.append(_place(arguments[path], at))


@contextlib.contextmanager
def places():
    """The paths that this process writes to meanwhile, all links resolved."""
    global _seen, _installed
    if not _installed:
        sys.addaudithook(_hook)  # there is no way to remove one
        _installed = True
    _seen = found = []
    try:
        yield found
    finally:
        _seen = None
