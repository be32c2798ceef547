"""What XLA's compiler simplifies before it fuses, at granularity xla: kernels and bytes as it makes
them for an H100 (jaxlib 0.10.2)."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import flint
from flint.passes import apply
from tests.passes.xla.kernels.programs import F32, I32, grads, of
from tests.passes.xla.kernels.unguided import warped

TABLE, ROWS, UPDATES = of(8192, 512, dtype=F32), of(1024, dtype=I32), of(1024, 512, dtype=F32)
WHOLE, SOME, INDICES = 8192 * 512 * 4, 1024 * 512 * 4, 1024 * 4
#: A scatter that adds reads what it adds, the places and the indices, and writes the places.
SCATTER = (2 * SOME + INDICES, SOME)


def scattered(rows, updates):
    return jnp.zeros((8192, 512), F32).at[rows].add(updates)


def kernels(function, *arguments):
    graph = apply(flint.capture(mesh=(1,))(function).capture(*arguments).graph, "xla")
    works = [node.work for node in graph]
    return [(work.read, work.written) for work in works if work.read or work.written]


def test_a_sum_with_what_is_scattered_into_zeros_is_scattered_into() -> None:
    """XLA's ``wrapped_multiply`` and ``input_scatter_fusion``: nothing is written for the zeros."""
    found = kernels(lambda a, b, i, u: a * b + scattered(i, u), TABLE, TABLE, ROWS, UPDATES)
    assert found == [(2 * WHOLE, WHOLE), SCATTER]


def test_what_is_passed_in_is_copied_before_it_is_scattered_into() -> None:
    """XLA's ``copy`` and ``input_scatter_fusion``."""
    found = kernels(lambda a, i, u: a + scattered(i, u), TABLE, ROWS, UPDATES)
    assert found == [(WHOLE, WHOLE), SCATTER]


def test_all_other_summands_are_added_before_anything_is_scattered() -> None:
    """Also what is added after it: XLA's ``loop_add_fusion`` and ``input_scatter_fusion``."""
    arguments = (TABLE, TABLE, TABLE, ROWS, UPDATES)
    found = kernels(lambda a, b, c, i, u: (a * b + scattered(i, u)) + c, *arguments)
    assert found == [(3 * WHOLE, WHOLE), SCATTER]
    found = kernels(lambda a, b, c, i, u: (a * b).at[i].add(u) + c, *arguments)
    assert found == [(3 * WHOLE, WHOLE), SCATTER]


def test_a_sum_of_two_scatters_stays_if_they_update_as_much_as_there_is() -> None:
    """XLA's two ``wrapped_add`` of a spatial transformer's gradient, which adds up four scatters to
    places of whole images: of two scatters neither goes into the other, and the third one goes
    into their sum."""
    images, shift = of(2, 16, 16, 16), of(2, 2, 3, dtype=F32)
    whole = 2 * 16 * 16 * 16 * 2
    found = kernels(grads(warped, 1), images, shift, of(3, 3, 16, 16))
    assert found.count((2 * whole, whole)) == 2
    assert found[-1] == (2 * whole, whole)


def test_a_scatter_that_does_not_add_stays_beside_its_sum() -> None:
    """Places that are replaced are no summands: zeros, scatter, sum."""

    def step(a, i, u):
        return a * a + jnp.zeros((8192, 512), F32).at[i].set(u)

    read, written = map(sum, zip(*kernels(step, TABLE, ROWS, UPDATES), strict=True))
    assert written >= 2 * WHOLE + SOME and read >= 2 * WHOLE


def test_zeros_that_are_scattered_into_are_those_of_an_activation_of_the_same_shape() -> None:
    """XLA's ``loop_broadcast_maximum_fusion`` writes them beside the activation."""
    found = kernels(lambda a, i, u: (jnp.maximum(a, 0), scattered(i, u)), TABLE, ROWS, UPDATES)
    assert found == [(WHOLE, 2 * WHOLE), SCATTER]


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        (0, [(2048 * 2048 * 4, 2048 * 4), (2048 * 2048 * 4 + 2048 * 4, 2048 * 2048 * 4)]),
        (1, [(2048 * 2048 * 4, 2048 * 2048 * 4)]),
    ],
)
def test_a_square_matrix_is_normalised_in_one_kernel_along_its_rows_only(axis, expected) -> None:
    """XLA's ``input_reduce_fusion`` and ``loop_subtract_fusion``, or its ``triton_softmax``."""
    found = kernels(lambda x: x - x.max(axis, keepdims=True), of(2048, 2048, dtype=F32))
    assert found == expected


def test_equal_ops_of_other_parameters_are_not_one() -> None:
    """Both halves of a sum of rows, and both directions of a comparison, stay what they are."""
    square = of(1024, 1024, dtype=F32)
    found = kernels(lambda x: x[:512] * x[512:], square)
    assert found == [(1024 * 1024 * 4, 512 * 1024 * 4)]
    graph = flint.capture(mesh=(1,))(lambda a, b: (a < b, a >= b)).capture(square, square).graph
    assert len({*apply(graph, "xla").outputs.tolist()}) == 2


def test_a_sum_that_is_there_twice_is_computed_once() -> None:
    """XLA's ``input_reduce_fusion`` and ``loop_divide_multiply_fusion``."""
    found = kernels(
        lambda x: (x / x.sum(1, keepdims=True), x * x.sum(1, keepdims=True)),
        of(2048, 512, dtype=F32),
    )
    whole = 2048 * 512 * 4
    assert found == [(whole, 2048 * 4), (whole + 2048 * 4, 2 * whole)]


def test_a_product_of_eight_slices_reads_all_of_them() -> None:
    """XLA's ``loop_multiply_fusion`` of a tree of every second row."""

    def step(x):
        for _ in range(3):
            x = x[:, ::2] * x[:, 1::2]
        return x

    whole = 64 * 1024 * 512 * 4
    assert kernels(step, of(64, 1024, 512, dtype=F32)) == [(whole, whole // 8)]


def test_a_narrower_type_between_two_conversions_is_never_written() -> None:
    """XLA's ``SimplifyFPConversions``: of a program that rounds to f8 (fp8_mlp), its
    loop_multiply_fusion writes bf16[8192,4096] and gemm_fusion_dot_general reads it."""

    def step(x, w):
        return (x * 2).astype(jnp.float8_e4m3fn).astype(jnp.bfloat16) @ w

    arguments = of(1024, 1024, dtype=jnp.float32), of(1024, 512)
    graph = apply(flint.capture(mesh=(1,))(step).capture(*arguments).graph, "xla")
    made = {kind.dtype for node in graph for kind in (*node.operand_types, *node.result_types)}
    assert made <= {"f32", "bf16"}


def test_two_scatters_of_more_than_there_is_into_the_same_zeros() -> None:
    """Each works in place, on zeros of its own, which one kernel writes twice."""
    table, many = 64 * 512 * 4, 1024 * 512 * 4

    def step(rows, others, updates):
        zeros = jnp.zeros((64, 512), F32)
        return zeros.at[rows].max(updates), zeros.at[others].min(updates)

    found = kernels(step, ROWS, ROWS, UPDATES)
    assert sorted(found)[0] == (0, 2 * table)
    assert all(written <= many for _, written in found[1:]) and len(found) == 3
