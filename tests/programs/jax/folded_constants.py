"""A step that computes constants while it is traced, small ones and a large one, and is traced again.

python folded_constants.py
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P


def rotated(x):
    """Rows turned by angles that depend on their position, up to the diagonal."""
    with jax.ensure_compile_time_eval():
        angles = jnp.outer(jnp.arange(1024.0), 1 / (1e4 ** (jnp.arange(8) / 8)))
        turns = jnp.complex64(jnp.cos(angles) + 1j * jnp.sin(angles))
        mask = jnp.tril(jnp.ones((1024, 1024)))
    return jnp.real(turns[:64] * x) * mask[:64, :8]


@jax.jit
def step(w, x):
    """A new array."""
    return w * rotated(w).sum() * x.sum()


def main():
    """Run a few steps."""
    mesh = jax.make_mesh((jax.device_count(),), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    w = jax.device_put(np.ones((64, 8), np.float32), NamedSharding(mesh, P("x")))
    with mesh:
        for number in range(4):
            if number % 2 == 0:
                jax.clear_caches()
            w = step(w, np.ones(number + 1, np.float32)[:1])


if __name__ == "__main__":
    main()
