"""Last writers by pieces against a table of every byte."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from flint.post_execution.memory import Memory
from tests.post_execution.test_data import MM_OUT, Execution, converted, data_edges, tensor

SPANS = st.tuples(st.integers(0, 24), st.integers(0, 24)).map(sorted)


@given(st.lists(st.tuples(st.integers(0, 1), SPANS, st.booleans()), max_size=30), SPANS)
def test_a_read_finds_the_last_writers_of_its_bytes(writes, wanted):
    memory, table = Memory(), defaultdict(set)
    for unit, (storage, (low, high), whole) in enumerate(writes):
        memory.write(storage, low, high, unit, whole)
        for byte in range(low, high):
            table[storage, byte] = {unit} | (set() if whole else table[storage, byte])
    low, high = wanted
    for storage in range(2):
        expected = set().union(*(table[storage, byte] for byte in range(low, high)))
        if low < high:
            assert set(memory.writers(storage, low, high)) == expected


def test_many_parts_of_one_storage_are_all_remembered(tmp_path):
    """5,000 rows of a buffer, each written by an op; the last op reads all of it."""
    execution = Execution()
    for row in range(5000):
        execution.mm(tensor(10), tensor(11), tensor(20, rows=1, offset=4 * row))
    execution.mm(tensor(20, rows=5000), tensor(11), tensor(12))
    graph = converted(execution, tmp_path).graph
    assert data_edges(graph) == {(row, 5000) for row in range(5000)}


def test_every_second_column_leaves_the_others_as_they_are(tmp_path):
    """Columns 0 and 2 of a 4 x 4 buffer are results of 0, columns 1 and 3 of 1; 2 reads all."""
    a = tensor(10)
    even, odd = ([[20, 20, first, 8, 4, "cpu"], [4, 2], [4, 2]] for first in (0, 1))
    execution = Execution()
    execution.op("aten::mm", MM_OUT, [a, a, even], [even])
    execution.op("aten::mm", MM_OUT, [a, a, odd], [odd])
    execution.mm(tensor(20), a, tensor(30))
    assert data_edges(converted(execution, tmp_path).graph) == {(0, 2), (1, 2)}
