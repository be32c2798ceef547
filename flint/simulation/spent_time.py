"""What one actor's time went into."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flint.cost.classes import FINE, fine_classes
from flint.execution.forms import bytes_of
from flint.execution.node_types import NodeType
from flint.graph.distinct import distinct
from flint.graph.graph import Ints
from flint.graph.partners import partners
from flint.graph.stated import UNKNOWN, unstated_traffic, unstated_work
from flint.passes.host_lane import HOST, on_host
from flint.simulation.actors import ActorInfo
from flint.simulation.machine import Run
from flint.simulation.spans import Floats, Spans, overlap, parts, union
from flint.simulation.steady_state import Repeat
from flint.workload.workload import Workload

#: Sums below this fit into 64 bits, with a bit to spare for the part that is not repeated.
_WORD = 2**62


class Spent:
    """How one actor's time is spent.

    Attributes:
        times: how often each node runs, shape [nodes].
        ticks: how long each takes the first time, 0 for RECVs, shape [nodes].
        spent: ticks of each node over all its runs; communications that run at the same time share
            them equally, shape [nodes].
        compute, communication, exposed_ticks: ticks.
        exposed: ticks of each node that no kernel covers, over all its runs; 0 for kernels, shape
            [nodes].  Communications that run at the same time share them equally.
    """

    def __init__(self, info: ActorInfo, happened: Run, actor: int, repeated: list[Repeat]) -> None:
        self.info = info
        repeated = [item for item in repeated if actor in item.early]
        start, end = happened.start[actor], happened.end[actor]
        types = info.emission.type
        template = info.unrolled.template[info.emission.instance]
        host = np.concatenate([on_host(graph) for graph in info.unrolled.graphs])[template]
        self.host: NDArray[np.bool_] = host
        self.computes = (types == NodeType.COMP) & ~host
        self.talks = (types == NodeType.COLL) | (types == NodeType.SEND)
        self.ticks: NDArray[Any] = np.where(types == NodeType.RECV, 0, end - start)
        exact = _exact(repeated, len(types))
        self.times: NDArray[Any] = np.ones(len(types), exact)
        self.spent: NDArray[Any] = self.ticks.astype(exact)
        for item in repeated:
            self.times[item.nodes(actor, end)] += item.times
            # Not ``ticks`` times ``times``: a node that crosses the start of the repeated part may
            # have run more slowly before it than in each repetition.
            within = np.clip(end, item.start, item.end) - np.clip(start, item.start, item.end)
            self.spent += item.times * np.where(self.ticks > 0, within, 0).astype(exact)
        self.communication = int(self.spent[self.talks].sum())
        order = np.argsort(start[self.computes], kind="stable")
        begins, ends = start[self.computes][order], end[self.computes][order]
        if overlap(begins, ends):  # several streams share the time
            self.spent = self.spent.astype(np.float64)
            self.spent[self.computes] = _parts(
                start[self.computes], end[self.computes], None, repeated
            )
            begins, ends = union(begins, ends)
        self.compute = round(self.spent[self.computes].sum())
        before = np.concatenate([[0], np.cumsum(ends - begins)])

        def computed_until(time: Ints) -> Ints:
            """Ticks of compute before each time."""
            if not len(ends):
                return np.zeros_like(time)
            index = np.searchsorted(begins, time, side="right")
            ahead: Ints = np.where(index > 0, np.maximum(ends[index - 1] - time, 0), 0)
            return before[index] - ahead

        def uncovered(low: int, high: int) -> Ints:
            """Ticks of each node in ``low .. high`` without compute."""
            begin, stop = np.clip(start, low, high), np.clip(end, low, high)
            bare = (stop - begin) - (computed_until(stop) - computed_until(begin))
            return np.where(self.talks, bare, 0)

        self.exposed: NDArray[Any] = uncovered(0, int(end.max(initial=0)))
        for item in repeated:
            again = uncovered(item.start, item.end).astype(exact)
            self.exposed = self.exposed + item.times * again
        self.exposed_ticks = int(self.exposed.sum())
        if overlap(start[self.talks], end[self.talks]):
            self._share(start, end, repeated)

    def _share(self, start: Ints, end: Ints, repeated: list[Repeat]) -> None:
        """Give each communication its share of the time in which several run."""
        talks, kernels = self.talks, (start[self.computes], end[self.computes])
        self.spent = self.spent.astype(np.float64)
        self.spent[talks] = _parts(start[talks], end[talks], None, repeated)
        self.exposed = np.zeros(len(start))
        self.exposed[talks] = _parts(start[talks], end[talks], kernels, repeated)
        self.communication = round(float(self.spent[talks].sum()))
        self.exposed_ticks = round(float(self.exposed.sum()))

    def rows(self, workload: Workload) -> dict[tuple[str, bool], NDArray[np.float64]]:
        """Class -> nodes, ticks, exposed ticks, FLOPs, bytes."""
        unrolled, emission = self.info.unrolled, self.info.emission
        template = unrolled.template[emission.instance]
        detail = unrolled.detail[emission.instance]
        table = unrolled.graphs[0].tables.communications
        kinds = np.concatenate([fine_classes(graph) for graph in unrolled.graphs])
        flops = np.concatenate([graph.flops_by_node() for graph in unrolled.graphs])
        moved = unrolled.column("bytes_read") + unrolled.column("bytes_written")
        names: list[tuple[str, bool]] = [(name, False) for name in (*FINE, HOST, *COPIES.values())]
        numbers = {name: number for number, name in enumerate(names)}
        of_detail = np.zeros(len(table) + 1, np.int64)
        sent = np.zeros(len(table) + 1, np.int64)
        known: dict[tuple[str, int], int] = {}
        for index in distinct(detail[detail >= 0]).tolist():
            item = table[index]
            place = (item.kind, id(item.groups or item.permutation))
            if place not in known:
                name = (f"{item.kind} over {partners(item, workload.mesh)}", True)
                known[place] = numbers.setdefault(name, len(numbers))
            of_detail[index] = known[place]
            sent[index] = bytes_of(item)
        talks = detail >= 0
        number = np.where(talks, of_detail[detail], kinds[template])
        number[self.host] = numbers[HOST, False]
        for kind, text in COPIES.items():
            number[emission.type == kind] = numbers[text, False]
        copies = np.isin(emission.type, list(COPIES))  # as much is read as is written
        counted = (emission.type != NodeType.RECV) & ~(self.computes & talks & (self.ticks == 0))
        unstated = np.concatenate([unstated_work(graph) for graph in unrolled.graphs])
        flops = np.where(unstated, UNKNOWN, flops)
        unstated = np.concatenate([unstated_traffic(graph) for graph in unrolled.graphs])
        moved = np.where(unstated, UNKNOWN, moved)
        columns: list[NDArray[Any]] = [
            counted * self.times,
            self.spent,
            self.exposed,
            np.where(talks, 0.0, flops[template]) * self.times,
            np.where(talks, np.where(self.talks, sent[detail], 0.0), moved[template])
            / np.where(copies, 2, 1)
            * self.times,
        ]
        sums = [
            np.bincount(number, weights=column.astype(np.float64), minlength=len(numbers))
            for column in columns
        ]
        return {name: np.array([s[i] for s in sums]) for name, i in numbers.items()}


def _parts(start: Ints, end: Ints, covers: Spans | None, repeated: list[Repeat]) -> Floats:
    """``parts`` of everything, including what happens again."""
    found = parts(start, end, covers)
    for item in repeated:
        low, high = item.start, item.end
        within = covers and (np.clip(covers[0], low, high), np.clip(covers[1], low, high))
        again = parts(np.clip(start, low, high), np.clip(end, low, high), within)
        found = found + item.times * again
    return found


def _exact(repeated: list[Repeat], nodes: int) -> Any:
    """The type that holds sums over nodes exactly: Python's integers beyond 64 bits."""
    most = sum(item.times * (item.end - item.start + 1) for item in repeated)
    return np.int64 if most * nodes < _WORD else object


#: Names of copies between the device's memory and the host's.
COPIES = {NodeType.MEM_STORE: "device to host", NodeType.MEM_LOAD: "host to device"}
