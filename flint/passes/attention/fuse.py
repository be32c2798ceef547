"""Attention as the fused kernel that runs: scores that never reach memory.

The idea: a program may write attention out (a product Q K^T, a softmax over its rows, a product
with V), and its scores are far larger than its inputs and outputs.  Training frameworks instead run
one kernel that keeps the scores on the chip (Dao et al., "FlashAttention", 2022; on TPU splash
attention), and in the backward pass another one that recomputes them.  This pass finds the written
form and replaces it with these kernels:

1. **Scores** are made by a contraction with a head dim of at most 256, more elements than either
   operand, and a batch of heads (more than one, or a result of four dims or more).
2. Everything computed from scores element by element, by movement, or by reduction along rows
   belongs to them, up to the contractions that consume them. There must be an exponential, such a
   contraction, and a reduction or (in a backward pass that has the rows' sums) a second product
   that makes scores. If anything else reads the scores (they are returned or communicated), they
   are needed in memory, and nothing is changed. Scores that are only kept for a backward pass are
   not needed: after a barrier, or in rows that one loop stores and another reads
   (``flint.passes.attention.saved``).
3. Everything that can run without leaving the scores is one kernel: the forward pass. Work that
   needs something computed elsewhere from its results (the gradient) is the next one. Scores that
   it takes from the first are recomputed: their product and one exponential per score are added.
4. Masks, constants and broadcasts are made inside. If a mask made only from positions hides part of
   square scores, hidden blocks are skipped: the work is that of a causal mask, (T + 1) / 2T of all
   scores.

    fused = fuse_attention(graph)       # dot_general, ..., dot_general  ->  attention
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError
from flint.graph.graph import NodeKind, Tables, WorkloadGraph, with_tables
from flint.graph.work import Role
from flint.passes.attention.kernels import BACKWARD, FORWARD, contracted
from flint.passes.attention.saved import without_saved_scores
from flint.passes.attention.scores import (
    MAX_HEAD,
    NO_ROWS,
    Rows,
    ScoreFinder,
    Scores,
    known_inside,
    known_values,
)
from flint.passes.attention.split import pieces_in_kernels

#: Attention that stays as written, if ``fuse_attention`` gets a dictionary to count it in.
LEFT = "attention is timed as written: fused, its kernel and another one would wait for each other"


def fuse_attention(graph: WorkloadGraph, left: dict[str, int] | None = None) -> WorkloadGraph:
    """``graph`` (in issue order) with attention as kernels, in bodies too.

    Args:
        graph: the graph.
        left: counts (text -> number) attention that cannot be a separate kernel next to others,
            because each would wait for the other; it stays as written.

    Raises:
        FlintError: there is such attention, and ``left`` is None.
    """
    names = [name for name in (FORWARD, BACKWARD) if name not in graph.tables.ops]
    tables = replace(graph.tables, ops=(*graph.tables.ops, *names))
    found = _in_block(graph, tables, np.zeros(graph.inputs, np.int8), left)
    return graph if found is None else with_tables(found, tables)


def attention_kernels(graph: WorkloadGraph) -> int:
    """How many kernels of the pass a graph has, counting bodies once."""
    made = [i for i, name in enumerate(graph.tables.ops) if name in (FORWARD, BACKWARD)]
    return sum(
        int(((block.role == Role.OPAQUE) & np.isin(block.op, made)).sum())
        for block, _ in graph.walk()
    )


def _in_block(
    graph: WorkloadGraph,
    tables: Tables,
    inputs: NDArray[np.int8],
    left: dict[str, int] | None,
    rows: Rows = NO_ROWS,
) -> WorkloadGraph | None:
    """A block with its attention fused; None if there is none in it or below."""
    if not len(graph) or not _any_candidate(graph):
        return None
    written, known = graph, known_values(graph, inputs)
    graph, saved = without_saved_scores(graph, known, tables)
    changed = graph is not written
    if changed:
        known = known_values(graph, inputs)
    loops = list(graph.loops)
    for node in np.flatnonzero(graph.kind == NodeKind.LOOP).tolist():
        loop = loops[int(graph.detail[node])]
        given = known_inside(graph, node, known)
        body = _in_block(loop.body, tables, given, left, saved.get(node, NO_ROWS))
        if body is not None:
            loops[int(graph.detail[node])] = replace(loop, body=body)
            changed = True
    if changed:
        graph = replace(graph, loops=tuple(loops))
    fused = _fuse(graph, tables, known, left, rows)
    return fused if fused is not None else graph if changed else None


def _any_candidate(graph: WorkloadGraph) -> bool:
    return any(0 < k <= MAX_HEAD and k < min(m, n) for _, m, n, k in graph.tables.gemms)


def _fuse(
    graph: WorkloadGraph,
    tables: Tables,
    known: NDArray[np.int8],
    left: dict[str, int] | None,
    rows: Rows,
) -> WorkloadGraph | None:
    block = ScoreFinder(graph, known, rows)
    pieces = pieces_in_kernels(block)
    if not pieces:
        return None
    try:
        return contracted(block, pieces, tables)
    except FlintError as error:
        if left is None:
            text = f"attention cannot run as fused kernels ({error}): use --attention as-written"
            raise FlintError(text) from error
    return _one_by_one(block, pieces, tables, left)


def _one_by_one(
    block: ScoreFinder, pieces: list[Scores], tables: Tables, left: dict[str, int]
) -> WorkloadGraph | None:
    """The block with as much of its attention as can be separate kernels, in order."""
    fused: WorkloadGraph | None = None
    kept: list[Scores] = []
    for piece in pieces:
        try:
            fused = contracted(block, [*kept, piece], tables)
        except FlintError:
            left[LEFT] = left.get(LEFT, 0) + 1
        else:
            kept.append(piece)
    return fused
