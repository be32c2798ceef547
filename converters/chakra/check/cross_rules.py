"""Rules about all ranks' communications together, in the order in which they build on each other.

The idea: first that partners exist (`PARTNER_RULES`), then that their order cannot hang
(`ORDER_RULES`).  The second question only makes sense once the first is answered, so a set that
breaks a partner rule gets its order rules reported as not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from flint.converters.chakra.check.findings import Hits, Severity, one_node
from flint.converters.chakra.check.graph import describe_cycle, union_graph
from flint.converters.chakra.check.matching import Matching, group_sequence, p2p_match, p2p_order
from flint.converters.chakra.check.order import unordered_pairs
from flint.converters.chakra.check.trace_views import Facts
from flint.converters.chakra.check.unordered_holds import (
    Undecided,
    dangerous_holds,
    find_cycle,
    issue_graph,
    refuse_unordered,
    word_hold,
)

PartnerRule = Callable[[Facts, Matching], Iterator[Hits]]
OrderRule = Callable[[Facts, Matching, Undecided], Iterator[Hits]]


def message_order(facts: Facts, matching: Matching, loose: Undecided) -> Iterator[Hits]:
    """SENDs (and RECVs) of one (tag, src, dst, size) are ordered by data_deps on their rank."""
    yield from p2p_order(facts, matching)


def group_chain(facts: Facts, matching: Matching, loose: Undecided) -> Iterator[Hits]:
    """A group's collectives are one dependency chain on each member.

    Otherwise two of them may start in different order on two members, which pairs them wrongly
    or hangs; equal ids and equal sequences do not help.
    """
    for view in loose.views:
        if not len(view.order.gaps):
            continue
        _, of_row = view.communicators
        links: list[tuple[int, int]] = []
        last: dict[int, int] = {}
        for row in view.order.colls.tolist():
            communicator = int(of_row[row])
            if communicator in last:
                links.append((last[communicator], row))
            last[communicator] = row
        for first, second in unordered_pairs(view.order, links)[0]:
            yield one_node(
                view.index,
                second,
                int(view.ranks[0]),
                f"this collective and node {view.trace.id[first]} of the same group are not "
                "ordered by data_deps, so ranks may start them in different order, which pairs "
                "them wrongly or hangs, whatever their ids; chain a group's collectives on all "
                "ranks",
            )


def cross_rank_cycle(facts: Facts, matching: Matching, loose: Undecided) -> Iterator[Hits]:
    """Dependencies, messages and collectives of all ranks together form no cycle."""
    if loose.too_many:
        return  # slot-order refuses the set
    if loose.views:
        cycle = find_cycle(issue_graph(facts, matching))
    else:
        cycle = union_graph(facts, matching).cycle
    if cycle:
        yield describe_cycle(facts, cycle)


def slot_order(facts: Facts, matching: Matching, loose: Undecided) -> Iterator[Hits]:
    """A rank's COLLs and SENDs share one slot: what is unordered must not be able to hang."""
    if loose.too_many:
        for view in loose.views:
            yield from refuse_unordered(view)
    elif loose.views:
        graph = issue_graph(facts, matching)
        if not find_cycle(graph):  # which cross-rank-cycle reports
            for holder, held in dangerous_holds(facts, graph, loose.holds):
                yield word_hold(facts, graph, holder, held)


PARTNER_RULES: Final[Mapping[str, tuple[Severity, PartnerRule]]] = {
    "group-sequence": (Severity.ERROR, group_sequence),
    "p2p-match": (Severity.ERROR, p2p_match),
}

ORDER_RULES: Final[Mapping[str, tuple[Severity, OrderRule]]] = {
    "p2p-order": (Severity.ERROR, message_order),
    "group-chain": (Severity.ERROR, group_chain),
    "cross-rank-cycle": (Severity.ERROR, cross_rank_cycle),
    "slot-order": (Severity.ERROR, slot_order),
}
