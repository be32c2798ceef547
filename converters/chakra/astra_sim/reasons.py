"""Reasons: where ASTRA-sim's model of a communication differs from the embedded engine's.

The idea: each known difference is a row of a table: a description, the affected communications, and
whether it makes the simulator slower or faster.  A difference that no row explains is an error.

    reason(item, dims, links, aware=False, slower=True)     # "" if the two should agree
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from flint.converters.chakra.network import Network
from flint.cost.hardware import System
from flint.cost.placement import place
from flint.graph.communication import Communication
from flint.mesh.groups import StridedGroups
from flint.mesh.network_dims import NetworkDims


@dataclass(frozen=True, slots=True)
class Facts:
    """A communication as seen by the simulator.

    Attributes:
        kind: StableHLO kind.
        aware: the simulator's messages share links.
        listed: its group is a list of ranks, not whole network dims.
        dims: network dims that it extends over; for messages, that the farthest one crosses.
        topologies: topologies of these dims.
        tiers: tiers of the system with its dims, with a number for each dim.
        mixed: one of its dims is on several tiers.
        message: it is a message between two ranks.
    """

    kind: str
    aware: bool
    listed: bool
    dims: int
    topologies: frozenset[str]
    tiers: tuple[int, ...]
    mixed: bool
    message: bool

    @property
    def to_all(self) -> bool:
        """Whether it is an all-to-all."""
        return self.kind in ("all_to_all", "ragged_all_to_all")


SLOWER: Final = frozenset({True})
FASTER: Final = frozenset({False})
EITHER: Final = SLOWER | FASTER

#: (description, the affected communications, whether the simulator is slower).
_REASONS: Final[tuple[tuple[str, Callable[[Facts], bool], frozenset[bool]], ...]] = (
    (
        "a broadcast is a tree of whole messages in traces",
        lambda f: f.kind == "collective_broadcast",
        EITHER,
    ),
    (
        "the congestion-aware simulator passes the two links of a switch one after the other",
        lambda f: f.aware and "Switch" in f.topologies,
        SLOWER,
    ),
    (
        "messages on a ring share links in the congestion-aware simulator",
        lambda f: f.aware and "Ring" in f.topologies,
        SLOWER,
    ),
    (
        "a message across several network dims pays only for the first of them",
        lambda f: f.message and f.dims > 1,
        EITHER,
    ),
    (
        "a network dim has one kind of link, the mean of its links",
        lambda f: (f.message or f.listed or f.to_all) and f.mixed,
        EITHER,
    ),
    (
        "network.yml combines the links of a torus dim into one; a message uses one of them",
        lambda f: (f.message or f.listed) and "Ring" in f.topologies,
        EITHER,
    ),
    (
        "an all-to-all passes network dims one after another",
        lambda f: f.to_all and f.dims > 1 and not f.listed,
        EITHER,
    ),
    (
        "a listed group reaches all its members by way of neighbours",
        lambda f: f.to_all and f.listed,
        SLOWER,
    ),
    (
        "an all-to-all on a ring runs in one direction",
        lambda f: f.to_all and "Ring" in f.topologies,
        EITHER,
    ),
    (
        "the messages of an all-to-all follow one another, each with its latency",
        lambda f: f.to_all and "Switch" in f.topologies,
        SLOWER,
    ),
    (
        "messages of a listed group that cross several network dims pay for the first of them",
        lambda f: f.listed and f.dims > 1,
        EITHER,
    ),
    (
        "a listed group runs as a ring",
        lambda f: f.listed and "FullyConnected" in f.topologies,
        EITHER,
    ),
    (
        "network dims on the same links are passed one after another",
        lambda f: not f.listed and len(set(f.tiers)) < len(f.tiers),
        EITHER,
    ),
)


def reason(item: Communication, dims: NetworkDims, links: System, aware: bool, slower: bool) -> str:
    """Why the simulator's time may differ; "" if it should not.

    Args:
        item: the communication.
        dims: the network's dims.
        links: the system, fitted to the mesh.
        aware: the simulator's messages share links.
        slower: the simulator takes longer than the embedded engine.
    """
    facts = _facts(item, dims, links, aware)
    for text, applies, direction in _REASONS:
        if slower in direction and applies(facts):
            return text
    return ""


def _facts(item: Communication, dims: NetworkDims, links: System, aware: bool) -> Facts:
    tiers = [
        links.network.index(links.tier(size * stride))
        for size, stride in zip(dims.npus_count, dims.strides, strict=True)
    ]
    used, listed = _extent(item, dims)
    mine = tuple(tiers[dim] for dim in used)
    mixed = any(_lies_on_several(dims, dim, links) for dim in used)
    return Facts(
        item.kind, aware, listed, len(used),
        frozenset(links.network[tier].topology for tier in mine), mine, mixed,
        item.permutation is not None,
    )  # fmt: skip


def _lies_on_several(dims: NetworkDims, dim: int, links: System) -> bool:
    """Whether ranks along a dim meet on several tiers."""
    along = StridedGroups(dims.world, ((dims.npus_count[dim], dims.strides[dim]),))
    return any(len(profile) > 1 for profile in place(along, links).profiles)


def _extent(item: Communication, dims: NetworkDims) -> tuple[tuple[int, ...], bool]:
    """Network dims that it extends over, and whether its group is listed."""
    network = Network(dims.npus_count)
    if item.permutation is not None:
        ranks = np.arange(dims.world, dtype=np.int64)
        target = item.permutation.target
        sends = (target >= 0) & (target != ranks)
        differ = np.array(
            [
                ranks // stride % size != target // stride % size
                for size, stride in zip(dims.npus_count, dims.strides, strict=True)
            ]
        )[:, sends]
        farthest = int(differ.sum(axis=0).argmax())
        return tuple(np.flatnonzero(differ[:, farthest]).tolist()), False
    assert item.groups is not None
    mask = dims.mask(item.groups)
    if mask is not None:
        return tuple(np.flatnonzero(mask).tolist()), False
    table = item.groups.table()
    spans = [
        dim
        for dim, (size, stride) in enumerate(
            zip(network.npus_count, network.strides(), strict=True)
        )
        if any(len(np.unique(row[row >= 0] // stride % size)) > 1 for row in table[:64])
    ]
    return tuple(spans), True
