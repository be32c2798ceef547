"""Estimated times against those that XLA's compiler wrote when it decided what to fuse.

jaxlib 0.10.2, H100, ``--xla_dump_hlo_pass_re=priority-fusion``: each line of its
``priority_fusion_dump`` has the microseconds of an op and its readers, fused and not.
"""

from __future__ import annotations

import jax.numpy as jnp
import pytest
from jax import lax

import flint
from flint.graph.work import Role
from flint.passes import apply
from flint.passes.xla.emitters import (
    Emitter,
    columns_grid,
    loop_grid,
    rows_grid,
    transposed,
    whole_rows_grid,
)
from flint.passes.xla.priority import Queue
from flint.passes.xla.simplify import simplified
from flint.passes.xla.softmax import diamonds
from flint.passes.xla.times import LAUNCH, Times
from tests.passes.xla.kernels.programs import BF16, F32, grads, normed, of

F, B = of(8192, 1024, dtype=F32), of(4096, 512)


def block(function, *arguments):
    graph = flint.capture(mesh=(1,))(function).capture(*arguments).graph
    return simplified(apply(graph, "op"))


@pytest.mark.parametrize(
    ("function", "arguments", "fused", "unfused"),
    [
        (lambda a, b, c: (a + b) + c, (B, B, B), 6.0145, 9.517),
        (lambda a, b: (a * b).astype(BF16), (F, F), 26.06075, 47.07925),
        (lambda a, b: (a * b).sum(-1), (F, F), 21.0915, 42.10975),
        (lambda a: -a.sum(-1), (F,), 11.06325, 12.08275),
    ],
)
def test_times_of_an_op_and_its_reader_are_xlas(function, arguments, fused, unfused) -> None:
    times = Times(block(function, *arguments))
    works = [n for n, role in enumerate(times.role) if role in (Role.ELEMENTWISE, Role.REDUCTION)]
    producer, consumer = (times.alone(node) for node in works)
    together = times.fused(producer, consumer) + LAUNCH
    assert together / 1000 == pytest.approx(fused, abs=0.005)
    assert (producer.exec + consumer.exec + 2 * LAUNCH) / 1000 == pytest.approx(unfused, abs=0.005)


def test_a_concatenation_of_short_operands_takes_long() -> None:
    """Threads of a warp choose differently: XLA's ``stack`` of interleaved features and the
    conversion in front of it, whose shape [8, 512, 16, 32, 1] is that of a reshape without a node
    (jaxlib 0.10.2, H100)."""

    def stacked(x, y):
        return jnp.stack([(x * 3).astype(BF16), y], -1)

    times = Times(block(stacked, of(8, 512, 16, 32, dtype=F32), of(8, 512, 16, 32)))
    producer, consumer = (times.alone(times.names.index(op)) for op in ("convert", "concatenate"))
    apart = (producer.exec + consumer.exec + 2 * LAUNCH) / 1000
    assert apart == pytest.approx(31.0835, abs=0.0005)
    assert (times.fused(producer, consumer) + LAUNCH) / 1000 == pytest.approx(26.48175, abs=0.0005)


def test_kernels_of_whole_rows_compute_rows_that_are_filled_up() -> None:
    """Scores of 77 keys, 128 with what fills a row: XLA's ``triton_softmax`` alone and with what
    makes its argument or the exponential behind it, in microseconds (cross-attention to a text)."""

    def shifted(x):
        y = x.astype(F32) * 0.158
        return jnp.exp(y - lax.stop_gradient(y.max(-1, keepdims=True)))

    times = Times(block(shifted, of(8, 8, 1024, 77)))
    [(root, members)] = diamonds(times).items()
    rows = times.alone(root, members)
    scaled, exponential = (times.alone(times.names.index(op)) for op in ("multiply", "exponential"))
    apart = (rows.exec + exponential.exec + 2 * LAUNCH) / 1000
    assert apart == pytest.approx(26.438, abs=0.0005)
    fused = [times.fused(rows, exponential), times.fused(scaled, rows)]
    assert [(each + LAUNCH) / 1000 for each in fused] == pytest.approx(
        [13.59275, 13.11625], abs=0.0005
    )


def test_rows_that_are_looked_up_are_read_several_times() -> None:
    """An element of [8192, 256] is looked up eight times: it is computed and read as often, from
    the second cache (XLA's product in front of a lookup in the graph network)."""

    def found(a, b, i):
        return (a * b).at[i].get(mode="promise_in_bounds")

    times = Times(block(found, of(8192, 256), of(8192, 256), of(65536, dtype=jnp.int32)))
    producer = times.alone(times.names.index("multiply"))
    consumer = times.alone(times.names.index("gather"))
    assert (times.fused(producer, consumer) + LAUNCH) / 1000 == pytest.approx(20.634, abs=0.005)
    apart = (producer.exec + consumer.exec + 2 * LAUNCH) / 1000
    assert apart == pytest.approx(20.6005, abs=0.005)


def test_what_saves_most_is_fused_first() -> None:
    """XLA's first decisions about a layer norm: the square of the deviation, the mean."""
    x, s = of(8192, 1024), of(1024, dtype=F32)
    queue = Queue(Times(block(grads(normed, 3), x, s, s)), [False] * 200)
    queue.run()
    saved = [nanoseconds for _, nanoseconds in queue.trace]
    first = queue.times.names[queue.trace[0][0]]
    assert first == "multiply" and saved[0] == pytest.approx(31_027.5, abs=1)
    assert all(each >= 0 for each in saved)


def test_blocks_of_reductions() -> None:
    """A sum of [4096, 2048] in bf16 over its rows has 16 blocks, which use a third of the memory's
    bandwidth; one over its last dim has a block for each row."""
    assert columns_grid([(4096, True), (2048, False)], 16) == (16, 1024)
    assert columns_grid([(4096, True), (2048, False)], 32) == (32, 1024)
    assert rows_grid([(8192, False), (1024, True)], 32)[0] == 8192 // 4
    assert loop_grid(1 << 20) == (2048, 128)
    # 2,048 rows of 16 are as many tiles of one warp: 1.178 us with an exponential, in XLA's model.
    assert whole_rows_grid(2048, 16) == (2048, 32)
    assert whole_rows_grid(32768, 512)[1] >= 128


@pytest.mark.parametrize(
    ("shape", "order", "last", "tiled"),
    [
        ((512, 512), (1, 0), True, True),
        ((8, 512, 8, 64), (0, 2, 1, 3), False, False),
        ((8, 8, 64, 512), (0, 3, 1, 2), True, True),
        ((1, 512, 1, 64), (0, 2, 1, 3), False, False),
        ((4096, 8), (1, 0), True, True),
        ((64, 4), (1, 0), True, False),
    ],
)
def test_transposes_in_tiles(shape, order, last, tiled) -> None:
    """``loop_transpose_fusion`` and ``input_transpose_fusion`` of attention; a transpose of dims of
    size 1 is none."""
    assert transposed(shape, order, 16) == (last, tiled)


def test_square_transposes_are_told_apart() -> None:
    """Permutations are in the graph: of two square dims no shape says which one is last."""
    same = Times(block(lambda x: jnp.transpose(x, (1, 0, 2)) + 1, of(64, 64, 64)))
    turned = Times(block(lambda x: jnp.transpose(x, (0, 2, 1)) + 1, of(64, 64, 64)))
    assert Emitter.TRANSPOSE not in same.emitter and Emitter.TRANSPOSE in turned.emitter
