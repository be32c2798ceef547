"""Communications and communicators.

The idea: a communication says what is exchanged (kind, reduction, bytes per operand) and among whom
(symbolic groups or a permutation).  A communicator is a set of groups plus a process group's name;
ids are assigned once per workload, so that the same groups mean the same communicator in every
program.

    Communication("all_reduce", "add", groups=along_axes(mesh, ("model",)), ...)
"""

from __future__ import annotations

from dataclasses import dataclass

from flint.mesh.groups import Groups
from flint.mesh.permutation import Permutation

#: Kinds whose peers are a permutation; all others have groups.
POINT_TO_POINT = frozenset({"collective_permute", "send", "recv"})

#: How sizes that depend on data are counted, as text.
UPPER_BOUND = "its upper bound"

#: Collective kinds, by their StableHLO names.
COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "ragged_all_to_all",
    "collective_broadcast",
    "collective_permute",
    "send",
    "recv",
)


@dataclass(frozen=True, slots=True)
class Communication:
    """One communication as every rank of its program issues it.

    Attributes:
        kind: StableHLO op name (one of ``COLLECTIVES``).
        reduction: the reducing op (``"add"``, ``"maximum"`` ...); None if nothing is reduced.
        groups: replica groups; None for point to point.
        permutation: peers by rank; None for collectives.
        operand_bytes: bytes per operand on one rank (a variadic collective has several).
        result_bytes: bytes per result on one rank.
        dtypes: element type per operand.
        communicator: id within the workload, -1 before ids are assigned.
        process_group: the framework's name for the group ("" if it has none).
        channel: channel id of the input (0: none); pairs a send with its recv.
        origin: ``""`` as written, ``"all_reduce"`` for a reduce-scatter recognised in one; of a
            message, the collective of whose parts it carries one (``flint.passes.what_if``).
        exact: False when sizes depend on data and ``operand_bytes`` is an upper bound.
        largest_bytes: if members move different amounts, the collective's size on all of them: the
            most that a member needs (``flint.workload.uneven``); 0 if all move the same.
    """

    kind: str
    reduction: str | None
    groups: Groups | None
    permutation: Permutation | None
    operand_bytes: tuple[int, ...]
    result_bytes: tuple[int, ...]
    dtypes: tuple[str, ...]
    communicator: int = -1
    process_group: str = ""
    channel: int = 0
    origin: str = ""
    exact: bool = True
    largest_bytes: int = 0

    @property
    def bytes_in(self) -> int:
        """Operand bytes of all operands."""
        return sum(self.operand_bytes)

    @property
    def bytes_out(self) -> int:
        """Result bytes of all results."""
        return sum(self.result_bytes)

    @property
    def point_to_point(self) -> bool:
        """Whether peers are a permutation."""
        return self.kind in POINT_TO_POINT


@dataclass(frozen=True, slots=True)
class Communicator:
    """Groups under one id.

    Attributes:
        id: number within the workload.
        groups: the partition; None for point to point (any pair may communicate).
        process_group: the framework's name ("" if it has none).
    """

    id: int
    groups: Groups | None
    process_group: str = ""
