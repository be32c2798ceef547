"""A rank's part of a manual computation's inputs and outputs: its shards.

The idea: a module whose work is in ``sdy.manual_computation`` (JAX's ``shard_map``) has global
tensors as parameters and results, and shards inside.  The walk puts a free node, a view, between
the two.  If only such views use a parameter, the rank has only the shard; the same applies to a
result of the module that is such a view.

    main(%x: tensor<64x128xf32>)  ->  manual_computation(%shard: tensor<64x32xf32>)   # 8 KiB
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flint.graph.graph import WorkloadGraph
from flint.graph.work import Role
from flint.stablehlo.read.annotations import MANUAL


def with_shards_at_ends(graph: WorkloadGraph) -> tuple[WorkloadGraph, bool]:
    """``graph`` with the types of shards for its inputs and outputs, and whether they are all.

    Returns:
        The graph, and False where ops outside of the manual computations still work on global
        tensors: such a program is not yet partitioned.
    """
    if MANUAL not in graph.tables.ops:
        return graph, True
    named = graph.op == graph.tables.ops.index(MANUAL)
    views = np.flatnonzero(named & (graph.role == Role.ALIAS) & (np.diff(graph.operand_ptr) == 1))
    inside = graph.operand[graph.operand_ptr[views]]
    outside = graph.inputs + graph.result_ptr[views]
    is_view = np.zeros(len(graph) + 1, bool)
    is_view[views] = True

    # Parameters: every use is a view, all of them of one type.
    input_type = graph.input_type.copy()
    used_plainly = np.zeros(graph.values, bool)
    used_plainly[graph.operand[~is_view[graph.consumer]]] = True
    used_plainly[graph.outputs] = True
    shard: dict[int, set[int]] = {}
    for value, view in zip(inside.tolist(), outside.tolist(), strict=True):
        if value < graph.inputs:
            shard.setdefault(value, set()).add(int(graph.value_type[view]))
    for value, types in shard.items():
        if len(types) == 1 and not used_plainly[value]:
            input_type[value] = types.pop()

    # Results: what the computation returns, without the view.
    within = dict(zip(outside.tolist(), inside.tolist(), strict=True))
    outputs = np.array([within.get(value, value) for value in graph.outputs.tolist()], np.int64)
    ended = replace(graph, input_type=input_type, outputs=outputs)
    used = np.zeros(graph.values, bool)
    used[graph.operand] = used[outputs] = True
    widened = ended.value_type[inside] != ended.value_type[outside]
    return ended, not bool((widened & used[outside]).any())
