"""The rank of a program's process, and the moment when the program asks for it.

The idea: until a program asks for its rank, all ranks do the same, so the process can be copied at
that moment and each copy can become another rank.  Starting a thread or a process is also the last
moment for it: copies would not have that thread.

    own = Own(0, folder)
    own.at_first_question(become)       # once, before the answer
    watch_variables(("RANK",), own)     # os.environ["RANK"] asks
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import stat
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from flint.capturing.user_frames import is_ours, is_programs, main_package, own_line
from flint.host.child_errors import leave
from flint.launching.commands.variables import is_of_process
from flint.launching.followed_functions import METHOD

#: Threads that a copy does without: jemalloc's return freed memory to the system, and its handlers
#: of ``fork`` (``background_thread_postfork_child``) leave that to those that free.
_SPARED = {"jemalloc_bg_thd\n"}

#: Python's modules between a variable and a line that can do without it: ``get``, ``in``.
_LOOKING = frozenset(("os", "_collections_abc", "collections.abc"))
#: What a copy would read and write together with its original.
_SHARED = (stat.S_IFREG, stat.S_IFSOCK)


class Own:
    """The identity of this process.

    Attributes:
        rank: its rank.
        folder: for files that it leaves.
        process: its process id.
        is_copy: it was copied while the program ran.
        has_failed: the program has left with a status that says so.
        fail: records an error and ends the process.
        has_own_threads: it has started library threads that a copy would not have.
        rank_texts: variables with the rank that have not been read, while something refers to them.
        reads: how often a variable with the rank has been read since the first question.
        looked: the program's line that looked first whether a launcher's variable is set; "" if it
            took the first one as given, None before.
        anew: what processes that the program starts anew call first; it can be pickled.
    """

    def __init__(self, rank: int, folder: Path) -> None:
        """The process that starts the program."""
        self.rank, self.folder, self.process = rank, folder, os.getpid()
        self.is_copy = self.has_own_threads = self.has_failed = False
        self.fail: Callable[[BaseException], None] = self._leave
        self.rank_texts: list[weakref.ref[str]] = []
        self.reads = 0
        self.looked: str | None = None
        self.anew: list[Callable[[], None]] = []
        self._files = _files()
        self._waiting: list[Callable[[], None]] = []
        self._woken: list[Callable[[], None]] = []

    def at_first_question(self, then: Callable[[], None]) -> None:
        """Call this once, at the first question."""
        self._waiting.append(then)

    def in_copies(self, then: Callable[[], None]) -> None:
        """Call this in each copy, to redo what a fork does not inherit."""
        self._woken.append(then)

    def asked(self) -> None:
        """The program asks for its rank, or does something that copies would not have."""
        while self._waiting:
            self._waiting.pop()()

    def ask(self) -> int:
        """The rank, on behalf of the program."""
        self.asked()
        return self.rank

    def become(self, rank: int, folder: Path) -> None:
        """In a copy: become that rank."""
        self.rank, self.folder, self.process, self.is_copy = rank, folder, os.getpid(), True
        for then in self._woken:
            then()

    def _leave(self, error: BaseException) -> None:
        leave(error, self.folder, "the capture")

    def can_be_copied(self) -> bool:
        """Whether copies can continue independently: no threads, no pipes or files that they share.

        Also, no variable with this process's rank may be in use.
        """
        is_in_use = any(text() is not None for text in self.rank_texts)
        alone = threading.active_count() == 1 and not _named_threads()
        alone = alone and not self.has_own_threads
        return not is_in_use and alone and _files() <= self._files

    def can_be_asked(self) -> bool:
        """Whether the first question has not been asked."""
        return bool(self._waiting)


def _named_threads() -> set[str]:
    """Names of threads that a library named for its own work; none without /proc.

    A copy of autograd's threads refuses every backward pass.  OpenBLAS recreates its threads in a
    copy: they have the name of the process.
    """
    place = Path("/proc/self/task")
    found = {}
    for thread in place.iterdir() if place.is_dir() else ():
        with contextlib.suppress(OSError):
            found[int(thread.name)] = (thread / "comm").read_text()
    return set(found.values()) - {found.get(os.getpid(), ""), *_SPARED}


def _files() -> set[tuple[int, str]]:
    """Open files, sockets and ends of pipes to write to, except 0 to 2: (number, name).

    None of /proc, which Flint's own thread reads now and then (``waiting.py``), and none without
    /proc.  A pipe that nobody writes to is what a process that has ended left.
    """
    found = set()
    place = Path("/proc/self/fd")
    for item in place.iterdir() if place.is_dir() else ():
        try:
            mode, name = os.stat(item).st_mode, os.readlink(item)
        except OSError:
            continue
        number, kind = int(item.name), stat.S_IFMT(mode)
        if number <= 2 or name.startswith("/proc/"):
            continue
        if kind in _SHARED or (kind == stat.S_IFIFO and _is_written(number)):
            found.add((number, name))
    return found


def _is_written(number: int) -> bool:
    return bool(fcntl.fcntl(number, fcntl.F_GETFL) & (os.O_WRONLY | os.O_RDWR))


def watch_variables(names: Collection[str], own: Own) -> None:
    """From now on, reading one of these variables counts as asking for the rank.

    Iterating over all variables does not, because libraries do that to find their own names: such a
    value asks when it is used.
    """
    kind: Any = type(os.environ)
    read, go_over = kind.__getitem__, kind.__iter__
    every: list[str] = []  # during or after an iteration over them
    done = 0  # how many of them have been read individually since

    def text_of(name: str) -> Any:
        own.asked()
        return os.environ[name]

    @functools.wraps(read)
    def get(self: Any, key: Any) -> str:
        nonlocal done
        if isinstance(key, bytes) and os.fsdecode(key) in names:  # of os.environb
            own.asked()
        done = done + 1 if every[done : done + 1] == [key] else 0
        if own.looked is None and not done and isinstance(key, str) and is_of_process(key):
            own.looked = _looking_line(sys._getframe(1))
        if not (isinstance(key, str) and key in names and own.can_be_asked()):
            own.reads += isinstance(key, str) and key in names and done <= 1
            text: str = read(self, key)
        elif done > 1:
            text = _AskingText(read(self, key))
            vars(text)["real"] = functools.partial(text_of, key)
            own.rank_texts.append(weakref.ref(text))
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


def _looking_line(frame: FrameType | None) -> str | None:
    """The program's line that looks whether a variable is set, from what reads it outwards.

    "" if it must be set for the program to go on; None if a library reads it.
    """
    looks = False
    while frame is not None and (_is_pythons(frame) or is_ours(frame.f_code.co_filename)):
        looks = looks or _is_pythons(frame)
        frame = frame.f_back
    if frame is None:
        return None
    file, package = frame.f_code.co_filename, main_package(frame)
    if not (is_programs(file) or (package and file.startswith(package))):
        return None
    return own_line(frame) if looks else ""


def _is_pythons(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") in _LOOKING


class _AskingText(str):
    """A variable that asks for the rank when it is used, and then has the answered value."""

    real: Callable[[], Any]

    def __int__(self) -> int:
        return int(self.real())

    def followed_int(self) -> int:
        """As that of the variable, if numbers are followed."""
        real = self.real()
        followed: Callable[[], int] | None = getattr(real, METHOD, None)
        return int(real) if followed is None else followed()


def asks(variables: Any) -> bool:
    """Whether a value among these variables, if there are any, asks when it is used."""
    return any(isinstance(item, _AskingText) for item in (variables or {}).values())


def _looking(name: str) -> Any:
    def look(self: _AskingText, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.real(), name)(*args, **kwargs)

    return look


#: Operations that do not use an object's value.
_BLIND = {*vars(object), "__new__", "__getnewargs__"} - {
    "__eq__", "__ne__", "__hash__", "__str__", "__repr__", "__format__", "__lt__", "__le__",
    "__gt__", "__ge__", "__reduce__", "__reduce_ex__",
}  # fmt: skip

for _name in set(dir(str)) - _BLIND:
    setattr(_AskingText, _name, _looking(_name))
