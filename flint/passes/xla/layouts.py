"""Layouts of the values between batched products, as XLA's GPU compiler assigns them.

The idea: what a product writes, or wants to read, decides the order of dims in memory of the
elementwise ops and reductions that follow it (``flint.passes.xla.travelling``) or come before it
(``flint.passes.xla.wanted``), so that transposes are elsewhere than in the program.
"""

from __future__ import annotations

from flint.graph.graph import WorkloadGraph, with_tables
from flint.graph.tensor_types import TensorType
from flint.passes.columns import with_bodies
from flint.passes.xla.computed_filters import ComputedFilters
from flint.passes.xla.regions import tables_with
from flint.passes.xla.transposes import Entry
from flint.passes.xla.travelling import Block
from flint.passes.xla.wanted import Wanted


def with_layouts(graph: WorkloadGraph, types: dict[TensorType, int]) -> WorkloadGraph:
    """A program whose transposes are where XLA has them.

    Args:
        graph: the program.
        types: all of its types, by number; new ones are added.
    """
    entries = {entry: number for number, entry in enumerate(graph.tables.entries())}
    return with_tables(_blocks(graph, types, entries, True), tables_with(graph, types, entries))


def _blocks(
    graph: WorkloadGraph, types: dict[TensorType, int], entries: dict[Entry, int], whole: bool
) -> WorkloadGraph:
    graph = with_bodies(graph, lambda body, _: _blocks(body, types, entries, False))
    if not len(graph):
        return graph
    claims = Wanted(graph, types, entries, whole).claims()
    graph = Block(graph, types, entries).changed(claims)
    graph = Wanted(graph, types, entries, whole).wished()
    return ComputedFilters(graph, types, entries).ordered()
