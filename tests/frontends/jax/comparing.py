"""A capture and a run on host devices, in the same form.

The profiler says which thunks ran and how often; kinds, groups and sizes come from the executable's
HLO.  Kinds, groups (of all ranks), calls and bytes must be the same on device 0.  The CPU backend
combines all-reduces, so of those only the bytes per group are compared, and it computes in float32
what is in bfloat16, the collectives included: twice the bytes.  It has no reduce-scatter, so
captures are made without.  XLA orders the program anew, so another order would say nothing; every
device's own collectives, and the dependencies among them, tests/validation/test_jax_runs compares.
"""

from __future__ import annotations

import collections
import math

import numpy as np
from jaxlib import _jax, xla_client

from flint.hlo.messages import parse_module


def executed_bytes(kind):
    """Bytes of a tensor when the CPU backend sends it."""
    return kind.bytes * (2 if kind.dtype == "bf16" else 1)


def captured_totals(workload):
    """(kind, groups) -> [calls, result bytes as the CPU backend sends them] of rank 0."""
    totals = collections.defaultdict(lambda: [0, 0])
    [program] = [program for program in workload.programs if 0 in program.ranks.array()]
    for graph, times in program.graph.walk():
        for node in graph:
            item = node.communication
            if item is None:
                continue
            if item.groups is not None:
                members = sorted(map(sorted, item.groups.table().tolist()))
            else:
                ranks = np.arange(workload.mesh.size)
                pairs = zip(ranks.tolist(), item.permutation.target.tolist(), strict=True)
                members = sorted([a, b] for a, b in pairs if b >= 0)
            key = item.kind.replace("_", "-"), str(members)
            totals[key][0] += times
            totals[key][1] += times * sum(map(executed_bytes, node.result_types))
    return dict(totals)


def assert_same_collectives(workload, run):
    """The captured collectives are those that ran.

    Args:
        workload: captured with ``reduce_scatter=False``: the CPU backend makes none.
        run: of ``HostRuns.collectives``.
    """
    ours = captured_totals(workload)
    theirs = {(kind, groups): [calls, size] for kind, groups, calls, size in run}
    assert ours.keys() == theirs.keys()
    for key, (calls, size) in ours.items():
        if key[0] == "all-reduce":
            assert size == theirs[key][1], key
        else:
            assert [calls, size] == theirs[key], key


def xlas_flops(program):
    """XLA's cost analysis of the partitioned module."""
    proto = parse_module(program.module[0]).SerializeToString()
    module = xla_client.XlaComputation(proto).get_hlo_module()
    return _jax.hlo_module_cost_analysis(xla_client.make_cpu_client(), module)["flops"]


def flops_by_xlas_rules(program):
    """Ours as XLA counts: one FLOP per element that an all-reduce combines, and a loop's body and
    condition once; a scan's condition is one comparison."""
    graphs = [graph for graph, _ in program.graph.walk()]
    combined = sum(
        math.prod(kind.shape)
        for graph in graphs
        for node in graph
        if node.communication and node.communication.kind == "all_reduce"
        for kind in node.result_types
    )
    conditions = sum(len(graph.loops) for graph in graphs)
    return sum(int(graph.flops_by_node().sum()) for graph in graphs) + combined + conditions
