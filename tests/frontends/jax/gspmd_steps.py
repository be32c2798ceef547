"""Steps under the older partitioner (GSPMD), which chooses shardings itself.

As a script: compiles and runs them on 8 host devices and prints, for each step and each of its
programs, the collectives of the executable: kind, groups, result bytes.
"""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

SIZES = {"w": (512, 256), "x": (64, 512)}
SPECS = {"w": P(None, "model"), "x": P("data")}


def setup(mesh):
    return tuple(
        jax.ShapeDtypeStruct(SIZES[name], jnp.float32, sharding=NamedSharding(mesh, SPECS[name]))
        for name in ("w", "x")
    )


@jax.jit
def update(w, x):
    """Data and tensor parallel: the gradient is reduced over the data axis."""
    return w - jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).mean())(w)


@jax.jit
def halves(x):
    """Rows in 4 parts become 2 x 2 parts: each dim has a half of the axis."""
    return x.reshape(2, 32, 512).transpose(1, 0, 2) + 1


@jax.jit
def summed(y):
    return (y * 2).sum(0)


@jax.jit
def along_the_other(y):
    return (y * 2).sum(1)


def split(w, x):
    y = halves(x)
    return summed(y), along_the_other(y)


def executed():
    from tests.support.host_runs import collectives

    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
    w, x = (jax.device_put(jnp.ones(item.shape), item.sharding) for item in setup(mesh))

    def of(program, *arguments):
        return sorted(collectives(program.lower(*arguments).compile().as_text()).values())

    y = halves(x)
    return {
        "update": [of(update, w, x)],
        "split": [of(halves, x), of(summed, y), of(along_the_other, y)],
    }


if __name__ == "__main__":
    jax.config.update("jax_use_shardy_partitioner", False)
    print(json.dumps(executed()))
