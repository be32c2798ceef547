"""What the host does to data before it copies them to the device, and to those it got from it.

The idea: a capture has the copy, and nothing of what the host did before it.  On a CPU the copy is
none, and what the host did is in the profile like all else.  Such an op stands between two ops that
ran as captured, and so does the copy.  What the host does to data of the device, such as an update
of offloaded weights, is on tensors of the sizes that the capture has copied to the host before.

    copied(matching)
    ...
    prepared(matching)      # last: what has a partner or another reason is no work of the host
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from flint.graph.transfers import DEVICE_WAY, HOST_WAY
from flint.observed.columns import OpFacts
from flint.validation.matching.pairing import Matching
from flint.validation.rewrites.cpu_substitutes import Shape, shapes_of, unmatched_light

#: Copies that are none on a CPU; ``copy_`` writes into another tensor there, too.
_COPIES = {f"aten._to_copy.{way}" for way in (DEVICE_WAY, HOST_WAY)}

COPIED = "a copy between the host and the device, which are one in a run on a CPU"
RETURNED = (
    "ops on tensors of the sizes that were copied to the host before: the host's, as far as a "
    "profile of a CPU shows; a capture has none of the host's"
)
PREPARED = (
    "ops before data that the host copies to the device: the host's, as far as a profile of a CPU "
    "shows; a capture has none of the host's"
)


def copied(matching: Matching) -> None:
    """Explain copies between host and device, before others of their sizes find partners.

    One that changes the type is a copy on the CPU, too.
    """
    none = [
        i
        for i in matching.unmatched_captured
        if matching.captured[i].name in _COPIES and _keeps_type(matching, i)
    ]
    matching.explain(COPIED, none, [])


def prepared(matching: Matching) -> None:
    """Explain light ops in front of copies to the device, or on what was copied to the host."""
    copies = [
        i for i, facts in enumerate(matching.captured) if facts.name.endswith(f".{DEVICE_WAY}")
    ]
    given = _on_host(matching.captured)
    anchors = _in_order(sorted((j, i) for i, j, _ in matching.pairs))
    ran = [j for j, _ in anchors]
    before = [-1, *(i for _, i in anchors)]
    after = [*(i for _, i in anchors), len(matching.captured)]
    found, returned = [], []
    for j in unmatched_light(matching)[1] if copies or given else ():
        gap = bisect_left(ran, j)
        first = bisect_left(copies, before[gap] + 1)
        if first < len(copies) and copies[first] <= after[gap]:
            found.append(j)
            continue
        shapes = shapes_of(matching.executed[j])
        if shapes and all(given.get(shape, after[gap]) < after[gap] for shape in shapes):
            returned.append(j)
    matching.explain(PREPARED, [], found)
    matching.explain(RETURNED, [], returned)


def _on_host(captured: Sequence[OpFacts]) -> dict[Shape, int]:
    """The shapes of what is copied to the host, and the first copy of each."""
    found: dict[Shape, int] = {}
    for i, facts in enumerate(captured):
        if facts.name.endswith(f".{HOST_WAY}"):
            for shape in shapes_of(facts):
                found.setdefault(shape, i)
    return found


def _in_order(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The pairs that are behind all those before them on both sides, and before all others."""
    numbers = [i for _, i in pairs]
    highest = [-1, *accumulate(numbers, max)]
    lowest = [*accumulate(reversed(numbers), min)][::-1]
    return [
        pair for at, pair in enumerate(pairs) if highest[at] < pair[1] and lowest[at] == pair[1]
    ]


def _keeps_type(matching: Matching, captured: int) -> bool:
    results = matching.result_types(captured)
    dtypes = {dtype for _, dtype in matching.captured[captured].operands or ()}
    return results is None or {kind.dtype for kind in results} <= dtypes
