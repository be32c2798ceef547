"""ResNet-50 v1.5, data parallel: every device has all weights and its part of the images.

The idea: the model is its list of stages; convolutions are NHWC; what crosses devices is the sum of
gradients, and of batch norm's statistics where they are taken over more images than one device's.
``Config.together`` says over how many:

    together=None   the whole batch, as ``jnp.mean`` under ``jax.jit`` means it: synchronised, every
                    norm waits for all devices, in either pass
    together=32     32 images, here a device's share: only their average crosses devices, at the
                    end of the step, as published and as torch's DistributedDataParallel does

    flint capture models/jax/resnet.py:train_resnet50 --mesh 512 -o out/

Sources: He et al., "Deep Residual Learning for Image Recognition", 2015 (table 1); v1.5 has a
bottleneck's stride in its 3x3 convolution.  Training: Goyal et al., "Accurate, Large Minibatch
SGD", 2017 (statistics per device, section 2.3); no decay of biases and norms: He et al., "Bag of
Tricks", 2018 (section 3.1).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import flint
from flint.models.jax.parameters import Parameter, Tree, abstract, zeros_like
from flint.models.jax.sharding import constrain, parts

#: Channels of a bottleneck's result over those of its 3x3 convolution.
EXPANSION = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A model and how it is trained.

    Attributes:
        blocks: bottlenecks of each stage; each stage but the first halves height and width.
        width: channels of the stem and of the first stage's 3x3 convolutions; doubled per stage.
        classes: number of classes.
        size: height and width of an image.
        images: images of a batch per part of the batch dim (per data-parallel rank).
        together: images whose batch norm statistics are taken together; None: the whole batch.
        dtype: of activations, and of weights in convolutions; parameters are float32.
        rate, momentum, decay: of stochastic gradient descent; decay is of weights only.
    """

    blocks: tuple[int, ...]
    width: int = 64
    classes: int = 1000
    size: int = 224
    images: int = 32
    together: int | None = 32
    dtype: Any = jnp.bfloat16
    rate: float = 0.1
    momentum: float = 0.9
    decay: float = 1e-4


TINY = Config(blocks=(1, 1), width=8, classes=16, size=32, images=2, together=2)
RESNET50 = Config(blocks=(3, 4, 6, 3))


def _convolution(size: int, inputs: int, outputs: int) -> Parameter:
    """A kernel (height, width, inputs, outputs), He initialisation by fan-out."""
    scale = math.sqrt(2 / (size * size * outputs))
    return Parameter((size, size, inputs, outputs), (None,) * 4, scale=scale)


def _norm(channels: int, mean: float = 1.0) -> Tree:
    return {
        "scale": Parameter((channels,), (None,), scale=0.0, mean=mean),
        "bias": Parameter((channels,), (None,), scale=0.0),
    }


def _stages(config: Config) -> list[tuple[str, int, int, int]]:
    """Name, channels in, channels of the 3x3 convolution, stride: of every bottleneck."""
    found, inputs = [], config.width
    for stage, count in enumerate(config.blocks):
        middle = config.width * 2**stage
        for number in range(count):
            stride = 2 if stage > 0 and number == 0 else 1
            found.append((f"stage_{stage + 1}_block_{number + 1}", inputs, middle, stride))
            inputs = middle * EXPANSION
    return found


def parameters(config: Config) -> Tree:
    """Everything that is learned."""
    tree: dict[str, Any] = {
        "stem": {"conv": _convolution(7, 3, config.width), "norm": _norm(config.width)}
    }
    for name, inputs, middle, stride in _stages(config):
        outputs = middle * EXPANSION
        tree[name] = {
            "conv1": _convolution(1, inputs, middle),
            "norm1": _norm(middle),
            "conv2": _convolution(3, middle, middle),
            "norm2": _norm(middle),
            "conv3": _convolution(1, middle, outputs),
            "norm3": _norm(outputs, mean=0.0),  # a block begins as the identity (Goyal et al.)
        }
        if stride > 1 or inputs != outputs:
            tree[name]["shortcut"] = _convolution(1, inputs, outputs)
            tree[name]["shortcut_norm"] = _norm(outputs)
    width = config.width * 2 ** (len(config.blocks) - 1) * EXPANSION
    tree["head"] = {
        "weight": Parameter((width, config.classes), (None, None), scale=0.01),
        "bias": Parameter((config.classes,), (None,), scale=0.0),
    }
    return tree


def statistics(config: Config) -> Tree:
    """Running means and variances of every batch norm, for evaluation."""

    def one(norm: Any) -> Tree:
        channels = norm["scale"].shape
        return {
            "mean": Parameter(channels, (None,), scale=0.0),
            "variance": Parameter(channels, (None,), scale=0.0, mean=1.0),
        }

    return {
        f"{name}/{layer}": one(item)
        for name, layers in parameters(config).items()
        for layer, item in layers.items()
        if "norm" in layer
    }


def convolve(x: jax.Array, kernel: jax.Array, stride: int = 1) -> jax.Array:
    """``x`` (N, H, W, C) with a kernel of odd size, padded so that only strides make it smaller."""
    pad = kernel.shape[0] // 2
    return jax.lax.conv_general_dilated(
        x,
        kernel.astype(x.dtype),
        window_strides=(stride, stride),
        padding=((pad, pad), (pad, pad)),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def batch_norm(
    x: jax.Array, layer: Any, together: int | None, epsilon: float = 1e-5
) -> tuple[jax.Array, Any]:
    """Batch normalisation (Ioffe and Szegedy, 2015), statistics in float32.

    Args:
        x: (N, H, W, C).
        layer: scale and bias (C,).
        together: images whose statistics are taken together, divides N; None: all N.

    Returns:
        The normalised images, and mean and variance (C,): the average over groups of images.
    """
    with jax.named_scope("batch_norm"):
        count, height, width, channels = x.shape
        size = together or count
        wide = x.astype(jnp.float32).reshape(count // size, size, height, width, channels)
        wide = constrain(
            wide, *(("batch", None) if together else (None, "batch")), None, None, None
        )
        mean = wide.mean((1, 2, 3), keepdims=True)
        variance = jnp.square(wide).mean((1, 2, 3), keepdims=True) - jnp.square(mean)
        factor = jax.lax.rsqrt(variance + epsilon) * layer["scale"]
        out = ((wide - mean) * factor + layer["bias"]).reshape(x.shape).astype(x.dtype)
        found = {"mean": mean, "variance": variance}
        return out, jax.tree.map(lambda part: part.mean((0, 1, 2, 3)), found)


def logits(config: Config, params: Any, images: jax.Array) -> tuple[jax.Array, Any]:
    """Scores (N, classes), float32, of ``images`` (N, H, W, 3), and the batch's statistics."""
    seen = {}

    def step(x: jax.Array, name: str, conv: str, norm: str, stride: int = 1) -> jax.Array:
        layer = params[name]
        x, seen[f"{name}/{norm}"] = batch_norm(
            convolve(x, layer[conv], stride), layer[norm], config.together
        )
        return x

    with jax.named_scope("stem"):
        x = jax.nn.relu(step(images.astype(config.dtype), "stem", "conv", "norm", 2))
        least = np.array(-np.inf, x.dtype)  # concrete: JAX knows its gradient
        pads = ((0, 0), (1, 1), (1, 1), (0, 0))
        x = jax.lax.reduce_window(x, least, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), pads)
    for name, _, _, stride in _stages(config):
        with jax.named_scope(name):
            y = jax.nn.relu(step(x, name, "conv1", "norm1"))
            y = jax.nn.relu(step(y, name, "conv2", "norm2", stride))
            y = step(y, name, "conv3", "norm3")
            if "shortcut" in params[name]:
                x = step(x, name, "shortcut", "shortcut_norm", stride)
            x = jax.nn.relu(x + y)
    with jax.named_scope("head"):
        x = x.astype(jnp.float32).mean((1, 2)).astype(config.dtype)
        scores = x @ params["head"]["weight"].astype(config.dtype)
        return scores.astype(jnp.float32) + params["head"]["bias"], seen


def loss(config: Config, params: Any, batch: Any) -> tuple[jax.Array, Any]:
    """Mean cross entropy, and the batch's statistics.

    Args:
        config: the model.
        params: arrays of ``parameters``.
        batch: images (N, H, W, 3) of float32, labels (N,) of int32.
    """
    scores, seen = logits(config, params, batch["images"])
    with jax.named_scope("loss"):
        label = jnp.take_along_axis(scores, batch["labels"][:, None], axis=-1)[:, 0]
        return jnp.mean(jax.nn.logsumexp(scores, axis=-1) - label), seen


def update(config: Config, params: Any, grads: Any, momentum: Any) -> tuple[Any, Any]:
    """One step of gradient descent with momentum: new parameters and momentum."""
    with jax.named_scope("sgd"):

        def gathered(p: jax.Array, g: jax.Array, m: jax.Array) -> jax.Array:
            decay = config.decay if p.ndim > 1 else 0.0
            return config.momentum * m + g.astype(jnp.float32) + decay * p

        momentum = jax.tree.map(gathered, params, grads, momentum)
        return jax.tree.map(lambda p, m: p - config.rate * m, params, momentum), momentum


def abstract_arguments(config: Config, mesh: Any) -> tuple[Any, Any]:
    """State and batch of a training step, abstract, split over a mesh."""
    params = parameters(config)
    tree = {"params": params, "statistics": statistics(config), "opt_state": zeros_like(params)}
    count = config.images * parts("batch", mesh)
    images = Parameter((count, config.size, config.size, 3), ("batch", None, None, None))
    labels = Parameter((count,), ("batch",), dtype=jnp.int32)
    return abstract(tree, mesh), abstract({"images": images, "labels": labels}, mesh)


def training(config: Config, mesh: tuple[int, ...], axes: tuple[str, ...] = ("data",)) -> Any:
    """A training step of a model: ``training(RESNET50, mesh=(512,)).capture()``.

    Args:
        config: the model.
        mesh: devices per axis.
        axes: their names; only axes that split the batch make sense.

    Returns:
        ``step(state, batch) -> (state, loss)``, jitted, with the state donated.
    """

    @flint.capture(mesh=mesh, axes=axes, setup=functools.partial(abstract_arguments, config))
    @functools.partial(jax.jit, donate_argnums=0)
    def train_step(state: Any, batch: Any) -> tuple[Any, jax.Array]:
        def objective(params: Any) -> tuple[jax.Array, Any]:
            return loss(config, params, batch)

        (value, seen), grads = jax.value_and_grad(objective, has_aux=True)(state["params"])
        params, momentum = update(config, state["params"], grads, state["opt_state"])
        running = jax.tree.map(lambda r, s: 0.9 * r + 0.1 * s, state["statistics"], seen)
        return {"params": params, "statistics": running, "opt_state": momentum}, value

    return train_step


train_tiny = training(TINY, mesh=(8,))
train_resnet50 = training(RESNET50, mesh=(512,))
