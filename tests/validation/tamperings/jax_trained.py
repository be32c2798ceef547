"""A training step of JAX's on (data, model) in which everything can be something else.

trained().capture(), trained(act=jax.nn.silu).capture()
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import flint

CLASSES, WIDTH, SIZE = 16, 32, 8


def layer_norm(x, scale):
    x = x - x.mean(-1, keepdims=True)
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale


def rms_norm(x, scale):
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale


def maximum_norm(x, scale):
    return x / jnp.maximum(jnp.abs(x).max(-1, keepdims=True), 1e-5) * scale


def unnormalised(x, scale):
    return x * scale


def cross_entropy(scores, labels):
    return -(jax.nn.log_softmax(scores) * labels).sum(-1).mean()


def squared_error(scores, labels):
    return ((scores - labels) ** 2).mean()


def absolute_error(scores, labels):
    return jnp.abs(scores - labels).mean()


def sigmoid_error(scores, labels):
    return -(jax.nn.log_sigmoid(scores) * labels).sum(-1).mean()


def adam(value, gradient, first, second):
    first = 0.9 * first + 0.1 * gradient
    second = 0.99 * second + 0.01 * gradient * gradient
    return value - 0.1 * first / (jnp.sqrt(second) + 1e-8), first, second


def adam_of_other_numbers(value, gradient, first, second):
    first = 0.5 * first + 0.5 * gradient
    second = 0.9 * second + 0.1 * gradient * gradient
    return value - 0.3 * first / (jnp.sqrt(second) + 1e-6), first, second


def adamax(value, gradient, first, second):
    first = 0.9 * first + 0.1 * gradient
    second = jnp.maximum(0.99 * second, jnp.abs(gradient))
    return value - 0.1 * first / (second + 1e-8), first, second


def lion(value, gradient, first, second):
    step = jnp.sign(0.9 * first + 0.1 * gradient)
    return value - 0.1 * step, 0.9 * first + 0.1 * gradient, second


def momentum(value, gradient, first, second):
    first = 0.9 * first + gradient
    return value - 0.1 * first, first, second


def plain(value, gradient, first, second):
    return value - 0.1 * gradient, first, second


def no_update(value, gradient, first, second):
    return value, 0.9 * first + 0.1 * gradient, 0.99 * second + 0.01 * gradient * gradient


def decayed(value, gradient, first, second):
    moved, first, second = adam(value, gradient, first, second)
    return moved - 0.01 * value, first, second


def by_global_norm(gradients):
    total = sum(jnp.sum(one * one) for one in jax.tree.leaves(gradients))
    scale = 1.0 / jnp.maximum(jnp.sqrt(total), 1.0)
    return jax.tree.map(lambda one: one * scale, gradients)


def by_value(gradients):
    return jax.tree.map(lambda one: jnp.clip(one, -1.0, 1.0), gradients)


def by_largest(gradients):
    largest = jnp.max(jnp.stack([jnp.abs(one).max() for one in jax.tree.leaves(gradients)]))
    return jax.tree.map(lambda one: one / jnp.maximum(largest, 1.0), gradients)


@dataclass(frozen=True)
class Options:
    """What a step is made of."""

    act: Any = jax.nn.gelu
    norm: Any = layer_norm
    hidden: int = 64
    batch: int = 16
    depth: int = 2
    residual: bool = True
    scanned: bool = False
    remat: bool = False
    loss: Any = cross_entropy
    scores: Any = None
    optimizer: Any = adam
    clip: Any = by_global_norm
    dtype: Any = jnp.float32
    computed: Any = None
    frozen: bool = False
    stopped: bool = False
    strides: int = 1
    padding: Any = "SAME"
    dilation: int = 1
    channels: int = 1
    reduced: Any = jnp.mean
    first: Any = (None, "model")
    second: Any = ("model", None)
    rows: Any = ("data",)
    mesh: Any = (2, 2)
    axes: Any = ("data", "model")
    returned: Any = None


def _block(options, x, first, second, scale):
    with jax.named_scope("norm"):
        hidden = options.norm(x, scale)
    with jax.named_scope("mlp"):
        found = options.act(hidden @ first) @ second
    with jax.named_scope("residual"):
        return x + found if options.residual else found


def _run(options, state, images, labels):
    def loss_of(parameters):
        kernel, first, second, scale, last = parameters
        if options.computed:
            kernel, first, second, scale, last = (
                one.astype(options.computed) for one in parameters
            )
        with jax.named_scope("stem"):
            x = lax.conv_general_dilated(
                images.astype(kernel.dtype), kernel, (options.strides,) * 2, options.padding,
                rhs_dilation=(options.dilation,) * 2, feature_group_count=options.channels,
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
            )  # fmt: skip
            x = options.reduced(x, (1, 2))
        block = jax.checkpoint(_block, static_argnums=0) if options.remat else _block
        if options.scanned:
            x = lax.scan(
                lambda x, some: (block(options, x, *some), None), x, (first, second, scale)
            )[0]
        else:
            for number in range(options.depth):
                x = block(options, x, first[number], second[number], scale[number])
        x = lax.stop_gradient(x) if options.stopped else x
        with jax.named_scope("head"):
            scores = x @ last
            scores = options.scores(scores) if options.scores else scores
        with jax.named_scope("loss"):
            return options.loss(scores.astype(jnp.float32), labels)

    parameters, first, second = state
    loss, gradients = jax.value_and_grad(loss_of)(parameters)
    with jax.named_scope("clip"):
        gradients = options.clip(gradients) if options.clip else gradients
    with jax.named_scope("optimizer"):
        found = [
            options.optimizer(*some)
            for some in zip(parameters, gradients, first, second, strict=True)
        ]
    if options.frozen:
        found[0] = parameters[0], first[0], second[0]
    made = tuple(zip(*found, strict=True))
    return (made, options.returned(loss, gradients)) if options.returned else (made, loss)


def trained(**changes):
    """A captured step on four devices, with these changes."""
    options = replace(Options(), **changes)

    def setup(mesh):
        def placed(shape, spec, dtype=options.dtype):
            spec = P(*(one if one in mesh.axis_names else None for one in spec))
            return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

        depth, hidden = options.depth, options.hidden
        parameters = (
            placed((3, 3, 4 // options.channels, WIDTH), P()),
            placed((depth, WIDTH, hidden), P(None, *options.first)),
            placed((depth, hidden, WIDTH), P(None, *options.second)),
            placed((depth, WIDTH), P()),
            placed((WIDTH, CLASSES), P()),
        )
        images = placed((options.batch, SIZE, SIZE, 4), options.rows, jnp.float32)
        labels = placed((options.batch, CLASSES), options.rows, jnp.float32)
        return (parameters,) * 3, images, labels

    def step(state, images, labels):
        return _run(options, state, images, labels)

    return flint.capture(step, mesh=options.mesh, axes=options.axes, framework="jax", setup=setup)


base = trained()
