"""Granularity ``kernel``: what a compiler would make one kernel, by stated rules.

1. **Transparent ops** (constants, iotas, broadcasts) are recomputed in every kernel that reads them
   (``flint.passes.rematerialize``), and so is simple arithmetic on fewer bytes than its result has
   (``flint.passes.made_of_less``).
2. **Producers**: an elementwise or data-movement op joins the kernel of its consumers when all its
   consumers, by data and by order edges, are in that one kernel and its value is no graph output.
   Nothing else is computed twice.
3. **Reductions are roots**: they absorb producers but do not join their consumers' kernels.
4. **Contractions** absorb the ops that load their operands: type conversions and movement of one
   tensor (transpose, slice; further operands are scalars such as offsets), no arithmetic.
5. **Epilogue**: a contraction whose consumers are all in one kernel, rooted in an elementwise or
   movement op with as many elements as its result and without another contraction, joins it: bias,
   activation, conversion, residual. It is the kernel's hero: the kernel is named after it. Where
   it cannot join, a conversion to a narrower type that is its only reader joins it.
6. **Updates** (dynamic_update_slice, scatter) absorb the ops that make their updates and indices,
   not those that make the buffer that they overwrite.
7. OPAQUE ops, grouped products, communications and loops stay alone: libraries' grouped kernels
   load and store plain matrices.  But sums are stored in the type that is asked for: a conversion
   to a narrower type that is a grouped product's only reader joins it.  Kernels that only share an
   input are not joined, and no op with two consuming kernels is duplicated, except at granularity
   ``xla`` (``flint.passes.xla.priority``).

**No cycle.** A kernel grows by one producer ``p`` whose out-edges all end in the kernel ``K``.  A
cycle through the grown kernel would leave it and come back: it cannot leave from ``p``, so it
leaves from ``K``, and it cannot come back to ``K`` (there was no cycle before), so it comes back to
``p``; but then ``p``'s edge into ``K`` closed a cycle before.  By the same argument all results of
members other than the root are used inside: a kernel's values are its root's, it waits for what its
members waited for on the way to the root, and no communication becomes newly dependent on another.

**Bytes** are those that cross the kernel's boundary: each outside value once, as far as members
access it, and results that are used outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import Ints, NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.mesh.ragged import row_of_entry, total_by_row
from flint.passes.boundary import boundary_bytes
from flint.passes.columns import with_bodies
from flint.passes.contract import Columns, contract, issue_rank
from flint.passes.made_of_less import made_of_less
from flint.passes.rematerialize import FUSIBLE, SeenThrough, loads, look_through

#: From a product and the members of a kernel, its root first: whether the product may end in it.
Ends: TypeAlias = Callable[[int, Sequence[int]], bool]

_ROOTS = (Role.ELEMENTWISE, Role.MOVEMENT, Role.REDUCTION, Role.CONTRACTION, Role.UPDATE)
_EPILOGUE_ROOTS = (Role.ELEMENTWISE, Role.MOVEMENT)
#: Names of grouped products in all frameworks.
_GROUPED = ("ragged_dot", "grouped_mm")


def fuse_kernels(graph: WorkloadGraph) -> WorkloadGraph:
    """``graph`` (in issue order) with its ops joined into kernels, in bodies too.

    Work items are kept; items of one kernel with the same unit and type and without sizes are
    joined.  ``ops_merged`` adds up.
    """
    graph = with_bodies(graph, lambda body, _: fuse_kernels(body))
    if not np.isin(graph.role, FUSIBLE).any():  # nothing to join: kernels as they were measured
        return graph
    seen = look_through(graph, made_of_less(graph))
    found = assigned(seen, loads(seen.graph).tolist(), lambda product, members: True)
    return fused(seen, found)[0]


def fused(seen: SeenThrough, found: tuple[Ints, Ints]) -> tuple[WorkloadGraph, Ints]:
    """The kernels, and the number of each node's kernel (-1: none), shape [nodes]."""
    root, hero = found
    kept = np.flatnonzero(~seen.dropped)
    roots, numbers = np.unique(root[kept], return_inverse=True)
    kernel = np.full(len(seen.graph), -1, dtype=np.int64)
    kernel[kept] = numbers.reshape(-1)
    read, written, aliased = boundary_bytes(seen, kernel, len(roots))
    contracted = contract(seen.graph, kernel, Columns(hero[roots], read, written, aliased))
    place = np.full(len(seen.graph), -1, dtype=np.int64)
    place[kept] = issue_rank(seen.graph, kernel, len(roots))[kernel[kept]]
    return contracted, place


def _users(seen: SeenThrough, of: NDArray[np.bool_]) -> dict[int, list[int]]:
    """Nodes that wait for each of some nodes, by data and by order edges.

    Args:
        seen: the graph.
        of: which nodes, shape [nodes].
    """
    graph = seen.graph
    producer = graph.producer[graph.operand]
    waits = row_of_entry(graph.order_ptr)
    before = np.concatenate([producer, graph.order_node])
    after = np.concatenate([graph.consumer, waits])
    real = (before >= 0) & of[before] & ~seen.dropped[after]
    users: dict[int, list[int]] = {}
    for node, user in zip(before[real].tolist(), after[real].tolist(), strict=True):
        users.setdefault(node, []).append(user)
    return users


def assigned(
    seen: SeenThrough, load: list[bool], ends: Ends, roots: NDArray[np.bool_] | None = None
) -> tuple[Ints, Ints]:
    """The root of each node's kernel, and for each root the node that its kernel is named after.

    Args:
        seen: the graph.
        load: nodes that a contraction absorbs.
        ends: whether a contraction may end in a kernel with these members.
        roots: nodes that join no other kernel, shape [nodes].
    """
    graph = seen.graph
    role, elements, narrows = graph.role.tolist(), _elements(graph), _narrows(graph)
    alone = _grouped(graph).tolist()
    compute = (graph.kind == NodeKind.COMPUTE).tolist()
    joins = _may_join(seen)
    if roots is not None:
        joins &= ~roots
    users_of = _users(seen, joins)
    root = list(range(len(graph)))
    members: dict[int, list[int]] = {}  # of kernels that have several
    hero = root[:]
    # Whether a node is on the operand side of a contraction of its kernel.
    prologue = (graph.role == Role.CONTRACTION).tolist()
    for node in sorted(users_of, reverse=True):
        users = users_of[node]
        target = root[users[0]]
        if not compute[target] or role[target] not in _ROOTS:
            continue
        if any(root[user] != target for user in users):
            continue
        if role[node] == Role.CONTRACTION:
            free = hero[target] == target and role[target] in _EPILOGUE_ROOTS
            free &= not alone[node]
            there = members.get(target, [target])
            if not (free and elements[node] == elements[target] and ends(node, there)):
                narrower = users[0]
                if users != [narrower] or not narrows[narrower]:
                    continue
                if narrower != target:
                    # What is written between the two kernels is the narrower result.
                    members[target].remove(narrower)
                    root[narrower] = target = narrower
                    prologue[narrower] = False
                elif not alone[node]:
                    continue
            hero[target] = node
        elif any(prologue[user] for user in users):
            if alone[hero[target]] or not load[node]:
                continue
            prologue[node] = True
        root[node] = target
        members.setdefault(target, [target]).extend(members.pop(node, [node]))
    return np.array(root, dtype=np.int64), np.array(hero, dtype=np.int64)


def _may_join(seen: SeenThrough) -> NDArray[np.bool_]:
    """Nodes that may become part of their consumers' kernel, shape [nodes]."""
    graph = seen.graph
    joining = (Role.ELEMENTWISE, Role.MOVEMENT, Role.CONTRACTION)
    may: NDArray[np.bool_] = (graph.kind == NodeKind.COMPUTE) & np.isin(graph.role, joining)
    may &= ~seen.dropped
    index = np.arange(len(graph.operand)) - graph.operand_ptr[graph.consumer]
    overwritten = (graph.role == Role.UPDATE)[graph.consumer]
    overwritten &= index < np.diff(graph.result_ptr)[graph.consumer]
    for values in (graph.operand[overwritten], graph.outputs):
        makers = graph.producer[values]
        may[makers[makers >= 0]] = False
    return may


def _grouped(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """Nodes that are grouped products, shape [nodes]."""
    names = [any(word in name for word in _GROUPED) for name in graph.tables.ops]
    found: NDArray[np.bool_] = np.array(names or [False])[graph.op]
    return found


def _narrows(graph: WorkloadGraph) -> list[bool]:
    """Nodes that only convert a value to a smaller type, shape [nodes]."""
    found = (graph.role == Role.ELEMENTWISE) & (np.diff(graph.operand_ptr) == 1)
    found &= (np.diff(graph.result_ptr) == 1) & (np.diff(graph.order_ptr) == 0)
    one = np.flatnonzero(found)
    before = graph.operand[graph.operand_ptr[one]]
    after = graph.result_ptr[one] + graph.inputs
    sizes = np.array([t.elements for t in graph.tables.types] or [0], dtype=np.int64)
    same = sizes[graph.value_type[before]] == sizes[graph.value_type[after]]
    found[one] = same & (graph.value_bytes[after] < graph.value_bytes[before])
    narrows: list[bool] = found.tolist()
    return narrows


def _elements(graph: WorkloadGraph) -> list[int]:
    """Elements of each node's results."""
    sizes = np.array([t.elements for t in graph.tables.types] or [0], dtype=np.int64)
    made = total_by_row(sizes[graph.result_type], row_of_entry(graph.result_ptr), len(graph))
    elements: list[int] = made.tolist()
    return elements
