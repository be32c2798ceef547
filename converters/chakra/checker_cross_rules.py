"""Rules about all ranks' communications together, in the order in which they build on each other.

The idea: first that partners exist (`PARTNER_RULES`), then that their order cannot hang
(`ORDER_RULES`).  The second question only makes sense once the first is answered, so a set that
breaks a partner rule gets its order rules reported as not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from flint.converters.chakra.checker_findings import Hits, Severity, one_node
from flint.converters.chakra.checker_graph import describe_cycle, union_graph
from flint.converters.chakra.checker_matching import (
    Matching,
    group_sequence,
    p2p_match,
    p2p_order,
)
from flint.converters.chakra.checker_slot import (
    Holds,
    broken_chains,
    dangerous_holds,
    find_cycle,
    issue_graph,
    refuse_unordered,
    too_many,
    word_hold,
)
from flint.converters.chakra.checker_view import Facts

CrossRule = Callable[[Facts, Matching], Iterator[Hits]]


def group_chain(facts: Facts, matching: Matching) -> Iterator[Hits]:
    """A group's collectives are one dependency chain on each member.

    Otherwise two of them may start in different order on two members, which pairs them wrongly
    or hangs; equal ids and equal sequences do not help.
    """
    for view in facts.views:
        if not len(view.order.gaps):
            continue
        for first, second in broken_chains(view, Holds(view)):
            yield one_node(
                view.index,
                second,
                int(view.ranks[0]),
                f"this collective and node {view.trace.id[first]} of the same group are not "
                "ordered by data_deps, so ranks may start them in different order, which pairs "
                "them wrongly or hangs, whatever their ids; chain a group's collectives on all "
                "ranks",
            )


def cross_rank_cycle(facts: Facts, matching: Matching) -> Iterator[Hits]:
    """Dependencies, messages and collectives of all ranks together form no cycle."""
    undecided = [view for view in facts.views if not view.order.decided]
    if not undecided:
        cycle = union_graph(facts, matching).cycle
    elif too_many(facts, {view.index: Holds(view) for view in undecided}):
        return  # slot-order refuses the set
    else:
        cycle = find_cycle(issue_graph(facts, matching))
    if cycle:
        yield describe_cycle(facts, cycle)


def slot_order(facts: Facts, matching: Matching) -> Iterator[Hits]:
    """A rank's COLLs and SENDs share one slot: what is unordered must not be able to hang."""
    undecided = [view for view in facts.views if not view.order.decided]
    if not undecided:
        return
    holds = {view.index: Holds(view) for view in undecided}
    if too_many(facts, holds):
        for view in undecided:
            yield from refuse_unordered(view)
        return
    graph = issue_graph(facts, matching)
    if find_cycle(graph):
        return  # cross-rank-cycle reports it
    for holder, held in dangerous_holds(facts, graph, holds):
        yield word_hold(facts, graph, holder, held)


PARTNER_RULES: Final[Mapping[str, tuple[Severity, CrossRule]]] = {
    "group-sequence": (Severity.ERROR, group_sequence),
    "p2p-match": (Severity.ERROR, p2p_match),
}

ORDER_RULES: Final[Mapping[str, tuple[Severity, CrossRule]]] = {
    "p2p-order": (Severity.ERROR, p2p_order),
    "group-chain": (Severity.ERROR, group_chain),
    "cross-rank-cycle": (Severity.ERROR, cross_rank_cycle),
    "slot-order": (Severity.ERROR, slot_order),
}
