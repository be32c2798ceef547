"""Narrowing: gathers of weights whose ranks send fewer bits per element.

The idea: libraries that multiply in 8 bits gather parameters in 8 bits too (``fp8_param_gather`` in
Megatron-Core, torchao's float8 all-gather), where a step that was captured in bf16 gathers 16.
Every all-gather of weights moves as many bytes less; what is computed with them stays, also the
kernels that prepare and read them.

    graph = narrow(graph, bits=8)
"""

from __future__ import annotations

from dataclasses import replace

from flint.graph.communication import Communication
from flint.graph.graph import WorkloadGraph, with_tables
from flint.graph.tensor_types import DTYPE_BITS
from flint.passes.columns import with_bodies
from flint.passes.what_if.gathers import weight_gathers


def narrow(graph: WorkloadGraph, *, bits: int) -> WorkloadGraph:
    """``graph`` whose gathers of weights in wider types send so many bits per element.

    Args:
        graph: at any granularity.
        bits: of an element; types that are not wider stay.
    """
    table = list(graph.tables.communications)
    graph = _narrowed(graph, bits, 0, table)
    return with_tables(graph, replace(graph.tables, communications=tuple(table)))


def _narrowed(
    graph: WorkloadGraph, bits: int, carried: int, table: list[Communication]
) -> WorkloadGraph:
    graph = with_bodies(
        graph, lambda body, loop: _narrowed(body, bits, loop.carried if loop else 0, table)
    )
    detail = graph.detail.copy()
    places: dict[int, int] = {}
    for node in weight_gathers(graph, carried):
        old = int(detail[node])
        if old not in places:
            item = _sent(table[old], bits)
            places[old] = old if item == table[old] else len(table)
            table += [item] if places[old] != old else []
        detail[node] = places[old]
    return replace(graph, detail=detail)


def _sent(item: Communication, bits: int) -> Communication:
    """A gather with fewer bits per element."""
    shares = [min(1.0, bits / DTYPE_BITS[dtype]) for dtype in item.dtypes]

    def sizes(whole: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(round(size * share) for size, share in zip(whole, shares, strict=True))

    return replace(
        item,
        operand_bytes=sizes(item.operand_bytes),
        result_bytes=sizes(item.result_bytes),
        largest_bytes=round(item.largest_bytes * max(shares)),
    )
