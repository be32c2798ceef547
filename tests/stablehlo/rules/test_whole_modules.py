"""FLOPs of whole JAX programs, op by op from the table, against XLA's cost analysis of the module.

XLA counts a loop's body and condition once, and of branches the largest; so does the sum here.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jaxlib import _jax

from flint.stablehlo.read.reader import read_mlir
from flint.stablehlo.read.records import Block, Module
from flint.stablehlo.rules import rule_for, work_of
from tests.stablehlo.rules.xla_cost import cost_of, types, xla_computation

#: XLA's names for what Flint leaves out on purpose (see the table in ``flint.stablehlo.rules``).
COUNTED_BY_XLA_ONLY = frozenset(("bitcast_convert", "all_reduce"))


def _flops(module: Module, block: Block) -> tuple[int, int]:
    flops = transcendentals = 0
    for op in block.ops:
        _, known = rule_for(op)
        assert known, op
        if op.name == "call":
            inner = _flops(module, module.functions[op.attr("callee")])
        elif op.name == "while":
            parts = [_flops(module, region) for region in op.regions]
            inner = sum(p[0] for p in parts), sum(p[1] for p in parts)
        elif op.name in ("case", "if"):
            parts = [_flops(module, region) for region in op.regions]
            inner = max(p[0] for p in parts), max(p[1] for p in parts)
        else:
            results = types(module, op.results)
            work = work_of(op, types(module, op.operands), results)
            extra = prod(results[0].shape) if op.name in COUNTED_BY_XLA_ONLY else 0
            inner = work.flops + extra, work.transcendentals
        flops += inner[0]
        transcendentals += inner[1]
    return flops, transcendentals


def _attention(x: jax.Array, w: jax.Array) -> jax.Array:
    q, k, v = jnp.split(jnp.tanh(x @ w), 3, axis=-1)
    scores = jnp.einsum("bqh,bkh->bqk", q, k) / 8.0
    mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    weights = jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1)
    return jnp.sum(jnp.einsum("bqk,bkh->bqh", weights, v) ** 2)


def _convolutional(x: jax.Array, kernel: jax.Array) -> jax.Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    y = lax.conv_general_dilated(x, kernel, (2, 2), "SAME", dimension_numbers=numbers)
    y = lax.reduce_window(jax.nn.silu(y), -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    return jnp.mean(y * lax.rsqrt(jnp.var(y) + 1e-5))


def _indexing(table: jax.Array, tokens: jax.Array) -> jax.Array:
    rows = table[tokens]
    order = jnp.argsort(rows.sum(-1))
    return jnp.sum(jnp.cumsum(rows[order], axis=0) * lax.dynamic_slice(table, (1, 0), (6, 4)))


def _loops(x: jax.Array, w: jax.Array) -> Any:
    def body(carry: jax.Array, layer: jax.Array) -> tuple[jax.Array, jax.Array]:
        new = jnp.exp(-carry @ layer)
        return new, new.max()

    x, peaks = lax.scan(body, x, w)
    return lax.cond(peaks.sum() > 3.0, lambda a: jnp.log1p(a @ a.T).sum(), lambda a: a.sum(), x)


def _abstract(shape: tuple[int, ...], dtype: Any = jnp.float32) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]  # jax's own


PROGRAMS: dict[str, tuple[Callable[..., jax.Array], tuple[Any, ...]]] = {
    "attention": (
        _attention,
        (_abstract((2, 16, 8)), _abstract((8, 24))),
    ),
    "convolutional": (
        _convolutional,
        (_abstract((2, 12, 12, 3)), _abstract((3, 3, 3, 8))),
    ),
    "indexing": (
        _indexing,
        (_abstract((10, 4)), _abstract((6,), jnp.int32)),
    ),
    "loops": (
        _loops,
        (_abstract((8, 8)), _abstract((5, 8, 8))),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "with gradient"])
def test_flops_of_a_program_are_those_that_xla_counts(name: str, backward: bool) -> None:
    function, arguments = PROGRAMS[name]
    step = jax.jit(jax.value_and_grad(function) if backward else function)
    computation = xla_computation(step.lower(*arguments).as_text())
    # Back from HLO: XLA's conversion folds constants and drops dead ops before it counts.
    module = read_mlir(_jax.mlir.xla_computation_to_mlir_module(computation).encode())
    expected = cost_of(computation)
    assert expected.flops < 2**24, "XLA adds up in single precision"
    assert _flops(module, module.functions["main"]) == (expected.flops, expected.transcendentals)
