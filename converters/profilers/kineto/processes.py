"""Which process an event of a Kineto trace belongs to, where tools have merged those of several.

The idea: PyTorch's profiler records its own process, and its file is one rank's.  Tools that merge
files keep the events as they are and change at most the number of their process.  An event on a
host names its process.  One on a device names the device in its place: it belongs to the process of
the same name, to the one with whose name its own begins ("rank1" and "rank1/GPU 0"), to the one
between whose events it stands, or to the only one that made the calls that launched it.

    processes = Processes(path, list)
    processes.of(4123, lambda: None).mine.append(event)     # an event of the host's
    processes.owners(tracks, calls, in_place=True)          # of a device's
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

from flint.errors import FlintError

Kept = TypeVar("Kept")

MERGED: Final = "several processes in one trace, as merged files have: each is a rank of its own"
UNTOLD_ORDER: Final = (
    "nothing in the merged trace names the ranks of its processes: they are numbered in file order"
)
#: More processes than a file has.
_MOST = 1 << 12
#: In the place of a process where events stand in any order.
_ANYWHERE: Final = -1
#: Characters of a process's name that are shown.
_SHOWN = 40
#: Of the calls of device events so much more must be one process's than any other's.
_CLEARLY = 0.05
#: What names consist of, and a word with the number behind it.
_TOKEN, _NUMBERED = re.compile(r"\w+"), re.compile(r"([A-Za-z]+)[ _#:.-]?(\d{1,7})(?!\d)")


class Track(NamedTuple):
    """Device events that name the same process and follow events of the same one on a host.

    Attributes:
        before: number of the process in front of them in the file.
        name: what they have for a process.
    """

    before: int
    name: object


class Process(Generic[Kept]):
    """One process of a file.

    Attributes:
        number: its place among those of the file.
        name: what its events have for a process.
        mine: what the reader keeps.
        rank: the rank that its events name, -1 where they do not.
    """

    __slots__ = ("mine", "name", "number", "rank")

    def __init__(self, number: int, name: object, mine: Kept) -> None:
        self.number, self.name, self.mine = number, name, mine
        self.rank = -1


class Processes(Generic[Kept]):
    """The processes of a file in the order in which they are met.

    There is always one: events of devices may come first.

    Attributes:
        all: the processes.
    """

    def __init__(self, path: Path, new: Callable[[], Kept]) -> None:
        """For a file, of each process of which ``new`` makes what is kept."""
        self._path, self._new = path, new
        self.all: list[Process[Kept]] = [Process(0, None, new())]
        self._labels: dict[object, list[str]] = {}
        self._by_name: dict[object, Process[Kept]] = {}
        self._runs = 0

    def of(self, name: object, rank: Callable[[], object]) -> Process[Kept]:
        """The process with this name, whose events on a host begin or go on here.

        Args:
            name: of the process.
            rank: reads the rank that an argument of this event names, or anything else.

        Raises:
            FlintError: more processes than a file has.
        """
        self._runs += 1
        found = self._by_name.get(name)
        if found is not None:
            return found
        if not self._by_name:
            found = self.all[0]
            found.name = name
        else:
            found = Process(len(self.all), name, self._new())
            self.all.append(found)
        if len(self.all) > _MOST:
            raise FlintError(f"{self._path}: more than {_MOST:,} processes in one trace")
        said = rank()
        if type(said) is int and 0 <= said < 1 << 32:
            found.rank = said
        self._by_name[name] = found
        return found

    @property
    def met(self) -> bool:
        """Whether any process was met by its name."""
        return bool(self._by_name)

    def label(self, name: object, said: Iterable[object]) -> None:
        """Keep what the file says of the process with this name."""
        self._labels.setdefault(name, []).extend(text for text in said if isinstance(text, str))

    def named(self, name: object) -> Process[Kept] | None:
        """The process with this name."""
        return self._by_name.get(name)

    def owners(
        self,
        tracks: Mapping[Track, Sequence[tuple[object, int]]],
        calls: Sequence[Mapping[object, int]],
        *,
        in_place: bool,
    ) -> dict[Track, int]:
        """The number of the process that each track of a device belongs to.

        Args:
            tracks: of each event the call that launched it, and its begin in nanoseconds.
            calls: of each process its calls, and when they began.
            in_place: whether events of devices follow those of their process in the file.

        Raises:
            FlintError: of some, nothing tells it.
        """
        placed = in_place and self._runs == len(self.all)  # the events of each stand together
        whole: dict[Track, list[tuple[object, int]]] = defaultdict(list)
        for track, events in tracks.items():
            whole[track if placed else Track(_ANYWHERE, track.name)] += events
        owners = self._told_apart(whole, calls)
        return {
            track: owners[track if placed else Track(_ANYWHERE, track.name)] for track in tracks
        }

    def _told_apart(
        self,
        tracks: Mapping[Track, Sequence[tuple[object, int]]],
        calls: Sequence[Mapping[object, int]],
    ) -> dict[Track, int]:
        """``owners`` of all events of each device, or of those in one place."""
        fitting = {track: self._fitting(track, events, calls) for track, events in tracks.items()}
        found: dict[Track, int] = {}
        while clear := [track for track, some in fitting.items() if len(some) == 1]:
            found.update({track: fitting.pop(track).pop() for track in clear})
            with_device = set(found.values())  # the others used a device, too
            fitting = {track: some - with_device or some for track, some in fitting.items()}
        if not fitting:
            return found
        names = ", ".join(str(process.name)[:_SHOWN] for process in self.all[:8])
        raise FlintError(
            f"{self._path}: several processes ({names}) in one trace, and the trace does not "
            "record which of them launched the work on device "
            f"{str(next(iter(fitting)).name)[:_SHOWN]}: convert the traces that it was merged from"
        )

    def _fitting(
        self,
        track: Track,
        events: Sequence[tuple[object, int]],
        calls: Sequence[Mapping[object, int]],
    ) -> set[int]:
        """The processes that a track may belong to, by the first of the rules that tells any."""
        same = self._by_name.get(track.name)
        if same is not None:
            return {same.number}
        alike = [_shared(process.name, track.name) for process in self.all]
        if max(alike) and alike.count(max(alike)) == 1:
            return {alike.index(max(alike))}
        if track.before != _ANYWHERE:
            return {track.before}
        launched = [
            sum(mine.get(call, start + 1) <= start for call, start in events) for mine in calls
        ]
        least = max(launched) - _CLEARLY * len(events)
        return {number for number, count in enumerate(launched) if count > least}

    def ranks(self, processes: Sequence[Process[Kept]]) -> list[int] | None:
        """The ranks of some processes, those that did anything; None where the file does not tell.

        It tells by an argument, by the word "rank" in their names or labels, or by the only number
        there that differs, if all from 0 on are there.
        """
        told = [process.rank for process in processes]
        if min(told) >= 0:
            return told
        numbered = [self._numbers(process.name) for process in processes]
        words = {word for numbers in numbered for word in numbers}
        found = {word: [numbers.get(word, -1) for numbers in numbered] for word in words}
        if "rank" in found and min(found["rank"]) >= 0:
            return found["rank"]
        differing = [ranks for ranks in found.values() if len(set(ranks)) > 1]
        if len(differing) == 1 and sorted(differing[0]) == list(range(len(processes))):
            return differing[0]
        return None

    def _numbers(self, name: object) -> dict[str, int]:
        """Words and the numbers behind them in what is said of a process."""
        texts = [*([name] if isinstance(name, str) else []), *self._labels.get(name, ())]
        return {
            word.lower(): int(number) for text in texts for word, number in _NUMBERED.findall(text)
        }


def _shared(one: object, other: object) -> int:
    """How many words two names begin with alike."""
    if not isinstance(one, str) or not isinstance(other, str):
        return 0
    count = 0
    for word, same in zip(_TOKEN.findall(one), _TOKEN.findall(other), strict=False):
        if word != same:
            break
        count += 1
    return count
