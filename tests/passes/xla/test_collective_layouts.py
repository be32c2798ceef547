"""Gathers of a dim that is not the first at granularity xla: kernels and bytes as XLA compiles them
for eight H100s (jaxlib 0.10.2)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import flint
from flint.graph.graph import NodeKind
from flint.graph.work import Role
from flint.passes import apply
from tests.passes.xla.kernels.programs import BF16, F32


def kernels(step, x, weights, spec):
    """How often each kernel runs, its name and its bytes; of 1 KB or more."""

    def setup(mesh):
        return [
            jax.ShapeDtypeStruct(shape, kind, sharding=NamedSharding(mesh, spec))
            for shape, kind, spec in ((x, BF16, P()), (weights, F32, spec))
        ]

    def whole(x, weights):
        inner = jax.shard_map(step, in_specs=(P(), spec), out_specs=P(), check_vma=False)
        return inner(x, weights)

    capture = flint.capture(mesh=(8,), axes=("d",), setup=setup)(whole)
    return [
        (times, node.op, node.work.read, node.work.written)
        for block, times in apply(capture.capture().graph, "xla").walk()
        for node in block
        if node.kind == NodeKind.COMPUTE and node.role != Role.ALIAS and node.work.read >= 1024
    ]


def test_a_stack_whose_slices_a_loop_gathers_is_transposed_once() -> None:
    """XLA: ``wrapped_transpose`` of f32[4,512,64] before the loop, in which ``loop_convert_fusion``
    writes bf16[64,1,512], and ``all_gather`` gives bf16[512,512] in the layout {0,1}."""

    def step(x, stack):
        def layer(x, w):
            w = lax.all_gather(w.astype(BF16), "d", axis=1, tiled=True)
            return jnp.tanh(x @ w), None

        return lax.scan(layer, x, stack)[0]

    assert kernels(step, (64, 512), (4, 512, 512), P(None, None, "d")) == [
        (1, "transpose", 524288, 524288),
        (4, "convert", 131076, 65536),
        (4, "dot_general", 589824, 1048576),
        (4, "tanh", 1048576, 65536),
    ]


def test_outside_of_a_loop_the_conversion_transposes() -> None:
    """XLA: ``loop_transpose_fusion`` reads f32[4,64,1024] and writes bf16, and a batched
    ``gemm_fusion_dot_general`` reads what was gathered as it is."""

    def step(x, w):
        w = lax.all_gather(w.astype(BF16), "d", axis=1, tiled=True)
        return jnp.einsum("ech,ehf->ecf", x, w)

    assert kernels(step, (4, 64, 512), (4, 512, 1024), P(None, "d")) == [
        (1, "transpose", 1048576, 524288),
        (1, "dot_general", 4456448, 524288),
    ]


def test_along_the_first_dim_nothing_is_transposed() -> None:
    def step(x, w):
        return x @ lax.all_gather(w.astype(BF16), "d", axis=0, tiled=True)

    found = kernels(step, (64, 512), (512, 512), P("d"))
    assert [name for _, name, *_ in found] == ["convert", "dot_general", "reduce"]
