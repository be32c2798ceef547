"""Which rank a program's process is, and the moment at which the program asks.

The idea: until a program asks, all of its ranks do the same, so a process may be copied then and
each copy be another rank.  Starting a thread or a process is the last moment for it, too: copies
would not have what it does.

    own = Own(0, folder)
    own.at_first_question(become)       # once, before the answer
    watch_variables(("RANK",), own)     # os.environ["RANK"] asks
"""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import threading
import weakref
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from flint.host.child_errors import leave
from flint.launching.followed import METHOD


class Own:
    """Whose process this is, as long as it lives.

    Attributes:
        rank: which one it is.
        folder: for what it leaves.
        process: its number.
        is_copy: it was copied while the program ran.
        fail: leaves an error that ends the process.
        has_own_threads: it has started threads of a library's that no copy would have.
        told: variables that say the rank and have not been looked at, as long as they are held.
    """

    def __init__(self, rank: int, folder: Path) -> None:
        """The process that the program is started in."""
        self.rank, self.folder, self.process = rank, folder, os.getpid()
        self.is_copy = self.has_own_threads = False
        self.fail: Callable[[BaseException], None] = self._leave
        self.told: list[weakref.ref[str]] = []
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
        """Whether copies can go on by themselves: no threads, no files with a common position.

        And nobody holds a variable that says another rank in them.
        """
        is_told = any(text() is not None for text in self.told)
        alone = threading.active_count() == 1 and not _named_threads()
        alone = alone and not self.has_own_threads
        return not is_told and alone and _files() <= self._files

    def can_be_asked(self) -> bool:
        """Whether the first question has not been asked."""
        return bool(self._waiting)


def _named_threads() -> set[str]:
    """Names of threads that a library named for work of its own; none without /proc.

    A copy of autograd's refuses every backward pass.  OpenBLAS makes its threads again in a copy:
    they bear the name of the process.
    """
    place = Path("/proc/self/task")
    found = {}
    for thread in place.iterdir() if place.is_dir() else ():
        with contextlib.suppress(OSError):
            found[int(thread.name)] = (thread / "comm").read_text()
    return set(found.values()) - {found.get(os.getpid(), "")}


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
    """Reading one of these variables is a question; for as long as this process lives.

    Going over all variables is none, libraries do that for names of their own: what is met on the
    way asks when it is looked at.
    """
    kind: Any = type(os.environ)
    read, go_over = kind.__getitem__, kind.__iter__
    every: list[str] = []  # as somebody goes, or has gone, over them
    done = 0  # of them, how many have been read one by one since

    def text_of(name: str) -> Any:
        own.asked()
        return os.environ[name]

    @functools.wraps(read)
    def get(self: Any, key: Any) -> str:
        nonlocal done
        done = done + 1 if every[done : done + 1] == [key] else 0
        if not (isinstance(key, str) and key in names and own.can_be_asked()):
            text: str = read(self, key)
        elif done > 1:
            text = _AskingText(read(self, key))
            vars(text)["real"] = functools.partial(text_of, key)
            own.told.append(weakref.ref(text))
        else:
            own.asked()
            text = read(self, key)
        return text

    @functools.wraps(go_over)
    def over_all(self: Any) -> Iterator[str]:
        nonlocal done
        every[:], done = go_over(self), 0
        yield from tuple(every)

    kind.__getitem__, kind.__iter__ = get, over_all


class _AskingText(str):
    """A variable that asks when it is looked at, and is from then on what is answered."""

    real: Callable[[], Any]

    def __int__(self) -> int:
        return int(self.real())

    def followed_int(self) -> int:
        """As that of the variable, where numbers are followed."""
        real = self.real()
        followed: Callable[[], int] | None = getattr(real, METHOD, None)
        return int(real) if followed is None else followed()


def _looking(name: str) -> Any:
    def look(self: _AskingText, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.real(), name)(*args, **kwargs)

    return look


#: What is done to any object that does not look at it.
_BLIND = {*vars(object), "__new__", "__getnewargs__"} - {
    "__eq__", "__ne__", "__hash__", "__str__", "__repr__", "__format__", "__lt__", "__le__",
    "__gt__", "__ge__", "__reduce__", "__reduce_ex__",
}  # fmt: skip

for _name in set(dir(str)) - _BLIND:
    setattr(_AskingText, _name, _looking(_name))
