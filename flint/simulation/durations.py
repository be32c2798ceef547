"""Durations: how long each node of an actor takes on a system.

The idea: a compute node takes its kernel's time, a collective the time for its group's place in the
network, a send the time of the links to its target.  Time is counted in whole picoseconds.

    costs = Costs(Prices(system))
    build_actors(programs, world, costs.ticks, costs=costs.columns)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from flint.cost.prices import Prices
from flint.cost.roofline import copy_seconds
from flint.errors import FlintError
from flint.execution.emission import Emission
from flint.execution.forms import GROUPED, bytes_of
from flint.execution.node_types import NodeType
from flint.graph.graph import Ints
from flint.graph.unrolling import Unrolled
from flint.simulation.actor_columns import CAPACITY, Beside
from flint.simulation.behaviours import Plan

#: A tick is a picosecond: sums of whole numbers are exact in any order.
TICKS_PER_SECOND: Final = 10**12
#: The most seconds of a rank's nodes in total: 2**63 ticks are nine times as many.
_LONGEST: Final = 1_000_000


class Costs:
    """Ticks, and how ranks differ, on one system.

    Args:
        prices: prices on the system.
    """

    def __init__(self, prices: Prices) -> None:
        self.prices = prices
        self.system = prices.system

    def columns(self, plans: Sequence[Plan]) -> list[Ints]:
        """Properties that make the same communication slower on one rank than on another."""
        found: dict[int, Ints] = {}
        for item in plans:
            for index in item.used:
                communication = item.communications[index]
                if communication.kind in GROUPED and communication.groups is not None:
                    placement = self.prices.placement(communication.groups)
                    if len(placement.profiles) > 1:
                        found[id(placement.number)] = placement.number
                elif communication.permutation is not None:
                    number, ways = self.prices.ways(communication.permutation)
                    if len(ways) > 1:
                        found[id(number)] = number
        return list(found.values())

    def beside(self, item: Plan, unrolled: Unrolled, emission: Emission, rank: int) -> Beside:
        """What an actor's communications leave to what runs at the same time."""
        table = item.graph.tables.communications
        speed = np.ones(len(table) + 1)
        loads = np.zeros((len(table) + 1, len(self.system.network)))
        for index in item.used:
            communication = table[index]
            speed[index] = self.prices.speed_beside(communication, rank)
            loads[index] = self.prices.loads(communication, bytes_of(communication), rank)
        detail = unrolled.detail[emission.instance]
        return Beside(speed[detail], detail, np.ceil(loads * CAPACITY).astype(np.int64))

    def ticks(self, item: Plan, unrolled: Unrolled, emission: Emission, rank: int) -> Ints:
        """Ticks of each node of an actor (see ``flint.simulation.actors``)."""
        kernels = np.concatenate([self.prices.kernels(graph) for graph in unrolled.graphs])
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
                message = self.prices.message(communication.permutation, size, rank)
                sent[index] = 0.0 if message is None else message + overhead
            elif communication.groups is not None:
                together[index] = (self.prices.collective(communication, rank) or 0.0) + overhead
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
