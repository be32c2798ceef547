"""Products in narrow floats: weights, activations and gradients are scaled, cast and multiplied.

The idea: a weight is wrapped, and a product with it is computed in another type; layers stay
unchanged.  All three products of a training step are narrow: forward in e4m3, and with gradients in
e5m2 both of the backward pass.  Names decide what is wrapped, as in training libraries: the
matrices of attention and feed-forward networks, never router, embedding, head or norms.

    layer = narrow(layer, "f8")
    x @ layer["wq"].astype(x.dtype)       # the maximum of each, two casts, a product, a rescaling

    "f8"          a scale per tensor from its own maximum ("current scaling")
    "f8_static"   no scales: what is out of range is cut off
    "mxf8"        a power of two per 32 elements along the sum (OCP Microscaling Formats, 2023); a
                  tensor is scaled again for the product that sums over its other dim
    "mxf8_cuda"   the same by the call that XLA gives Blackwell's units (``jax.nn.scaled_matmul``)
    "nvf4_cuda"   e2m1 with an e4m3 scale per 16 elements; gradients are mxf8
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

#: A product of rows (M, K) by rows (N, K): (M, N) of float32.
RowProduct = Callable[[jax.Array, jax.Array], jax.Array]
_FORWARD, _GRADIENT = jnp.float8_e4m3fn, jnp.float8_e5m2
#: Weights by name that are wrapped.
NAMES = frozenset(
    {"wq", "wk", "wv", "wo", "gate", "up", "down", "q_down", "q_up", "kv_down", "kv_up"}
)


@dataclass(frozen=True, slots=True, eq=False)
class Narrow:
    """A weight (K, N) that stands on the right of a product in narrow types.

    Attributes:
        value: the weight itself.
        product: of rows (M, K) with it.
    """

    value: jax.Array
    product: Callable[[jax.Array, jax.Array], jax.Array]

    def astype(self, dtype: Any) -> Narrow:
        """The weight as another type, from which it is cast."""
        return Narrow(self.value.astype(dtype), self.product)

    def __rmatmul__(self, x: jax.Array) -> jax.Array:
        """``x`` (..., K) @ the weight."""
        made = self.product(x.reshape(-1, x.shape[-1]), self.value)
        return made.reshape(*x.shape[:-1], -1)


def narrow(layer: Any, precision: str) -> Any:
    """A layer's parameters with those of ``NAMES`` that are matrices wrapped; "" wraps none."""
    if not precision:
        return layer

    def one(path: Any, weight: jax.Array) -> Any:
        named = getattr(path[-1], "key", "") in NAMES and weight.ndim == 2
        return Narrow(weight, PRODUCTS[precision]) if named else weight

    return jax.tree.map_with_path(one, layer)


def scaled(x: jax.Array, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """``x`` cast to ``dtype`` after a scale that makes its largest element that type's, and the
    factor that takes it back."""
    with jax.named_scope("scale"):
        wide = x.astype(jnp.float32)
        largest = jnp.max(jnp.abs(wide))
        scale = jnp.where(largest > 0, float(jnp.finfo(dtype).max) / largest, 1.0)
        return (wide * scale).astype(dtype), 1 / scale


def cut(x: jax.Array, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """``x`` cast to ``dtype``, limited to that type's largest value."""
    most = float(jnp.finfo(dtype).max)
    return jnp.clip(x.astype(jnp.float32), -most, most).astype(dtype), jnp.float32(1)


def in_blocks(x: jax.Array, dtype: Any, block: int, scales: Any) -> tuple[jax.Array, jax.Array]:
    """``x`` (M, K) cast after a scale for every ``block`` elements of a row, and those scales'
    inverses (M, K / block) of the type ``scales``."""
    with jax.named_scope("scale"):
        wide = x.astype(jnp.float32).reshape(x.shape[0], -1, block)
        largest = jnp.max(jnp.abs(wide), axis=-1) / float(jnp.finfo(dtype).max)
        if scales == jnp.float8_e8m0fnu:  # the next power of two, or itself
            largest = jnp.exp2(jnp.ceil(jnp.log2(jnp.maximum(largest, 2.0**-120))))
        back = jnp.where(largest > 0, largest, 1.0).astype(scales)
        cast = (wide / back.astype(jnp.float32)[..., None]).astype(dtype)
        return cast.reshape(x.shape), back


def _rows(left: jax.Array, right: jax.Array) -> jax.Array:
    numbers = (((1,), (1,)), ((), ()))
    made = jax.lax.dot_general(left, right, numbers, preferred_element_type=jnp.float32)
    return made


def _per_tensor(
    cast: Callable[..., tuple[jax.Array, jax.Array]], left: Any, right: Any
) -> RowProduct:
    def product(a: jax.Array, b: jax.Array) -> jax.Array:
        (a, undo_a), (b, undo_b) = cast(a, left), cast(b, right)
        return _rows(a, b) * (undo_a * undo_b)

    return product


def _in_blocks(dtype: Any, block: int, scales: Any, *, call: bool) -> RowProduct:
    def product(a: jax.Array, b: jax.Array) -> jax.Array:
        (a, of_a), (b, of_b) = (in_blocks(x, dtype, block, scales) for x in (a, b))
        if call:
            operands = (a[None], b[None], of_a[None], of_b[None])
            return jax.nn.scaled_matmul(*operands, preferred_element_type=jnp.float32)[0]
        wide = (
            x.astype(jnp.float32) * jnp.repeat(s.astype(jnp.float32), block, axis=1)
            for x, s in ((a, of_a), (b, of_b))
        )
        return _rows(*wide)

    return product


def _trained(forward: RowProduct, by_gradient: RowProduct) -> Callable[..., jax.Array]:
    """``x`` (M, K) @ ``w`` (K, N), whose derivatives are products in narrow types too.

    Args:
        forward: of activations and weights.
        by_gradient: of gradients and either of them.
    """

    @jax.custom_vjp
    def product(x: jax.Array, w: jax.Array) -> jax.Array:
        return forward(x, w.T).astype(x.dtype)

    def run(x: jax.Array, w: jax.Array) -> tuple[jax.Array, Any]:
        return product(x, w), (x, w)

    def derive(kept: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
        x, w = kept
        of_x = by_gradient(gradient, w).astype(x.dtype)
        of_w = by_gradient(gradient.T, x.T).T.astype(w.dtype)
        return of_x, of_w

    product.defvjp(run, derive)
    return product


_MX = functools.partial(_in_blocks, _FORWARD, 32, jnp.float8_e8m0fnu)

#: Name -> product of ``x`` (M, K) with a weight (K, N).
PRODUCTS: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "f8": _trained(
        _per_tensor(scaled, _FORWARD, _FORWARD), _per_tensor(scaled, _GRADIENT, _FORWARD)
    ),
    "f8_static": _trained(
        _per_tensor(cut, _FORWARD, _FORWARD), _per_tensor(cut, _GRADIENT, _FORWARD)
    ),
    "mxf8": _trained(_MX(call=False), _MX(call=False)),
    "mxf8_cuda": _trained(_MX(call=True), _MX(call=True)),
    "nvf4_cuda": _trained(
        _in_blocks(jnp.float4_e2m1fn, 16, jnp.float8_e4m3fn, call=True), _MX(call=True)
    ),
}
