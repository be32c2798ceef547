"""The knowledge and assumptions of the capture in this process, for all modes and shims.

capture().assume("a value is read at train.py:7: assumed to be 1.0")
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakSet

from flint.frontends.torch.by_tensor import ByTensor
from flint.frontends.torch.evidence import Gathered
from flint.frontends.torch.stage_shapes import Peers
from flint.graph.routing import Routing
from flint.launching.stated_values import MaskShares
from flint.launching.unknown import Unknown


@dataclass(slots=True)
class Capture:
    """One rank's capture.

    Attributes:
        shape: devices per mesh axis; of a whole program, as far as it has made meshes and groups.
        per_host: ranks per host.
        routing: how choices spread over experts.
        fake_mode: the FakeTensorMode that it runs in.
        peers: give the messages to pipeline stages from other ranks, and take those of this rank.
        assumed: assumptions, text -> count.
        known_values: tensor -> knowledge about its value.
        deferred: tensor -> its value, made when marks of a router's choices need it.
        most_set: tensor -> the most elements of it that are not zero.
        counted: tensor of marks, or of sums of marks -> the most that an element can be, and how
            many marks were set, if that is known.
        mask_shares: how many elements unknown masks choose.
        trip_counts: iterations of loops that end by unknown values, by line; "" is every other one.
        judged: tensor -> whether it has choices, or counts of right ones.
        overwritten: addresses of storages of the host that the device has written, whose values are
            not known -> the storages.
        batches: storages of the device that were copied from real tensors of the host.
        evidence: evidence of differences among ranks.
        groups_made: place in the program -> ranks of the groups created there, in order.
        groups_asked: place in the program -> ranks of which it asked there whether its own is one,
            in order.
        groups_known: name of a process group -> places of ranks in the groups of its kind.
        shards_noted: placements of distributed tensors that have been examined.
        begins_group: the program itself begins the process group; otherwise it exists from the
            start.
        rank: returns the rank of this process, if the program begins the group.
        strict_values: reading an unknown integer is an error, not 1.
        guessed: the error of the first integer read as 1, since the step may have begun.
        indices: tensors that pick a place along a dim, while they do.
        unknown: the values that are given for other unknown ones.
        numbers: tensor -> its version, and the float that was read from it.
        held: tensor of the host that holds numbers of the rank -> its values on all ranks.
        watch: called with operands that are not plain tensors.
        notices: the assumptions that the program does not see.
        unseen: places where the rank was read without its comparisons being seen.
        drawn: random numbers of weights without values that the host has drawn.
        drawn_integers: whole numbers that the device has drawn, one by one.
        backends: name of a process group -> the requested backend; "" is the default group's.
        compiles: ``torch.compile`` compiles, for the GPU that the device module describes.
        lowered: folder of graphs that ``torch.compile`` has lowered in other processes of the run;
            None if it is not shared.
        has_compiled: something was given to ``torch.compile``.
        not_compiled: code that could not be compiled, and assumptions of the compilation, which
            happens before the recorded step: text -> count.
        rehearses: the step runs for what is created once; of a pipeline, one microbatch is enough.
        preserved_gradients: addresses of storages of gradients that stay unchanged -> the action
            when C++ writes one.
    """

    shape: tuple[int, ...] = (1,)
    per_host: int = 8
    routing: Routing = field(default_factory=Routing)
    fake_mode: Any = None
    peers: Peers | None = None
    assumed: Counter[str] = field(default_factory=Counter)
    notices: set[str] = field(default_factory=set)
    known_values: Any = field(default_factory=ByTensor)
    deferred: Any = field(default_factory=ByTensor)
    most_set: Any = field(default_factory=ByTensor)
    counted: Any = field(default_factory=ByTensor)
    mask_shares: MaskShares = field(default_factory=MaskShares)
    trip_counts: Mapping[str, int] = field(default_factory=dict)
    judged: Any = field(default_factory=ByTensor)
    overwritten: dict[int, Any] = field(default_factory=dict)
    batches: WeakSet[Any] = field(default_factory=WeakSet)
    evidence: Gathered = field(default_factory=Gathered)
    groups_made: dict[str, dict[tuple[int, ...], None]] = field(default_factory=dict)
    groups_asked: dict[str, dict[tuple[int, ...], None]] = field(default_factory=dict)
    groups_known: dict[str, Any] = field(default_factory=dict)
    shards_noted: dict[Any, Any] = field(default_factory=dict)
    begins_group: bool = False
    rank: Callable[[], int] = int
    strict_values: bool = True
    guessed: str = ""
    indices: tuple[Any, ...] = ()
    unknown: Unknown = field(default_factory=Unknown)
    numbers: Any = field(default_factory=ByTensor)
    held: Any = field(default_factory=ByTensor)
    watch: Callable[[Any], None] | None = None
    unseen: set[str] = field(default_factory=set)
    drawn: int = 0
    drawn_integers: int = 0
    backends: dict[str, str] = field(default_factory=dict)
    compiles: bool = False
    lowered: Path | None = None
    has_compiled: bool = False
    not_compiled: Counter[str] = field(default_factory=Counter)
    rehearses: bool = False
    preserved_gradients: dict[int, Callable[[], None]] = field(default_factory=dict)

    def assume(self, what: str) -> None:
        """Count an assumption, which becomes a warning of the capture."""
        self.assumed[what] += 1

    def notice(self, what: str) -> None:
        """The same of what the program does not see: it goes on as if nothing were different."""
        self.notices.add(what)
        self.assume(what)

    def answers(self) -> dict[str, int]:
        """The assumptions that decide what the program sees, with counts, in order."""
        every = dict(self.assumed)  # other threads go on
        return {what: count for what, count in every.items() if what not in self.notices}


_current = Capture()


def capture() -> Capture:
    """The capture that runs in this process."""
    return _current


def begin(started: Capture) -> Capture:
    """Make a capture the one that runs."""
    global _current
    _current = started
    return started
