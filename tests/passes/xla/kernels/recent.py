"""Training steps of twelve kinds that no other program here has, written before XLA compiled them.

Attention of grouped queries with slopes, of blocks to their neighbours and along the edges of a
graph; a U-Net's level that reads a text, branches of odd filters, volumes, convolutions as long as
the sequence; optimizers of matrices; bags of embeddings, an agent's loss, and twins' correlations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.passes.xla.kernels.newest import attended
from tests.passes.xla.kernels.programs import BF16, F32, I32, conv, grads, normed, of, rms


def sloped(x: Any, q: Any, k: Any, v: Any, o: Any, s: Any) -> Any:
    """ALiBi: 16 heads of queries, 4 of keys, each head's own slope over the distance."""
    batch, length, _ = x.shape
    y = rms(x, s)
    a = (y @ q).reshape(batch, length, 4, 4, -1)
    b, c = ((y @ w).reshape(batch, length, 4, -1) for w in (k, v))
    scores = jnp.einsum("bqgrd,bkgd->bgrqk", a, b).astype(F32) / a.shape[-1] ** 0.5
    far = jnp.arange(length)[:, None] - jnp.arange(length)[None, :]
    slopes = (2.0 ** -jnp.arange(1, 17, dtype=F32)).reshape(4, 4, 1, 1)
    scores = jnp.where(far >= 0, scores - slopes * far, -1e9)
    mixed = jnp.einsum("bgrqk,bkgd->bqgrd", jax.nn.softmax(scores, -1).astype(x.dtype), c)
    return x + mixed.reshape(x.shape) @ o


def neighbours(x: Any, q: Any, k: Any, v: Any, o: Any, s: Any) -> Any:
    """Blocks of 128 that attend to themselves and the block before them."""
    batch, length, _ = x.shape
    y = rms(x, s)
    a, b, c = ((y @ w).reshape(batch, length // 128, 128, 8, -1) for w in (q, k, v))

    def both(t: Any) -> Any:
        before = jnp.pad(t[:, :-1], ((0, 0), (1, 0), (0, 0), (0, 0), (0, 0)))
        return jnp.concatenate([before, t], 2)

    scores = jnp.einsum("bnqhd,bnkhd->bnhqk", a, both(b)).astype(F32) / 8
    far = jnp.arange(128)[:, None] + 128 - jnp.arange(256)[None, :]
    scores = jnp.where((far >= 0) & (far < 128), scores, -1e9)
    mixed = jnp.einsum("bnhqk,bnkhd->bnqhd", jax.nn.softmax(scores).astype(x.dtype), both(c))
    return x + mixed.reshape(x.shape) @ o


def reading(x: Any, text: Any, down: Any, same: Any, q: Any, kv: Any, o: Any, s: Any) -> Any:
    """A diffusion U-Net's level: half the size, a group norm, attention to 77 tokens of a text."""
    y = conv(x, down, 2)
    images, rows, _, width = y.shape
    groups = y.reshape(images, rows, rows, 32, -1)
    z = normed(groups, 1.0, 0.0, (1, 2, 4)).reshape(y.shape) * s[0].astype(x.dtype)
    y = y + conv(jax.nn.silu(z), same)
    flat = y.reshape(images, rows * rows, width)
    a = (normed(flat, s[1], s[2]) @ q).reshape(images, rows * rows, 8, -1)
    b, c = ((text @ w).reshape(images, text.shape[1], 8, -1) for w in kv)
    return flat + attended(a, b, c).reshape(flat.shape) @ o


def edges(x: Any, w: Any, left: Any, right: Any, source: Any, target: Any) -> Any:
    """Graph attention: a softmax over the edges that arrive at a node, for 4 heads."""
    nodes = x.shape[0]
    y = (x @ w).reshape(nodes, 4, -1)
    a, b = (y * left).sum(-1).astype(F32), (y * right).sum(-1).astype(F32)
    scores = jax.nn.leaky_relu(a[source] + b[target], 0.2)
    most = lax.stop_gradient(jax.ops.segment_max(scores, target, nodes))
    weights = jnp.exp(scores - most[target])
    total = jax.ops.segment_sum(weights, target, nodes)
    weights = (weights / total[target]).astype(x.dtype)
    mixed = jax.ops.segment_sum(weights[..., None] * y[source], target, nodes)
    return jax.nn.elu(mixed.reshape(nodes, -1))


def branches(x: Any, one: Any, wide: Any, tall: Any, last: Any, s: Any, b: Any) -> Any:
    """Inception's: products, 1 x 7 and 7 x 1 filters and a mean of 3 x 3 beside each other."""
    first = conv(x, one[0])
    second = conv(conv(conv(x, one[1]), wide), tall)
    pooled = lax.reduce_window(x.astype(F32), 0.0, lax.add, (1, 3, 3, 1), (1, 1, 1, 1), "SAME") / 9
    third = conv(pooled.astype(x.dtype), one[2])
    joined = jnp.concatenate([first, second, third], -1)
    return conv(jax.nn.relu(normed(joined, s, b, (0, 1, 2))), last, 2)


def volumes(x: Any, first: Any, second: Any, s: Any, b: Any) -> Any:
    """A 3D network's block: filters of 3 x 3 x 3, instance norms, a mean of 2 x 2 x 2."""
    dims = ("NDHWC", "DHWIO", "NDHWC")
    y = x
    for i, w in enumerate((first, second)):
        y = lax.conv_general_dilated(y, w, (1, 1, 1), "SAME", dimension_numbers=dims)
        y = jax.nn.leaky_relu(normed(y, s[i], b[i], (1, 2, 3)), 0.01)
    y = (x + y).astype(F32)
    window = (1, 2, 2, 2, 1)
    return (lax.reduce_window(y, 0.0, lax.add, window, window, "VALID") / 8).astype(x.dtype)


def as_long(x: Any, gate: Any, decay: Any, mix: Any, out: Any) -> Any:
    """S4's: a sum of decaying modes is a filter as long as the sequence, applied by FFT."""
    length = x.shape[1]
    times = jnp.arange(length, dtype=F32)
    modes = jnp.exp(-jax.nn.softplus(decay)[..., None] * times)  # [channels, modes, length]
    kernel = jnp.einsum("cm,cml->cl", mix, modes)
    signal = x.astype(F32).swapaxes(1, 2)
    spectrum = jnp.fft.rfft(signal, 2 * length) * jnp.fft.rfft(kernel, 2 * length)
    y = jnp.fft.irfft(spectrum, 2 * length)[..., :length].swapaxes(1, 2).astype(x.dtype)
    return x + (jax.nn.gelu(y) * jax.nn.sigmoid(x @ gate)) @ out


def muon(p: Any, g: Any, momentum: Any) -> Any:
    """Matrices' momenta made orthogonal by five steps of Newton and Schulz, in bf16."""
    new, kept = [], []
    for w, grad, m in zip(p, g, momentum, strict=True):
        m = 0.95 * m + grad.astype(F32)
        y = (grad.astype(F32) + 0.95 * m).astype(BF16)
        tall = y.shape[0] > y.shape[1]
        y = y.T if tall else y
        y = y / (jnp.sqrt((y.astype(F32) ** 2).sum()) + 1e-7).astype(BF16)
        for _ in range(5):
            square = y @ y.T
            y = 3.4445 * y + (-4.775 * square + 2.0315 * square @ square) @ y
        y = y.T if tall else y
        new.append(w * (1 - 0.1 * 0.02) - 0.02 * y.astype(F32))
        kept.append(m)
    return new, kept


def shampoo(p: Any, g: Any, left: Any, right: Any) -> Any:
    """Statistics of rows and columns, and their inverse roots by eight coupled steps."""

    def root(a: Any) -> Any:
        one = jnp.eye(a.shape[0], dtype=F32)
        a = a + 1e-6 * one
        scale = 1.5 / jnp.sqrt((a * a).sum())

        def step(state: Any, _: None) -> Any:
            m, h = state
            t = (5 * one - m) / 4
            h = h @ t
            t = t @ t
            return (t @ t @ m, h), None

        return lax.scan(step, (a * scale, one * scale**0.25), None, length=8)[0][1]

    new, kept = [], []
    for w, grad, a, b in zip(p, g, left, right, strict=True):
        a, b = 0.95 * a + 0.05 * grad @ grad.T, 0.95 * b + 0.05 * grad.T @ grad
        step = root(a) @ grad @ root(b)
        step = step * jnp.sqrt((grad * grad).sum() / (step * step).sum())
        new.append(w - 0.01 * step)
        kept += [a, b]
    return new, kept


def bags(table: Any, weights: Any, first: Any, second: Any, items: Any, bag: Any) -> Any:
    """Weighted sums of embeddings, as many per bag as there are, and a network of two layers."""
    found = table[items] * weights[items][:, None]
    y = jax.ops.segment_sum(found, bag, 4096)
    return jax.nn.relu(y @ first) @ second


def policy(x: Any, first: Any, actor: Any, critic: Any, done: Any, paid: Any, did: Any) -> Any:
    """PPO's: advantages by a scan backwards in time, a clipped ratio, values and entropy."""
    y = jnp.tanh(x @ first)
    logits, values = (y @ actor).astype(F32), (y @ critic)[..., 0].astype(F32)

    def back(total: Any, row: Any) -> Any:
        reward, end, value, later = row
        total = reward + 0.99 * later * (1 - end) - value + 0.95 * 0.99 * (1 - end) * total
        return total, total

    ahead = lax.stop_gradient(jnp.concatenate([values[1:], values[-1:]]))
    rows = (paid, done, lax.stop_gradient(values), ahead)
    gained = lax.scan(back, jnp.zeros(x.shape[1], F32), rows, reverse=True)[1]
    goal = gained + lax.stop_gradient(values)
    gained = (gained - gained.mean()) / (gained.std() + 1e-8)
    log = jax.nn.log_softmax(logits)
    chosen = jnp.take_along_axis(log, did[..., None], -1)[..., 0]
    ratio = jnp.exp(chosen - lax.stop_gradient(chosen))
    clipped = jnp.clip(ratio, 0.8, 1.2) * gained
    entropy = -(jnp.exp(log) * log).sum(-1)
    return -jnp.minimum(ratio * gained, clipped) + 0.5 * (values - goal) ** 2 - 0.01 * entropy


def twins(x: Any, z: Any, w1: Any, w2: Any) -> Any:
    """Barlow's: columns of two views made standard, their correlations against the identity."""

    def view(t: Any) -> Any:
        y = (jax.nn.relu(t @ w1) @ w2).astype(F32)
        return (y - y.mean(0)) / (y.std(0) + 1e-5)

    c = view(x).T @ view(z) / x.shape[0]
    one = jnp.eye(c.shape[0], dtype=F32)
    return (c - one) ** 2 * jnp.where(one > 0, 1.0, 0.005)


TREE = [of(1024, 4096, dtype=F32), of(4096, 1024, dtype=F32), of(1024, 1024, dtype=F32)]
ROWS = [of(t.shape[0], t.shape[0], dtype=F32) for t in TREE[2:]]
SQUARE = of(512, 512)
NARROW = of(512, 128)

#: Name -> (function, its arguments).
RECENT: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "slopes": (
        grads(sloped, 5),
        (of(4, 1024, 512), SQUARE, NARROW, NARROW, SQUARE, of(512, dtype=F32)),
    ),
    "neighbouring blocks": (
        grads(neighbours, 5), (of(4, 2048, 512), *[SQUARE] * 4, of(512, dtype=F32)),
    ),
    "U-Net that reads": (
        grads(reading, 8),
        (of(8, 64, 64, 160), of(8, 77, 384), of(3, 3, 160, 320), of(3, 3, 320, 320),
         of(320, 320), of(2, 384, 320), of(320, 320), of(3, 320, dtype=F32)),
    ),
    "graph attention": (
        grads(edges, 4),
        (of(8192, 256), of(256, 512), of(4, 128), of(4, 128), of(65536, dtype=I32),
         of(65536, dtype=I32)),
    ),
    "branches": (
        grads(branches, 7),
        (of(16, 32, 32, 192), of(3, 1, 1, 192, 128), of(1, 7, 128, 128), of(7, 1, 128, 128),
         of(3, 3, 384, 256), of(384, dtype=F32), of(384, dtype=F32)),
    ),
    "volumes": (
        grads(volumes, 5),
        (of(2, 32, 64, 64, 32), of(3, 3, 3, 32, 32), of(3, 3, 3, 32, 32), of(2, 32, dtype=F32),
         of(2, 32, dtype=F32)),
    ),
    "filters as long as the sequence": (
        grads(as_long, 5),
        (of(8, 1024, 256), of(256, 256), of(256, 16, dtype=F32), of(256, 16, dtype=F32),
         of(256, 256)),
    ),
    "Muon": (muon, (TREE, [of(*t.shape) for t in TREE], TREE)),
    "Shampoo": (shampoo, (TREE[2:], TREE[2:], ROWS, ROWS)),
    "bags of embeddings": (
        grads(bags, 4),
        (of(100000, 128, dtype=F32), of(100000, dtype=F32), of(128, 256, dtype=F32),
         of(256, 64, dtype=F32), of(65536, dtype=I32), of(65536, dtype=I32)),
    ),
    "policy": (
        grads(policy, 4),
        (of(128, 512, 128), of(128, 256), of(256, 16), of(256, 1), of(128, 512, dtype=F32),
         of(128, 512, dtype=F32), of(128, 512, dtype=I32)),
    ),
    "twins": (
        grads(twins, 4), (of(1024, 512), of(1024, 512), of(512, 2048), of(2048, 2048)),
    ),
}  # fmt: skip
