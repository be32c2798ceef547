"""A training program of JAX drawn from a number, on 8 devices: python jax_program.py 7.

The number decides the model, the style of parallelism, the loss, the optimizer and how the step is
called, so that what nobody has thought of is tried together.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from drawing import pick
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jax_model import (
    LENGTH,
    MESH,
    ROWS,
    STYLE,
    TYPE,
    WORDS,
    init,
    laid,
    logits,
    placed,
)

ONE_HOT, DROPPED = pick([True, False]), pick([0.0, 0.1]) if STYLE != "explicit" else 0.0
LOSS = pick(["integers", "written", "smooth"]) if STYLE != "explicit" else "smooth"
PARTS, NORM, TYPED = pick([1, 1, 2, 4]), pick([True, False]), pick([True, False])
CALLED = pick(["jit", "jit", "ahead", "twice"])
once = partial(jax.jit, donate_argnums=pick([(), (0, 1)]))


def kind(path, weight):
    return "a" if path[0].key == "layers" else "b"


OPTIMIZER = {
    "adamw": lambda: optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 1e-3, 2, 10)),
    "momentum": lambda: optax.sgd(1e-2, momentum=0.9, nesterov=True),
    "lion": lambda: optax.lion(1e-3),
    "clipped": lambda: optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3)),
    "two": lambda: optax.multi_transform(
        {"a": optax.adam(1e-3), "b": optax.sgd(1e-2)},
        lambda params: jax.tree_util.tree_map_with_path(kind, params),
    ),
    "every second": lambda: optax.MultiSteps(optax.adam(1e-3), 2),
    "adafactor": lambda: optax.adafactor(1e-3, min_dim_size_to_factor=16),
}  # fmt: skip
OPTIMIZER = OPTIMIZER[pick(list(OPTIMIZER)[: 6 if STYLE == "explicit" else 7])]()


def loss_of(params, words, key):
    table = params["words"].astype(TYPE)
    if STYLE == "explicit":
        x = table.at[words].get(out_sharding=P("data"))
    else:
        x = jax.nn.one_hot(words, WORDS, dtype=TYPE) @ table if ONE_HOT else table[words]
    if DROPPED:
        x = jnp.where(jax.random.bernoulli(key, 1 - DROPPED, x.shape), x / (1 - DROPPED), 0)
    found, wanted = logits(params, x)[:, :-1], words[:, 1:]
    if LOSS == "integers":
        return optax.softmax_cross_entropy_with_integer_labels(found, wanted).mean()
    if LOSS == "smooth":
        labels = optax.smooth_labels(jax.nn.one_hot(wanted, WORDS), 0.1)
        return optax.softmax_cross_entropy(found, labels).mean()
    right = jnp.take_along_axis(found, wanted[..., None], -1)[..., 0]
    return (jax.nn.logsumexp(found, -1) - right).mean()


def gradients(params, words, key):
    if PARTS == 1:
        return jax.value_and_grad(loss_of)(params, words, key)
    sizes = PARTS, -1, LENGTH
    whole = words.reshape(sizes, out_sharding=P(None, "data")) if STYLE == "explicit" else words
    parts = laid(whole.reshape(sizes) if whole is words else whole, None, "data", None)

    def more(total, part):
        return jax.tree.map(jnp.add, total, jax.value_and_grad(loss_of)(params, part, key)), None

    start = jnp.zeros(()), jax.tree.map(jnp.zeros_like, params)
    return jax.tree.map(lambda item: item / PARTS, lax.scan(more, start, parts)[0])


def updated(params, state, grads):
    updates, state = OPTIMIZER.update(grads, state, params)
    return optax.apply_updates(params, updates), state


def step(params, state, words, key):
    loss, grads = gradients(params, words, key)
    if STYLE == "copies":
        loss, grads = lax.pmean((loss, grads), "data")
    norm = optax.global_norm(grads) if NORM else loss
    return *updated(params, state, grads), loss, norm


def in_parts(weights):
    """The loss and gradients of a ``shard_map``."""
    checked = pick([True, False]) and PARTS == 1

    def local(params, words, key):
        if checked:
            return jax.value_and_grad(lambda p: lax.pmean(loss_of(p, words, key), "data"))(params)
        loss, grads = gradients(params, words, key)
        return lax.pmean((loss, grads), "data")

    return jax.shard_map(
        local, mesh=MESH, in_specs=(weights, P("data"), P()), out_specs=(P(), weights),
        check_vma=checked,
    )  # fmt: skip


def by_copies(key):
    params = jax.tree.map(lambda item: jnp.stack([item] * 8), init(key))
    mapped = jax.pmap(step, axis_name="data")
    state = jax.pmap(OPTIMIZER.init)(params)
    return (
        params,
        state,
        lambda p, s, w, k: mapped(p, s, w.reshape(8, -1, LENGTH), jax.random.split(k, 8)),
    )


def by_mesh(key):
    weights = placed()
    there = jax.tree.map(partial(NamedSharding, MESH), weights)
    params = jax.jit(init, out_shardings=there)(key)
    state = jax.jit(OPTIMIZER.init)(params)
    if STYLE == "parts":
        parts = in_parts(weights)

        @once
        def part_step(params, state, words, key):
            loss, grads = parts(params, words, key)
            return *updated(params, state, grads), loss, loss

        return params, state, part_step
    if CALLED != "twice":
        same = {"out_shardings": (there, None, None, None)} if pick([True, False]) else {}
        return params, state, once(step, **(same if STYLE == "auto" else {}))
    first, second = jax.jit(gradients), once(updated)

    def both(params, state, words, key):
        loss, grads = first(params, words, key)
        return *second(params, state, grads), loss, loss

    return params, state, both


def main():
    if STYLE == "explicit":
        jax.set_mesh(MESH)
    key = jax.random.key(0) if TYPED else jax.random.PRNGKey(0)
    params, state, run = (by_copies if STYLE == "copies" else by_mesh)(key)
    drawn = np.random.RandomState(0)
    for number in range(4):
        words = drawn.randint(0, WORDS, (ROWS * 8 if STYLE == "copies" else ROWS, LENGTH))
        words = words.astype(np.int32)
        if STYLE != "copies":
            words = jax.device_put(words, NamedSharding(MESH, P("data")))
        key, own = jax.random.split(key)
        if CALLED == "ahead" and number == 0 and hasattr(run, "lower"):
            run = run.lower(params, state, words, own).compile()
        params, state, loss, norm = run(params, state, words, own)
        if number % 2 == 0:
            print(number, np.asarray(loss).mean(), np.asarray(norm).mean())


if __name__ == "__main__":
    main()
