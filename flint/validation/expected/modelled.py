"""Modelled times of captured ops on a system, op by op.

The idea: an op is priced as in the simulator, a kernel by ``flint.cost.kernels`` and a
communication by its group's place in the network, each once per graph; nothing overlaps or queues
here, because a trace measures each op's own time.

    Modelled.of("dgx-h100", 16).seconds(expected, rank=0)        # one number per expected op
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from flint.cost.fitting import fit
from flint.cost.hardware import System
from flint.cost.prices import Prices
from flint.cost.roofline import Seconds
from flint.cost.systems import load_system
from flint.execution.forms import bytes_of
from flint.graph.communication import Communication
from flint.graph.graph import NodeKind
from flint.observed.classes import OpClass
from flint.validation.expected.ops import Expected


class Modelled:
    """Prices on one system, each computed once.

    Attributes:
        system: fitted to the number of ranks.
    """

    def __init__(self, system: System) -> None:
        self._prices = Prices(system)
        self.system = system

    @classmethod
    def of(cls, system: str | Path, world: int) -> Modelled:
        """Prices for ``world`` ranks on a system, by name or TOML file.

        Raises:
            UsageError: no such system, or the ranks do not map to it.
        """
        fitted, _ = fit(load_system(system), world)
        return cls(fitted)

    def seconds(self, expected: Expected, rank: int) -> Seconds:
        """Seconds of each expected op of a rank, shape [ops]."""
        found = np.zeros(len(expected))
        for number, graph in enumerate(expected.graphs):
            inside = np.flatnonzero(expected.graph == number)
            if not len(inside):
                continue
            found[inside] = self._prices.kernels(graph)[expected.node[inside]]
            known: dict[tuple[int, OpClass], float] = {}
            for i in inside[graph.kind[expected.node[inside]] == NodeKind.COMMUNICATION].tolist():
                key = int(expected.node[i]), expected.facts[expected.op[i]].kind
                if key not in known:
                    item = graph[key[0]].communication
                    assert item is not None
                    known[key] = self._communication(item, rank, key[1])
                found[i] = known[key]
        return found

    def _communication(self, item: Communication, rank: int, kind: OpClass) -> float:
        if item.permutation is not None and item.point_to_point:
            sender = int(item.permutation.source[rank]) if kind == OpClass.RECV else rank
            if sender < 0:
                return 0.0
            seconds = self._prices.message(item.permutation, bytes_of(item), sender)
        else:
            seconds = None if item.groups is None else self._prices.collective(item, rank)
        return 0.0 if seconds is None else seconds + self.system.accelerator.launch_overhead
