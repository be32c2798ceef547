"""Forms: which nodes an instance of a program becomes on one rank.

The idea: on a given rank a compute node is one COMP, an all-reduce one COLL or nothing (a group of
one), a collective-permute a SEND and a RECV, or one of them, or a local copy, or nothing; a
broadcast is a RECV and SENDs.  A form lists the nodes and which of them each kind of edge connects:
a permute's producer holds back only its SEND, its consumers wait only for its RECV.

    form_of(permute, shape=EXCHANGES).nodes        # (NodeType.SEND, NodeType.RECV)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from flint.errors import FlintError
from flint.execution.node_types import NodeType
from flint.execution.peers import (
    EXCHANGES,
    KEEPS,
    NO_PEER,
    RECEIVES,
    SENDS,
    Peer,
    children_in_tree,
    shape_of_exchange,
)
from flint.graph.communication import Communication

#: No node for an edge from this form: the waiting instance inherits what this one waits for.
INHERIT: Final = -2
#: There is nothing to wait for.
NOTHING: Final = -1

#: StableHLO kinds that become one COLL node among the members of a group.
GROUPED: Final = frozenset(
    {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "ragged_all_to_all"}
)


class Form(NamedTuple):
    """The nodes of an instance, and which of them edges connect; numbers index ``nodes``.

    Attributes:
        nodes: types, in order of id.
        data_in: the node that waits for operands.
        order_in: the nodes that wait for order and stream edges.
        data_out: the node that consumers of the result wait for.
        order_out: the node that overwriters of the operand wait for (order edges).
        stream_out: the nodes that must have ended for the whole to have ended.
        relays: the second node waits for the first (passing on what was received).
    """

    nodes: tuple[NodeType, ...]
    data_in: int
    order_in: tuple[int, int]
    data_out: int
    order_out: int
    stream_out: tuple[int, int]
    relays: bool = False


def single(node: NodeType) -> Form:
    """One node for all edges."""
    return Form((node,), 0, (0, NOTHING), 0, 0, (0, NOTHING))


NO_NODES: Final = Form(
    (), NOTHING, (NOTHING, NOTHING), INHERIT, INHERIT, (INHERIT, NOTHING)
)  # fmt: skip
EXCHANGE: Final = Form((NodeType.SEND, NodeType.RECV), 0, (0, 1), 1, 0, (0, 1))
#: The result is zeros: nothing waits for it.
ONLY_SENDS: Final = Form((NodeType.SEND,), 0, (0, NOTHING), NOTHING, 0, (0, NOTHING))
ONLY_RECEIVES: Final = Form((NodeType.RECV,), NOTHING, (0, NOTHING), 0, INHERIT, (0, NOTHING))


@dataclass(frozen=True, slots=True)
class RankForm:
    """One communication on one rank.

    Attributes:
        form: its nodes.
        peers: the other side of each node; empty for COLL and COMP.
        removed: why there is no node ("" if there is one).
    """

    form: Form
    peers: tuple[Peer, ...] = ()
    removed: str = ""


def rank_form(item: Communication, rank: int) -> RankForm:
    """What ``rank`` does in a communication.

    Raises:
        FlintError: a kind that traces cannot express.
    """
    if bytes_of(item) == 0:
        return RankForm(NO_NODES, removed="no bytes")
    if item.permutation is not None and item.point_to_point:
        return _exchange(item, int(shape_of_exchange(item.permutation, np.array([rank]))[0]))
    groups = item.groups
    if groups is None or item.kind not in (*GROUPED, "collective_broadcast"):
        raise FlintError(f"communication {item.kind!r} has no form in execution traces")
    size = int(groups.group_size(np.array([rank]))[0])
    if size < 2:
        return RankForm(NO_NODES, removed="group of one" if size else "not a member")
    if item.kind in GROUPED:
        return RankForm(single(NodeType.COLL))
    below = int(children_in_tree(groups, np.array([rank]))[0])
    children = tuple(Peer("child", groups, i) for i in range(below))
    sends = (NodeType.SEND,) * below
    if int(groups.position(np.array([rank]))[0]) == 0:
        root = Form(sends, 0, (0, NOTHING), INHERIT, below - 1, (below - 1, NOTHING))
        return RankForm(root, children)
    inner = Form(
        (NodeType.RECV, *sends), NOTHING, (0, NOTHING), 0, below, (below, NOTHING), below > 0
    )
    return RankForm(inner, (Peer("parent", groups), *children))


def _exchange(item: Communication, shape: int) -> RankForm:
    target, source = Peer("target", item.permutation), Peer("source", item.permutation)
    nothing = RankForm(NO_NODES, removed="no peer")
    copy = RankForm(single(NodeType.COMP))
    if item.kind == "send":
        send = RankForm(single(NodeType.SEND), (target,))
        return {KEEPS: copy, SENDS: send, EXCHANGES: send}.get(shape, nothing)
    if item.kind == "recv":
        receive = RankForm(single(NodeType.RECV), (source,))
        kept = RankForm(NO_NODES, removed="received from itself")
        return {KEEPS: kept, RECEIVES: receive, EXCHANGES: receive}.get(shape, nothing)
    return {
        NO_PEER: nothing,
        SENDS: RankForm(ONLY_SENDS, (target,)),
        RECEIVES: RankForm(ONLY_RECEIVES, (source,)),
        EXCHANGES: RankForm(EXCHANGE, (target, source)),
        KEEPS: copy,
    }[shape]


def bytes_of(item: Communication) -> int:
    """``comm_size``: bytes that one rank contributes (for a ``recv``: receives), over all operands.

    This is the consumers' convention for every kind: the input shard of an all-gather, the full
    input of a reduce-scatter, the full buffer of an all-reduce, the send buffer of an all-to-all.
    If members move different amounts, all have the same size (``flint.workload.uneven``).
    """
    if item.largest_bytes:
        return item.largest_bytes
    return item.bytes_out if item.kind == "recv" else item.bytes_in
