"""Attention as the fused kernel that runs: scores that never reach memory.

The idea: a program may spell attention out (a product Q K^T, a softmax over its rows, a product
with V), and its scores are far larger than what goes in and out.  Training frameworks run one
kernel in its place that keeps the scores on the chip (Dao et al., "FlashAttention", 2022; on TPU
splash attention), and in the backward pass another one that computes them again.  This pass finds
the written form and makes these kernels of it:

1. **Scores** are made by a contraction with a head dim of at most ``MAX_HEAD``, more elements than
   either operand, and a batch of heads (more than one, or a result of four dims or more).
2. What is computed from scores element by element, moved, or reduced along rows belongs to them,
   up to the contractions that use them up.  There must be an exponential, a reduction and such a
   contraction; scores that anything else reads (stored for the backward pass of a scan, returned,
   communicated) are needed in memory, and nothing is changed.
3. What can run without leaving the scores is one kernel: the forward pass.  What needs something
   that was computed elsewhere from its results (the gradient) is the next one.  Scores that it
   takes over from the first are computed again: their product and an exponential each are added.
4. Masks, constants and broadcasts are made inside.  Where a mask that is made from positions alone
   hides part of square scores, blocks that are hidden are left out: the work is that of a causal
   mask, (T + 1) / 2T of all scores.

    fused = fuse_attention(graph)       # dot_general, ..., dot_general  ->  attention
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError
from flint.graph import Ints, NodeKind, Tables, WorkloadGraph
from flint.passes.columns import pointer, row_of_entry, total_by_row
from flint.passes.contract import Columns, contract, surviving
from flint.work import Role, Unit

#: The largest head that fused kernels take.
MAX_HEAD: Final = 256

FORWARD: Final = "attention"
BACKWARD: Final = "attention_backward"

_LIGHT: Final = (Role.ELEMENTWISE, Role.MOVEMENT, Role.REDUCTION, Role.GENERATE, Role.ALIAS)
#: What scores go through without becoming something else.
_WHOLE: Final = (Role.ELEMENTWISE, Role.MOVEMENT, Role.ALIAS)
_RANK_OPS: Final = ("partition_id", "replica_id")


class Known(IntEnum):
    """What of a value is known before the step runs."""

    NOTHING = 0
    UNIFORM = 1  # one constant everywhere
    BY_POSITION = 2  # a function of positions: iotas, masks


def fuse_attention(graph: WorkloadGraph) -> WorkloadGraph:
    """``graph`` (in issue order) with attention as kernels, in bodies too."""
    names = [name for name in (FORWARD, BACKWARD) if name not in graph.tables.ops]
    tables = replace(graph.tables, ops=(*graph.tables.ops, *names))
    found = _in_block(graph, tables, np.zeros(graph.inputs, np.int8))
    return graph if found is None else _with_tables(found, tables)


def attention_kernels(graph: WorkloadGraph) -> int:
    """How many kernels of the pass a graph holds, bodies counted once."""
    made = [i for i, name in enumerate(graph.tables.ops) if name in (FORWARD, BACKWARD)]
    return sum(
        int(((block.role == Role.OPAQUE) & np.isin(block.op, made)).sum())
        for block, _ in graph.walk()
    )


def _with_tables(graph: WorkloadGraph, tables: Tables) -> WorkloadGraph:
    return replace(
        graph,
        tables=tables,
        loops=tuple(replace(loop, body=_with_tables(loop.body, tables)) for loop in graph.loops),
        conditionals=tuple(
            replace(item, branches=tuple(_with_tables(b, tables) for b in item.branches))
            for item in graph.conditionals
        ),
    )


def _in_block(
    graph: WorkloadGraph, tables: Tables, inputs: NDArray[np.int8]
) -> WorkloadGraph | None:
    """A block with its attention fused; None if there is none in it or below."""
    if not len(graph) or not _any_candidate(graph):
        return None
    known = _known(graph, inputs)
    changed = False
    loops = list(graph.loops)
    conditionals = list(graph.conditionals)
    for node in np.flatnonzero(graph.kind == NodeKind.LOOP).tolist():
        loop = loops[int(graph.detail[node])]
        operands = graph.operand[graph.operand_ptr[node] : graph.operand_ptr[node + 1]]
        given = known[operands].copy()
        given[: loop.carried] = Known.NOTHING
        body = _in_block(loop.body, tables, given)
        if body is not None:
            loops[int(graph.detail[node])] = replace(loop, body=body)
            changed = True
    for number, item in enumerate(conditionals):
        branches = [_in_block(b, tables, np.zeros(b.inputs, np.int8)) for b in item.branches]
        if any(branch is not None for branch in branches):
            pairs = zip(branches, item.branches, strict=True)
            conditionals[number] = replace(item, branches=tuple(new or old for new, old in pairs))
            changed = True
    if changed:
        graph = replace(graph, loops=tuple(loops), conditionals=tuple(conditionals))
    fused = _fuse(graph, tables, known)
    return fused if fused is not None else graph if changed else None


def _any_candidate(graph: WorkloadGraph) -> bool:
    return any(0 < k <= MAX_HEAD and k < min(m, n) for _, m, n, k in graph.tables.gemms)


def _known(graph: WorkloadGraph, inputs: NDArray[np.int8]) -> NDArray[np.int8]:
    """``Known`` of each value, shape [values]."""
    known = np.zeros(graph.values, np.int8)
    known[: graph.inputs] = inputs
    single = np.array([t.elements <= 1 for t in graph.tables.types] or [True], np.bool_)
    names = graph.tables.ops
    role, op = graph.role.tolist(), graph.op.tolist()
    kind = graph.kind.tolist()
    for node in range(len(graph)):
        if kind[node] != NodeKind.COMPUTE or role[node] not in _LIGHT:
            continue
        name = names[op[node]]
        operands = graph.operand[graph.operand_ptr[node] : graph.operand_ptr[node + 1]]
        first, last = graph.result_ptr[node : node + 2] + graph.inputs
        if name in _RANK_OPS:
            continue
        if len(operands):
            known[first:last] = known[operands].max() if known[operands].all() else 0
        elif role[node] == Role.GENERATE:
            scalar = bool(single[graph.value_type[first:last]].all())
            splat = scalar or (name == "constant" and not _is_mask(graph, int(first)))
            known[first:last] = Known.UNIFORM if splat else Known.BY_POSITION
    return known


def _is_mask(graph: WorkloadGraph, value: int) -> bool:
    return graph.type_of(value).dtype == "i1"


@dataclass(eq=False, slots=True)
class _Scores:
    """One connected piece of work on scores.

    Attributes:
        elements: of a score value.
        members: nodes, with the kernel that each belongs to once it is known.
        makers: contractions that make scores.
        users: contractions that use them up.
        square: positions of queries and keys are as many.
        escapes: somebody else reads scores.
    """

    elements: int
    members: dict[int, int] = field(default_factory=dict)
    makers: list[int] = field(default_factory=list)
    users: list[int] = field(default_factory=list)
    square: int = 0
    escapes: bool = False


class _Block:
    """One block's columns as lists, and what was found in it."""

    def __init__(self, graph: WorkloadGraph, known: NDArray[np.int8]) -> None:
        self.graph = graph
        self.known = known.tolist()
        self.kind = graph.kind.tolist()
        self.role = graph.role.tolist()
        self.names = [graph.tables.ops[i] for i in graph.op.tolist()]
        self.operand: list[int] = graph.operand.tolist()
        self.operand_ptr: list[int] = graph.operand_ptr.tolist()
        self.producer = graph.producer.tolist()
        elements = np.array([t.elements for t in graph.tables.types] or [0], np.int64)
        self.elements = elements[graph.value_type].tolist()
        self.first = (graph.result_ptr + graph.inputs).tolist()
        #: Score value -> its piece, an index that ``piece_of`` follows.
        self.of_value: dict[int, int] = {}
        self.pieces: list[_Scores] = []
        self._into: list[int] = []

    def operands(self, node: int) -> list[int]:
        return self.operand[self.operand_ptr[node] : self.operand_ptr[node + 1]]

    def results(self, node: int) -> range:
        return range(self.first[node], self.first[node + 1])

    def find(self) -> list[_Scores]:
        """All pieces that are attention."""
        for node in range(len(self.kind)):
            self._visit(node)
        for value in self.graph.outputs.tolist():
            if value in self.of_value:
                self.pieces[self._piece(self.of_value[value])].escapes = True
        kept = [p for i, p in enumerate(self.pieces) if self._into[i] == i]
        return [piece for piece in kept if self._is_attention(piece)]

    def _visit(self, node: int) -> None:
        operands = self.operands(node)
        touched = {self._piece(self.of_value[v]) for v in operands if v in self.of_value}
        if self.kind[node] != NodeKind.COMPUTE:
            for number in touched:
                self.pieces[number].escapes = True
            return
        role = self.role[node]
        made = self._makes_scores(node)
        if made is not None and not touched:
            self.pieces.append(made)
            self._into.append(len(self._into))
            made.members[node] = 0
            made.makers.append(node)
            self.of_value[self.first[node]] = len(self.pieces) - 1
            return
        if not touched:
            return
        number = self._joined(touched)
        piece = self.pieces[number]
        if role == Role.CONTRACTION:
            piece.members[node] = 0
            piece.users.append(node)
            return
        results = self.results(node)
        whole = all(self.elements[v] == piece.elements for v in results)
        if role == Role.REDUCTION or (role in _WHOLE and whole):
            piece.members[node] = 0
            for value in results:
                if self.elements[value] == piece.elements:
                    self.of_value[value] = number
        else:
            piece.escapes = True

    def _makes_scores(self, node: int) -> _Scores | None:
        graph = self.graph
        if self.role[node] != Role.CONTRACTION:
            return None
        items = range(int(graph.work_ptr[node]), int(graph.work_ptr[node + 1]))
        gemms = [int(graph.work_gemm[i]) for i in items if graph.work_gemm[i] >= 0]
        results = self.results(node)
        if len(gemms) != 1 or len(results) != 1:
            return None
        batch, _, _, k = graph.tables.gemms[gemms[0]]
        elements = self.elements[results[0]]
        shape = graph.type_of(results[0]).shape
        if k > MAX_HEAD or (batch < 2 and len(shape) < 4):
            return None
        if any(self.elements[value] >= elements for value in self.operands(node)):
            return None
        # Dims of as many positions as the longest one, twice or more: queries and keys.
        longest = max(shape)
        return _Scores(elements, square=longest if shape.count(longest) > 1 else 0)

    def _piece(self, number: int) -> int:
        while self._into[number] != number:
            number = self._into[number]
        return number

    def _joined(self, numbers: set[int]) -> int:
        first, *others = sorted(numbers)
        into = self.pieces[first]
        for number in others:
            other = self.pieces[number]
            self._into[number] = first
            into.members |= other.members
            into.makers += other.makers
            into.users += other.users
            into.escapes |= other.escapes or other.elements != into.elements
            into.square = min(into.square, other.square)
        return first

    def _is_attention(self, piece: _Scores) -> bool:
        names = [self.names[node] for node in piece.members]
        reduces = any(self.role[node] == Role.REDUCTION for node in piece.members)
        exponential = any("exponential" in name for name in names)
        return exponential and reduces and bool(piece.users) and not piece.escapes

    def split(self, piece: _Scores) -> None:
        """Say for every member to which kernel it belongs, and take in what lies between members.

        A way that leaves a piece through anything but light ops and comes back makes the next
        kernel, so that no kernel waits for itself.
        """
        low, high = min(piece.members), max(piece.members)
        order_ptr, order_node = self.graph.order_ptr, self.graph.order_node
        level: dict[int, int] = {}
        inside: dict[int, bool] = {}
        for node in range(low, high + 1):
            before = {self.producer[value] for value in self.operands(node)}
            if order_ptr[node] != order_ptr[node + 1]:
                before.update(order_node[order_ptr[node] : order_ptr[node + 1]].tolist())
            above = [other for other in before if other in level]
            member = node in piece.members
            if not above and not member:
                continue
            at = max((level[other] for other in above), default=0)
            if member:
                piece.members[node] = at
                inside[node] = True
            elif self.kind[node] == NodeKind.COMPUTE and self.role[node] in _LIGHT:
                inside[node] = any(inside[other] and level[other] == at for other in above)
            else:
                at, inside[node] = at + 1, False
            level[node] = at
        needed = set(piece.members)
        for node in range(high, low - 1, -1):
            if node not in needed:
                continue
            for value in self.operands(node):
                other = self.producer[value]
                if other in needed or not inside.get(other) or level[other] != level[node]:
                    continue
                needed.add(other)
                piece.members[other] = level[other]


def _fuse(graph: WorkloadGraph, tables: Tables, known: NDArray[np.int8]) -> WorkloadGraph | None:
    block = _Block(graph, known)
    pieces = block.find()
    for piece in pieces:
        block.split(piece)
    pieces = [piece for piece in pieces if _is_forward_first(block, piece)]
    if not pieces:
        return None
    try:
        return _contracted(block, pieces, tables)
    except FlintError:  # kernels that would wait for each other stay as they are written
        return None


def _is_forward_first(block: _Block, piece: _Scores) -> bool:
    """The first kernel has the exponential and the product that makes scores."""
    first = [node for node, kernel in piece.members.items() if kernel == 0]
    return any("exponential" in block.names[node] for node in first) and any(
        node in piece.makers for node in first
    )


def _contracted(block: _Block, pieces: Sequence[_Scores], tables: Tables) -> WorkloadGraph:
    graph = block.graph
    kernel_of: dict[int, tuple[int, int]] = {}
    for number, piece in enumerate(pieces):
        for node, kernel in piece.members.items():
            kernel_of.setdefault(node, (number, kernel))
    again, causal = _rewired(block, pieces, kernel_of)
    graph = _with_work(graph, pieces, kernel_of, again.recomputed, causal)
    leaders: dict[tuple[int, int], int] = {}
    for node in sorted(kernel_of):
        chosen = leaders.setdefault(kernel_of[node], node)
        if block.role[node] == Role.CONTRACTION and block.role[chosen] != Role.CONTRACTION:
            leaders[kernel_of[node]] = node
    op, role = graph.op.copy(), graph.role.copy()
    for (_, kernel), leader in leaders.items():
        op[leader] = tables.ops.index(BACKWARD if kernel else FORWARD)
        role[leader] = Role.OPAQUE
    graph = replace(
        graph, op=op, role=role, tables=tables, operand=again.operand, operand_ptr=again.ptr
    )
    dead = _dead(block, graph, kernel_of)
    cluster = np.full(len(graph), -1, np.int64)
    leader_of: list[int] = []
    numbers: dict[tuple[int, int], int] = {}
    for node in range(len(graph)):
        key = kernel_of.get(node)
        if key is not None:
            if key not in numbers:
                numbers[key] = len(leader_of)
                leader_of.append(leaders[key])
            cluster[node] = numbers[key]
        elif not dead[node]:
            cluster[node] = len(leader_of)
            leader_of.append(node)
    members = np.array(leader_of, np.int64)
    read, written, aliased = _bytes(graph, cluster, numbers)
    columns = Columns(members, read[members], written[members], aliased[members])
    return contract(graph, cluster, columns)


@dataclass(frozen=True, slots=True)
class _Rewired:
    """New operands.

    Attributes:
        ptr, operand: CSR columns.
        recomputed: kernels that compute scores of an earlier one again.
    """

    ptr: Ints
    operand: Ints
    recomputed: frozenset[tuple[int, int]]


def _rewired(
    block: _Block, pieces: Sequence[_Scores], kernel_of: dict[int, tuple[int, int]]
) -> tuple[_Rewired, frozenset[int]]:
    """Members read what their kernel really needs: no masks, no broadcasts, no earlier scores.

    Returns:
        The operands, and which pieces hide scores by position.
    """
    counts: list[int] = []
    operands: list[int] = []
    recomputed: set[tuple[int, int]] = set()
    causal: set[int] = set()
    for node in range(len(block.kind)):
        key = kernel_of.get(node)
        mine = block.operands(node)
        if key is None:
            counts.append(len(mine))
            operands += mine
            continue
        piece = pieces[key[0]]
        new: dict[int, None] = {}
        for value in mine:
            value = _looked_through(block, value, piece.elements, kernel_of)
            if block.known[value]:
                if block.known[value] == Known.BY_POSITION and piece.square:
                    causal.add(key[0])
                continue
            other = kernel_of.get(block.producer[value])
            crosses = other is not None and other[0] == key[0] and other[1] < key[1]
            if crosses and block.elements[value] == piece.elements:
                recomputed.add(key)
                for maker in piece.makers:
                    if piece.members[maker] < key[1]:
                        new.update(dict.fromkeys(block.operands(maker)))
            else:
                new[value] = None
        counts.append(len(new))
        operands += new
    rewired = _Rewired(
        pointer(np.array(counts, np.int64)), np.array(operands, np.int64), frozenset(recomputed)
    )
    return rewired, frozenset(causal)


def _looked_through(
    block: _Block, value: int, elements: int, kernel_of: dict[int, tuple[int, int]]
) -> int:
    """What a broadcast to scores is made of."""
    while True:
        node = block.producer[value]
        if node < 0 or node in kernel_of or block.role[node] != Role.MOVEMENT:
            return value
        operands = block.operands(node)
        if len(operands) != 1 or block.elements[operands[0]] >= block.elements[value]:
            return value
        if block.elements[value] < elements:
            return value
        value = operands[0]


def _with_work(
    graph: WorkloadGraph,
    pieces: Sequence[_Scores],
    kernel_of: dict[int, tuple[int, int]],
    recomputed: frozenset[tuple[int, int]],
    causal: frozenset[int],
) -> WorkloadGraph:
    """Work of members: hidden scores left out, scores that are computed again added."""
    flops, dtype = graph.work_flops.copy(), graph.work_dtype.copy()
    extra: dict[int, list[tuple[int, int, int, int]]] = {}
    for node, (number, _) in kernel_of.items():
        piece = pieces[number]
        items = slice(int(graph.work_ptr[node]), int(graph.work_ptr[node + 1]))
        # Kernels multiply in the type that queries and keys come in.
        first = int(graph.work_ptr[piece.makers[0]])
        matmul = graph.work_unit[items] == Unit.MATMUL
        dtype[items] = np.where(matmul, graph.work_dtype[first], dtype[items])
        if number in causal:
            flops[items] = _visible(flops[items], piece.square)
    for key in recomputed:
        number, kernel = key
        piece = pieces[number]
        home = next(node for node, other in kernel_of.items() if other == key)
        for maker in piece.makers:
            if piece.members[maker] < kernel:
                first = int(graph.work_ptr[maker])
                gemm = int(graph.work_gemm[first])
                rows = extra.setdefault(home, [])
                rows.append((Unit.MATMUL, int(dtype[first]), int(flops[first]), gemm))
                count = piece.elements
                if number in causal:
                    count = int(_visible(np.array([count], np.int64), piece.square)[0])
                rows.append((Unit.TRANSCENDENTAL, int(dtype[first]), count, -1))
    counts = np.diff(graph.work_ptr)
    at = {node: int(graph.work_ptr[node + 1]) for node in extra}
    where = [at[node] for node in sorted(extra) for _ in extra[node]]
    rows = [row for node in sorted(extra) for row in extra[node]]
    for node in extra:
        counts[node] += len(extra[node])

    def put(column: NDArray[np.signedinteger], index: int) -> NDArray[np.signedinteger]:
        return np.insert(column, where, [row[index] for row in rows]).astype(column.dtype)

    return replace(
        graph,
        work_ptr=pointer(counts),
        work_unit=put(graph.work_unit, 0),
        work_dtype=put(dtype, 1),
        work_flops=put(flops, 2),
        work_gemm=put(graph.work_gemm, 3),
    )


def _visible(flops: Ints, positions: int) -> Ints:
    """The part of the work on scores that a causal mask leaves, (T + 1) / 2T of it."""
    visible: Ints = flops // (2 * positions) * (positions + 1)
    return visible


def _dead(
    block: _Block, graph: WorkloadGraph, kernel_of: dict[int, tuple[int, int]]
) -> NDArray[np.bool_]:
    """Nodes that only made what kernels now make for themselves, shape [nodes]."""
    was = np.bincount(block.graph.operand, minlength=graph.values)
    users = np.bincount(graph.operand, minlength=graph.values)
    users[graph.outputs] += 1
    lost = was > users
    ordered = np.zeros(len(graph), np.bool_)
    ordered[graph.order_node] = True
    dead = np.zeros(len(graph), np.bool_)
    for node in range(len(graph) - 1, -1, -1):
        results = slice(block.first[node], block.first[node + 1])
        light = block.kind[node] == NodeKind.COMPUTE and block.role[node] in _LIGHT
        if node in kernel_of or not light or ordered[node]:
            continue
        if lost[results].any() and not users[results].any():
            dead[node] = True
            low, high = graph.operand_ptr[node], graph.operand_ptr[node + 1]
            np.subtract.at(users, graph.operand[low:high], 1)
            lost[graph.operand[low:high]] = True
    return dead


def _bytes(
    graph: WorkloadGraph, cluster: Ints, kernels: dict[tuple[int, int], int]
) -> tuple[Ints, Ints, Ints]:
    """Bytes read, written and aliased by node; kernels read each outside value once."""
    read, written = graph.bytes_read.copy(), graph.bytes_written.copy()
    aliased = graph.bytes_aliased.copy()
    fused = np.isin(cluster, list(kernels.values()))
    home = np.where(graph.producer >= 0, cluster[graph.producer], -2)
    reader = cluster[graph.consumer]
    outside = fused[graph.consumer] & (home[graph.operand] != reader)
    pairs = np.unique(np.stack([reader[outside], graph.operand[outside]], axis=1), axis=0)
    size = int(cluster.max(initial=-1)) + 1
    taken = total_by_row(graph.value_bytes[pairs[:, 1]], pairs[:, 0], size)
    owner = row_of_entry(graph.result_ptr)
    leaving = graph.value_bytes[graph.inputs :] * surviving(graph, cluster)
    made = total_by_row(leaving[fused[owner]], cluster[owner[fused[owner]]], size)
    read[fused], written[fused] = taken[cluster[fused]], made[cluster[fused]]
    aliased[fused] = 0
    return read, written, aliased
