"""Granularity ``xla``: the kernels of XLA's GPU compiler."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flint.graph.graph import NodeKind, WorkloadGraph, with_tables
from flint.graph.tensor_types import TensorType
from flint.graph.work import Role
from flint.passes.columns import with_bodies
from flint.passes.fuse import assigned, fused
from flint.passes.rematerialize import look_through
from flint.passes.xla.carried import with_beginnings, with_copies
from flint.passes.xla.collective_layouts import turned_collectives, turns
from flint.passes.xla.early_conversions import converted_first
from flint.passes.xla.filters import transposed_filters, transposes
from flint.passes.xla.folded_constants import CONSTANT, folded_constants
from flint.passes.xla.folded_transposes import folded, swaps
from flint.passes.xla.free_transposes import without_free_transposes
from flint.passes.xla.heads import turned_heads
from flint.passes.xla.images import turned_images, turnings
from flint.passes.xla.layouts import with_layouts
from flint.passes.xla.merged_products import (
    CONCATENATE,
    SLICE,
    TRANSPOSE,
    Gemm,
    merge_products,
)
from flint.passes.xla.multi_output import join_kernels
from flint.passes.xla.operands import absorbed, operand_loads
from flint.passes.xla.paddings import PAD, even_paddings
from flint.passes.xla.priority import Queue, needed
from flint.passes.xla.products import Neighbours
from flint.passes.xla.reductions import split_reductions
from flint.passes.xla.repeated_stacks import without_repeated_stacks
from flint.passes.xla.running_sums import running, tiled_sums
from flint.passes.xla.scatters import added_scatters
from flint.passes.xla.shared_loads import with_shared_loads
from flint.passes.xla.side_by_side import parted
from flint.passes.xla.simplify import simplified
from flint.passes.xla.small_products import summed_products, sums
from flint.passes.xla.softmax import SOFTMAX, with_softmaxes
from flint.passes.xla.sorts import sorted_as_xla
from flint.passes.xla.split_dims import gathered_dims, gatherings
from flint.passes.xla.split_products import SUM, split_products
from flint.passes.xla.stored import stored_splats
from flint.passes.xla.sunk_broadcasts import sunk_broadcasts
from flint.passes.xla.times import Times
from flint.passes.xla.transposes import COPY, PADDED, Entry
from flint.passes.xla.updates import UPDATE, updates
from flint.passes.xla.windows import STEPS, expanded_windows


def fuse_as_xla(graph: WorkloadGraph) -> WorkloadGraph:
    """The same as XLA's GPU compiler: values that every reader computes again
    (``flint.passes.xla.priority``), products merged and split, reductions in steps,
    and kernels of several results (``flint.passes.xla.multi_output``)."""
    communicates = any((block.kind == NodeKind.COMMUNICATION).any() for block, _ in graph.walk())
    graph = without_repeated_stacks(graph)
    types = {kind: number for number, kind in enumerate(graph.tables.types)}
    gemms = {sizes: number for number, sizes in enumerate(graph.tables.gemms)}
    known = list(graph.tables.entries())
    names = (SUM, SLICE, TRANSPOSE, CONCATENATE, PAD, COPY, *(name for name, _ in STEPS))
    plain = [PADDED, UPDATE, SOFTMAX, CONSTANT, *((name, "", ()) for name in names)]
    graph = _with_entries(graph, [*plain, *sums(graph), *turns(graph), *gatherings(graph)])
    graph = _with_entries(graph, running(graph))
    graph = _with_entries(graph, [*turnings(graph), *transposes(known)])
    graph = turned_collectives(graph) if communicates else graph
    graph = with_layouts(_summed(graph, types), types)
    graph = _with_entries(graph, swaps(graph))
    kernels = _as_xla(graph, False, communicates, types, gemms)
    return with_tables(kernels, replace(graph.tables, types=tuple(types), gemms=tuple(gemms)))


def _summed(graph: WorkloadGraph, types: dict[TensorType, int]) -> WorkloadGraph:
    graph = with_bodies(graph, lambda inner, _: _summed(inner, types))
    return summed_products(graph, types)


def _with_entries(graph: WorkloadGraph, entries: list[Entry]) -> WorkloadGraph:
    """The graph with more entries in its table of ops."""
    known = list(graph.tables.entries())
    ops, heroes, forms = zip(*dict.fromkeys([*known, *entries]), strict=True)
    return with_tables(graph, replace(graph.tables, ops=ops, heroes=heroes, forms=forms))


def _as_xla(
    graph: WorkloadGraph,
    body: bool,
    communicates: bool,
    types: dict[TensorType, int],
    gemms: dict[Gemm, int],
) -> WorkloadGraph:
    graph = with_bodies(graph, lambda inner, _: _as_xla(inner, True, communicates, types, gemms))
    graph = sunk_broadcasts(tiled_sums(expanded_windows(graph, types), types), types)
    graph = sorted_as_xla(folded_constants(graph))
    graph = folded(simplified(graph), gemms) if len(graph) else graph
    if not len(graph):
        return graph
    graph = converted_first(graph, types)
    graph = updates(stored_splats(added_scatters(graph)))
    graph = without_free_transposes(graph, types)
    graph = gathered_dims(graph)
    graph = even_paddings(turned_images(graph), types)
    graph = transposed_filters(graph, types)
    graph = merge_products(graph, types, gemms)
    graph = with_shared_loads(parted(turned_heads(split_products(graph, types))))
    graph = with_beginnings(with_copies(graph, types) if body else graph)
    near = Neighbours(graph)
    graph = near.with_spread(graph)
    graph, step_of, runs = split_reductions(graph, near.loaded, types)
    place = np.full(len(near.ends) + 1, -1, dtype=np.int64)  # -1 for nodes without an epilogue
    place[step_of] = np.arange(len(step_of))
    last = place[near.ends[step_of]]
    loaded, kept = near.loaded[step_of], near.kept[step_of]
    takes = absorbed(graph, loaded)
    queue = Queue(Times(graph, runs), takes | kept)
    queue.run()
    gone = queue.gone
    again = needed(graph, gone) | loaded
    seen = look_through(graph, again)
    load = operand_loads(seen.graph).tolist()
    product = graph.role == Role.CONTRACTION
    roots = near.roots[step_of] | ~(gone | kept | product | takes)
    joined = assigned(seen, load, lambda product, members: last[product] == members[0], roots)
    kernels, place = fused(seen, joined)
    kernels = with_softmaxes(kernels, place, queue.kernels, queue.times)
    # A loop's carried values may have been communicated: all of its inputs count.
    communicated = [body and communicates] * kernels.inputs
    dots = np.array([name == "dot_general" for name in graph.tables.ops], dtype=bool)[graph.op]
    ends = np.flatnonzero(dots)
    ends = np.where(last[ends] >= 0, last[ends], ends)
    products = set(ends.tolist())
    return join_kernels(kernels, queue, place, products, communicated, entry=not body)
