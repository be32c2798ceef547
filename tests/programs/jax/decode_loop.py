"""Tokens generated one by one with a cache, until one ends the text."""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

mesh = jax.make_mesh((jax.device_count(),), ("tp",), axis_types=(jax.sharding.AxisType.Auto,))


def sh(*spec):
    return NamedSharding(mesh, P(*spec))


@functools.partial(jax.jit, out_shardings={"e": sh(), "w": sh(None, "tp"), "o": sh("tp")})
def init(key):
    return {
        "e": jax.random.normal(key, (1000, 256)),
        "w": jax.random.normal(key, (256, 1024)),
        "o": jax.random.normal(key, (1024, 256)),
    }


params = init(jax.random.key(0))
cache = jnp.zeros((128, 256), device=sh())


@functools.partial(jax.jit, donate_argnums=1)
def decode(params, cache, tok, pos):
    x = params["e"][tok]
    cache = jax.lax.dynamic_update_slice(cache, x[None], (pos, 0))
    x = x + cache.sum(0)
    x = jax.nn.relu(x @ params["w"]) @ params["o"]
    return cache, jnp.argmax(params["e"] @ x), pos + 1


tok, pos = jnp.int32(1), jnp.int32(0)
out = []
while len(out) < 100 and (not out or out[-1] != 999):
    cache, tok, pos = decode(params, cache, tok, pos)
    out.append(int(tok))
print(out)
