"""Durations: how long each node of an actor takes on a system.

The idea: a compute node takes its kernel's time, a collective that of its group's place in the
network, a send that of the links to its target.  Time is counted in picoseconds, as whole numbers.

    costs = Costs(system)
    build_actors(programs, world, costs.ticks, costs=costs.columns)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.cost.collectives import collective_seconds, message_seconds
from flint.cost.kernels import kernel_seconds
from flint.cost.measured import Estimator
from flint.cost.placement import Placement, hops, place
from flint.cost.roofline import copy_seconds
from flint.cost.systems import System, Tier
from flint.errors import FlintError
from flint.execution.emission import Emission
from flint.execution.forms import GROUPED, bytes_of
from flint.execution.node_types import NodeType
from flint.graph.communication import Communication
from flint.graph.graph import Ints, WorkloadGraph
from flint.graph.unrolling import Unrolled
from flint.mesh.groups import Groups
from flint.mesh.permutation import Permutation
from flint.simulation.behaviours import Plan

#: A tick is a picosecond: sums of whole numbers are exact in any order.
TICKS_PER_SECOND: Final = 10**12
#: Seconds of a rank's nodes together: 2**63 ticks are nine times as many.
_LONGEST: Final = 1_000_000


class Costs:
    """Costs on one system, each worked out once.

    Args:
        system: the cluster, fitted to the mesh.
        algorithm: named for collectives; the cheapest by default.
        kernels: seconds of a graph's nodes.
    """

    def __init__(
        self,
        system: System,
        algorithm: str | None = None,
        kernels: Estimator = kernel_seconds,
    ) -> None:
        self.system = system
        self.estimator = kernels
        self.algorithm = algorithm
        self._placements: dict[Groups, Placement] = {}
        self._ways: dict[Permutation, tuple[Ints, list[tuple[Tier, int]]]] = {}
        self._kernels: dict[int, tuple[WorkloadGraph, NDArray[np.float64]]] = {}

    def columns(self, plans: Sequence[Plan]) -> list[Ints]:
        """What makes the same communication slower on one rank than on another."""
        found: dict[int, Ints] = {}
        for item in plans:
            for index in item.used:
                communication = item.communications[index]
                if communication.kind in GROUPED and communication.groups is not None:
                    placement = self._placement(communication.groups)
                    if len(placement.profiles) > 1:
                        found[id(placement.number)] = placement.number
                elif communication.permutation is not None:
                    number, ways = self._way(communication.permutation)
                    if len(ways) > 1:
                        found[id(number)] = number
        return list(found.values())

    def ticks(self, item: Plan, unrolled: Unrolled, emission: Emission, rank: int) -> Ints:
        """Ticks of each node of an actor (see ``flint.simulation.actors``)."""
        kernels = np.concatenate([self._kernel(graph) for graph in unrolled.graphs])
        detail = unrolled.detail[emission.instance]
        seconds = kernels[unrolled.template[emission.instance]]
        table = item.graph.tables.communications
        together = np.zeros(len(table) + 1)
        sent, copied = together.copy(), together.copy()
        overhead = self.system.accelerator.launch_overhead
        for index in item.used:
            communication = table[index]
            size = bytes_of(communication)
            copied[index] = copy_seconds(np.array(2 * size), self.system)
            if communication.permutation is not None and communication.point_to_point:
                number, ways = self._way(communication.permutation)
                if number[rank] >= 0:
                    sent[index] = message_seconds(size, *ways[int(number[rank])]) + overhead
            elif communication.groups is not None:
                together[index] = self._collective(communication, rank) + overhead
        is_communication = detail >= 0
        types = emission.type
        seconds = np.select(
            [types == NodeType.COLL, types == NodeType.SEND, is_communication],
            [together[detail], sent[detail], copied[detail]],
            seconds,
        )
        if not float(seconds.sum()) < _LONGEST:
            raise FlintError(
                f"a step on {self.system.name} would take more than {_LONGEST:,} seconds: check "
                "the rates and bandwidths of its description, or the durations that you gave"
            )
        ticks: Ints = np.rint(seconds * TICKS_PER_SECOND).astype(np.int64)
        return ticks

    def _collective(self, communication: Communication, rank: int) -> float:
        assert communication.groups is not None
        placement = self._placement(communication.groups)
        number = int(placement.number[rank])
        if number < 0:
            return 0.0
        return collective_seconds(communication, placement.profiles[number], self.algorithm)

    def _placement(self, groups: Groups) -> Placement:
        if groups not in self._placements:
            self._placements[groups] = place(groups, self.system)
        return self._placements[groups]

    def _way(self, permutation: Permutation) -> tuple[Ints, list[tuple[Tier, int]]]:
        if permutation not in self._ways:
            self._ways[permutation] = hops(permutation, self.system)
        return self._ways[permutation]

    def _kernel(self, graph: WorkloadGraph) -> NDArray[np.float64]:
        if id(graph) not in self._kernels:
            self._kernels[id(graph)] = graph, self.estimator(graph, self.system)
        return self._kernels[id(graph)][1]
