"""Overlapping spans of time, and the part of the time that each of them gets.

The idea: communications that run at the same time on one rank's links share the time equally, so
that their parts add up to the time in which any of them runs.

    parts(np.array([0, 0]), np.array([10, 30]))         # [5, 25]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flint.graph.distinct import distinct
from flint.graph.graph import Ints

Floats = NDArray[np.float64]
Spans = tuple[Ints, Ints]


def overlap(start: Ints, end: Ints) -> bool:
    """Whether any two of the spans overlap.

    Args:
        start, end: ticks, shape [spans].
    """
    real = end > start
    order = np.argsort(start[real], kind="stable")
    return bool((start[real][order][1:] < end[real][order][:-1]).any())


def lanes(start: Ints, end: Ints) -> Ints:
    """A lane for each span, from 0, so that spans in one lane do not overlap, shape [spans].

    Args:
        start, end: ticks, shape [spans].
    """
    found = np.zeros(len(start), np.int64)
    free: list[int] = []  # when each lane is free again
    order = np.lexsort((end, start))
    for span, begin, over in zip(
        order.tolist(), start[order].tolist(), end[order].tolist(), strict=True
    ):
        lane = next((i for i, since in enumerate(free) if since <= begin), len(free))
        if lane == len(free):
            free.append(over)
        free[lane] = over
        found[span] = lane
    return found


def parts(start: Ints, end: Ints, covers: Spans | None = None) -> Floats:
    """Ticks that each span gets; where several overlap, an equal part each; shape [spans].

    Args:
        start, end: ticks, shape [spans].
        covers: starts and ends of other spans, whose time does not count.
    """
    every = [(start, end), *([covers] if covers is not None else [])]
    cuts = distinct(np.concatenate([side for spans in every for side in spans]))
    if not len(cuts):
        return np.zeros(len(start))
    running = _running(cuts, (start, end))
    counted = running > 0
    if covers is not None:
        counted &= _running(cuts, covers) == 0
    lengths = np.where(counted, np.diff(cuts, append=cuts[-1]), 0) / np.maximum(running, 1)
    before = np.concatenate([[0.0], np.cumsum(lengths)])
    found: Floats = before[np.searchsorted(cuts, end)] - before[np.searchsorted(cuts, start)]
    return found


def union(start: Ints, end: Ints) -> Spans:
    """The union of the spans, as sorted spans that do not touch."""
    cuts = distinct(np.concatenate([start, end]))
    if not len(cuts):
        return cuts, cuts
    runs = np.concatenate([[False], _running(cuts, (start, end)) > 0])
    return cuts[runs[1:] & ~runs[:-1]], cuts[~runs[1:] & runs[:-1]]


def _running(cuts: Ints, spans: Spans) -> Ints:
    """How many of the spans cover the time from each cut to the next, shape [cuts]."""
    change = np.zeros(len(cuts), np.int64)
    np.add.at(change, np.searchsorted(cuts, spans[0]), 1)
    np.add.at(change, np.searchsorted(cuts, spans[1]), -1)
    found: Ints = np.cumsum(change)
    return found


def inside(spans: Spans, time: Ints) -> Ints:
    """Ticks that lie before each time, of spans that do not overlap, in ascending order."""
    if not len(spans[0]):
        return np.zeros(len(time), np.int64)
    before = np.append(0, np.cumsum(spans[1] - spans[0]))
    at = np.searchsorted(spans[0], time, side="right")
    ahead = np.where(at > 0, np.maximum(spans[1][np.maximum(at - 1, 0)] - time, 0), 0)
    found: Ints = before[at] - ahead
    return found
