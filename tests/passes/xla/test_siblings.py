"""Readers of one value that granularity xla joins, as XLA does for an H100 (jaxlib 0.10.2)."""

from __future__ import annotations

from flint.passes import apply
from tests.passes.xla.kernels.programs import of
from tests.passes.xla.kernels.record import captured
from tests.passes.xla.test_simplify import kernels

X, WHOLE = of(4096, 2048), 4096 * 2048 * 2


def test_two_kernels_that_are_one_op_each_are_not_joined() -> None:
    """XLA's ``wrapped_add`` and ``wrapped_multiply``."""
    assert kernels(lambda x, y: (x * y, x + y), X, X) == [(2 * WHOLE, WHOLE)] * 2


def test_a_kernel_of_several_ops_takes_in_one_op() -> None:
    """XLA's ``loop_add_multiply_fusion``: a factor is an op."""
    assert kernels(lambda x, y: (x * y, x + y * 2), X, X) == [(2 * WHOLE, 2 * WHOLE)]


def moved(name: str) -> list[tuple[int, int]]:
    graph = apply(captured(name).graph, "xla")
    return [(int(node.work.read), int(node.work.written)) for node in graph]


def test_what_a_sum_and_a_loop_of_one_kernel_read_would_be_computed_twice() -> None:
    """XLA's ``loop_convert_fusion`` and ``input_multiply_reduce_fusion`` of a layer's scale with
    dropped paths: the values [8, 512, 1024] of bf16, scales [1024] and [8], and sums [8, 1024]."""
    whole, scales, sums = 8 * 512 * 1024 * 2, (1024 + 8) * 2, 8 * 1024 * 2
    kernels = moved("layer scale drop path")
    assert kernels[1:3] == [
        (2 * whole + scales, whole),
        (2 * whole + scales, whole + sums),
    ]


def test_what_is_read_at_several_places_would_be_computed_at_each() -> None:
    """XLA's ``loop_convert_fusion`` and ``loop_add_multiply_fusion`` of a causal convolution, whose
    gradient reads the four last values of a row; four factors of its filter are written."""
    whole, filters = 8 * 512 * 1024 * 2, 4 * 1024 * 2
    kernels = moved("causal conv1d")
    assert (whole + filters, whole) in kernels
    assert (2 * whole + filters, 5 * whole) in kernels


def test_a_slice_that_another_kernel_reads_is_a_result_of_its_reader() -> None:
    """XLA's ``loop_add_dynamic_slice_fusion``, four in each of 8 iterations of the neural ODE's
    gradient: it reads two states [4096, 512] of bf16 and a slice of a stack of states, which a
    product reads, too."""
    graph = apply(captured("neural ODE").graph, "xla")
    state = 4096 * 512 * 2
    found = [
        node
        for block, times in graph.walk()
        for node in block
        if times == 8 and node.work.written == 2 * state and node.work.read // state == 3
    ]
    assert len(found) == 4 and all("1x4096x512xbf16" in map(str, n.result_types) for n in found)
