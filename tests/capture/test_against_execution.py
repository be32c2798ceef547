"""Captured collectives against those that the same step executes on host devices.

The profiler says which thunks ran and how often; kinds, groups and sizes come from the executable's
HLO.  The CPU backend combines all-reduces, so of those only the bytes are compared, and it reduces
bfloat16 in float32, twice the bytes.
"""

from __future__ import annotations

import collections
import math

import numpy as np
import pytest
from jaxlib import _jax, xla_client

from flint.hlo.messages import parse_module

STEPS = ("mlp", "scan", "unrolled", "ring", "four", "explicit", "bf16")
WIDENED = {"bf16"}


def captured_totals(workload):
    """(kind, groups) -> [calls, result bytes] of rank 0."""
    totals = collections.defaultdict(lambda: [0, 0])
    [program] = workload.programs
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
            totals[key][1] += times * item.bytes_out
    return dict(totals)


@pytest.mark.parametrize("name", STEPS)
def test_collectives_are_those_that_run(name, captured, executed):
    ours = captured_totals(captured(name, reduce_scatter=False))
    theirs = {(kind, groups): [calls, size] for kind, groups, calls, size in executed[name]}
    assert ours.keys() == theirs.keys()
    for key, (calls, size) in ours.items():
        if key[0] == "all-reduce":
            assert size * (2 if name in WIDENED else 1) == theirs[key][1], key
        else:
            assert [calls, size] == theirs[key], key


@pytest.mark.parametrize("name", STEPS)
def test_flops_are_xlas_of_the_partitioned_module(name, captured):
    """XLA counts one FLOP per element that an all-reduce combines, and a loop's body and condition
    once; a scan's condition is one comparison."""
    [program] = captured(name, reduce_scatter=False).programs
    proto = parse_module(program.module[0]).SerializeToString()
    module = xla_client.XlaComputation(proto).get_hlo_module()
    client = xla_client.make_cpu_client()
    theirs = _jax.hlo_module_cost_analysis(client, module)["flops"]
    graphs = [graph for graph, _ in program.graph.walk()]
    ours = sum(int(graph.flops_by_node().sum()) for graph in graphs)
    combined = sum(
        math.prod(kind.shape)
        for graph in graphs
        for node in graph
        if node.communication and node.communication.kind == "all_reduce"
        for kind in node.result_types
    )
    conditions = sum(len(graph.loops) for graph in graphs)
    assert ours + combined + conditions == theirs
