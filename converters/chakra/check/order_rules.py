"""Rules about order: no execution can hang or pair the wrong communications.

The idea: all communications have their partners here (`partner_rules`), so it remains to show that
every order of events that a consumer may choose completes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from flint.converters.chakra.check.findings import ERROR, Hits, Round, one_node
from flint.converters.chakra.check.graph import (
    certain_graph,
    describe_cycle,
    union_graph,
    whole_graph,
)
from flint.converters.chakra.check.matching import Matching
from flint.converters.chakra.check.order import unordered_pairs
from flint.converters.chakra.check.order_elsewhere import Elsewhere
from flint.converters.chakra.check.trace_views import Facts
from flint.converters.chakra.check.unordered_holds import (
    Undecided,
    dangerous_holds,
    refuse_unordered,
    word_hold,
)

ORDER_RULES: Final = Round[[Facts, Matching, Undecided]]()


@ORDER_RULES.rule("p2p-order", ERROR)
def p2p_order(facts: Facts, matching: Matching, loose: Undecided) -> Iterator[Hits]:
    """SENDs (and RECVs) of one (tag, src, dst, size) are ordered by data_deps on their rank.

    Or other ranks order them.  Otherwise the order depends on durations, first in first out pairs
    the wrong ones, and what waits for the right one may wait for something that waits for it.
    """
    elsewhere = Elsewhere(facts, matching)
    for ends, kind in ((matching.sends, "SEND"), (matching.recvs, "RECV")):
        same = np.flatnonzero(np.all(ends.key[:, 1:] == ends.key[:, :-1], axis=0))
        pairs = np.stack([ends.view[same], ends.row[same], ends.row[same + 1]])
        pairs, first = np.unique(pairs, axis=1, return_index=True)
        for index in np.unique(pairs[0]).tolist():
            view = facts.views[index]
            here = pairs[0] == index
            rows = zip(*pairs[1:, here].tolist(), strict=True)
            where = dict(zip(rows, same[first[here]].tolist(), strict=True))
            unordered, _ = unordered_pairs(view.order, where)
            for _, a, b in elsewhere.unordered(view, unordered):
                src, dst, tag, size = ends.key[:, where[a, b]].tolist()
                text = (
                    f"two {kind}s of {src} -> {dst}, tag {tag}, {size} bytes (this and node "
                    f"{view.trace.id[a]}) are not ordered by data_deps, so they may pair wrongly; "
                    "give them different tags or a dependency"
                )
                yield one_node(index, b, int(ends.rank[where[a, b]]), text)


@ORDER_RULES.rule("group-chain", ERROR)
def group_chain(facts: Facts, matching: Matching, loose: Undecided) -> Iterator[Hits]:
    """A group's collectives are one dependency chain on each member, or other ranks make it one.

    Otherwise two of them may start in different order on two members, which pairs them wrongly
    or hangs; equal ids and equal sequences do not help.
    """
    elsewhere = Elsewhere(facts, matching)
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
        unordered = unordered_pairs(view.order, links)[0]
        for rank, first, second in elsewhere.unordered(view, unordered):
            yield one_node(
                view.index,
                second,
                rank,
                f"this collective and node {view.trace.id[first]} of the same group are not "
                "ordered by data_deps, so ranks may start them in different order, which pairs "
                "them wrongly or hangs, whatever their ids; chain a group's collectives on all "
                "ranks",
            )


@ORDER_RULES.rule("cross-rank-cycle", ERROR)
def cross_rank_cycle(facts: Facts, matching: Matching, loose: Undecided) -> Iterator[Hits]:
    """Dependencies, messages and collectives of all ranks together form no cycle."""
    if loose.too_many:
        return  # slot-order refuses the set
    if loose.views:
        cycle = whole_graph(facts, matching).cycle()
    else:
        cycle = union_graph(facts, matching).cycle
    if cycle:
        yield describe_cycle(facts, cycle)


@ORDER_RULES.rule("slot-order", ERROR)
def slot_order(facts: Facts, matching: Matching, loose: Undecided) -> Iterator[Hits]:
    """A rank's COLLs and SENDs share one slot: what is unordered must not be able to hang."""
    if loose.too_many:
        for view in loose.views:
            yield from refuse_unordered(view)
    elif loose.views:
        graph = whole_graph(facts, matching)
        if not graph.cycle():  # which cross-rank-cycle reports
            certain = certain_graph(facts, matching)
            for holder, held in dangerous_holds(facts, graph, certain, loose.holds):
                yield word_hold(facts, graph, holder, held)
