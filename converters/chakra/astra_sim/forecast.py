"""What ASTRA-sim will need for a set of traces: time and memory, before they are written.

The idea: its time grows with the messages of collectives (rings over n ranks need n - 1 per rank,
twice that for an all-reduce) and with the nodes of all ranks; its memory grows with the nodes,
because it keeps all of them.  The figures are fitted to steps of Llama 3 8B through the analytical
congestion-unaware simulator (docs/simulation.md, "What ASTRA-sim needs", has the runs).

    expected = forecast(nodes=2_552_320, messages=28_578_816)
    expected.seconds, expected.bytes
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from flint.execution.emission import Emission
from flint.execution.node_types import NodeType
from flint.graph.communication import Communication
from flint.graph.graph import Ints
from flint.mesh.groups import Groups
from flint.mesh.network_dims import NetworkDims

#: Seconds per node, and per message.
_PER_NODE: Final = 12e-6
_PER_MESSAGE: Final = 10e-6
#: Bytes per node, and of the simulator itself.
_BYTES_PER_NODE: Final = 1_320
_BYTES: Final = 10_000_000
#: From these figures on, the user is warned in advance.
LONG: Final = 300.0
LARGE: Final = 8 * 2**30


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a simulation is expected to need.

    Attributes:
        nodes: nodes of all ranks.
        messages: messages of all collectives and sends of all ranks.
        seconds: processor time.
        bytes: memory.
    """

    nodes: int
    messages: int
    seconds: float
    bytes: int

    @property
    def much(self) -> bool:
        """Whether the reader should know before it begins."""
        return self.seconds > LONG or self.bytes > LARGE


def forecast(nodes: int, messages: int) -> Forecast:
    """The forecast for the total number of nodes and messages of all ranks."""
    seconds = _PER_NODE * nodes + _PER_MESSAGE * messages
    return Forecast(nodes, messages, seconds, _BYTES + _BYTES_PER_NODE * nodes)


def messages_of(table: Sequence[Communication], dims: NetworkDims) -> Ints:
    """Messages that a rank sends for each communication as a collective, shape [table + 1].

    The last one is for nodes that do not communicate.

    Args:
        table: the program's communications.
        dims: the network's dims; a collective over several of them uses one after another.
    """
    known: dict[tuple[str, Groups | None], int] = {}
    for item in table:
        if (item.kind, item.groups) not in known:
            known[item.kind, item.groups] = _messages(item, dims)
    return np.array([*(known[item.kind, item.groups] for item in table), 0], np.int64)


def messages_in(emission: Emission, detail: Ints, each: Ints) -> int:
    """Messages that one rank sends.

    Args:
        emission: its nodes.
        detail: entry of the communication table of each node, -1 for none.
        each: result of ``messages_of``.
    """
    collective = int(each[detail[emission.type == NodeType.COLL]].sum())
    return collective + int((emission.type == NodeType.SEND).sum())


def _messages(item: Communication, dims: NetworkDims) -> int:
    if item.groups is None:
        return 0
    mask = dims.mask(item.groups)
    sizes = [item.groups.size]
    if mask is not None:
        sizes = [size for size, used in zip(dims.npus_count, mask, strict=True) if used]
    return sum(size - 1 for size in sizes) * (2 if item.kind == "all_reduce" else 1)
