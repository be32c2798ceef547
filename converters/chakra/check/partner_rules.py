"""Rules about partners: every collective has its members, every SEND its RECV.

The idea: the rules about order (`order_rules`) need matched communications, so if a set breaks one
of these rules, those are reported as not checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.converters.chakra.check.findings import (
    ERROR,
    FINDINGS_PER_RULE,
    Hits,
    Round,
    one_node,
)
from flint.converters.chakra.check.matching import Endpoints, Matching, Part, sequence_numbers
from flint.converters.chakra.check.trace_views import Communicator, Facts, View
from flint.converters.chakra.schema import CollectiveKind

PARTNER_RULES: Final = Round[[Facts, Matching]]()


@PARTNER_RULES.rule("group-sequence", ERROR, blocks=True)
def group_sequence(facts: Facts, matching: Matching) -> Iterator[Hits]:
    """All members of a group run the same collectives, (kind, size) for (kind, size), in order."""
    for communicator, parts in matching.parts.items():
        values = [_sequence(facts.views[part.view], part).tobytes() for part in parts]
        ranks, groups, number = sequence_numbers(facts, communicator, parts, values)
        by_group = np.lexsort((ranks, groups))
        ranks, groups, number = ranks[by_group], groups[by_group], number[by_group]
        first = np.searchsorted(groups, groups)
        different = np.flatnonzero(number != number[first])
        part_of = {rank: part for part in parts for rank in facts.views[part.view].ranks.tolist()}
        for place in different.tolist():
            rank, other = int(ranks[place]), int(ranks[first[place]])
            yield _first_difference(facts, rank, other, part_of[rank], part_of[other])
        starts = np.flatnonzero(first == np.arange(len(first)))
        counts = np.diff(np.append(starts, len(first)))
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
            if count != facts.group_size(communicator):
                present = ranks[start : start + count]
                yield _absent_members(facts, communicator, present, part_of)


def _sequence(view: View, part: Part) -> NDArray[np.int64]:
    return np.stack([view.trace.comm_type[part.rows], view.trace.comm_size[part.rows]])


def _first_difference(facts: Facts, rank: int, other: int, part: Part, other_part: Part) -> Hits:
    other_view = facts.views[other_part.view]
    sequence = _sequence(facts.views[part.view], part)
    other_sequence = _sequence(other_view, other_part)
    both = min(sequence.shape[1], other_sequence.shape[1])
    differing = np.flatnonzero(np.any(sequence[:, :both] != other_sequence[:, :both], axis=0))
    if not len(differing):
        text = (
            f"rank {rank} has {sequence.shape[1]} collectives of this group, rank {other} "
            f"{other_sequence.shape[1]}: the surplus waits forever"
        )
        row = part.rows[min(both, sequence.shape[1] - 1)]
    else:
        at = int(differing[0])
        row = part.rows[at]
        text = (
            f"collective {at} of its group is {_name(sequence[:, at])} on rank {rank}, but "
            f"{_name(other_sequence[:, at])} on rank {other} "
            f"(node {other_view.trace.id[other_part.rows[at]]}): "
            "its members wait forever or exchange the wrong data"
        )
    return one_node(
        part.view, int(row), rank, f"{text}; give all members the same kinds and sizes in one order"
    )


def _name(kind_and_size: NDArray[np.int64]) -> str:
    kind, size = kind_and_size.tolist()
    names = {int(item): item.name for item in CollectiveKind}
    return f"{names.get(kind, kind)} of {size} bytes"


def _absent_members(
    facts: Facts, communicator: Communicator, present: NDArray[np.int64], part_of: dict[int, Part]
) -> Hits:
    rank = int(present[0])
    absent = np.setdiff1d(facts.members(communicator, rank), present)
    shown = ", ".join(str(member) for member in absent[:4].tolist())
    shown += ", ..." if len(absent) > 4 else ""
    part = part_of[rank]
    return one_node(
        part.view,
        int(part.rows[0]),
        rank,
        f"its group has {len(present) + len(absent)} ranks, but {len(absent)} of them ({shown}) "
        "have no collective of it: the others wait forever; add it there or correct the group",
    )


@PARTNER_RULES.rule("p2p-match", ERROR, blocks=True)
def p2p_match(facts: Facts, matching: Matching) -> Iterator[Hits]:
    """Every SEND has a RECV with the same (tag, src, dst, size) and the other way round."""
    sends, recvs = matching.sends, matching.recvs
    if matching.p2p_matched:
        return
    spare_sends, spare_recvs = _spare(sends, recvs), _spare(recvs, sends)
    for ours, spare, theirs, their_spare, verb in (
        (recvs, spare_recvs, sends, spare_sends, "is never sent, and waits forever"),
        (sends, spare_sends, recvs, spare_recvs, "is never received"),
    ):
        near = {tuple(theirs.key[:3, at].tolist()): at for at in their_spare[::-1].tolist()}
        for count, at in enumerate(spare.tolist()):
            src, dst, tag, size = ours.key[:, at].tolist()
            other = near.get((src, dst, tag)) if count < FINDINGS_PER_RULE else None
            hint = "add its counterpart"
            if other is not None:
                node = facts.views[theirs.view[other]].trace.id[theirs.row[other]]
                hint = f"its counterpart (node {node} there) has {theirs.key[3, other]} bytes"
            text = f"message {src} -> {dst}, tag {tag}, {size} bytes {verb}: {hint}"
            yield one_node(int(ours.view[at]), int(ours.row[at]), int(ours.rank[at]), text)


def _spare(ours: Endpoints, theirs: Endpoints) -> NDArray[np.int64]:
    """Indices into `ours` without a counterpart: for each key, those above their number."""
    count = ours.key.shape[1]
    both = np.concatenate([ours.key, theirs.key], axis=1)
    _, key = np.unique(both, axis=1, return_inverse=True)
    key = key.reshape(-1)
    available = np.bincount(key[count:], minlength=int(key.max(initial=-1)) + 1)
    own = key[:count]
    first = np.searchsorted(own, own)
    nth = np.arange(count) - first
    return np.flatnonzero(nth >= available[own])
