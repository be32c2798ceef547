"""Training steps of many kinds that XLA's GPU compiler was asked about.

``PROGRAMS``, each for one device, are no models that come with Flint: layers that occur in
convolutional networks, transformers, recurrent and diffusion models, mixtures of experts, and
optimizers and losses alone.  Sizes are such that memory traffic counts and nothing is folded away.
``MODELS`` come with Flint; of them one rule came, from ResNet-50 (two reductions in a kernel).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from flint.models.jax import llama3, moe, resnet

BF16, F32, I32 = jnp.bfloat16, jnp.float32, jnp.int32


def of(*shape: int, dtype: Any = BF16) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def conv(x: Any, w: Any, stride: int = 1) -> Any:
    dims = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=dims)


def mean_square(y: Any) -> Any:
    return (y.astype(F32) ** 2).mean()


def grads(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """The gradients of the mean square of what a function gives."""
    return jax.grad(lambda *args: mean_square(function(*args)), argnums=tuple(range(count)))


def normed(x: Any, scale: Any, bias: Any, axes: Any = -1) -> Any:
    y = x.astype(F32)
    mean = y.mean(axes, keepdims=True)
    variance = ((y - mean) ** 2).mean(axes, keepdims=True)
    return ((y - mean) * lax.rsqrt(variance + 1e-5) * scale + bias).astype(x.dtype)


def rms(x: Any, scale: Any) -> Any:
    y = x.astype(F32)
    return (y * lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5) * scale).astype(x.dtype)


def residual_block(x: Any, w1: Any, w2: Any, w3: Any, s: Any, b: Any) -> Any:
    y = jax.nn.relu(normed(conv(x, w1), s[0], b[0], (0, 1, 2)))
    y = jax.nn.relu(normed(conv(y, w2), s[1], b[1], (0, 1, 2)))
    return jax.nn.relu(x + normed(conv(y, w3), s[2], b[2], (0, 1, 2)))


def bottleneck(x: Any, w1: Any, w2: Any, w3: Any, s: Any, b: Any) -> Any:
    y = jax.nn.relu(normed(conv(x, w1), s, b, (0, 1, 2)))
    y = jax.nn.relu(normed(conv(y, w2), s, b, (0, 1, 2)))
    return jax.nn.relu(x + conv(y, w3))


def u_net(x: Any, down: Any, middle: Any, up: Any) -> Any:
    low = jax.nn.silu(conv(x, down, 2))
    low = jax.nn.silu(conv(low, middle))
    shape = (low.shape[0], low.shape[1] * 2, low.shape[2] * 2, low.shape[3])
    high = jax.image.resize(low, shape, "nearest")
    return conv(jnp.concatenate([x, high], -1), up)


def gru(x: Any, w: Any, u: Any) -> Any:
    def cell(h: Any, row: Any) -> Any:
        gates = row @ w + h @ u
        z, r, n = jnp.split(gates, 3, -1)
        z, r = jax.nn.sigmoid(z), jax.nn.sigmoid(r)
        h = (1 - z) * jnp.tanh(n * r) + z * h
        return h, h

    return lax.scan(cell, jnp.zeros((x.shape[1], u.shape[0]), x.dtype), x)[1]


def heads(x: Any, w: Any, count: int) -> Any:
    return (x @ w).reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)


def plain_attention(x: Any, q: Any, k: Any, v: Any, o: Any, *, causal: bool) -> Any:
    a, b, c = heads(x, q, 8), heads(x, k, 8), heads(x, v, 8)
    scores = jnp.einsum("bhqd,bhkd->bhqk", a, b).astype(F32) / a.shape[-1] ** 0.5
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
    y = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1).astype(x.dtype), c)
    return y.transpose(0, 2, 1, 3).reshape(x.shape) @ o


def attention(x: Any, q: Any, k: Any, v: Any, o: Any) -> Any:
    return plain_attention(x, q, k, v, o, causal=False)


def causal_attention(x: Any, q: Any, k: Any, v: Any, o: Any) -> Any:
    return plain_attention(x, q, k, v, o, causal=True)


def vision_block(x: Any, q: Any, k: Any, v: Any, o: Any, m1: Any, m2: Any, s: Any, b: Any) -> Any:
    x = x + attention(normed(x, s, b), q, k, v, o)
    return x + jax.nn.gelu(normed(x, s, b) @ m1) @ m2


def llama_block(x: Any, q: Any, k: Any, v: Any, o: Any, g: Any, u: Any, d: Any, s: Any) -> Any:
    x = x + causal_attention(rms(x, s), q, k, v, o)
    y = rms(x, s)
    return x + (jax.nn.silu(y @ g) * (y @ u)) @ d


def diffusion_block(x: Any, t: Any, w1: Any, w2: Any, wt: Any, s: Any, b: Any) -> Any:
    groups = x.reshape(*x.shape[:3], 8, -1)
    y = normed(groups, 1.0, 0.0, (1, 2, 4)).reshape(x.shape) * s + b
    y = conv(jax.nn.silu(y).astype(x.dtype), w1) + (t @ wt)[:, None, None, :]
    return x + conv(jax.nn.silu(normed(y, s, b)).astype(x.dtype), w2)


def mixture(x: Any, router: Any, up: Any, down: Any) -> Any:
    weights, chosen = lax.top_k(jax.nn.softmax((x @ router).astype(F32), -1), 2)
    mask = (jax.nn.one_hot(chosen, up.shape[0]) * weights[..., None]).sum(1).astype(x.dtype)
    y = jnp.einsum("th,ehf->etf", x, up)
    return jnp.einsum("etf,efh,te->th", jax.nn.gelu(y), down, mask)


def grouped(x: Any, up: Any, down: Any, sizes: Any) -> Any:
    return lax.ragged_dot(jax.nn.silu(lax.ragged_dot(x, up, sizes)), down, sizes)


def dense(x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    return jax.nn.relu(x @ w1 + b1) @ w2 + b2


def adam(p: Any, g: Any, m: Any, v: Any) -> Any:
    m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
    v = jax.tree.map(lambda a, b: 0.999 * a + 0.001 * b * b, v, g)
    step = jax.tree.map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), p, m, v)
    return step, m, v


def clipped_sgd(p: Any, g: Any, m: Any) -> Any:
    norm = jnp.sqrt(sum((x.astype(F32) ** 2).sum() for x in g))
    scale = jnp.minimum(1.0, 1.0 / norm)
    m = [0.9 * a + b * scale for a, b in zip(m, g, strict=True)]
    return [a - 0.1 * b for a, b in zip(p, m, strict=True)], m


def cross_entropy(logits: Any, labels: Any) -> Any:
    logs = jax.nn.log_softmax(logits.astype(F32), -1)
    return -jnp.take_along_axis(logs, labels[:, None], -1).mean()


def smoothed_cross_entropy(logits: Any, labels: Any) -> Any:
    target = 0.9 * jax.nn.one_hot(labels, logits.shape[-1]) + 0.1 / logits.shape[-1]
    return -(target * jax.nn.log_softmax(logits.astype(F32), -1)).sum(-1).mean()


def embedding(table: Any, tokens: Any, w: Any) -> Any:
    return mean_square(jnp.tanh(table[tokens] @ w))


def layer_scan(x: Any, ws: Any, s: Any) -> Any:
    def layer(x: Any, w: Any) -> Any:
        return x + jax.nn.gelu(rms(x, s) @ w), None

    return lax.scan(layer, x, ws)[0]


def dropout_block(x: Any, w: Any, key: Any) -> Any:
    mask = jax.random.bernoulli(jax.random.wrap_key_data(key), 0.9, x.shape)
    return x + jnp.where(mask, jax.nn.gelu(x @ w) / 0.9, 0)


X, W = of(8, 512, 512), of(512, 512)
WIDE, TALL, VECTOR = of(512, 2048), of(2048, 512), of(512, dtype=F32)
IMAGE, KERNEL = of(16, 56, 56, 64), of(3, 3, 64, 64)
THREE, CHANNELS = of(3, 64, dtype=F32), of(64, dtype=F32)
TREE = [of(1024, 1024, dtype=F32), of(4096, 512, dtype=F32), of(1000, dtype=F32)]

#: Name -> (function, its arguments).
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "residual block": (grads(residual_block, 6), (IMAGE, KERNEL, KERNEL, KERNEL, THREE, THREE)),
    "bottleneck": (
        grads(bottleneck, 6),
        (of(16, 28, 28, 256), of(1, 1, 256, 64), KERNEL, of(1, 1, 64, 256), CHANNELS, CHANNELS),
    ),
    "U-Net level": (grads(u_net, 4), (IMAGE, KERNEL, KERNEL, of(3, 3, 128, 64))),
    "GRU": (grads(gru, 3), (of(64, 32, 256), of(256, 768), of(256, 768))),
    "attention": (grads(attention, 5), (X, W, W, W, W)),
    "causal attention": (grads(causal_attention, 5), (X, W, W, W, W)),
    "ViT block": (grads(vision_block, 9), (X, W, W, W, W, WIDE, TALL, VECTOR, VECTOR)),
    "Llama block": (grads(llama_block, 9), (X, W, W, W, W, WIDE, WIDE, TALL, VECTOR)),
    "diffusion block": (
        grads(diffusion_block, 7),
        (IMAGE, of(16, 256), KERNEL, KERNEL, of(256, 64), CHANNELS, CHANNELS),
    ),
    "mixture of experts": (
        grads(mixture, 4), (of(1024, 512), of(512, 8), of(8, 512, 1024), of(8, 1024, 512)),
    ),
    "grouped products": (
        grads(grouped, 3), (of(4096, 512), of(8, 512, 1024), of(8, 1024, 512), of(8, dtype=I32)),
    ),
    "dense": (
        grads(dense, 5),
        (of(4096, 512), WIDE, of(2048), TALL, of(512)),
    ),
    "layer norm": (grads(normed, 3), (of(8192, 1024), of(1024, dtype=F32), of(1024, dtype=F32))),
    "RMS norm": (grads(rms, 2), (of(8192, 1024), of(1024, dtype=F32))),
    "batch norm": (
        grads(lambda x, s, b: jax.nn.relu(normed(x, s, b, (0, 1, 2))), 3),
        (IMAGE, CHANNELS, CHANNELS),
    ),
    "softmax": (grads(lambda x: jax.nn.softmax(x.astype(F32), -1), 1), (of(8192, 1024),)),
    "Adam": (adam, (TREE, TREE, TREE, TREE)),
    "clipped SGD": (clipped_sgd, (TREE, TREE, TREE)),
    "cross entropy": (jax.grad(cross_entropy), (of(4096, 8192), of(4096, dtype=I32))),
    "smoothed cross entropy": (
        jax.grad(smoothed_cross_entropy), (of(4096, 8192), of(4096, dtype=I32)),
    ),
    "embedding": (
        jax.grad(embedding, argnums=(0, 2)), (of(32000, 512), of(4096, dtype=I32), W),
    ),
    "scan over layers": (grads(layer_scan, 3), (X, of(4, 512, 512), VECTOR)),
    "dropout": (grads(dropout_block, 2), (X, W, of(2, dtype=jnp.uint32))),
}  # fmt: skip

LLAMA = replace(llama3.LLAMA3_8B, layers=4, sequence=4096, remat="none")
MIXTRAL = replace(moe.MIXTRAL_8X7B, layers=2, sequence=2048, remat="none")
FSDP = (8,), ("data",)

#: Name -> a decorated training step.
MODELS: dict[str, Any] = {
    "Llama, FSDP 8, scanned": llama3.training(LLAMA, *FSDP),
    "Llama, FSDP 8, unrolled": llama3.training(replace(LLAMA, scan=False), *FSDP),
    "Llama, FSDP 8, full rematerialisation": llama3.training(
        replace(LLAMA, scan=False, remat="full"), *FSDP
    ),
    "Llama, FSDP 4 x tensor 2, dots": llama3.training(
        replace(LLAMA, remat="dots"), (4, 2), ("data", "model")
    ),
    "without gates (GPT's), FSDP 8, dots": llama3.training(
        replace(LLAMA, gated=False, remat="dots"), *FSDP
    ),
    "Mixtral 8x7B, FSDP 4 x experts 2, all-to-all": moe.training(MIXTRAL, (4, 2)),
    "Mixtral 8x7B, FSDP 8, einsum": moe.training(replace(MIXTRAL, dispatch="einsum"), *FSDP),
    "ResNet-50, 32 images, one GPU": resnet.training(resnet.RESNET50, mesh=(1,)),
}
