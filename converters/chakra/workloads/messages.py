"""Which messages need a channel: those that source and target order differently.

The idea: consumers match messages by tag and size, graphs by order.  Where both ranks name the same
tags and sizes in the same order, order is enough.

    channels_of({0: [((0, 1), 7, 64)]}, {1: [((0, 1), 7, 64)]})     # {}
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

#: Source, target, tag, bytes.
Message = tuple[int, int, int, int]


def channels_of(
    sent: Iterable[Message], received: Iterable[Message], ranks: Iterable[int]
) -> dict[Message, int]:
    """A channel for each message of the pairs of ranks that order theirs differently.

    Args:
        sent, received: the messages of all ranks; those of each rank in its order.
        ranks: the ranks whose messages these are; others may order them in any way.
    """
    known = set(ranks)
    by_pair: tuple[dict[tuple[int, int], list[Message]], ...] = (
        defaultdict(list), defaultdict(list),
    )  # fmt: skip
    for ends, messages in zip(by_pair, (sent, received), strict=True):
        for message in messages:
            ends[message[:2]].append(message)
    found: dict[Message, int] = {}
    for pair, messages in by_pair[0].items():
        if known.issuperset(pair) and by_pair[1][pair] != messages:
            for message in messages + by_pair[1][pair]:
                found.setdefault(message, len(found) + 1)
    return found
