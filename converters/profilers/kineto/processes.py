"""Which process an event of a Kineto trace belongs to, if tools have merged several.

The idea: PyTorch's profiler records its own process, and its file is one rank's.  Tools that merge
files keep the events and change at most the number of their process.  An event on a host names its
process.  One on a device names the device instead: it belongs to the process of the same name, to
the one whose name is a prefix of its own ("rank1" and "rank1/GPU 0"), to the one whose events are
around it, or to the only one that made the calls that launched it.

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

MERGED: Final = "several processes in one trace, as in merged files: each is taken as one rank"
UNKNOWN_ORDER: Final = (
    "nothing in the merged trace names the ranks of its processes: they are numbered in file order"
)
#: The most processes of a file.
_MOST = 1 << 12
#: Replaces a process if events are in any order.
_ANYWHERE: Final = -1
#: The most characters of a process's name that are shown.
_SHOWN = 40
#: How much larger one process's share of the calls of device events must be than any other's.
_CLEARLY = 0.05
#: The parts of names, and a word followed by a number.
_TOKEN, _NUMBERED = re.compile(r"\w+"), re.compile(r"([A-Za-z]+)[ _#:.-]?(\d{1,7})(?!\d)")


class Track(NamedTuple):
    """Device events that name the same process and follow events of the same one on a host.

    Attributes:
        before: number of the process before them in the file.
        name: the process that they name.
    """

    before: int
    name: object


class Process(Generic[Kept]):
    """One process of a file.

    Attributes:
        number: its number in the file.
        name: the process that its events name.
        mine: what the reader keeps.
        rank: the rank that its events name, -1 if they do not.
    """

    __slots__ = ("mine", "name", "number", "rank")

    def __init__(self, number: int, name: object, mine: Kept) -> None:
        self.number, self.name, self.mine = number, name, mine
        self.rank = -1


class Processes(Generic[Kept]):
    """The processes of a file in order of first appearance.

    There is always one: events of devices may come first.

    Attributes:
        all: the processes.
        all_labels: the file's information about processes, by their names.
    """

    def __init__(self, path: Path, new: Callable[[], Kept]) -> None:
        """For a file; ``new`` makes what is kept for each process."""
        self._path, self._new = path, new
        self.all: list[Process[Kept]] = [Process(0, None, new())]
        self.all_labels: dict[str, list[str]] = {}
        self._by_name: dict[object, Process[Kept]] = {}
        self._runs = 0

    def of(self, name: object, rank: Callable[[], object]) -> Process[Kept]:
        """The process with this name, whose events on a host begin or continue here.

        Args:
            name: name of the process.
            rank: reads the rank that an argument of this event names, or anything else.

        Raises:
            FlintError: too many processes.
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
        stated = rank()
        if type(stated) is int and 0 <= stated < 1 << 32:
            found.rank = stated
        self._by_name[name] = found
        return found

    @property
    def met(self) -> bool:
        """Whether any process was seen by its name."""
        return bool(self._by_name)

    def label(self, name: object, stated: Iterable[object]) -> None:
        """Keep the file's information about the process with this name."""
        self.all_labels.setdefault(str(name), []).extend(
            text for text in stated if isinstance(text, str)
        )

    def labels(self, name: object) -> list[str]:
        """The file's information about the process with this name."""
        return self.all_labels.get(str(name), [])

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
            tracks: for each event, the call that launched it, and its start in nanoseconds.
            calls: for each process, its calls, and when they began.
            in_place: whether events of devices follow those of their process in the file.

        Raises:
            FlintError: it is unknown for some.
        """
        placed = in_place and self._runs == len(self.all)  # the events of each are together
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
        """The processes that a track may belong to, by the first rule that finds any."""
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
        """The ranks of the active processes; None if the file does not show them.

        Evidence is an argument, the word "rank" in their names or labels, or the only number there
        that differs, if all from 0 on occur.
        """
        stated = [process.rank for process in processes]
        if min(stated) >= 0:
            return stated
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
        """Words followed by numbers in the information about a process."""
        texts = [*([name] if isinstance(name, str) else []), *self.labels(name)]
        return {
            word.lower(): int(number) for text in texts for word, number in _NUMBERED.findall(text)
        }


def _shared(one: object, other: object) -> int:
    """Number of equal leading words of two names."""
    if not isinstance(one, str) or not isinstance(other, str):
        return 0
    count = 0
    for word, same in zip(_TOKEN.findall(one), _TOKEN.findall(other), strict=False):
        if word != same:
            break
        count += 1
    return count
