"""The input of the rules: one view per distinct trace, and the set of them.

The idea: a view adds to a trace what several rules need (rows by type, resolved dependencies, which
group each collective names), computed once, whatever the number of ranks that share the trace.

    facts = Facts(load_trace_set(Path("out")))
    facts.views[0].colls           # rows of the collectives in dependency order
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flint.converters.chakra.check.findings import Hits
from flint.converters.chakra.check.links import Links, link
from flint.converters.chakra.check.order import OrderFacts, order_facts
from flint.converters.chakra.network import Network, group_id
from flint.converters.chakra.read.trace import Trace
from flint.converters.chakra.read.trace_set import TraceSet
from flint.converters.chakra.schema import NodeType
from flint.mesh.groups import StridedGroups, everybody


class Communicator(NamedTuple):
    """How a collective names its group.

    Attributes:
        group: id in the group table, 0 if the group is given by dims.
        mask: the network dims the group extends over (without those of extent 1); empty for all
            ranks and for table groups.
        problem: why it names none; empty if it does.
    """

    group: int = 0
    mask: tuple[bool, ...] = ()
    problem: str = ""


Orders: TypeAlias = dict[tuple[int, ...], tuple[Links, OrderFacts | None]]
"""A cache of facts that depend only on ids, types and dependencies, by the identity of those
columns.
"""

EVERYBODY: Final = Communicator()


class View:
    """A trace and the ranks that have it."""

    def __init__(
        self,
        index: int,
        trace: Trace,
        ranks: NDArray[np.int64],
        network: Network | None,
        size: int,
        orders: Orders,
    ) -> None:
        self.index = index
        self.trace = trace
        self.ranks = ranks
        self._network = network
        self._size = size
        self._orders = orders

    def rows(self, node_type: NodeType) -> NDArray[np.int64]:
        """Rows of that type, in file order."""
        return np.flatnonzero(self.trace.type == node_type)

    def of_types(self, *types: NodeType) -> NDArray[np.bool_]:
        """Which nodes are of one of these types, shape [nodes]."""
        return np.isin(self.trace.type, np.array(types, np.int32))

    def hits(self, rows: NDArray[np.int64], message: str | Callable[[int], str]) -> Iterator[Hits]:
        """A rule's result for offending rows; nothing if there are none."""
        if len(rows):
            yield Hits(self.index, rows, self.ranks, message)

    @cached_property
    def _structure(self) -> tuple[Links, OrderFacts | None]:
        trace = self.trace
        data, ctrl = trace.data_deps, trace.ctrl_deps
        key = (
            *(id(trace.id), id(trace.type)),
            *(id(data.start), id(data.ids), id(ctrl.start), id(ctrl.ids)),
        )
        if key not in self._orders:
            links = link(trace)
            broken = len(links.duplicate) or len(links.missing) or len(links.own)
            sound = not broken and not len(links.cycle)
            self._orders[key] = links, order_facts(trace.type, links) if sound else None
        return self._orders[key]

    @property
    def links(self) -> Links:
        """The resolved dependencies."""
        return self._structure[0]

    @property
    def order(self) -> OrderFacts:
        """What the dependencies order.  Only for a trace whose dependencies are sound."""
        facts = self._structure[1]
        assert facts is not None
        return facts

    @cached_property
    def communicators(self) -> tuple[list[Communicator], NDArray[np.int64]]:
        """The distinct communicators, and per row (of the whole trace) an index into them.

        Rows that are no COLL have -1.
        """
        trace = self.trace
        colls = self.rows(NodeType.COLL)
        width = len(trace.involved_dims) + 1
        codes = (trace.pg_name[colls].astype(np.int64) + 1) * width + trace.involved_dim[colls] + 1
        distinct, index = np.unique(codes, return_inverse=True)
        found: dict[Communicator, int] = {}
        translate = [
            found.setdefault(self._communicator(code // width - 1, code % width - 1), len(found))
            for code in distinct.tolist()
        ]
        of_row = np.full(len(trace), -1, np.int64)
        of_row[colls] = np.array(translate, np.int64)[index]
        return list(found), of_row

    def _communicator(self, pg_name: int, involved_dim: int) -> Communicator:
        name = self.trace.pg_names[pg_name] if pg_name >= 0 else "0"
        if name not in ("", "0"):
            group = group_id(name)
            if group is None:
                return Communicator(
                    problem=f"pg_name {name[:40]!r} is not a decimal integer >= 1: consumers abort"
                )
            return Communicator(group=group)
        if involved_dim < 0:
            return EVERYBODY
        mask = self.trace.involved_dims[involved_dim]
        network = self._network
        if network is None and len(mask) == 1:
            network = Network((self._size,))
        if network is None:
            if mask and all(mask):
                return EVERYBODY
            return Communicator(
                problem=f"involved_dim {_show(mask)} needs the network's extents: give npus_count "
                "(--npus-count)"
            )
        if len(mask) != len(network.npus_count):
            return Communicator(
                problem=f"involved_dim {_show(mask)} has {len(mask)} entries, the network "
                f"{len(network.npus_count)} dims ({list(network.npus_count)}); write one per dim"
            )
        wide = tuple(extent > 1 for extent in network.npus_count)
        mask = tuple(use and more for use, more in zip(mask, wide, strict=True))
        return EVERYBODY if mask == wide else Communicator(mask=mask)


def _show(mask: tuple[bool, ...]) -> str:
    shown = ", ".join(str(int(use)) for use in mask[:16])
    return f"[{shown}{', ...' if len(mask) > 16 else ''}]"


class Facts:
    """The whole set, as input of the rules."""

    def __init__(self, traces: TraceSet) -> None:
        self.set = traces
        orders: Orders = {}
        self.views = [
            View(index, trace, ranks, traces.network, traces.size, orders)
            for index, (trace, ranks) in enumerate(zip(traces.traces, traces.ranks, strict=True))
        ]

    def group_size(self, communicator: Communicator) -> int:
        """Number of members; 0 for a group that the table lacks."""
        if communicator.group:
            members = self.set.groups.members.get(communicator.group)
            return 0 if members is None else len(members)
        return self._along(communicator).size

    def group_of_ranks(
        self, communicator: Communicator, ranks: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """int64: for each of `ranks` the number that tells its group of this communicator.

        It is the group's lowest rank where groups are given by dims, 0 otherwise.
        """
        return self._along(communicator).base(ranks)

    def members(self, communicator: Communicator, rank: int) -> NDArray[np.int64]:
        """The members of `rank`'s group."""
        if communicator.group:
            return self.set.groups.members[communicator.group]
        return self._along(communicator).members(rank)

    def _along(self, communicator: Communicator) -> StridedGroups:
        """The groups of a communicator that the table does not list."""
        if communicator.mask and self.set.network is not None:
            return self.set.network.along(communicator.mask)
        return everybody(self.set.size)
