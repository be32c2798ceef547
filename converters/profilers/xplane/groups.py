"""Groups of devices that run programs of their own: stages of a pipeline, an actor and learners.

The idea: the programs of a group run on its devices alone.  After those of the program with the
most time, the devices of the longest program on others are the next group, and so on.  Steps of
groups are told apart one by one; a group may run several of its steps in one of another's, as often
in each.

    [(key, profile)] = other_groups(read, profile)
    regrouped([steps_of(read, longest, profile), steps_of(read, key, profile)])
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence

from flint.converters.profilers.xplane.asked_program import chosen_program, labels_of
from flint.converters.profilers.xplane.devices import hosts_of
from flint.converters.profilers.xplane.events import modules_of
from flint.converters.profilers.xplane.profile import FirstDevices, Profile, Read, profile_of
from flint.converters.profilers.xplane.sequence import Key, Step
from flint.errors import FlintError


def other_groups(
    read: Read, main: Profile, first_devices: FirstDevices = hosts_of
) -> Iterator[tuple[Key, Profile]]:
    """The longest program of each further group of devices; none for several hosts.

    Args:
        read: the profile.
        main: its longest program.
        first_devices: as of ``profile_of``.
    """
    taken = {*main.devices}
    events = read.ran[0].events
    if len(read.files) > 1 or not taken or all(event.device in taken for event in events):
        return
    [file], protos = read.files, modules_of(read.files[0], read.ran[0].data)
    ran_on: dict[str, set[int]] = defaultdict(set)
    for event in events:
        ran_on[event.program].add(event.device)
    while free := {label for label, devices in ran_on.items() if not devices & taken}:
        try:
            label, _ = chosen_program(file, [e for e in events if e.program in free], protos)
        except FlintError:  # none has HLO
            return
        name = label.rpartition("(")[0]
        key = Key(name, labels_of(events, name).index(label))
        profile = profile_of(read, key, first_devices)
        if ran_on[label] <= {*profile.devices} and not taken & {*profile.devices}:
            yield key, profile
        taken |= {*profile.devices} | ran_on[label]


def regrouped(groups: Sequence[list[Step]]) -> list[list[Step]]:
    """The steps of the groups that take part in each step of the first one, equally many of each.

    A group runs in each step as often as in the others: one that does not is left out.
    """
    kept, count = [groups[0]], len(groups[0])
    if not count:
        return kept
    for steps in groups[1:]:
        least = min(count, len(steps))
        once = least == 1 < count
        if least and not once and not count % least and not len(steps) % least:
            kept.append(steps)
            count = least
    return [
        [
            list(itertools.chain.from_iterable(steps[at : at + len(steps) // count]))
            for at in range(0, len(steps), len(steps) // count)
        ]
        for steps in kept
    ]
