"""Kernels that run during communication, tick by tick, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from flint.execution.node_types import NodeType
from flint.simulation.actor_columns import Actor
from flint.simulation.machine import run
from tests.simulation.besides import beside

COMP, COLL = NodeType.COMP, NodeType.COLL


def actor(speed: float, *nodes: tuple[NodeType, int, tuple[int, ...]]) -> Actor:
    """Nodes as (type, ticks, producers), and the speed of kernels during communication."""
    types, ticks, deps = zip(*nodes, strict=True)
    return Actor(
        np.array(types, np.int8),
        np.cumsum([0, *map(len, deps)]),
        np.array([other for some in deps for other in some], np.int64),
        np.array(ticks, np.int64),
        np.array([0 if kind == COLL else -1 for kind in types], np.int64),
        beside=beside([speed] * len(types)),
    )


def ends(speed: float, *nodes: tuple[NodeType, int, tuple[int, ...]]) -> list[int]:
    return run([actor(speed, *nodes)], [1]).end[0].tolist()


def test_a_kernel_is_slowed_down_while_the_communication_lasts() -> None:
    """40 ticks at half speed are worth 20; 80 are left at full speed."""
    assert ends(0.5, (COLL, 40, ()), (COMP, 100, ())) == [40, 120]


def test_a_communication_may_begin_and_end_within_a_kernel() -> None:
    """10 ticks alone, 40 at half speed, and the 70 that are left; the last kernel runs alone."""
    nodes = (COMP, 10, ()), (COMP, 100, ()), (COLL, 40, (0,)), (COMP, 5, (1,))
    assert ends(0.5, *nodes) == [10, 130, 50, 135]


def test_a_short_kernel_is_slowed_down_throughout_and_the_next_one_for_the_rest() -> None:
    """10 ticks take 20; of the second kernel's 50, ten are done by tick 40."""
    assert ends(0.5, (COLL, 40, ()), (COMP, 10, ()), (COMP, 50, ())) == [40, 20, 80]


@pytest.mark.parametrize("speed", [1.0, 0.5])
def test_kernels_before_and_after_a_communication_are_not(speed: float) -> None:
    assert ends(speed, (COMP, 30, ()), (COLL, 40, (0,)), (COMP, 30, (1,))) == [30, 70, 100]


def test_communication_is_never_slower_during_kernels_than_alone() -> None:
    assert ends(0.25, (COLL, 40, ()), (COLL, 40, (0,)), (COMP, 1000, ()))[:2] == [40, 80]


def test_of_two_communications_the_one_that_takes_more_counts() -> None:
    """Speeds of 0.5 for 40 ticks beside another of 0.8 for 60: 20 are done by tick 40, 16 more by
    60, and 64 are left.  The two share the links: alone they take half as long."""
    types, ticks, slots = [COLL, COLL, COMP], [20, 40, 100], [0, 1, 0]
    both = Actor(
        np.array(types, np.int8), np.zeros(4, np.int64), np.array([], np.int64),
        np.array(ticks, np.int64), np.array([0, 1, -1]), np.array(slots),
        beside=beside([0.5, 0.8, 1.0]),
    )  # fmt: skip
    assert run([both], [1, 1]).end[0].tolist() == [40, 60, 124]
