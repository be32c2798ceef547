"""Training steps as users write them, each with a setup; every one runs on 8 or 16 devices.

Longer than 300 lines because it is one list of steps, which more than one test takes from here.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import flint


def placed(mesh, shape, *spec, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


# A two-layer network, plain SGD, data and tensor parallel.


def mlp_setup(mesh):
    params = {
        "w1": placed(mesh, (64, 128), "data", "model"),
        "w2": placed(mesh, (128, 64), "model", "data"),
    }
    return params, placed(mesh, (32, 64), "data")


def mlp_loss(params, batch):
    hidden = jax.nn.relu(batch @ params["w1"])
    return jnp.mean((hidden @ params["w2"]) ** 2)


@flint.capture(mesh=(4, 2), axes=("data", "model"), setup=mlp_setup, donate_argnums=0)
def mlp(params, batch):
    """One step of gradient descent."""
    gradients = jax.grad(mlp_loss)(params, batch)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients)


# A scan over layers with rematerialisation, a momentum optimizer, FSDP and tensor parallel.

LAYERS, WIDTH, HIDDEN = 3, 32, 64


def scan_setup(mesh):
    def tree():
        return {
            "up": placed(mesh, (LAYERS, WIDTH, HIDDEN), None, "data", "model"),
            "down": placed(mesh, (LAYERS, HIDDEN, WIDTH), None, "model", "data"),
            "scale": placed(mesh, (LAYERS, WIDTH)),
        }

    state = {"params": tree(), "opt_state": {"momentum": tree()}}
    return state, {"x": placed(mesh, (16, 8, WIDTH), "data")}


def block(x, layer):
    with jax.named_scope("norm"):
        x = x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * layer["scale"]
    with jax.named_scope("mlp"):
        hidden = lax.with_sharding_constraint(x @ layer["up"], P("data", None, "model"))
        return x + jax.nn.relu(hidden) @ layer["down"]


def scan_loss(params, batch):
    def body(x, layer):
        return jax.checkpoint(block)(x, layer), None

    x, _ = lax.scan(body, batch["x"], params)
    return jnp.mean(x**2)


@flint.capture(mesh=(4, 2), axes=("data", "model"), setup=scan_setup)
@functools.partial(jax.jit, donate_argnums=0)
def scan(state, batch):
    loss, gradients = jax.value_and_grad(scan_loss)(state["params"], batch)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, state["opt_state"]["momentum"], gradients)
    params = jax.tree.map(lambda p, m: p - 0.1 * m, state["params"], momentum)
    return {"params": params, "opt_state": {"momentum": momentum}}, loss


# The same layers unrolled: gradient reductions can start while the backward pass continues.


def unrolled_setup(mesh):
    params = [
        {
            "up": placed(mesh, (WIDTH, HIDDEN)),
            "down": placed(mesh, (HIDDEN, WIDTH)),
            "scale": placed(mesh, (WIDTH,)),
        }
        for _ in range(6)
    ]
    return params, placed(mesh, (16, 8, WIDTH), "data")


def unrolled_loss(params, x):
    for layer in params:
        x = x + jax.nn.relu((x * layer["scale"]) @ layer["up"]) @ layer["down"]
    return jnp.mean(x**2)


@flint.capture(mesh=(8,), axes=("data",), setup=unrolled_setup)
def unrolled(params, x):
    gradients = jax.grad(unrolled_loss)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients)


# shard_map: a ring of permutes and an all-to-all, on a mesh of three axes.


def ring_setup(mesh):
    return placed(mesh, (8, 16, 16), "pod", "data", "model"), placed(mesh, (16, 32), "data")


@flint.capture(mesh=(2, 2, 2), axes=("pod", "data", "model"), setup=ring_setup)
@jax.jit
def ring(x, w):
    def body(x, w):
        def hop(carry, _):
            block, total = carry
            total = total + block @ block.swapaxes(-1, -2)
            return (lax.ppermute(block, "model", [(0, 1), (1, 0)]), total), None

        total = jnp.zeros((*x.shape[:-1], x.shape[-2]), x.dtype)
        (_, total), _ = lax.scan(hop, (x, total), None, length=2)
        spread = lax.all_to_all(total, "data", 1, 2, tiled=True)
        return lax.psum(spread.sum() + w.sum(), ("pod", "data", "model"))

    return jax.shard_map(
        body,
        in_specs=(P("pod", "data", "model"), P("data", None)),
        out_specs=P(),
        check_vma=False,
    )(x, w)


# Ring attention that leaves out blocks of later positions, differentiated: what the backward pass
# does follows from the branches that the forward loop has kept.


def skipping_setup(mesh):
    kind = (2, 16 * mesh.shape["context"], 4, 8)
    return tuple(placed(mesh, kind, "data", "context") for _ in range(3))


@flint.capture(mesh=(2, 4), axes=("data", "context"), setup=skipping_setup)
def skipping(q, k, v):
    def rank_part(q, k, v):
        size, rank = lax.axis_size("context"), lax.axis_index("context")

        def seen(arrays):
            q, k, v, out = arrays
            return out + jnp.tanh(q @ k.swapaxes(-1, -2)) @ v

        def hop(carry, step):
            k, v, out = carry
            ours = (rank - step) % size <= rank
            out = lax.cond(ours, seen, lambda arrays: arrays[3], (q, k, v, out))
            k, v = (lax.ppermute(x, "context", [(i, (i + 1) % size) for i in range(size)])
                    for x in (k, v))  # fmt: skip
            return (k, v, out), None

        q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
        return lax.scan(hop, (k, v, 0 * q), jnp.arange(size))[0][2]

    whole = jax.shard_map(
        rank_part, in_specs=P("data", "context"), out_specs=P("data", None, "context")
    )
    return jax.grad(lambda arrays: jnp.sum(whole(*arrays) ** 2))((q, k, v))


# Four axes: batch over two, heads over one, sequence over one.


def four_setup(mesh):
    x = placed(mesh, (8, 16, 4, 8), ("pod", "data"), "sequence", "model")
    return placed(mesh, (4, 8, 32), "model", None, "data"), x


def four_loss(w, x):
    scores = jnp.einsum("bqhd,bkhd->bhqk", x, x)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), x)
    return jnp.mean(jnp.einsum("bqhd,hdf->bqf", mixed, w) ** 2)


@flint.capture(mesh=(2, 2, 2, 2), axes=("pod", "data", "sequence", "model"), setup=four_setup)
def four(w, x):
    return w - 0.1 * jax.grad(four_loss)(w, x)


# Explicit sharding: the mesh's axes are in the types.


def explicit_setup(mesh):
    return placed(mesh, (16, 32), "data", None), placed(mesh, (32, 64), None, "model")


@flint.capture(
    mesh=(4, 2),
    axes=("data", "model"),
    setup=explicit_setup,
    axis_types=jax.sharding.AxisType.Explicit,
)
def explicit(x, w):
    hidden = jnp.sin(x @ w)
    return jax.sharding.reshard(hidden, P("data", None)).sum(0)


# bfloat16 parameters, reduced in bfloat16.


def bf16_setup(mesh):
    w = placed(mesh, (32, 64), None, "model", dtype=jnp.bfloat16)
    return w, placed(mesh, (16, 32), "data", dtype=jnp.bfloat16)


@flint.capture(mesh=(4, 2), axes=("data", "model"), setup=bf16_setup)
def bf16(w, x):
    return w - jax.grad(lambda w: jnp.sum(jnp.sin(x @ w)).astype(jnp.float32))(w)


# An op with a partitioning rule of its own in Python: rows stay apart, a row is never cut.


@custom_partitioning
def normalised(x):
    """Rows with a sum of one."""
    return x / x.sum(-1, keepdims=True)


def whole_rows(sharding):
    return NamedSharding(sharding.mesh, P(*sharding.spec[:1], None))


def normalise_parts(mesh, operands, result):
    rows = whole_rows(operands[0].sharding)
    return mesh, normalised.fun, rows, (rows,)


normalised.def_partition(
    partition=normalise_parts,
    infer_sharding_from_operands=lambda mesh, operands, result: whole_rows(operands[0].sharding),
    sharding_rule="i j -> i j",
    need_replication_factors=("j",),
)


def ruled_setup(mesh):
    return placed(mesh, (32, 64), "data", "model"), placed(mesh, (64, 16), None, "model")


@flint.capture(mesh=(4, 2), axes=("data", "model"), setup=ruled_setup)
def ruled(x, w):
    """The rows are gathered over "model" and stay cut over "data"."""
    return jnp.tanh(normalised(x) @ w)


# Groups along axes in other orders than the mesh has them, and groups that are listed; a product
# over an axis that comes before those of its result, for which XLA transposes the mesh.


def turned_setup(mesh):
    return placed(mesh, (64, 64), "data", "model"), placed(mesh, (64, 32), "data", "model")


@flint.capture(mesh=(4, 2), axes=("data", "model"), setup=turned_setup)
def turned(x, w):
    def part(x):
        whole = lax.all_gather(x, ("model", "data"), tiled=True)
        mine = lax.psum_scatter(whole, ("model", "data"), tiled=True)
        mine = lax.ppermute(mine, ("data", "model"), [(i, (i + 3) % 8) for i in range(8)])
        pairs = lax.all_gather(mine, "data", axis_index_groups=[[0, 3], [1, 2]]).sum(0)
        spread = lax.all_to_all(pairs, ("model", "data"), 0, 1, tiled=True).reshape(x.shape)
        return lax.pmax(spread, "model")

    both = P("data", "model")
    y = jax.shard_map(part, in_specs=both, out_specs=both, check_vma=False)(x)
    z = lax.with_sharding_constraint(y.T @ w, P(("model", "data")))
    return lax.with_sharding_constraint(jnp.cos(z), P(None, ("data", "model")))


# Library calls: of LAPACK's, each device does the matrices that it has.


def matrices_setup(mesh):
    return placed(mesh, (16, 24, 24), "data"), placed(mesh, (16, 24, 4), "data", None, "model")


@flint.capture(mesh=(4, 2), axes=("data", "model"), setup=matrices_setup)
def decompositions(matrices, sides):
    """Right-hand sides are gathered over "model", matrices never."""
    products = matrices @ matrices.swapaxes(-1, -2)
    factors = jnp.linalg.cholesky(products)
    values, vectors = jnp.linalg.eigh(products)
    found = jnp.linalg.solve(matrices, sides)
    orthogonal, _ = jnp.linalg.qr(matrices)
    scale = jnp.linalg.svd(matrices, compute_uv=False).sum() + values.sum()
    return factors * scale, vectors @ orthogonal, found


# Calls of Python on the host: by the first device for all, and by each for itself.


def call_setup(mesh):
    return placed(mesh, (64, 32), "data"), placed(mesh, (32, 32), None, "model")


@flint.capture(mesh=(4, 2), axes=("data", "model"), setup=call_setup)
def called(x, w):
    """The first device has the whole product sorted and sends it to all."""
    product = x @ w
    shape = jax.ShapeDtypeStruct(product.shape, product.dtype)
    ranked = jax.pure_callback(np.sort, shape, product)
    jax.debug.print("{}", product.sum())
    return jnp.sin(ranked).sum()


@flint.capture(mesh=(4, 2), axes=("data", "model"), setup=call_setup)
def each_called(x, w):
    """Each device has its own part sorted."""

    def part(x, w):
        product = x @ w
        ranked = io_callback(np.sort, jax.ShapeDtypeStruct(product.shape, product.dtype), product)
        return jax.lax.psum(ranked.sum(), ("data", "model"))

    specs = (P("data"), P(None, "model"))
    return jax.shard_map(part, in_specs=specs, out_specs=P(), check_vma=False)(x, w)
