"""Issue order by keys: the next item is the ready one with the lowest key.

>>> ready_order([5, 1, 3], np.array([0]), np.array([1]))
[2, 0, 1]
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from flint.mesh.ragged import Ints


def ready_order(keys: Sequence[float], before: Ints, after: Ints) -> list[int]:
    """Items in the order of their keys, then of their numbers, as far as the edges allow.

    Args:
        keys: the key of each item.
        before, after: items at the ends of each edge, shape [edges].

    Returns:
        The items, except those on a cycle and those that wait for one.
    """
    count = len(keys)
    by_start = np.argsort(before, kind="stable")
    first = np.searchsorted(before[by_start], np.arange(count + 1)).tolist()
    later = after[by_start].tolist()
    missing = np.bincount(after, minlength=count).tolist()
    ready = [(keys[item], item) for item in range(count) if not missing[item]]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, item = heapq.heappop(ready)
        order.append(item)
        for other in later[first[item] : first[item + 1]]:
            missing[other] -= 1
            if not missing[other]:
                heapq.heappush(ready, (keys[other], other))
    return order
