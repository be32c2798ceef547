"""FLOPs of contractions against loops that count multiply-adds one by one."""

from itertools import product
from math import prod
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from flint.cost.op_work import gemm_dims_from_sizes, valid_positions
from flint.errors import FlintError
from flint.graph.tensor_types import TensorType, tensor_type
from flint.graph.work import Unit, WorkItem
from flint.stablehlo.read.records import Op
from flint.stablehlo.rules import work_of
from tests.stablehlo.rules.xla_cost import one_op, xla_cost

SMALL = st.integers(1, 4)


def _item(
    name: str, attrs: dict[str, Any], shapes: list[tuple[int, ...]], out: tuple[int, ...]
) -> WorkItem:
    ins: list[TensorType] = [tensor_type(shape, "bf16") for shape in shapes]
    op = Op(name, tuple(range(len(ins))), (len(ins),), attrs)
    (item,) = work_of(op, ins, [tensor_type(out, "f32")]).items
    assert (item.unit, item.dtype) == (Unit.MATMUL, "bf16")
    return item


@given(
    batch=st.lists(SMALL, max_size=2),
    left=st.lists(SMALL, max_size=2),
    right=st.lists(SMALL, max_size=2),
    contracting=st.lists(SMALL, max_size=2),
    data=st.data(),
)
def test_dot_counts_every_multiply_add(
    batch: list[int], left: list[int], right: list[int], contracting: list[int], data: st.DataObject
) -> None:
    def mixed(free: list[int]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """A shape with the three kinds of dims in any order; places of batch and contracting."""
        sizes = [*batch, *contracting, *free]
        order = data.draw(st.permutations(range(len(sizes))))
        place = {which: where for where, which in enumerate(order)}
        shape = tuple(sizes[which] for which in order)
        batching = tuple(place[i] for i in range(len(batch)))
        summed = tuple(place[len(batch) + i] for i in range(len(contracting)))
        return shape, batching, summed

    lhs, lhs_batching, lhs_contracting = mixed(left)
    rhs, rhs_batching, rhs_contracting = mixed(right)
    attrs = {
        "lhs_batching": lhs_batching,
        "rhs_batching": rhs_batching,
        "lhs_contracting": lhs_contracting,
        "rhs_contracting": rhs_contracting,
    }
    item = _item("dot_general", attrs, [lhs, rhs], (*batch, *left, *right))
    # Every pair of an element of either operand that agree in batch and contracting indices.
    meeting = sum(
        all(i[a] == j[b] for a, b in zip(lhs_batching, rhs_batching, strict=True))
        and all(i[a] == j[b] for a, b in zip(lhs_contracting, rhs_contracting, strict=True))
        for i in product(*map(range, lhs))
        for j in product(*map(range, rhs))
    )
    assert item.flops == 2 * meeting
    assert item.dims == (prod(batch), prod(left), prod(right), prod(contracting))


def _positions_by_loops(
    size: int, kernel: int, out: int, stride: int, low: int, lhs_dilation: int, rhs_dilation: int
) -> int:
    inputs = {i * lhs_dilation for i in range(size)}
    return sum(
        o * stride + k * rhs_dilation - low in inputs for o in range(out) for k in range(kernel)
    )


@given(
    size=st.integers(0, 9),
    kernel=st.integers(0, 6),
    out=st.integers(0, 12),
    stride=st.integers(1, 5),
    low=st.integers(-4, 9),
    lhs_dilation=st.integers(1, 5),
    rhs_dilation=st.integers(1, 4),
)
@example(size=5, kernel=3, out=9, stride=4, low=1, lhs_dilation=6, rhs_dilation=2)
def test_window_positions_that_meet_an_input_element(
    size: int, kernel: int, out: int, stride: int, low: int, lhs_dilation: int, rhs_dilation: int
) -> None:
    window = (size, kernel, out, stride, low, lhs_dilation, rhs_dilation)
    assert valid_positions(*window) == _positions_by_loops(*window)


@given(
    spatial=st.lists(
        st.tuples(*[st.integers(1, 5), st.integers(1, 3), st.integers(1, 3)], st.integers(-1, 2),
                  st.integers(-1, 2), st.integers(1, 3), st.integers(1, 2)),
        max_size=2,
    ),
    groups=st.sampled_from([(1, 1), (2, 1), (3, 1), (1, 2), (1, 3)]),
    batch=st.integers(1, 2),
    features=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    data=st.data(),
)  # fmt: skip
def test_convolution_counts_every_multiply_add_on_real_elements(
    spatial: list[tuple[int, ...]],
    groups: tuple[int, int],
    batch: int,
    features: tuple[int, int],
    data: st.DataObject,
) -> None:
    feature_groups, batch_groups = groups
    per_group, out_per_group = features
    n = batch * batch_groups
    input_features = per_group * feature_groups
    output_features = out_per_group * feature_groups * batch_groups
    sizes = []
    for size, kernel, stride, low, high, lhs_dilation, rhs_dilation in spatial:
        padded = (size - 1) * lhs_dilation + 1 + low + high
        reach = (kernel - 1) * rhs_dilation + 1
        assume(padded >= reach)
        sizes.append((padded - reach) // stride + 1)
    rank = len(spatial)

    def placed(first: int, second: int, rest: list[int]) -> tuple[tuple[int, ...], list[int]]:
        order = data.draw(st.permutations(range(rank + 2)))
        values = [first, second, *rest]
        return tuple(values[which] for which in order), [order.index(i) for i in range(rank + 2)]

    image, image_dims = placed(n, input_features, [s[0] for s in spatial])
    kernel_shape, kernel_dims = placed(per_group, output_features, [s[1] for s in spatial])
    out, out_dims = placed(batch, output_features, sizes)
    attrs = {
        "input_batch": image_dims[0],
        "input_feature": image_dims[1],
        "input_spatial": tuple(image_dims[2:]),
        "kernel_input_feature": kernel_dims[0],
        "kernel_output_feature": kernel_dims[1],
        "kernel_spatial": tuple(kernel_dims[2:]),
        "output_batch": out_dims[0],
        "output_feature": out_dims[1],
        "output_spatial": tuple(out_dims[2:]),
        "strides": tuple(s[2] for s in spatial),
        "padding": tuple((s[3], s[4]) for s in spatial),
        "lhs_dilation": tuple(s[5] for s in spatial),
        "rhs_dilation": tuple(s[6] for s in spatial),
        "feature_group_count": feature_groups,
        "batch_group_count": batch_groups,
    }
    item = _item("convolution", attrs, [image, kernel_shape], out)

    # The definition, element by element: an output element sums, over the input features of its
    # feature group and the kernel's positions, those products whose input element is not a hole.
    count = 0
    for _output in range(batch * output_features):
        for where in product(*map(range, sizes)):
            for kernel_at in product(*[range(s[1]) for s in spatial]):
                hits = True
                for o, k, s in zip(where, kernel_at, spatial, strict=True):
                    at = o * s[2] + k * s[6] - s[3]
                    hits &= at % s[5] == 0 and 0 <= at // s[5] < s[0]
                count += per_group * hits
    assert item.flops == 2 * count
    assert item.dims is not None
    assert prod(item.dims) * 2 >= item.flops
    unpadded = all(s[3] <= 0 and s[4] <= 0 and s[5] == 1 for s in spatial)
    assert not unpadded or prod(item.dims) * 2 == item.flops
    m = batch * prod(sizes)
    k = per_group * prod(s[1] for s in spatial)
    assert item.dims == (feature_groups * batch_groups, m, out_per_group, k)


@pytest.mark.parametrize(
    ("config", "lhs", "rhs", "out", "dims"),
    [
        ("ab,bc->ac", (8, 4), (4, 16), (8, 16), (1, 8, 16, 4)),
        ("bij,bkj->bik", (3, 8, 4), (3, 5, 4), (3, 8, 5), (3, 8, 5, 4)),
        ("a,b->ab", (8,), (4,), (8, 4), (1, 8, 4, 1)),
        ("abc,cb->a", (8, 4, 2), (2, 4), (8,), (1, 8, 1, 8)),
    ],
)
def test_einsum_is_the_dot_that_it_writes_and_xla_agrees(
    config: str,
    lhs: tuple[int, ...],
    rhs: tuple[int, ...],
    out: tuple[int, ...],
    dims: tuple[int, int, int, int],
) -> None:
    item = _item("einsum", {"config": config}, [lhs, rhs], out)
    assert item.dims == dims

    def text(shape: tuple[int, ...]) -> str:
        return "x".join([*map(str, shape), "f32"])

    case = one_op(
        f"{text(lhs)} {text(rhs)}",
        text(out),
        f'stablehlo.einsum %0, %1, config = "{config}" : {{types}}',
    )
    assert item.flops == xla_cost(case.text).flops


def _ragged(ragged: str, sizes: list[int]) -> tuple[dict[str, Any], list[tuple[int, ...]], int]:
    """Attributes, shapes, and the multiply-adds that the groups do one after another."""
    total, groups, m, k, n = sum(sizes), len(sizes), 5, 4, 3
    attrs: dict[str, Any] = {"lhs_contracting": (1,), "rhs_contracting": (1,), "rhs_group": (0,)}
    if ragged == "rows":
        return attrs, [(total, k), (groups, k, n)], sum(size * k * n for size in sizes)
    if ragged == "contraction":
        attrs = {"lhs_contracting": (1,), "rhs_contracting": (0,), "rhs_group": ()}
        return attrs, [(m, total), (total, n)], sum(m * size * n for size in sizes)
    attrs = {"lhs_batching": (0,), "rhs_batching": (0,), "lhs_contracting": (2,)}
    attrs |= {"rhs_contracting": (1,), "rhs_group": ()}
    return attrs, [(total, m, k), (total, k, n)], sum(size * m * k * n for size in sizes)


@pytest.mark.parametrize("ragged", ["rows", "contraction", "batch"])
@given(sizes=st.lists(st.integers(0, 5), min_size=1, max_size=4))
def test_ragged_dot_is_the_sum_over_its_groups(ragged: str, sizes: list[int]) -> None:
    attrs, shapes, multiply_adds = _ragged(ragged, sizes)
    item = _item("chlo.ragged_dot", attrs, [*shapes, (len(sizes),)], (1,))
    assert item.flops == 2 * multiply_adds


def test_a_ragged_dot_of_few_rows_reads_no_more_matrices_than_rows() -> None:
    """3 rows of 8 in 64 groups of 8 x 16 in f32: at most 3 matrices are read."""
    attrs = {"lhs_contracting": (1,), "rhs_contracting": (1,), "rhs_group": (0,)}
    types = [tensor_type(shape, "f32") for shape in ((3, 8), (64, 8, 16))]
    op = Op("chlo.ragged_dot", (0, 1), (2,), attrs)
    assert work_of(op, types, [tensor_type((3, 16), "f32")]).read == 4 * (3 * 8 + 3 * 8 * 16)


@pytest.mark.parametrize(
    "order", [(0, 1, 2, 3), (0, 2, 1, 3)], ids=["scales last", "scales beside"]
)
def test_scaled_dot_is_the_dot_of_its_operands(order: tuple[int, ...]) -> None:
    # [8, 64] x [16, 64] with a scale for every 32 elements
    shapes: list[tuple[int, ...]] = [(8, 64), (16, 64), (8, 2), (16, 2)]
    attrs = {"lhs_contracting": (1,), "rhs_contracting": (1,)}
    item = _item("mhlo.scaled_dot", attrs, [shapes[i] for i in order], (8, 16))
    assert item.dims == (1, 8, 16, 64)


@pytest.mark.parametrize("ragged", ["rows", "contraction", "batch"])
def test_ragged_dot_without_attributes_has_its_dims_in_order(ragged: str) -> None:
    attrs, shapes, _ = _ragged(ragged, [2, 0, 3])
    stated = _item("chlo.ragged_dot", attrs, [*shapes, (3,)], (1,))
    assert _item("mhlo.ragged_dot", {}, [*shapes, (3,)], (1,)) == stated


@given(st.tuples(st.integers(1, 5), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)))
def test_gemm_dims_follow_from_sizes(dims: tuple[int, int, int, int]) -> None:
    b, m, n, k = dims
    assert gemm_dims_from_sizes(b, b * m * k, b * k * n, b * m * n) == dims


def test_sizes_that_are_not_a_gemm_give_no_dims() -> None:
    assert gemm_dims_from_sizes(1, 8 * 4, 4 * 16 + 1, 8 * 16) is None


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        (Op("dot_general", (0, 1), (2,), {"lhs_contracting": (7,)}), [(8, 4), (4, 8)]),
        (
            Op("dot_general", (0, 1), (2,), {"lhs_contracting": (1,), "rhs_contracting": (0,)}),
            [(8, 4), (5, 8)],
        ),
        (Op("dot", (0, 1), (2,)), [(8, 4), (5, 8)]),
        (Op("dot_general", (0,), (2,)), [(8, 4)]),
        (Op("convolution", (0, 1), (2,)), [(8, 4), (4, 8)]),
        (Op("convolution", (0, 1), (2,), {"input_spatial": (9,)}), [(8, 4), (4, 8)]),
        (Op("einsum", (0, 1), (2,), {"config": "...a,a->..."}), [(8, 4), (4,)]),
        (Op("reduce", (0, 1), (2,)), [(8, 4), ()]),
    ],
    ids=lambda value: value.name if isinstance(value, Op) else "",
)
def test_op_that_contradicts_itself_is_an_error_that_names_it(
    op: Op, shapes: list[tuple[int, ...]]
) -> None:
    ins = [tensor_type(shape, "f32") for shape in shapes]
    with pytest.raises(FlintError, match=op.name):
        work_of(op, ins, [tensor_type((8, 8), "f32")])
