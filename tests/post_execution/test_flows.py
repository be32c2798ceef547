"""Data between units against a table of who wrote every byte."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flint.graph.tensor_types import TensorType
from flint.post_execution.flows import flows_of
from flint.post_execution.storages import Access
from flint.post_execution.units import Units
from tests.post_execution.test_data import Execution, converted, data_edges, tensor

#: Storages 0 and 1 are always used as one range, parts of 2 and 3 are used as well.
RANGES = st.one_of(
    st.tuples(st.integers(0, 1), st.just((0, 8))),
    st.tuples(st.integers(2, 3), st.sampled_from([(0, 8), (0, 4), (4, 8), (2, 6)])),
)
USES = st.sampled_from([(True, False), (False, True), (True, True)])


def untimed(count):
    """Host ops one after another, each a unit."""
    unknown, nothing = np.full(count, -1), np.zeros(count, np.int64)
    return Units(
        path="", rank=0, device=False, timed=False, names=("op",), name=nothing, facts=(),
        fact=nothing, row=np.arange(count), start=unknown, duration=unknown,
        issued=np.arange(count), launch=unknown, thread=nothing, stream=nothing,
        collective=np.zeros(count, bool), notes={},
    )  # fmt: skip


def access(place, use):
    """All bytes of a range, one byte an element."""
    (storage, (low, high)), (read, written) = place, use
    kind = TensorType((high - low,), "ui8", high - low)
    return Access(storage, low, high, read, written, kind, kind.bytes if read else 0)


def expected(tensors):
    """Per unit the units and (as -1, -2, ...) the inputs that it needs; how many inputs."""
    table, needed, inputs = defaultdict(set), [], 0
    for unit, accesses in enumerate(tensors):
        needed.append(set())
        for item in accesses:
            places = [(item.storage, byte) for byte in range(item.low, item.high)]
            if not item.read:
                continue
            if not any(table[place] for place in places):
                inputs += 1
                table.update({place: {-inputs} for place in places})
            needed[-1] |= set().union(*(table[place] for place in places))
        for item in accesses:
            if item.written:
                table.update({(item.storage, i): {unit} for i in range(item.low, item.high)})
    return needed, inputs


@given(st.lists(st.lists(st.builds(access, RANGES, USES), max_size=4), min_size=1, max_size=12))
def test_units_read_what_was_written_last(tensors):
    flows = flows_of(untimed(len(tensors)), [tuple(accesses) for accesses in tensors], {})
    rows = np.split(flows.operand, flows.operand_ptr[1:-1])
    needed, inputs = expected(tensors)
    assert [sorted(row.tolist()) for row in rows] == [sorted(sources) for sources in needed]
    assert len(flows.inputs) == inputs
    for unit, accesses in enumerate(tensors):
        read, written = ({a[:3] for a in accesses if a[field]} for field in (3, 4))
        assert flows.read[unit] == sum(a.taken for a in accesses)
        assert flows.written[unit] == sum(high - low for _, low, high in written)
        assert flows.aliased[unit] == sum(high - low for _, low, high in written & read)


def test_strides_beyond_all_memory_are_taken_as_the_rest_of_the_storage(tmp_path):
    """A row that begins at element 4, whose stride no storage has, is read after it was written."""
    far = tensor(20, rows=2, offset=4)
    far[2][0] = 10**30
    execution = Execution()
    execution.mm(tensor(10), tensor(11), tensor(20, rows=1, offset=8))
    execution.mm(far, tensor(11), tensor(12))
    assert data_edges(converted(execution, tmp_path).graph) == {(0, 1)}


def emptied(shape, strides, count):
    """A tensor in storage 20 of a shape without elements."""
    return [20, 20, 0, count, 4, "cpu"], shape, strides


EMPTY = [([0, 4], [10**30, 1]), ([4, 0], [4, 2**62]), ([0, 4], [4, 1])]


@pytest.mark.parametrize(("shape", "strides"), EMPTY)
def test_elements_of_a_shape_that_has_none_may_be_anywhere_in_the_storage(shape, strides, tmp_path):
    """The shape says none and the entry 16: a trace that contradicts itself loses no edge."""
    execution = Execution()
    execution.mm(tensor(10), tensor(11), tensor(20, offset=16))
    execution.mm(emptied(shape, strides, 16), tensor(11), tensor(12))
    assert data_edges(converted(execution, tmp_path).graph) == {(0, 1)}


@pytest.mark.parametrize(("shape", "strides"), [*EMPTY, ([0, 4], [-1, 1]), ([0, 4], [])])
def test_a_view_without_elements_is_not_part_of_a_storage(shape, strides, tmp_path):
    execution = Execution()
    execution.mm(tensor(10), tensor(11), tensor(20))
    execution.mm(emptied(shape, strides, 0), tensor(11), tensor(12))
    graph = converted(execution, tmp_path).graph
    assert data_edges(graph) == set()
    assert graph.bytes_read.tolist() == [128, 64]  # 4 x 4 floats each
