"""What each node of a trace exchanges on a rank, and with which ranks.

The idea: nodes of one rank repeat few exchanges, and ranks of one file differ only in who the
others are.  A collective's ranks are those along the network's dims that it names, those that the
table lists under its group's name, or all; ``comm_size`` is what a rank contributes.

    found = Exchanges(world, network, groups).of(trace, rank=3)
    found.table[found.number[7]]        # the communication of the node in row 7
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flint.converters.chakra.network import Network
from flint.converters.chakra.read.kinds import collective_kind
from flint.converters.chakra.read.trace import Trace
from flint.converters.chakra.schema import CollectiveKind, NodeType
from flint.converters.chakra.workloads.messages import Message
from flint.errors import FlintError, UsageError
from flint.graph.communication import Communication
from flint.graph.graph import Ints
from flint.mesh.groups import Groups, everybody
from flint.mesh.permutation import permutation
from flint.passes.columns import distinct as distinct_rows
from flint.post_execution.communications import groups_of

_KINDS = {
    CollectiveKind.ALL_REDUCE: "all_reduce",
    CollectiveKind.REDUCE: "all_reduce",
    CollectiveKind.ALL_GATHER: "all_gather",
    CollectiveKind.BROADCAST: "collective_broadcast",
    CollectiveKind.ALL_TO_ALL: "all_to_all",
    CollectiveKind.REDUCE_SCATTER: "reduce_scatter",
    CollectiveKind.REDUCE_SCATTER_BLOCK: "reduce_scatter",
}
_REDUCES = ("all_reduce", "reduce_scatter")
#: The process group of all ranks, where the table has no such entry.
_WORLD = "0"

REDUCED = "reduces to one rank: converted to all-reduces, as for simulators"
FIRST = "broadcasts, whose sender a trace does not name: the first rank of the group, assumed"
NO_KIND = "collectives of a kind that has no form for simulators: kernels with their time"
NO_SIZE = "communications without bytes: kernels with their time"
NO_PEER = "messages without the other rank: kernels with their time"


@dataclass(frozen=True, eq=False, slots=True)
class Exchanged:
    """The communications of a trace on one rank.

    Attributes:
        table: the distinct ones.
        number: index into ``table`` of the node in each row of the trace, -1 for one that
            computes, shape [nodes].
        places: equal where ``number`` is.
    """

    table: tuple[Communication, ...]
    number: Ints
    places: bytes


class Exchanges:
    """Reads the communications of all ranks of a set.

    Attributes:
        world: number of ranks.
        notes: what a trace does not say, with counts.
    """

    def __init__(
        self, world: int, network: Network | None, groups: Mapping[str, tuple[int, ...]]
    ) -> None:
        """For a run.

        Args:
            world: number of ranks.
            network: the dims that ``involved_dim`` names; None if unknown.
            groups: name of a process group -> its ranks, as listed.
        """
        self.world = world
        self.notes: dict[str, int] = {}
        self._network = network
        self._listed = groups
        self._groups: dict[object, Groups] = {}
        self._distinct: dict[int, tuple[Trace, Ints, Ints, bytes]] = {}
        self._known: dict[object, Communication] = {}

    def of(
        self, trace: Trace, rank: int, channels: Mapping[Message, int] | None = None
    ) -> Exchanged:
        """The communications of a rank.

        Args:
            trace: its trace.
            rank: the rank.
            channels: (source, target, tag, bytes) of messages that need a channel -> its number.
        """
        if id(trace) not in self._distinct:
            rows, same = _alike(trace)
            digest = hashlib.blake2b(same.tobytes(), digest_size=16).digest()
            self._distinct[id(trace)] = (trace, rows, same, digest)
        _, rows, same, digest = self._distinct[id(trace)]
        counts = np.bincount(same, minlength=len(rows)).tolist()
        table: list[Communication] = []
        number = np.full(len(rows), -1, np.int64)
        for place, row in enumerate(rows.tolist()):
            made = self._made(trace, row, rank, counts[place], channels or {})
            if made is not None:
                number[place] = len(table)
                table.append(made)
        return Exchanged(tuple(table), number[same], digest + number.tobytes())

    def _made(
        self, trace: Trace, row: int, rank: int, count: int, channels: Mapping[Message, int]
    ) -> Communication | None:
        kind = int(trace.type[row])
        if kind not in _FORMS:
            return None
        size = int(trace.comm_size[row]) if trace.field["comm_size"][row] else 0
        if size <= 0:
            self._note(NO_SIZE, count)
            return None
        return _FORMS[kind](self, trace, row, rank, size, count, channels)

    def _collective(
        self, trace: Trace, row: int, rank: int, size: int, count: int, _: object
    ) -> Communication | None:
        found = collective_kind(trace, row, lambda text: self._note(text, count))
        kind = _KINDS.get(found) if found is not None else None
        if kind is None:
            self._note(NO_KIND, count)
            return None
        if found == CollectiveKind.REDUCE:
            self._note(REDUCED, count)
        if kind == "collective_broadcast":
            self._note(FIRST, count)
        groups = self._groups_of(trace, row, rank)
        key = (kind, groups, size)
        if key not in self._known:
            members = int(groups.group_size(np.array([rank]))[0])
            got = {"all_gather": size * members, "reduce_scatter": size // members}
            self._known[key] = Communication(
                kind, "add" if kind in _REDUCES else None, groups, None, (size,),
                (got.get(kind, size),), ("",),
            )  # fmt: skip
        return self._known[key]

    def _message(
        self,
        trace: Trace,
        row: int,
        rank: int,
        size: int,
        count: int,
        channels: Mapping[Message, int],
    ) -> Communication | None:
        ends = ends_of(trace, row, rank)
        if ends is None or max(ends) >= self.world:
            self._note(NO_PEER, count)
            return None
        kind = "send" if trace.type[row] == NodeType.SEND else "recv"
        channel = channels.get((*ends, int(trace.comm_tag[row]), size), 0)
        key = (kind, ends, size, channel)
        if key not in self._known:
            pair = permutation(self.world, np.array([ends]))
            sent, got = ((size,), ()) if kind == "send" else ((), (size,))
            self._known[key] = Communication(
                kind, None, None, pair, sent, got, ("",), channel=channel
            )
        return self._known[key]

    def _groups_of(self, trace: Trace, row: int, rank: int) -> Groups:
        """The groups of a collective, among them that of a rank.

        Raises:
            FlintError: the rank is not in its group.
            UsageError: the trace does not say which ranks those are.
        """
        name, dims = int(trace.pg_name[row]), int(trace.involved_dim[row])
        group = trace.pg_names[name] if name >= 0 else ""
        key: object = (group,) if group else trace.involved_dims[dims] if dims >= 0 else ()
        if key not in self._groups:
            self._groups[key] = self._named(group, trace) if group else self._along(trace, dims)
        groups = self._groups[key]
        if rank not in self._listed.get(group, (rank,)):
            raise FlintError(
                f"{trace.path}: rank {rank} is not in group {group!r} of its collective "
                f"{trace.names[trace.name[row]]!r} (id {trace.id[row]})"
            )
        return groups

    def _named(self, group: str, trace: Trace) -> Groups:
        listed = self._listed.get(group)
        if listed is not None:
            return groups_of(listed, self.world)
        if group == _WORLD:
            return everybody(self.world)
        raise UsageError(
            f"{trace.path}: collectives run in process group {group!r}, and nothing says which "
            f"ranks it has: put the simulator's table of groups next to the traces "
            f"(comm_groups.json), or give --group {group}=0-7"
        )

    def _along(self, trace: Trace, dims: int) -> Groups:
        mask = trace.involved_dims[dims] if dims >= 0 else ()
        if all(mask):
            return everybody(self.world)
        if self._network is None:
            raise UsageError(
                f"{trace.path}: collectives run along some of {len(mask)} network dims, whose "
                "sizes are not given: give the mesh with --mesh, the network's dims in reverse "
                "(npus_count: [8, 64] is --mesh 64,8)"
            )
        known = len(self._network.npus_count)
        if len(mask) < known:
            raise UsageError(
                f"{trace.path}: involved_dim has {len(mask)} entries, and the network {known} dims"
            )
        return self._network.along(mask[:known])

    def _note(self, text: str, count: int) -> None:
        self.notes[text] = self.notes.get(text, 0) + count


_Form = Callable[..., Communication | None]
_FORMS: dict[int, _Form] = {
    NodeType.COLL: Exchanges._collective,
    NodeType.SEND: Exchanges._message,
    NodeType.RECV: Exchanges._message,
}


def ends_of(trace: Trace, row: int, rank: int) -> tuple[int, int] | None:
    """Source and target of a message of a rank; None if the trace does not name the other one."""
    sends = trace.type[row] == NodeType.SEND
    other = "comm_dst" if sends else "comm_src"
    peer = int(getattr(trace, other)[row]) if trace.field[other][row] else -1
    if peer < 0 or peer == rank:
        return None
    return (rank, peer) if sends else (peer, rank)


def _alike(trace: Trace) -> tuple[Ints, Ints]:
    """Rows that stand for all others, and the number of that of each row, shape [nodes]."""
    kinds = np.where(np.isin(trace.type, tuple(_FORMS)), trace.type, 0)
    talks: NDArray[np.bool_] = kinds > 0
    columns = (
        trace.comm_type, trace.comm_size, trace.pg_name, trace.involved_dim, trace.comm_src,
        trace.comm_dst, trace.comm_tag, trace.name * (trace.field["comm_type"] == 0),
        *(trace.field[name] > 0 for name in ("comm_type", "comm_src", "comm_dst")),
    )  # fmt: skip
    first, same = distinct_rows(
        kinds.astype(np.int64), *(np.where(talks, column, 0).astype(np.int64) for column in columns)
    )
    return first, same
