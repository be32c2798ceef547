"""Storage SSA: programs that write through views, executed by XLA, against eager PyTorch.

Longer than 300 lines because it is one table of programs that write through views.
"""

from __future__ import annotations

import dataclasses

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, given, settings

from flint.errors import FlintError
from flint.frontends.torch.emission import emitted
from flint.frontends.torch.emission.strided import dense_order, grid_of
from flint.frontends.torch.recording.recording import View
from flint.stablehlo.read.bindings import parse
from tests.frontends.torch.checking import assert_equal, check
from tests.frontends.torch.executing import execute
from tests.frontends.torch.lowering_cases.inputs import normal
from tests.frontends.torch.real_recording import record
from tests.support.shared import examples

#: Executing compiles a program each time.
FEW = settings(
    max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def write_a_slice(x, y):
    x[1:3].mul_(2)
    return [x + 0]


def write_every_second_column(x, y):
    x[:, ::2].add_(1)
    return [x * 1]


def write_a_column_of_the_transpose(x, y):
    x.t()[2].copy_(y)
    return [x.t().contiguous()]


def write_steps_of_a_flat_view(x, y):
    b = x.view(-1)[3:19:3]
    b.mul_(b)
    return [b * 1, x + 0]


def read_overlapping_windows(x, y):
    windows = torch.as_strided(x, (3, 4), (5, 2), 1)
    return [windows * windows, x.unfold(1, 3, 2).sum(-1)]


def write_strides_that_do_not_nest(x, y):
    part = torch.as_strided(x, (2, 3), (7, 2), 2)
    part.copy_(y[:3].expand(2, 3) * 2)
    return [x + 0]


def write_through_a_chain_of_views(x, y):
    part = x.expand(2, *x.shape)[1].transpose(0, 1)[1:4, ::3]
    part.add_(part.sum())
    return [x + 0, part * 1]


def fill_fresh_memory_piece_by_piece(x, y):
    fresh = torch.empty(5, 6)
    fresh[:, :3].copy_(x[:, :3])
    fresh[:, 3:].zero_()
    fresh.diagonal().add_(y)
    return [fresh]


def write_an_input_and_read_its_old_views(x, y):
    row = x[1]
    x.add_(1)
    row.mul_(3)
    return [x.permute(1, 0).contiguous(), row + 0]


def copy_between_views_of_one_storage(x, y):
    x[:2].copy_(x[3:])
    x[:, 1].copy_(x[:, 0])
    return [x + 0]


def lists_that_alias(x, y):
    made = torch._foreach_add([x, x.t()], 1.0)
    torch._foreach_mul_([x[0], x[1]], 2.0)
    torch._foreach_copy_([x[0], x[1]], [x[1].clone(), x[0].clone()])
    return [*made, x + 0]


def list_that_reads_what_it_writes(x, y):
    torch._foreach_add_([x[0], x[1]], [x[1], x[2]])
    return [x + 0]


def bytes_as_another_type(x, y):
    other = x.view(torch.int32)
    other[0].bitwise_and_(0)
    halves = x.view(torch.bfloat16)
    return [other.clone(), halves.clone(), x + 0]


def complex_as_pairs(x, y):
    pairs = torch.view_as_complex(x.view(5, 4, 2))
    pairs.mul_(pairs)
    return [torch.view_as_real(pairs) * 1, x + 0]


def conjugate_views(x, y):
    turns = torch.polar(torch.ones(5, 4), x[:, :4].clone())
    given = x.detach().contiguous().clone().requires_grad_()
    turned = torch.view_as_real(torch.view_as_complex(given.view(5, 4, 2)) * turns)
    with torch.enable_grad():
        (turned * turned * turned).sum().backward()
    seen = turns.conj()
    seen.mul_(2j)
    return [given.grad, torch.view_as_real(turns) * 1]


def statistics_that_the_schema_hides(x, y):
    mean, variance = y[:3].clone(), y[:3].abs() + 1
    data = torch.stack([x, x * 2, x - 1], 1)
    out = torch.ops.aten.native_batch_norm.default(
        data, None, None, mean, variance, True, 0.1, 1e-5
    )
    return [out[0], mean, variance]


def tensors_turned_in_place(x, y):
    turned = x.clone()
    turned.t_().add_(y)
    turned.unsqueeze_(0)
    return [turned * 2]


def scalars_and_nothing(x, y):
    total = x.sum()
    total.add_(1)
    nothing = x[:0]
    nothing.add_(1)
    return [total, x.select(0, 2)[3].unsqueeze(0) * 1, nothing * 1]


PROGRAMS = [
    write_a_slice, write_every_second_column, write_a_column_of_the_transpose,
    write_steps_of_a_flat_view, read_overlapping_windows, write_strides_that_do_not_nest,
    write_through_a_chain_of_views, fill_fresh_memory_piece_by_piece,
    write_an_input_and_read_its_old_views, copy_between_views_of_one_storage, lists_that_alias,
    list_that_reads_what_it_writes, bytes_as_another_type, complex_as_pairs,
    conjugate_views, statistics_that_the_schema_hides, scalars_and_nothing,
    tensors_turned_in_place,
]  # fmt: skip


#: A transpose has no such views in PyTorch.
NOT_OF_A_TRANSPOSE = (write_steps_of_a_flat_view, bytes_as_another_type, complex_as_pairs)


@pytest.mark.parametrize(
    ("layout", "program"),
    [
        pytest.param(layout, program, id=f"{layout}-{program.__name__}")
        for layout in ("contiguous", "transposed", "part")
        for program in PROGRAMS
        if layout != "transposed" or program not in NOT_OF_A_TRANSPOSE
    ],
)
def test_writes_through_views_reach_every_alias(program, layout):
    x = {
        "contiguous": lambda: normal(5, 8),
        "transposed": lambda: normal(8, 5).t(),
        "part": lambda: normal(7, 8)[1:6],
    }[layout]()
    check(record(program, x, normal(5)))


@pytest.mark.parametrize("changed", ["stride", "offset", "operand"])
def test_a_wrong_view_is_noticed(changed):
    """The negative control: one falsified argument makes the comparison fail."""
    recorded = record(lambda x, y: [x[:, :5] @ y + x[:, 2:3]], normal(5, 8), normal(5, 5))
    ops = list(recorded.recording.ops)
    number = next(n for n, op in enumerate(ops) if op.name == "aten.mm.default")
    left, right = ops[number].args
    wrong = {
        "stride": (dataclasses.replace(left, stride=(1, 8)), right),
        "offset": (dataclasses.replace(left, offset=1), right),
        "operand": (right, left),
    }[changed]
    ops[number] = dataclasses.replace(ops[number], args=wrong)
    falsified = dataclasses.replace(recorded.recording, ops=tuple(ops))
    (ours,), _ = execute(emitted(falsified).data, recorded.inputs)
    with pytest.raises(AssertionError):
        assert_equal(ours, recorded.results[0])


def test_a_written_input_is_returned_and_aliased():
    recorded = record(lambda x, y: [x.add_(y).sum()], normal(3), normal(3))
    outputs, aliases = execute(emitted(recorded.recording).data, recorded.inputs)
    assert aliases == {0: 0}
    assert_equal(outputs[0], recorded.mutated[0])


def test_an_input_that_is_only_read_is_not_returned():
    recorded = record(lambda x, y: [x + y], normal(3), normal(3))
    outputs, aliases = execute(emitted(recorded.recording).data, recorded.inputs)
    assert (len(outputs), aliases) == (1, {})


def test_a_write_through_repeated_memory_is_refused():
    recorded = record(lambda x: [x.expand(4, 3).clone()], normal(3))
    (op,) = (op for op in recorded.recording.ops if op.name == "aten.clone.default")
    repeated = op.args[0]
    bad = dataclasses.replace(
        op, name="aten.add_.Tensor", args=(repeated, 1), results=(repeated,), writes=(repeated,),
        file="train.py", line=7,
    )  # fmt: skip
    recording = dataclasses.replace(recorded.recording, ops=(bad,), results=())
    with pytest.raises(FlintError, match=r"train.py:7: a write through a view that repeats"):
        emitted(recording)


def test_a_view_beyond_its_storage_is_refused():
    recorded = record(lambda x: [x * 2], normal(3, 4))
    (op,) = recorded.recording.ops
    bad = dataclasses.replace(op, args=(dataclasses.replace(op.args[0], offset=1), 2))
    with pytest.raises(FlintError, match="reaches element 12 of storage 0, which has 12"):
        emitted(dataclasses.replace(recorded.recording, ops=(bad,)))


def test_memory_that_nothing_wrote_is_a_warning():
    recorded = record(lambda x: [x * 2], normal(3))
    unknown = dataclasses.replace(recorded.recording, inputs=())
    assert sum(emitted(unknown).warnings.values()) == 1


def test_memory_that_was_only_allocated_is_none():
    recorded = record(lambda: [torch.empty(3) * 0])
    assert emitted(recorded.recording).warnings == {}


def test_a_view_that_is_read_twice_is_made_once():
    recorded = record(lambda x: [x[:, 1:3] * 2, x[:, 1:3] * 3], normal(4, 5))
    text = str(parse(emitted(recorded.recording).data))
    assert text.count("stablehlo.slice") == 1


def test_everything_in_main_is_a_kernel_or_a_view():
    recorded = record(write_through_a_chain_of_views, normal(5, 8), normal(5))
    module = parse(emitted(recorded.recording).data)
    main = next(iter(module.body.operations))
    for op in main.regions[0].blocks[0].operations:
        attributes = op.operation.attributes
        kernel = op.operation.name == "stablehlo.composite"
        assert op.operation.name == "func.return" or (
            ("flint.id" in attributes) == kernel and ("flint.view" in attributes) != kernel
        )


@st.composite
def views(draw, size):
    """Any view of a storage of ``size`` elements whose elements do not share memory."""
    rank = draw(st.integers(0, 3))
    shape = [draw(st.integers(1, 4)) for _ in range(rank)]
    order = draw(st.permutations(range(rank)))
    stride = [0] * rank
    reach = 1
    for dim in order:
        stride[dim] = reach + draw(st.integers(0, 2))
        reach = stride[dim] * (shape[dim] - 1) + reach
    offset = draw(st.integers(0, max(size - reach, 0)))
    if offset + reach > size:
        return (), (), 0
    return tuple(shape), tuple(stride), offset


@FEW
@given(st.lists(views(60), min_size=1, max_size=6), st.sampled_from(["read", "write"]))
def test_any_strided_view_is_read_and_written_where_pytorch_does(found, kind):
    def step(x):
        results = []
        for shape, stride, offset in found:
            part = torch.as_strided(x, shape, stride, offset)
            if kind == "write":
                part.mul_(2).add_(1)
            results.append(part * 3)
        return [*results, x + 0]

    check(record(step, torch.arange(60.0)))


@given(views(300))
def test_the_grid_of_a_view_has_its_elements(found):
    shape, stride, offset = found
    view = View(0, offset, shape, stride, "float32")
    grid = grid_of(view)
    if grid is None:
        return
    rows = grid.start[0] + grid.size[0]
    boxes = torch.arange(rows * grid.pitch).reshape(rows, *grid.dims)
    for dim, (start, size) in enumerate(zip(grid.start, grid.size, strict=True)):
        boxes = boxes.narrow(dim, start, size)
    ours = sorted(boxes.reshape(-1).tolist())
    places = torch.zeros((), dtype=torch.int64) + offset
    for size, step in zip(shape, stride, strict=True):
        places = places.unsqueeze(-1) + torch.arange(size) * step
    assert ours == sorted(places.reshape(-1).tolist())


@given(st.lists(st.integers(1, 4), max_size=4), st.randoms(use_true_random=False))
def test_a_permuted_contiguous_tensor_is_dense_in_its_memory_order(shape, random):
    order = list(range(len(shape)))
    random.shuffle(order)
    tensor = torch.empty(shape).permute(order)
    found = dense_order(tuple(tensor.shape), tuple(tensor.stride()))
    assert found is not None
    assert tensor.permute(found).is_contiguous()
