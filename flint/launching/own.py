"""Which rank a program's process is, and the moment at which the program asks.

The idea: until a program asks, all of its ranks do the same, so a process may be copied then and
each copy be another rank.  Starting a thread or a process is the last moment for it, too: copies
would not have what it does.

    own = Own(0, folder)
    own.at_first_question(become)       # once, before the answer
    watch_variables(("RANK",), own)     # os.environ["RANK"] asks
"""

from __future__ import annotations

import functools
import os
import stat
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from flint.host.child_errors import leave


class Own:
    """Whose process this is, as long as it lives.

    Attributes:
        rank: which one it is.
        folder: for what it leaves.
        process: its number.
        is_copy: it was copied while the program ran.
        fail: leaves an error that ends the process.
    """

    def __init__(self, rank: int, folder: Path) -> None:
        """The process that the program is started in."""
        self.rank, self.folder, self.process = rank, folder, os.getpid()
        self.is_copy = False
        self.fail: Callable[[BaseException], None] = self._leave
        self._files = _files()
        self._waiting: list[Callable[[], None]] = []
        self._woken: list[Callable[[], None]] = []

    def at_first_question(self, then: Callable[[], None]) -> None:
        """Call this once, at the first question."""
        self._waiting.append(then)

    def in_copies(self, then: Callable[[], None]) -> None:
        """Call this in each copy: what a process does not leave to those that are forked of it."""
        self._woken.append(then)

    def asked(self) -> None:
        """The program asks, or does what a copy would not have."""
        while self._waiting:
            self._waiting.pop()()

    def ask(self) -> int:
        """The rank, asked for in the program's name."""
        self.asked()
        return self.rank

    def become(self, rank: int, folder: Path) -> None:
        """In a copy: be that rank."""
        self.rank, self.folder, self.process, self.is_copy = rank, folder, os.getpid(), True
        for then in self._woken:
            then()

    def _leave(self, error: BaseException) -> None:
        leave(error, self.folder, "the capture")

    def can_be_copied(self) -> bool:
        """Whether copies can go on by themselves: no threads, no files with a common position."""
        return threading.active_count() == 1 and _files() <= self._files


def _files() -> set[tuple[int, str]]:
    """Files and sockets that are open beside 0 to 2: (number, name); none without /proc."""
    found = set()
    place = Path("/proc/self/fd")
    for item in place.iterdir() if place.is_dir() else ():
        try:
            mode, name = os.stat(item).st_mode, os.readlink(item)
        except OSError:
            continue
        if int(item.name) > 2 and (stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
            found.add((int(item.name), name))
    return found


def watch_variables(names: Collection[str], own: Own) -> None:
    """Reading one of these variables is a question; for as long as this process lives."""
    kind: Any = type(os.environ)
    original = kind.__getitem__

    @functools.wraps(original)
    def get(self: Any, key: Any) -> str:
        if isinstance(key, str) and key in names:
            own.asked()
        text: str = original(self, key)
        return text

    kind.__getitem__ = get
