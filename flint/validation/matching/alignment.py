"""Longest common subsequence of two sequences of numbers.

The idea: after E. Myers, "An O(ND) Difference Algorithm and Its Variations" (1986): the work grows
with the differences, not with the product of the lengths, so that one extra op among a million
costs nothing and makes no later op a mismatch.

    aligned(np.array([1, 2, 3]), np.array([1, 9, 2, 3]))       # [(0, 0), (1, 2), (2, 3)]
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

#: With more differences, two sequences are not the same with a few changes.
MAX_DIFFERENCES = 3000


def aligned(a: NDArray[np.int64], b: NDArray[np.int64]) -> list[tuple[int, int]] | None:
    """Pairs of positions of equal numbers, ascending in both; None beyond ``MAX_DIFFERENCES``."""
    shorter = min(len(a), len(b))
    same = a[:shorter] == b[:shorter]
    head = shorter if same.all() else int(np.argmin(same))
    rest = shorter - head
    same = a[::-1][:rest] == b[::-1][:rest]
    tail = rest if same.all() else int(np.argmin(same))
    middle = _myers(a[head : len(a) - tail].tolist(), b[head : len(b) - tail].tolist())
    if middle is None:
        return None
    pairs = [(i, i) for i in range(head)]
    pairs += [(head + i, head + j) for i, j in middle]
    pairs += [(len(a) - i, len(b) - i) for i in range(tail, 0, -1)]
    return pairs


def _myers(a: list[int], b: list[int]) -> list[tuple[int, int]] | None:
    rows, columns = len(a), len(b)
    if not rows or not columns:
        return []
    furthest = {1: 0}
    history: list[dict[int, int]] = []
    for difference in range(min(rows + columns, MAX_DIFFERENCES) + 1):
        history.append(dict(furthest))
        for k in range(-difference, difference + 1, 2):
            down = k == -difference or (
                k != difference and furthest.get(k - 1, -1) < furthest.get(k + 1, -1)
            )
            x = furthest.get(k + 1, 0) if down else furthest.get(k - 1, 0) + 1
            y = x - k
            while x < rows and y < columns and a[x] == b[y]:
                x, y = x + 1, y + 1
            furthest[k] = x
            if x >= rows and y >= columns:
                return _back(history, rows, columns)
    return None


def _back(history: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    pairs = []
    for difference in range(len(history) - 1, -1, -1):
        furthest, k = history[difference], x - y
        down = k == -difference or (
            k != difference and furthest.get(k - 1, -1) < furthest.get(k + 1, -1)
        )
        before = k + 1 if down else k - 1
        from_x = furthest.get(before, 0)
        from_y = from_x - before
        while x > max(from_x, 0) and y > max(from_y, 0):
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = from_x, from_y
    return pairs[::-1]


def longest_ascending(numbers: list[int]) -> int:
    """Length of the longest nondecreasing subsequence: how many are in order."""
    tails: list[int] = []
    for number in numbers:
        place = bisect_right(tails, number)
        tails[place : place + 1] = [number]
    return len(tails)
