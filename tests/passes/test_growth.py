"""Passes take steps in proportion to nodes: counted, not timed."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from flint.graph.graph import WorkloadGraph
from flint.passes import PASSES
from tests.passes.building import training_step


def lines_run(name: str, graph: WorkloadGraph) -> int:
    """Python lines that the pass executes."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        PASSES[name](graph)
    finally:
        sys.settrace(previous)
    return count


@pytest.mark.parametrize("name", ["aliases", "order", "inplace", "fuse", "fuse-xla", "coarsen"])
def test_twice_the_nodes_take_twice_the_steps(name: str) -> None:
    PASSES[name](training_step(1))  # what numpy imports on first use is not a step of the pass
    small, middle, large = (lines_run(name, training_step(layers)) for layers in (20, 40, 80))
    assert large - middle <= 2.1 * (middle - small)
