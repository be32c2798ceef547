"""Peak memory against what XLA's buffer assignment says of the same program, compiled for CPU."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import flint

LAYERS, BATCH, WIDTH = 6, 1024, 256
X = jax.ShapeDtypeStruct((BATCH, WIDTH), jnp.float32)


def unrolled(weights, x, y):
    def loss(weights):
        h = x
        for w in weights:
            h = jnp.tanh(h @ w)
        return jnp.mean((h - y) ** 2)

    value, gradients = jax.value_and_grad(loss)(weights)
    return [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)], value


def scanned(weights, x, y):
    def loss(weights):
        h, _ = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, weights)
        return jnp.mean((h - y) ** 2)

    value, gradients = jax.value_and_grad(loss)(weights)
    return weights - 0.1 * gradients, value


@pytest.mark.parametrize(
    ("step", "weights"),
    [
        (unrolled, [jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.float32)] * LAYERS),
        (scanned, jax.ShapeDtypeStruct((LAYERS, WIDTH, WIDTH), jnp.float32)),
    ],
)
def test_a_donated_training_step_needs_what_xla_says(tmp_path, step, weights):
    lowered = jax.jit(step, donate_argnums=0).lower(weights, X, X)
    found = lowered.compile().memory_analysis()
    expected = (
        found.argument_size_in_bytes
        + found.output_size_in_bytes
        - found.alias_size_in_bytes
        + found.temp_size_in_bytes
    )
    path = tmp_path / "step.mlir"
    path.write_text(lowered.as_text())
    result = flint.convert(path).simulate("dgx-h100")
    assert result.peak_memory_bytes == pytest.approx(expected, rel=0.06)
