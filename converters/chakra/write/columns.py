"""Node columns: the attributes of each emitted node, gathered from the program's columns.

The idea: an emitted node knows its instance, an instance its template and its communication; every
attribute is one gather.  Nothing here looks at a single node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from flint.converters.chakra.durations import whole_micros
from flint.converters.chakra.schema import COLLECTIVE_KIND, NodeType
from flint.converters.chakra.write.rank_classes import Stamps
from flint.converters.chakra.write.records import NodeColumns
from flint.cost.hardware import System
from flint.cost.kernels import kernel_seconds
from flint.cost.roofline import copy_seconds
from flint.execution.emission import Emission
from flint.execution.forms import RankForm, bytes_of
from flint.graph.communication import Communication
from flint.graph.unrolling import Unrolled
from flint.mesh.ragged import Ints


def node_columns(
    unrolled: Unrolled,
    emission: Emission,
    parts: Sequence[RankForm],
    stamps: Stamps,
    tags: Ints,
    system: System,
    notes: tuple[list[bytes], Ints] | None,
) -> NodeColumns:
    """The columns of one structure's nodes.

    Args:
        unrolled: the program.
        emission: its nodes on these ranks.
        parts: what these ranks do in each communication.
        stamps: what differs between them.
        tags: tag of each instance.
        system: the system that durations are computed for.
        notes: distinct annotations and that of each template; None for lean traces.
    """
    communications = unrolled.graphs[0].tables.communications
    template = unrolled.template[emission.instance]
    detail = unrolled.detail[emission.instance]
    sizes = _column(communications, bytes_of)
    # A copy to itself reads the operand and writes the result.
    copied = np.where(detail >= 0, 2 * sizes[detail], 0)
    is_copy = (detail >= 0) & (emission.type == NodeType.COMP)
    peer = _peer_stamps(parts, stamps)[detail, emission.part]
    sends = emission.type == NodeType.SEND
    masks: dict[tuple[bool, ...], int] = {}
    mask, group = _group_columns(communications, parts, stamps, masks)
    flops = np.concatenate([graph.flops_by_node() for graph in unrolled.graphs])
    traffic = unrolled.column("bytes_read") + unrolled.column("bytes_written")
    moves = np.isin(emission.type, (NodeType.MEM_LOAD, NodeType.MEM_STORE))
    traffic = np.where(moves, unrolled.column("bytes_read")[template], traffic[template])
    kinds = _column(communications, lambda item: COLLECTIVE_KIND.get(item.kind, 0))
    return NodeColumns(
        names=[name or "node" for name in unrolled.graphs[0].tables.ops],
        name=unrolled.column("op")[template],
        type=emission.type,
        ptr=emission.ptr,
        deps=emission.deps,
        micros=_micros(unrolled, emission, template, is_copy, copied, system),
        num_ops=np.maximum(np.where(is_copy, 1, flops[template]), 1),
        tensor_size=np.maximum(np.where(is_copy, copied, traffic), 1),
        comm_type=kinds[detail],
        comm_size=sizes[detail],
        tag=tags[emission.instance],
        src=np.where(sends, 0, peer),
        dst=np.where(sends, peer, 0),
        masks=list(masks),
        mask=mask[detail],
        group=group[detail],
        notes=notes[0] if notes else (),
        note=notes[1][template] if notes else None,
    )


def placeholder() -> NodeColumns:
    """A rank that does nothing: consumers abort on an empty trace, so it gets one empty node."""
    zero, one = np.zeros(1, np.int64), np.ones(1, np.int64)
    kind = np.array([NodeType.COMP], np.int8)
    return NodeColumns(
        ["nothing"], zero, kind, np.zeros(2, np.int64), np.zeros(0, np.int64), zero, one, one,
        zero, zero, zero, zero, zero, [], -one, -one,
    )  # fmt: skip


def _micros(
    unrolled: Unrolled,
    emission: Emission,
    template: Ints,
    is_copy: NDArray[np.bool_],
    copied: Ints,
    system: System,
) -> Ints:
    seconds = np.concatenate([kernel_seconds(graph, system) for graph in unrolled.graphs])[template]
    seconds = np.where(is_copy, copy_seconds(copied, system), seconds)
    micros = np.zeros(len(emission), np.int64)
    computes = emission.type == NodeType.COMP
    micros[computes] = whole_micros(seconds[computes])
    # The time of a collective in a measured run, including waiting for its members.
    measured = np.concatenate([graph.measured_by_node() for graph in unrolled.graphs])[template]
    together = (emission.type == NodeType.COLL) & (measured >= 0)
    micros[together] = np.rint(measured[together] / 1e3).astype(np.int64)
    return micros


def _column(communications: Sequence[Communication], of: Callable[[Communication], int]) -> Ints:
    """A number per communication; one more entry for the detail -1 of compute nodes."""
    return np.array([*(of(item) for item in communications), 0], np.int64)


def _peer_stamps(parts: Sequence[RankForm], stamps: Stamps) -> Ints:
    """The stamp of the other side, by communication and node of its form."""
    longest = max((len(part.peers) for part in parts), default=0)
    table = np.zeros((len(parts) + 1, max(longest, 1)), np.int64)
    known: dict[int, list[int]] = {}
    for index, part in enumerate(parts):
        if part.peers:
            if id(part) not in known:
                known[id(part)] = [stamps.peers[peer] for peer in part.peers]
            table[index, : len(part.peers)] = known[id(part)]
    return table


def _group_columns(
    communications: Sequence[Communication],
    parts: Sequence[RankForm],
    stamps: Stamps,
    masks: dict[tuple[bool, ...], int],
) -> tuple[Ints, Ints]:
    """Index into ``masks`` and group stamp of each communication, -1 if it has none."""
    mask = np.full(len(communications) + 1, -1, np.int64)
    group = mask.copy()
    for index, (item, part) in enumerate(zip(communications, parts, strict=True)):
        if item.kind not in COLLECTIVE_KIND or not part.form.nodes or item.groups is None:
            continue
        whole = stamps.ids.mask(item.groups)
        if whole is None:
            group[index] = stamps.groups[item.groups]
        else:
            mask[index] = masks.setdefault(whole, len(masks))
    return mask, group
