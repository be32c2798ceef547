"""What repeats in unrolled programs, and programs with fewer of it."""

from __future__ import annotations

import numpy as np
import pytest

from flint.graph.kinds import NodeKind
from flint.graph.periods import periods
from flint.graph.tensor_types import tensor_type
from flint.graph.verification import verify
from flint.graph.work import Role
from flint.passes.periods import fewer_periods
from tests.passes.building import Graph
from tests.simulation.pipelines import SCHEDULES, stage_program


def names(graph):
    return [node.op for node in graph]


def test_the_steady_part_of_a_stage():
    """Stage 1 of 4 in 1F1B of 20 microbatches: two forward passes first, then 18 pairs, then two
    backward passes.  A pair is a message, a view, F, a collective, G and a message; a message, B, S
    and a message.  The backward passes of the first two pairs take what the forward passes at the
    begin have left, those of the others what pairs have: these repeat."""
    graph = stage_program("1F1B", 1, 4, 20, 2, True)
    [part] = [item for item in periods(graph) if item.nodes == 10]
    assert part.count in (15, 16)
    ops = names(graph)[part.start : part.end]
    assert sorted(ops[:10]) == sorted(
        ["all_reduce", "B0", "F0", "G0", "S0", "view", *4 * ["collective_permute"]]
    )
    assert ops == ops[:10] * part.count


@pytest.mark.parametrize("kind", SCHEDULES)
def test_a_program_with_fewer_periods_is_that_of_fewer_microbatches(kind):
    """Node by node and operand by operand, but for what puts all losses together."""
    for stage in range(4):
        graph = stage_program(kind, stage, 4, 64, 2, True)
        part = max(periods(graph), key=lambda item: item.count * item.nodes)
        if kind == "GPipe":
            assert part.count in (63, 64)  # of one pass: two parts are shortened together
            verify(fewer_periods(graph, part, 40))
            continue
        each = 4 if kind == "interleaved" else 1
        short = fewer_periods(graph, part, part.count - 16 // each)
        verify(short)
        few = stage_program(kind, stage, 4, 48, 2, True)
        assert names(short) == names(few)
        ends = few.operand_ptr[-2]
        assert np.array_equal(short.operand_ptr[:-1], few.operand_ptr[:-1])
        assert np.array_equal(short.operand[:ends], few.operand[:ends])
        assert np.array_equal(short.order_node, few.order_node)
        assert short.flops_by_node().sum() == few.flops_by_node().sum()


def test_parts_of_a_batch_are_alike_wherever_they_begin():
    """Eight microbatches of two rows of 16: a slice, from another row each, and its sum."""
    build = Graph()
    batch, part = build.input(tensor_type((16, 32), "f32")), tensor_type((2, 32), "f32")
    tables = build.builder.tables
    for row in range(0, 16, 2):
        entry = tables.op("slice", "", (row, 0, row + 2, 32, 1, 1))
        [taken] = build.builder.node(
            NodeKind.COMPUTE, entry, [batch], [tables.type(part)], role=Role.MOVEMENT
        )
        build.elementwise(taken, taken, of=part)
    [found] = periods(build.builder.finish(()))
    assert (found.nodes, found.count) == (2, 8)
