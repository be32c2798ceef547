"""Reporting a program that makes no progress for a minute, or takes long, with its line.

The idea: a program that waits for a peer, a lock or a file that never comes uses no processor time,
nor do its child processes.  That does not prove that it will never continue, so it is only
reported, and the time limit ends it.  One that works is reported after two minutes, after four, and
so on: it may read a whole data set before its step.  Of processes that do the same, as the ranks of
a program do, the first reports.

    watch("train.py", 1800, over, told)      # a thread, for as long as the process lives
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from flint.capturing.user_frames import (
    one_line,
    own_line,
    running_line,
    short_path,
    user_frame,
)
from flint.host.tasks import tell

#: Seconds without progress before a report, and seconds between two checks.
_QUIET, _LOOKS = 60.0, 5.0
#: Seconds after which a program that works is reported for the first time.
_LONG = 120.0
#: Using more than this share of one processor is progress, because polling threads use less; and
#: extra seconds, because the system counts in ticks.
_IDLE, _TICKS = 0.01, 0.02
#: States of processes that run, or read a disk.
_BUSY = "RD"
_PROCESSES = Path("/proc")


def watch(
    name: str, time_limit: float, over: Callable[[FrameType | None], None], told: Path
) -> None:
    """Report whenever this process and its children make no progress, and what takes long.

    It ends when the program's time is no longer limited, because its step has been found.

    Args:
        name: name of the program.
        time_limit: seconds after which it is ended.
        over: ends it if it waits in code that handles no signals; called with the frame of its
            first thread.
        told: a folder of all processes that report the same, for what one of them has reported.
    """
    # Not a ``threading`` thread, which would count as the program's: it could then not be copied.
    _thread.start_new_thread(_look, (name, time_limit, over, told))


def tell_of_threads() -> None:
    """Say which thread of the program, or of a process that it forks, an error ends.

    Nothing else may show it, and what waits for the thread waits forever.
    """
    before = threading.excepthook

    def ended(failure: threading.ExceptHookArgs) -> None:
        error = failure.exc_value
        if error is not None and not isinstance(error, SystemExit):
            where = user_frame(error)
            tell(
                f"a thread of the program failed{where and f' at {where}'}: "
                f"{type(error).__name__}: {one_line(error)}"
            )
        before(failure)

    threading.excepthook = ended


def _look(
    name: str, time_limit: float, over: Callable[[FrameType | None], None], told: Path
) -> None:
    progress, began, long = Progress(_QUIET), time.monotonic(), _LONG
    while signal.getitimer(signal.ITIMER_REAL)[0]:
        if (found := time_of_started(os.getpid())) is None:
            return
        seconds, busy = found
        seconds += time.process_time() - time.thread_time()  # without this thread's own
        now = time.monotonic()
        if progress.stopped(now, seconds, busy):
            if now - began > time_limit:
                over(_frame())
            place = running_line(_frame())
            if _is_first(told, f"waits at {place}"):
                at = f" at {_shown(place)}" if place[0] else ""
                tell(
                    f"{name} waits{at}: it has used no processor time for {_QUIET:g} s; it will "
                    f"be stopped after {time_limit:g} s (--time-limit)"
                )
        elif now - began > long:
            if _is_first(told, f"has run for {long}"):
                tell(
                    f"{name} has run for {now - began:.0f} s, and its step is not complete: it is "
                    f"at {own_line(_frame())}"
                )
            long *= 2
        time.sleep(_LOOKS)


def _is_first(told: Path, what: str) -> bool:
    """Whether no process has reported something yet; from now on one has."""
    try:
        (told / f"told-{zlib.crc32(what.encode()):x}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _frame() -> FrameType | None:
    """Where the first thread is; not to be kept.

    A frame keeps the function's variables after it has returned: tensors would live longer, and a
    gradient that somebody else refers to is copied where it would be handed on.
    """
    return sys._current_frames().get(threading.main_thread().ident or 0)


def _shown(place: tuple[str, int]) -> str:
    return f"{short_path(place[0])}:{place[1]}"


@dataclass(slots=True)
class Progress:
    """Whether processes make progress, check by check.

    Attributes:
        quiet: seconds without any after which they have stopped.
    """

    quiet: float
    _last: float = 0.0
    _seconds: float = -1.0
    _since: float = 0.0

    def stopped(self, now: float, seconds: float, busy: bool) -> bool:
        """Whether there has been no progress for that long.

        Args:
            now: time, seconds.
            seconds: of processor time that they have taken; less than before where one has ended.
            busy: one of them runs, or reads a disk.
        """
        grown = abs(seconds - self._seconds)
        if busy or self._seconds < 0 or grown > _IDLE * (now - self._last) + _TICKS:
            self._since = now
        self._last, self._seconds = now, seconds
        return now - self._since >= self.quiet


def time_of_started(process: int) -> tuple[float, bool] | None:
    """Processor seconds of all that a process has started, and whether it or one of them is busy.

    None if the system has no /proc.
    """
    every = dict(_processes())
    if process not in every:
        return None
    family = {process}
    for number in sorted(every):  # most processes have a greater number than their parent
        if every[number].parent in family:
            family.add(number)
    own = [every[number] for number in family]
    seconds = sum(item.seconds + item.ended for item in own) - every[process].seconds
    return seconds, any(item.busy for item in own)


class _Process(NamedTuple):
    """A process, as in proc(5).

    Attributes:
        parent: the process that started it.
        seconds: its processor time.
        ended: the processor time of its children that have ended.
        busy: it runs, or reads a disk.
    """

    parent: int
    seconds: float
    ended: float
    busy: bool


def _processes() -> Iterable[tuple[int, _Process]]:
    """Every process and its number."""
    ticks = os.sysconf("SC_CLK_TCK")
    for path in _PROCESSES.glob("[0-9]*/stat"):
        try:
            words = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        own, ended = (sum(map(int, words[at : at + 2])) / ticks for at in (11, 13))
        yield int(path.parent.name), _Process(int(words[1]), own, ended, words[0] in _BUSY)
