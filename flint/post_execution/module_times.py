"""When the instructions of a compiled program ran, as a profiler saw them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from flint.mesh.ragged import Ints


@dataclass(frozen=True, eq=False, slots=True)
class DeviceRun:
    """What one device executed in one run of a program, in order of time.

    Attributes:
        rank: the device's rank.
        clock: number of its clock: devices of one host have the same.
        names: the instruction of each execution.
        start, end: nanoseconds on that clock; of an asynchronous instruction the begin of its start
            and the end of the wait for it; shape [executions].
        duration: nanoseconds that it took the device, shape [executions].
        launch: when the host launched it, ns; -1 if not recorded; shape [executions].
        stream: number of the device's stream, shape [executions].
    """

    rank: int
    clock: int
    names: list[str]
    start: Ints
    end: Ints
    duration: Ints
    launch: Ints
    stream: Ints


@dataclass(frozen=True, slots=True)
class ModuleTimes:
    """A program and when its instructions ran.

    Attributes:
        path: the profile, for messages.
        proto: the program, a serialised ``HloProto`` or ``HloModuleProto``.
        runs: of each traced device, by ascending rank.
        enclosing: instructions whose events enclose those of others (loops, calls).
        device: the name of the devices, or what describes them; "" if not recorded.
        run: number of the run in the trace.
        notes: text -> count.
        programs: names of the programs that ``proto`` runs one after another.
        devices: the id of each rank's device; () if not recorded.
    """

    path: str
    proto: bytes
    runs: tuple[DeviceRun, ...]
    enclosing: frozenset[str]
    device: str
    run: int
    notes: dict[str, int] = field(default_factory=dict)
    programs: tuple[str, ...] = ()
    devices: tuple[int, ...] = ()

    @property
    def executed(self) -> frozenset[str]:
        """The executed instructions."""
        return frozenset(name for run in self.runs for name in run.names)


def lost(times: ModuleTimes, known: Collection[str]) -> dict[str, int]:
    """A note on executed instructions without a node, with their time on a device."""
    lost = sorted(times.executed - times.enclosing - set(known))
    if not lost:
        return {}
    names = set(lost)
    spent = sum(
        int(run.duration[[name in names for name in run.names]].sum()) for run in times.runs
    )
    text = (
        f"instructions with a time but without a node (for example {lost[0]}): "
        f"{spent / len(times.runs) / 1e3:,.1f} us left out"
    )
    return {text: len(lost)}
