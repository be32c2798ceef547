"""The checker's work: counted in steps, against the number of ranks."""

from __future__ import annotations

import os

import pytest

from flint.converters.chakra.check.checker import check_traces
from flint.converters.chakra.check.graph import union_graph
from flint.converters.chakra.check.matching import match
from flint.converters.chakra.check.trace_views import Facts
from flint.converters.chakra.read.reader import TraceReader
from flint.converters.chakra.read.trace_set import TraceSet, load_trace_set
from tests.converters.chakra.check.traces import coll, comp, encode, in_memory, recv, send, write


def spmd(steps: int) -> list:
    nodes = []
    for step in range(steps):
        at = 2 * step
        nodes += [comp(at, [at - 1] if step else []), coll(at + 1, [at])]
    return nodes


def pipeline(stages: int, steps: int) -> TraceSet:
    ranks = []
    for stage in range(stages):
        nodes, last = [], []
        for step in range(steps):
            at = 3 * step
            deps = list(last)
            if stage:
                nodes.append(recv(at, stage - 1, tag=step))
                deps.append(at)
            nodes.append(comp(at + 1, deps))
            last = [at + 1]
            if stage < stages - 1:
                nodes.append(send(at + 2, stage + 1, [at + 1], tag=step))
                last = [at + 2]
        ranks.append(nodes)
    return in_memory(ranks)


def work(traces: TraceSet) -> int:
    facts = Facts(traces)
    matching = match(facts)
    result = union_graph(facts, matching)
    assert not result.cycle
    orders = {id(view.order): view.order.work for view in facts.views}
    return result.work + sum(orders.values())


def test_identical_ranks_cost_one_rank_and_a_little():
    nodes = spmd(200)
    few, many = work(in_memory([nodes] * 8)), work(in_memory([nodes] * 4096))
    assert many - few <= 2 * 4096


def test_identical_files_are_decoded_once(tmp_path):
    folder = write(tmp_path / "w", [spmd(3)])
    for rank in range(1, 64):
        os.link(folder / "et" / "trace.0.et", folder / "et" / f"trace.{rank}.et")
    (folder / "et" / "trace.64.et").write_bytes(encode(spmd(3)))
    reader = TraceReader()
    traces = load_trace_set(folder, reader=reader)
    assert reader.files_decoded == 1 and len(traces.traces) == 1 and traces.size == 65
    assert check_traces(traces).ok


@pytest.mark.parametrize("stages", [8, 16, 32])
def test_pipeline_work_is_linear_in_ranks(stages):
    once, twice = work(pipeline(stages, 20)), work(pipeline(2 * stages, 20))
    assert twice <= 2.2 * once


def test_pipeline_work_is_linear_in_nodes():
    once, twice = work(pipeline(8, 50)), work(pipeline(8, 100))
    assert twice <= 2.1 * once


def test_ranks_that_differ_in_a_group_name_share_their_structure():
    ranks = [[comp(0), coll(1, [0], pg_name=str(1 + rank // 2))] for rank in range(8)]
    traces = in_memory(ranks, groups={1 + pair: [2 * pair, 2 * pair + 1] for pair in range(4)})
    assert len(traces.traces) == 4 and check_traces(traces).ok
