"""Work by op, by GEMM size, by phase and by layer: the tables of a summary that are sums of
columns.

The idea: each table is one grouping key per node; a block's columns are summed by that key and
multiplied by how often the block runs.  A loop counts as the sum of its content.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from math import prod

import numpy as np
from numpy.typing import NDArray

from flint.graph import exact_sums
from flint.graph.graph import Ints, NodeKind, Phase, WorkloadGraph
from flint.graph.nesting import ProgramBlock
from flint.graph.stated import UNKNOWN, unstated_reads, unstated_traffic, unstated_work
from flint.graph.tensor_types import DTYPES
from flint.graph.work import Role, Unit
from flint.workload.summary_rows import GemmRow, LayerRow, OpRow, PhaseRow, WorkRow

COLUMNS = (
    "nodes", "ops", "flops", "transcendentals", "bytes_read", "bytes_written", "without_work",
    "without_reads", "without_traffic",
)  # fmt: skip


def is_plain(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """Which nodes themselves compute or communicate, shape [nodes]."""
    return graph.kind < NodeKind.LOOP


def op_rows(every: list[ProgramBlock], names: list[tuple[str, str]]) -> tuple[OpRow, ...]:
    """Work by op, largest share of FLOPs or of memory traffic (or of measured time) first.

    Args:
        every: the blocks that run.
        names: the program's op names, each with what a compiled fusion of that name does.
    """
    found: dict[int, Counter[str]] = defaultdict(Counter)
    work: dict[int, Counter[tuple[int, int]]] = defaultdict(Counter)
    category: dict[int, str] = {}
    # Ops with other parameters are other entries of the table.
    first: dict[tuple[str, str], int] = {}
    entry = np.array([first.setdefault(name, number) for number, name in enumerate(names)] or [0])
    for block in every:
        graph = block.graph
        plain = is_plain(graph)
        op_of_node = entry[graph.op]
        _add_columns(found, op_of_node, plain, block)
        pairs = len(DTYPES) * len(Unit)
        op_of_item = np.repeat(op_of_node, np.diff(graph.work_ptr)).astype(np.int64)
        kind = graph.work_unit.astype(np.int64) * len(DTYPES) + graph.work_dtype
        key = op_of_item * pairs + kind
        for code, flops in exact_sums.sums(key, graph.work_flops).items():
            op, pair = divmod(code, pairs)
            work[op][divmod(pair, len(DTYPES))] += block.times * flops
        for op, role in np.unique(np.stack([op_of_node, graph.role])[:, plain], axis=1).T.tolist():
            # Some uses of an op may be views (a transpose of size-1 dims); the others decide its
            # category.
            if category.get(op, "free") == "free":
                category[op] = Role(role).category
    rows = [
        OpRow(
            op=names[op][0],
            category=category[op],
            count=row["nodes"],
            stablehlo_ops=row["ops"],
            work=_work_rows(work[op]),
            bytes_read=_stated(row, "bytes_read", unless="without_reads"),
            bytes_written=_stated(row, "bytes_written", unless="without_traffic"),
            measured=_measured(work[op]),
            work_stated=not row["without_work"],
            does=names[op][1],
        )
        for op, row in found.items()
    ]
    computed: float = sum(row.flops for row in rows) or 1
    moved: float = sum(row.traffic for row in rows) or 1
    spent = sum(row.measured or 0 for row in rows)

    def share(row: OpRow) -> float:
        if spent:
            return (row.measured or 0) / spent
        return max(row.flops / computed, row.traffic / moved)

    return tuple(sorted(rows, key=lambda row: (-share(row), row.op)))


def _measured(by_work: Counter[tuple[int, int]]) -> int | None:
    times = [time for (unit, _), time in by_work.items() if unit == Unit.MEASURED]
    return sum(times) if times else None


def total_work(rows: Iterable[OpRow]) -> tuple[WorkRow, ...]:
    """The work of all rows by unit and element type."""
    total: Counter[tuple[int, int]] = Counter()
    for row in rows:
        for item in row.work:
            total[Unit[item.unit.upper()], DTYPES.index(item.dtype)] += item.flops
    return _work_rows(total)


def _work_rows(by_work: Counter[tuple[int, int]]) -> tuple[WorkRow, ...]:
    return tuple(
        WorkRow(Unit(unit).name.lower(), DTYPES[dtype], flops)
        for (unit, dtype), flops in sorted(by_work.items(), key=lambda item: (item[0][0], -item[1]))
        if flops and unit < Unit.MEASURED
    )


def gemm_rows(every: list[ProgramBlock]) -> tuple[GemmRow, ...]:
    """Contractions by size and element type, most FLOPs first."""
    count: Counter[tuple[tuple[int, int, int, int], str]] = Counter()
    flops: Counter[tuple[tuple[int, int, int, int], str]] = Counter()
    for block in every:
        graph = block.graph
        chosen = graph.work_gemm >= 0
        key = graph.work_gemm[chosen] * len(DTYPES) + graph.work_dtype[chosen]
        flops_of = exact_sums.sums(key, graph.work_flops[chosen])
        # A kernel may have several products of one size (attention), or parts of one (a mask).
        one = np.array([min(2 * prod(dims), 2**62) or 1 for dims in graph.tables.gemms] or [1])
        products = np.maximum(graph.work_flops[chosen] // one[graph.work_gemm[chosen]], 1)
        for code, number in exact_sums.sums(key, products).items():
            gemm, dtype = divmod(code, len(DTYPES))
            size = (graph.tables.gemms[gemm], DTYPES[dtype])
            count[size] += block.times * number
            flops[size] += block.times * flops_of[code]
    rows = [GemmRow(*dims, dtype, count[dims, dtype], flops[dims, dtype]) for dims, dtype in count]
    return tuple(sorted(rows, key=lambda row: (-row.flops, row.batch, row.m, row.n, row.k)))


def phase_rows(every: list[ProgramBlock]) -> tuple[PhaseRow, ...]:
    """Work and communication by phase; empty if no node has a phase."""
    if not every:
        return ()
    table = every[0].graph.tables
    phase = np.array([source.phase for source in table.sources], np.int64)
    found: dict[int, Counter[str]] = defaultdict(Counter)
    for block in every:
        key = phase[block.graph.source]
        _add_columns(found, key, is_plain(block.graph), block)
        chosen = block.graph.kind == NodeKind.COMMUNICATION
        operands = np.array([item.bytes_in for item in table.communications] or [0], np.int64)
        sizes = operands[np.where(chosen, block.graph.detail, 0)]
        for code, number in exact_sums.counts(key[chosen]).items():
            found[code]["communications"] += block.times * number
        for code, size in exact_sums.sums(key[chosen], sizes[chosen]).items():
            found[code]["communication_bytes"] += block.times * size
    if set(found) <= {Phase.UNKNOWN}:
        return ()
    return tuple(
        PhaseRow(
            phase=Phase(code).name.lower(),
            nodes=row["nodes"],
            flops=_stated(row, "flops", unless="without_work"),
            bytes=_stated(row, "bytes_read", "bytes_written", unless="without_traffic"),
            communications=row["communications"],
            communication_bytes=row["communication_bytes"],
        )
        for code, row in sorted(found.items())
    )


def layer_rows(every: list[ProgramBlock]) -> tuple[LayerRow, ...]:
    """Work by layer path, most FLOPs first; empty if no node has a layer."""
    if not every:
        return ()
    names: dict[str, int] = {}
    sources = every[0].graph.tables.sources
    layer = np.array([names.setdefault(item.layer, len(names)) for item in sources], np.int64)
    if set(names) <= {""}:
        return ()
    found: dict[int, Counter[str]] = defaultdict(Counter)
    for block in every:
        _add_columns(found, layer[block.graph.source], is_plain(block.graph), block)
    known = list(names)
    rows = [
        LayerRow(
            layer=known[code],
            nodes=row["nodes"],
            flops=_stated(row, "flops", unless="without_work"),
            bytes=_stated(row, "bytes_read", "bytes_written", unless="without_traffic"),
        )
        for code, row in found.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.flops, -row.bytes, row.layer)))


def _stated(row: Counter[str], *names: str, unless: str) -> float:
    """The sum of some columns; unknown if they are unknown for a node of the row."""
    return UNKNOWN if row[unless] else sum(row[name] for name in names)


def _add_columns(
    found: dict[int, Counter[str]], key: Ints, chosen: NDArray[np.bool_], block: ProgramBlock
) -> None:
    """Add a block's chosen nodes to per-key sums of ``COLUMNS``."""
    graph = block.graph
    columns = (
        np.ones(len(graph), np.int64),
        graph.ops_merged,
        graph.flops_by_node(),
        graph.transcendentals_by_node(),
        graph.bytes_read,
        graph.bytes_written,
        unstated_work(graph).astype(np.int64),
        unstated_reads(graph).astype(np.int64),
        unstated_traffic(graph).astype(np.int64),
    )
    for name, column in zip(COLUMNS, columns, strict=True):
        for code, number in exact_sums.sums(key[chosen], column[chosen]).items():
            found[code][name] += block.times * number
