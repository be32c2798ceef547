"""Probes: the time of each communication of a workload in ASTRA-sim, run separately.

The idea: a communication is put into separate traces, after a kernel of known length, and the
simulator's last "finished" shows its time.  This works with any version of the simulator, and
nothing that overlaps in the step can hide or lengthen it.

    priced, left = prices_of(parts, mesh, links, system, binary=binary, time_limit=60.0)
    priced[0].embedded, priced[0].astra_sim
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from flint import registry
from flint.converters.chakra.astra_sim.run import run_astra_sim
from flint.converters.chakra.durations import whole_micros
from flint.cost.hardware import System
from flint.cost.kernels import kernel_seconds
from flint.cost.prices import Prices
from flint.execution.forms import bytes_of
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.communication import Communication
from flint.graph.graph import Ints, NodeKind, WorkloadGraph, with_tables
from flint.graph.partners import partners
from flint.graph.tensor_types import tensor_type
from flint.graph.work import Role, Work
from flint.host.temporary import temporary_folder
from flint.mesh.mesh import Mesh

#: The most communications that are run separately, those that take longest.
MOST: Final = 64


@dataclass(frozen=True, slots=True)
class Priced:
    """One communication in both engines.

    Attributes:
        name: kind and axes.
        count: how many a rank issues.
        size: bytes that a rank contributes.
        embedded, astra_sim: seconds of one.
        item: the communication.
    """

    name: str
    count: int
    size: int
    embedded: float
    astra_sim: float
    item: Communication


def prices_of(
    parts: Sequence[tuple[WorkloadGraph, Ints]],
    mesh: Mesh,
    links: System,
    system: System,
    *,
    binary: Path,
    time_limit: float,
) -> tuple[list[Priced], int]:
    """Each distinct communication of the programs, run separately, those that take longest first.

    Args:
        parts: graphs and the ranks that run them.
        mesh: all ranks.
        links: the embedded engine's system, fitted to the mesh.
        system: the system as described, for the network file.
        binary, time_limit: as in ``run_astra_sim``.

    Returns:
        The prices, and how many communications beyond ``MOST`` have none.
    """
    prices = Prices(links, "hierarchical")
    found: dict[Communication, int] = {}
    for graph, _ in parts:
        table = graph.tables.communications
        for block, times in graph.walk():
            used = block.detail[block.kind == NodeKind.COMMUNICATION]
            for index, count in zip(*np.unique(used, return_counts=True), strict=True):
                item = table[int(index)]
                if item.kind == "recv":
                    continue
                alike = _alike(item)
                found[alike] = found.get(alike, 0) + int(count) * times
    timed = [
        (seconds, item, count)
        for item, count in found.items()
        if (seconds := _longest(prices, item, mesh.size)) > 0
    ]
    timed.sort(key=lambda entry: -entry[0] * entry[2])
    priced = [
        Priced(
            f"{item.kind} over {partners(item, mesh)}", count, bytes_of(item), seconds,
            _alone(item, mesh, system, binary, time_limit), item,
        )
        for seconds, item, count in timed[:MOST]
    ]  # fmt: skip
    return priced, len(timed) - len(priced)


def _alike(item: Communication) -> Communication:
    """What its time depends on; a send with its receive is an exchange."""
    kind = "collective_permute" if item.kind == "send" else item.kind
    return Communication(
        kind, None, item.groups, item.permutation, (item.bytes_in,), (item.bytes_out,), ("ui8",),
        largest_bytes=item.largest_bytes,
    )  # fmt: skip


def _longest(prices: Prices, item: Communication, world: int) -> float:
    """Seconds in the embedded engine, on the ranks that take longest."""
    if item.permutation is not None:
        number, _ = prices.ways(item.permutation)
        ranks = np.unique(number, return_index=True)[1].tolist()
        size = bytes_of(item)
        return max((prices.message(item.permutation, size, r) or 0.0 for r in ranks), default=0.0)
    assert item.groups is not None
    number = prices.placement(item.groups).number
    ranks = np.unique(number, return_index=True)[1].tolist()
    return max((prices.collective(item, rank) or 0.0 for rank in ranks), default=0.0)


def _alone(
    item: Communication, mesh: Mesh, system: System, binary: Path, time_limit: float
) -> float:
    """Seconds in the simulator, after a short kernel: nothing may end at its time 0."""
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    type_ = tensor_type((max(item.bytes_in, 1),), "ui8")
    value = builder.input(tables.type(type_))
    (value,) = builder.compute("before", Role.MOVEMENT, (value,), (type_,), Work((), 1, 1))
    (made,) = builder.communication(item, (value,), (type_,))
    graph = with_tables(builder.finish((made,)), tables.finish())
    micros = int(whole_micros(kernel_seconds(graph, system))[0])
    write: Any = registry.converter("chakra")
    with temporary_folder() as scratch:
        write([(graph, np.arange(mesh.size))], mesh, scratch, system=system)
        done = run_astra_sim(scratch, binary=binary, time_limit=time_limit)
    return (max(done.cycles) - max(1000 * micros, 1)) * 1e-9
