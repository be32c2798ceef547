"""The union graph three ways: by levels, by search on skeletons, and in full."""

from __future__ import annotations

import numpy as np

from flint.converters.chakra.check.graph import (
    _collectives_level,
    _messages_rise,
    _skeletons,
    skeleton_graph,
    whole_graph,
)
from flint.converters.chakra.check.matching import match
from flint.converters.chakra.check.partner_rules import group_sequence
from flint.converters.chakra.check.trace_views import Facts
from tests.converters.chakra.check.test_checker_against_consumer import random_set
from tests.converters.chakra.check.traces import coll, comp, in_memory, recv, send
from tests.support.shared import examples


def test_three_ways_agree_on_random_sets():
    generator = np.random.default_rng(5)
    decided = cyclic = by_levels = 0
    for number in range(examples(900)):
        traces = random_set(generator, thorough=1.0, orderly=0.5 if number % 2 else 1.0)
        facts = Facts(traces)
        matching = match(facts)
        undecided = not all(view.order.decided for view in facts.views)
        if undecided or not matching.p2p_matched or any(group_sequence(facts, matching)):
            continue
        decided += 1
        bones = _skeletons(facts)
        cycle = skeleton_graph(facts, matching, bones).cycle()
        assert bool(cycle) == bool(whole_graph(facts, matching).cycle())
        if _collectives_level(facts, matching, bones) and _messages_rise(matching, bones):
            assert not cycle
            by_levels += 1
        cyclic += bool(cycle)
    assert decided > 30 and cyclic > 3 and by_levels > 3


def test_cycle_names_the_nodes_on_it():
    """COLL 7 of rank 0 needs RECV 5, its SEND on rank 1 comes after the COLL."""
    ranks = [
        [comp(0), recv(5, 1, [0]), comp(6, [5]), coll(7, [6])],
        [comp(0), coll(7, [0]), send(8, 0, [7])],
    ]
    facts = Facts(in_memory(ranks))
    matching = match(facts)
    cycle = skeleton_graph(facts, matching, _skeletons(facts)).cycle()
    nodes = {(rank, int(facts.views[rank].trace.id[row])) for rank, row in cycle}
    assert nodes == {(0, 5), (0, 7), (1, 7), (1, 8)}
