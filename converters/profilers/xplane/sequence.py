"""Which programs of a profile make one step: jitted functions that a loop calls by turns.

The idea: the program with the most time runs in every step, or is compiled anew in each.  If the
same programs run around it in the same order again and again, one repetition is a step, and the
first one begins where they do.

    steps_of(read, ("jit_gradient", 0), profile)
    # [[(gradient, 0), (update, 0)], [(gradient, 1), (update, 1)]]
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from typing import TypeAlias, TypeVar

import numpy as np

from flint.converters.profilers.xplane.asked_program import chosen_program, labels_of
from flint.converters.profilers.xplane.devices import Devices, hosts_of
from flint.converters.profilers.xplane.events import Event, modules_of
from flint.converters.profilers.xplane.profile import (
    FirstDevices,
    Profile,
    Read,
    common_program,
    profile_of,
)
from flint.errors import FlintError
from flint.hlo.messages import parse_module
from flint.observed.program_runs import AskedProgram

Key: TypeAlias = AskedProgram
#: The runs of a step in order: their program, and the number of the run among the program's.
Step: TypeAlias = list[tuple[Profile, int]]
Item = TypeVar("Item", bound=Hashable)

#: More programs than that are not looked at: each one takes a pass over all events.
_MOST_PROGRAMS = 64
#: The most runs of programs in a step.
_LONGEST = 1_000


def longest_program(read: Read) -> Key:
    """The program with the most time; of several hosts, among those that all ran.

    Raises:
        FlintError: none has HLO in the file.
    """
    common = common_program([ran.events for ran in read.ran])
    if common is not None:
        return common
    [file], [ran] = read.files, read.ran
    label, _ = chosen_program(file, ran.events, modules_of(file, ran.data))
    name = label.rpartition("(")[0]
    return Key(name, labels_of(ran.events, name).index(label))


def runs_in_time(profile: Profile) -> dict[int, list[list[Event]]]:
    """The events of each run on each rank, by the run's begin."""
    runs: dict[int, dict[int, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for event in profile.events:
        runs[event.device][event.run].append(event)
    return {
        rank: sorted(found.values(), key=lambda events: events[0].start)
        for rank, found in sorted(runs.items())
    }


def steps_of(
    read: Read, longest: Key, profile: Profile, first_devices: FirstDevices = hosts_of
) -> list[Step]:
    """The steps of a profile, those that are whole; without a repetition, runs of the longest.

    Args:
        read: the profile.
        longest, profile: its program with the most time.
        first_devices: as of ``profile_of``.
    """
    count = min(map(len, runs_in_time(profile).values()))
    alone: list[Step] = [[(profile, number)] for number in range(count)]
    programs = {longest: profile}
    for key in _between(read, longest, count):
        other = _beside(read, key, profile, first_devices)
        if other is not None:
            programs[key] = other
    if len(programs) == 1:
        return alone
    orders = _orders(programs)
    if any(order != orders[0] for order in orders):
        return alone
    found = repetitions(orders[0], longest)
    if not found:  # a program that is compiled anew in each step is the same one for this
        alike = {key: _content(item) for key, item in programs.items()}
        found = repetitions([alike[key] for key in orders[0]], alike[longest])
    if not found or len(found[0]) == 1:
        return alone
    numbered: list[tuple[Profile, int]] = []
    seen: Counter[Key] = Counter()
    for key in orders[0]:
        numbered.append((programs[key], seen[key]))
        seen[key] += 1
    return [[numbered[place] for place in places] for places in found]


def repetitions(order: Sequence[Item], main: Item) -> list[range]:
    """The places of each repetition, with the shortest period that has half of some runs.

    Args:
        order: what ran.
        main: at least half of these runs are in the repetitions.
    """
    number: dict[Item, int] = {}
    numbers = np.array([number.setdefault(item, len(number)) for item in order])
    mains = np.flatnonzero(numbers == number[main])
    for period in range(1, min(len(order) // 2, _LONGEST) + 1):
        same = np.concatenate([[0], numbers[period:] == numbers[:-period], [0]])
        begin, end = np.flatnonzero(np.diff(same)).reshape(-1, 2).T
        if not len(begin):
            continue
        longest = int(np.argmax(end - begin))
        first, last = int(begin[longest]), int(end[longest]) + period
        inside = np.count_nonzero((mains >= first) & (mains < last))
        if last - first >= 2 * period and 2 * inside >= len(mains):
            return [range(at, at + period) for at in range(first, last - period + 1, period)]
    return []


def _between(read: Read, longest: Key, count: int) -> list[Key]:
    """The other programs of the names that began between the runs of the longest, on one host.

    One that ran once may be compiled anew in each step: then between those of its name.
    """
    events = read.ran[0].events
    labels = labels_of(events, longest.name)
    labels = [labels[longest.number]] if count > 1 else labels
    own = [event.start for event in events if event.program in labels]
    first, last = min(own), max(own)
    inside = {event.program for event in events if first < event.start < last}
    names = {other.rpartition("(")[0] for other in inside}
    found = [Key(name, n) for name in sorted(names) for n in range(len(labels_of(events, name)))]
    return [key for key in found if key != longest] if len(found) <= _MOST_PROGRAMS else []


def _beside(read: Read, key: Key, main: Profile, first_devices: FirstDevices) -> Profile | None:
    """A program that runs on the same devices as another one; None if it does not, or lacks HLO."""
    try:
        found = profile_of(read, key, first_devices)
    except FlintError:
        return None
    same = Devices.of(parse_module(found.proto)) == Devices.of(parse_module(main.proto))
    ranks = [{event.device for event in item.events} for item in (found, main)]
    return found if same and ranks[0] == ranks[1] else None


def _content(profile: Profile) -> bytes:
    """What is equal for programs that compute the same: neither their number nor their name."""
    digest = hashlib.sha256()
    for computation in parse_module(profile.proto).computations:
        digest.update(computation.SerializeToString(deterministic=True))
    return digest.digest()


def _orders(programs: dict[Key, Profile]) -> list[list[Key]]:
    """Which programs ran, in order of time, on each rank."""
    began: dict[int, list[tuple[int, Key]]] = defaultdict(list)
    for key, profile in programs.items():
        for rank, runs in runs_in_time(profile).items():
            began[rank] += [(events[0].start, key) for events in runs]
    return [[key for _, key in sorted(found)] for _, found in sorted(began.items())]
