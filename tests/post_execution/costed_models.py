"""Steps of JAX on one device whose profiles are compared with XLA's own cost analysis.

All numbers are float32 unless a docstring says otherwise.  Started with a folder, this runs each
model under the profiler, and prints what XLA says of the executable that ran.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp


def mlp():
    """Three layers of 64, 32 rows, a step of gradient descent: six results."""

    def loss(params, x):
        for w, b in params:
            x = jnp.tanh(x @ w + b)
        return (x**2).mean()

    def step(params, x):
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params, x))

    layers = [(0.01 * jnp.ones((64, 64)), jnp.zeros(64)) for _ in range(3)]
    return step, (layers, jnp.ones((32, 64)))


def attention():
    """Four heads of 16 over two sequences of 32."""

    def loss(x, w):
        q, k, v = (jnp.einsum("bsd,dhk->bhsk", x, w[i]) for i in range(3))
        scores = jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k) / 4.0)
        return (jnp.einsum("bhqk,bhkd->bhqd", scores, v) ** 2).sum()

    return jax.grad(loss, 1), (jnp.ones((2, 32, 64)), jnp.ones((3, 64, 4, 16)))


def norm():
    """A layer norm of 64 rows of 128, rounded to bfloat16: two results."""

    def loss(x, scale):
        mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        y = (x - mean) / jnp.sqrt(var + 1e-5) * scale
        return y.astype(jnp.bfloat16).astype(jnp.float32).sum()

    return jax.grad(loss, (0, 1)), (jnp.ones((64, 128)), jnp.ones(128))


def ordered():
    """16 rows of 256, sorted and summed up."""
    return (lambda x: jnp.cumsum(jnp.sort(x, axis=-1), axis=-1)), (jnp.ones((16, 256)),)


def convolution():
    """8 channels to 16 over four images of 16 x 16, a pool of 2 x 2: two results."""

    def loss(kernel, x):
        names = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=names)
        window = (1, 2, 2, 1)
        return jax.lax.reduce_window(
            jax.nn.relu(y), -jnp.inf, jax.lax.max, window, window, "VALID"
        ).mean()

    return jax.value_and_grad(loss), (jnp.ones((3, 3, 8, 16)), jnp.ones((4, 16, 16, 8)))


def lookup():
    """64 rows of a table of 1,000 rows of 32, and the gradient of the table."""

    def loss(table, places):
        return (table[places] ** 2).sum()

    return jax.grad(loss), (jnp.ones((1000, 32)), jnp.arange(64) % 17)


def layers():
    """Six layers of 48 in a scan, forward and backward, on 16 rows."""

    def loss(weights, x):
        return jax.lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, weights)[0].sum()

    return jax.grad(loss), (0.01 * jnp.ones((6, 48, 48)), jnp.ones((16, 48)))


MODELS = {
    model.__name__: model for model in (mlp, attention, norm, ordered, convolution, lookup, layers)
}


#: The operands of a tuple that a program makes.
TUPLE = re.compile(r" tuple\((.*?)\)(?:,|$)", re.MULTILINE)


def executed(text: str) -> str:
    """The computations that are executed op by op: the entry and the bodies of loops."""
    bodies = tuple(f"{name} " for name in re.findall(r"body=(%[\w.-]+)", text))
    return "\n".join(part for part in text.split("\n\n") if part.startswith(("ENTRY", *bodies)))


def run(folder: Path) -> dict[str, dict[str, float]]:
    """Per model the FLOPs, the bytes accessed, and the entries of all tuples that it makes."""
    found = {}
    for name, model in MODELS.items():
        step, arguments = model()
        program = jax.jit(step).lower(*arguments).compile()
        jax.block_until_ready(program(*arguments))
        with jax.profiler.trace(str(folder / name)):
            jax.block_until_ready(program(*arguments))
        cost = program.cost_analysis()
        entries = sum(made.count("%") for made in TUPLE.findall(executed(program.as_text())))
        found[name] = {
            "flops": cost["flops"], "bytes": cost["bytes accessed"], "entries": entries,
        }  # fmt: skip
    return found


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]))))
