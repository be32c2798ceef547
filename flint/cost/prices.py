"""Prices: what kernels, collectives and messages cost on one system, each computed once.

The idea: a simulation and a comparison with a trace must price an op in the same way, so both use
this class.

    prices = Prices(system)
    prices.collective(communication, rank=0), prices.message(permutation, 4096, sender=0)
"""

from __future__ import annotations

import numpy as np

from flint.cost.collectives import collective_seconds, message_seconds, whole_bytes
from flint.cost.hardware import System, Tier
from flint.cost.kernels import Estimator, kernel_seconds
from flint.cost.link_loads import collective_loads, message_loads
from flint.cost.placement import Placement, hops, place
from flint.cost.roofline import Seconds
from flint.graph.communication import Communication
from flint.graph.graph import Ints, WorkloadGraph
from flint.mesh.groups import Groups
from flint.mesh.permutation import Permutation


class Prices:
    """Prices on one system.

    Args:
        system: the cluster, fitted to the mesh.
        algorithm: algorithm for collectives; the cheapest by default.
        kernels: estimator of seconds per node.
    """

    def __init__(
        self,
        system: System,
        algorithm: str | None = None,
        kernels: Estimator = kernel_seconds,
    ) -> None:
        self.system = system
        self._algorithm = algorithm
        self._estimator = kernels
        self._kernels: dict[int, tuple[WorkloadGraph, Seconds]] = {}
        self._placements: dict[Groups, Placement] = {}
        self._collectives: dict[tuple[str, int, Groups, int], tuple[float, Seconds]] = {}
        self._ways: dict[Permutation, tuple[Ints, list[tuple[Tier, int]]]] = {}

    def kernels(self, graph: WorkloadGraph) -> Seconds:
        """Seconds of each node of a graph as a kernel, shape [nodes]."""
        if id(graph) not in self._kernels:
            self._kernels[id(graph)] = graph, self._estimator(graph, self.system)
        return self._kernels[id(graph)][1]

    def placement(self, groups: Groups) -> Placement:
        """Where groups are in the network."""
        if groups not in self._placements:
            self._placements[groups] = place(groups, self.system)
        return self._placements[groups]

    def ways(self, permutation: Permutation) -> tuple[Ints, list[tuple[Tier, int]]]:
        """The path of each rank's message, as a number (-1: it sends none), and all paths."""
        if permutation not in self._ways:
            self._ways[permutation] = hops(permutation, self.system)
        return self._ways[permutation]

    def collective(self, item: Communication, rank: int) -> float | None:
        """Seconds of a collective among the rank's group, without its launch; None if the rank is
        in no group.
        """
        found = self._among(item, rank)
        return None if found is None else found[0]

    def _among(self, item: Communication, rank: int) -> tuple[float, Seconds] | None:
        """Seconds of a collective, and the part of each tier's links that it takes."""
        assert item.groups is not None
        placement = self.placement(item.groups)
        number = int(placement.number[rank])
        if number < 0:
            return None
        key = item.kind, whole_bytes(item), item.groups, number
        if key not in self._collectives:
            profile = placement.profiles[number]
            seconds = collective_seconds(item, profile, self._algorithm)
            loads = collective_loads(item, profile, seconds, self.system.network)
            self._collectives[key] = seconds, loads
        return self._collectives[key]

    def loads(self, item: Communication, size: int, rank: int) -> Seconds:
        """The part of the rank's links on each tier that a communication takes, shape [tiers].

        Args:
            item: the communication.
            size: bytes of a message between two ranks.
            rank: a rank, in any group or none.
        """
        network = self.system.network
        if item.permutation is not None and item.point_to_point:
            number, ways = self.ways(item.permutation)
            seconds = self.message(item.permutation, size, rank)
            if seconds is not None:
                return message_loads(size, ways[int(number[rank])][0], seconds, network)
        elif item.groups is not None:
            found = self._among(item, rank)
            if found is not None:
                return found[1]
        return np.zeros(len(network))

    def speed_beside(self, item: Communication, rank: int) -> float:
        """Speed of the rank's kernels during a communication; 1 if the rank is not in it."""
        if item.permutation is not None and item.point_to_point:
            number, ways = self.ways(item.permutation)
            tiers = [ways[int(number[rank])][0]] if number[rank] >= 0 else []
        elif item.groups is not None:
            placement = self.placement(item.groups)
            number_of = int(placement.number[rank])
            tiers = [use.tier for use in placement.profiles[number_of]] if number_of >= 0 else []
        else:
            tiers = []
        kernel = self.system.accelerator.kernel
        if tiers and item.point_to_point and item.origin:  # a part of an exchange
            return max(kernel.beside_copies, tiers[-1].beside_communication)
        own = kernel.beside_communication
        return (tiers[-1].beside_communication or own) if tiers else 1.0

    def message(self, permutation: Permutation, size: int, sender: int) -> float | None:
        """Seconds of a message of ``size`` bytes, without launch; None if the rank sends none."""
        number, ways = self.ways(permutation)
        return message_seconds(size, *ways[int(number[sender])]) if number[sender] >= 0 else None
