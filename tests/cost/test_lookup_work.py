"""Bytes of recorded lookups against counts by hand; PyTorch says how its ops are recorded."""

from __future__ import annotations

import pytest

from flint.cost.aten_work import needs_values, work_of
from flint.graph.stated import unstated_traffic
from flint.observed.classes import OpClass
from flint.post_execution.converting import convert_traces
from tests.post_execution.traces import Profile

#: A table of 1000 rows of 16 f32: 64 bytes a row.  24 places of 8 bytes.
TABLE, PLACES = ((1000, 16), "f32"), ((4, 6), "i64")
ROW, PLACE = 64, 8
GRADIENT = ((4, 6, 16), "f32")


def tensor(*shape, dtype="f32"):
    return [(shape, dtype)]


def work(name, *arguments):
    """Of an op with such arguments: tensors, and values of the others."""
    given = [[item] if isinstance(item, tuple) else [] for item in arguments]
    values = [None if isinstance(item, tuple) else item for item in arguments]
    found = work_of(name, given, values, (0, 0))
    return found.moved, sum(item.flops for item in found.items)


@pytest.mark.parametrize(
    ("call", "read", "written", "adds"),
    [
        # 24 rows; their places.
        (("aten::embedding", TABLE, PLACES, -1), 24 * (ROW + PLACE), 24 * ROW, 0),
        # Two columns of 1000 numbers of 4 bytes.
        (("aten::index_select", TABLE, 1, ((2,), "i64")), 8000 + 2 * PLACE, 8000, 0),
        # A number for each of 3 x 5 places.
        (("aten::gather", TABLE, 1, ((3, 5), "i64"), False), 15 * (4 + PLACE), 60, 0),
        (("aten::take", TABLE, PLACES), 24 * (4 + PLACE), 96, 0),
        # Each row of the gradient is read, and added to one that is read as well.
        (
            ("aten::embedding_dense_backward", GRADIENT, PLACES, 1000, -1, False),
            24 * (2 * ROW + PLACE), 24 * ROW, 24 * 16,
        ),
        # The source is larger than what of it has a place.
        (
            ("aten::scatter_add_", TABLE, 0, PLACES, ((9, 9), "f32")),
            24 * (2 * 4 + PLACE), 96, 24,
        ),
        # One number, to each place.
        (("aten::scatter_", TABLE, 0, PLACES, 1.0), 24 * PLACE, 96, 0),
        (
            ("aten::index_add_", TABLE, 0, ((6,), "i64"), ((6, 16), "f32"), 1),
            6 * (2 * ROW + PLACE), 6 * ROW, 6 * 16,
        ),
        (
            ("aten::index_copy_", TABLE, 0, ((6,), "i64"), ((6, 16), "f32")),
            6 * (ROW + PLACE), 6 * ROW, 0,
        ),
        (("aten::index_fill_", TABLE, 0, ((6,), "i64"), 0.0), 6 * PLACE, 6 * ROW, 0),
        # 24 rows in 4 bags, of which the last offset is the end.
        (
            ("aten::_embedding_bag", TABLE, ((24,), "i64"), ((5,), "i64"), False, 0, False, None,
             True),
            24 * (ROW + PLACE) + 5 * PLACE, 4 * ROW, 24 * 16,
        ),
        # 3 positions turn 3 x 8 x 128 and 3 x 2 x 128 bf16 by rows of 64 of 100,000.
        (
            ("_C::rotary_embedding", ((3,), "i64"), ((3, 1024), "bf16"), ((3, 256), "bf16"), 128,
             ((100_000, 64), "bf16"), True),
            3 * PLACE + 3 * 128 + 2 * 3 * 10 * 64, 2 * 3 * 10 * 64, 3 * 3 * 10 * 64,
        ),
    ],
    ids=lambda item: item[0] if isinstance(item, tuple) else None,
)  # fmt: skip
def test_what_moves_are_the_rows_that_are_named(call, read, written, adds):
    assert work(*call) == ((read, written), adds)


def test_what_is_not_told_is_unknown():
    """A mask chooses as many as are true; the dim, or an element type, may lack."""
    assert work("aten::index", TABLE, None) == ((0, 0), 0)
    lookup = "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function"
    assert work_of(lookup, [[], tensor(25_657_792)], []).moved == (0, 0)
    select = [[TABLE], [], tensor(2, dtype="i64")]
    assert work_of("aten::index_select", select, []).moved == (0, 0)
    assert work_of("aten::embedding", [[TABLE], tensor(2, dtype="")], []).moved == (0, 0)
    vast = [tensor(2, 1 << 40), tensor(1 << 40, dtype="i64")]
    assert work_of("aten::embedding", vast, []).moved == (0, 0)
    assert needs_values("aten::index_select") and needs_values("aten::index_fill_")


def test_a_profiles_lookups_move_rows(tmp_path):
    profile = Profile(0, 1)
    profile.work(0, 10, 20, "aten::embedding", **{
        "Input Dims": [[50_000, 768], [8, 128], [], [], []],
        "Input type": ["c10::BFloat16", "long int", "Scalar", "Scalar", "Scalar"],
        "Concrete Inputs": ["", "", "-1", "False", "False"],
    })  # fmt: skip
    profile.work(100, 110, 20, "aten::index", **{
        "Input Dims": [[50_000, 768], []], "Input type": ["float", ""],
    })  # fmt: skip
    graph = convert_traces([profile.write(tmp_path / "rank0.json")]).programs[0].graph
    rows = 1024 * 768 * 2
    assert (graph.bytes_read[0], graph.bytes_written[0]) == (rows + 1024 * 8, rows)
    assert unstated_traffic(graph).tolist() == [False, True]


def test_a_gradients_sum_is_a_node_and_not_its_zeros(tmp_path):
    """On a CPU ``embedding_dense_backward`` fills its result in an op inside of it, as PyTorch's
    profiler says; the longer part of its time is the sum, and all of it is one node's.
    """
    torch = pytest.importorskip("torch")
    table = torch.nn.Embedding(1000, 16)
    places = torch.arange(24).reshape(4, 6)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True
    ) as profiled:
        table(places).sum().backward()
    profiled.export_chrome_trace(str(tmp_path / "trace.json"))
    [path] = tmp_path.iterdir()
    graph = convert_traces([path]).programs[0].graph
    [node] = [n for n in graph if n.op == "aten::embedding_dense_backward"]
    assert (node.work.read, node.work.written) == (24 * (2 * ROW + PLACE), 24 * ROW)
    [rows] = [n for n in graph if n.op == "aten::index_select"]
    assert (rows.work.read, rows.work.written) == (24 * (ROW + PLACE), 24 * ROW)
    assert OpClass.REDUCTION.weight > OpClass.COPY.weight
