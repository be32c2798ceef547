"""Prints, as JSON, how far ring attention is from ``layers.attention`` on 8 host devices.

Loss and gradients of the tiny Llama, and attention alone, in float32: per mesh, the largest
difference over the largest element, of every array.
"""

from __future__ import annotations

import functools
import json
import sys
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding

from flint.models.jax.layers import attend
from flint.models.jax.llama3 import TINY, Config, loss, parameters
from flint.models.jax.parameters import abstract
from flint.models.jax.ring_attention import RING_TINY, ZIGZAG_TINY, ring
from flint.models.jax.ring_layouts import contiguous, zigzag, zigzag_order
from flint.models.jax.sharding import spec
from tests.models.jax.drawn import distance, drawn

#: Shape, axes and, beside rings of contiguous parts, the layout.
MESHES: dict[str, tuple[Any, ...]] = {
    "2x2x2": ((2, 2, 2), ("data", "context", "model")),
    "ring of 8": ((8,), ("context",)),
    "2x4": ((2, 4), ("data", "context")),
    "ring of 1": ((4, 1, 2), ("data", "context", "model")),
    "no ring": ((4, 2), ("data", "model")),
    "zigzag 2x2x2": ((2, 2, 2), ("data", "context", "model"), zigzag),
    "zigzag ring of 8": ((8,), ("context",), zigzag),
    "zigzag 2x4": ((2, 4), ("data", "context"), zigzag),
}


def order_of(name, length):
    """The position of each token."""
    shape, axes, *layout = MESHES[name]
    devices = dict(zip(axes, shape, strict=True)).get("context", 1)
    return zigzag_order(length, devices) if layout else jnp.arange(length)


def mesh_of(shape, axes):
    return jax.make_mesh(shape, axes, axis_types=(AxisType.Auto,) * len(axes))


def loss_and_gradients(config: Config, shape, axes, order):
    """Of a model on a mesh, with weights large enough that attention is far from uniform.

    Tokens and targets stand in the order of their positions that is given.
    """
    config = replace(config, dtype=jnp.float32)
    params = drawn(parameters(config), times=4)
    tokens = jax.random.randint(jax.random.key(2), (4, config.sequence + 1), 0, config.vocabulary)
    batch = {"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}
    batch = {name: ids[:, order] for name, ids in batch.items()}
    mesh = mesh_of(shape, axes)
    with jax.set_mesh(mesh):
        placed = jax.tree.map(lambda s: s.sharding, abstract(parameters(config), mesh))
        params = jax.device_put(params, placed)
        batch = jax.device_put(batch, NamedSharding(mesh, spec(("batch", "sequence"), mesh)))
        step = jax.jit(jax.value_and_grad(lambda p, b: loss(config, p, b)))
        return jax.block_until_ready(step(params, batch))


def plain(q, k, v):
    length = q.shape[1]
    return attend(q, k, v, jnp.tril(jnp.ones((length, length), bool))).reshape(q.shape)


def attention_alone(function, shape, axes, dtype, order):
    """Output and gradients of queries, keys and values with scores of up to about 30.

    Operands stand in the order of their positions that is given, results in that of positions.
    """
    keys = jax.random.split(jax.random.key(3), 4)
    sizes = [(4, 32, 8, 8), (4, 32, 4, 8), (4, 32, 4, 8), (4, 32, 8, 8)]
    drawn = [jax.random.normal(key, size) * 3 for key, size in zip(keys, sizes, strict=True)]
    drawn = [array.astype(dtype)[:, order] for array in drawn]
    mesh = mesh_of(shape, axes)
    with jax.set_mesh(mesh):
        split = NamedSharding(mesh, spec(("batch", "sequence", "tensor", None), mesh))
        *operands, slope = jax.device_put(drawn, split)

        def all_of_it(slope, *operands):
            out, pull = jax.vjp(function, *operands)
            return out, *pull(slope)

        found = jax.block_until_ready(jax.jit(all_of_it)(slope, *operands))
    names = ("out", "dq", "dk", "dv")
    back = jnp.argsort(order)
    return {
        name: jax.device_get(x).astype(jnp.float32)[:, back]
        for name, x in zip(names, found, strict=True)
    }


def main(names):
    one = (1,), ("data",)
    length = TINY.sequence
    plainly = jnp.arange(length)
    whole = loss_and_gradients(TINY, *one, plainly)
    exact = attention_alone(plain, *one, jnp.float32, plainly)
    found = {}
    for name in names:
        shape, axes, *layout = MESHES[name]
        config, order = ZIGZAG_TINY if layout else RING_TINY, order_of(name, length)
        value, grads = loss_and_gradients(config, shape, axes, order)
        found[name] = distance({"loss": value, **grads}, {"loss": whole[0], **whole[1]})
        if dict(zip(axes, shape, strict=True)).get("context", 1) > 1:
            for dtype in (jnp.float32, jnp.bfloat16):
                function = functools.partial(ring, layout=layout[0] if layout else contiguous)
                parts = attention_alone(function, shape, axes, dtype, order)
                found[f"{name}, attention, {dtype.__name__}"] = distance(parts, exact)
    one_type = attention_alone(plain, *one, jnp.bfloat16, plainly)
    found["plain, attention, bfloat16"] = distance(one_type, exact)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
