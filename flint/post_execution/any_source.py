"""The senders of messages that were received from any rank.

The idea: who receives from any rank does not record from which one; what the others sent there, and
nobody received by name, shows it.  A message that could be of several ranks stays a kernel, and so
does what was sent for it: sends and receipts of a pair would no longer be as many.

    name_senders(exchanges, {2: [Nameless(7, (220,), "f32", "the trace has no ...")]}, notes)
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flint.post_execution.exchanges import Exchange, Nameless

FROM_ANYBODY = (
    "messages received from any rank: their senders are inferred from what the other ranks sent"
)
TO_ANYBODY = (
    "communications that stay kernels with their time: messages that may have been received from "
    "any rank"
)


class _Place(NamedTuple):
    rank: int
    unit: int


def name_senders(
    exchanges: Mapping[int, list[Exchange | None]],
    nameless: Mapping[int, Sequence[Nameless]],
    notes: Mapping[int, dict[str, int]],
) -> None:
    """Add the receipts whose sender is the only one that fits.

    Args:
        exchanges: exchanges of each traced rank's units; changed in place.
        nameless: receipts of each of these ranks whose sender is unknown, in order.
        notes: notes about each rank; changed in place.
    """
    # (sender, receiver, bytes) -> how many were received, and the sends, in order.
    received: Counter[tuple[int, int, int]] = Counter()
    sent: dict[tuple[int, int, int], list[_Place]] = defaultdict(list)
    for rank, items in exchanges.items():
        for unit, item in enumerate(items):
            if item is not None and item.message:
                message = item.group[0], item.group[1], sum(item.parts)
                if item.kind == "send":
                    sent[message].append(_Place(rank, unit))
                else:
                    received[message] += 1
    left = {message: len(some) - received[message] for message, some in sent.items()}
    unsure: set[int] = set()
    for rank, receipts in nameless.items():
        for receipt in receipts:
            size = sum(receipt.parts)
            fitting = [one for one in exchanges if left.get((one, rank, size), 0) > 0]
            if len(fitting) != 1:
                unsure.add(rank)
                continue
            left[fitting[0], rank, size] -= 1
            pair = fitting[0], rank
            exchanges[rank][receipt.unit] = Exchange("recv", pair, receipt.parts, receipt.dtype)
            notes[rank][receipt.note] -= 1
            notes[rank][FROM_ANYBODY] = notes[rank].get(FROM_ANYBODY, 0) + 1
    for message, count in left.items():
        if count > 0 and message[1] in unsure:
            for rank, unit in sent[message][-count:]:
                exchanges[rank][unit] = None
                notes[rank][TO_ANYBODY] = notes[rank].get(TO_ANYBODY, 0) + 1
