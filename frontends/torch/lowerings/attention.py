"""Fused attention, forward and backward: softmax(scale Q K^T + mask) V.

The idea: the kernels of all backends compute the same; they differ in their additional results
(log-sum-exp, random state).  The backward pass recomputes the probabilities from the saved
log-sum-exp, as flash attention does: five products of the size of the scores.  Dropout draws the
same numbers in both passes, as torch does with the saved random state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from flint.frontends.torch.lowerings import dtypes
from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, Operand, Unsupported, axis, value_at
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.random import kept_values
from flint.frontends.torch.lowerings.table import lowers

_HEADS = ((0, 1), (0, 1))

_KERNELS = tuple(
    f"aten._scaled_dot_product_{name}"
    for name in (
        "flash_attention",
        "flash_attention_for_cpu",
        "efficient_attention",
        "cudnn_attention",
    )
)


def _bias(given: Mapping[str, Any]) -> Any:
    """The bias added to scores, or the mask of those that count; None if there is neither."""
    return given.get("attn_mask", given.get("attn_bias"))


def _grouped(value: Value, heads: int) -> Value:
    """Keys or values of fewer heads, repeated for the queries' heads (grouped-query attention)."""
    batch, own, length, size = op.shape_of(value)
    if own == heads:
        return value
    if not own or heads % own:
        raise Unsupported(f"attention of {heads} query heads and {own} key heads")
    spread = op.broadcast(value, (batch, own, heads // own, length, size), [0, 1, 3, 4])
    return op.reshape(spread, (batch, heads, length, size))


def _ungrouped(value: Value, heads: int) -> Value:
    """Gradients of repeated heads, summed."""
    batch, own, length, size = op.shape_of(value)
    if own == heads:
        return value
    return op.reduce(op.reshape(value, (batch, heads, own // heads, length, size)), [2])


def _scores(q: Value, k: Value, scale: float, causal: bool, bias: Any) -> Value:
    """Scaled, masked scores [batch, heads, queries, keys] in float32 (float64 for doubles)."""
    dtype = dtypes.compute_dtype(op.dtype_of(q))
    scores = op.dot(q, k, ([3], [3]), _HEADS, dtype)
    scores = op.multiply(scores, op.like(scale, scores))
    shape = op.shape_of(scores)
    if causal:
        seen = op.compare("GE", op.iota(shape, 2), op.iota(shape, 3))
        scores = op.select(seen, scores, op.like(-math.inf, scores))
    if bias is not None and bias.dtype == "bool":
        seen = value_at(bias, shape, "bool")
        scores = op.select(seen, scores, op.like(-math.inf, scores))
    elif bias is not None:
        scores = op.add(scores, value_at(bias, shape, dtype))
    return scores


@lowers(*_KERNELS)
def _forward(call: Call, *args: Any, **kwargs: Any) -> list[Value]:
    given = call.arguments(args, kwargs)
    query, key, value = (given[name] for name in ("query", "key", "value"))
    scale, dropout_p, bias = given["scale"], given["dropout_p"], _bias(given)
    q, heads = query.value, query.shape[1]
    k, v = _grouped(key.value, heads), _grouped(value.value, heads)
    scale = 1 / math.sqrt(query.shape[3]) if scale is None else scale
    scores = _scores(q, k, scale, given["is_causal"], bias)
    weights, best, total = _softmax(scores, 3)
    dtype = op.dtype_of(scores)
    weights = _dropped(weights, dropout_p)
    out = op.dot(op.convert(weights, op.dtype_of(v)), v, ([3], [2]), _HEADS, dtype)
    results = [out]
    if len(call.targets) > 1:
        level = op.add(best, op.log(total))
        wanted = call.targets[1].shape
        if op.shape_of(level) != wanted and math.prod(wanted) > math.prod(op.shape_of(level)):
            # The memory-efficient kernel pads the queries.
            high = [a - b for a, b in zip(wanted, op.shape_of(level), strict=True)]
            level = op.pad(level, [0] * len(high), high)
        results.append(op.reshape(level, wanted) if math.prod(wanted) else None)
    for spec in call.targets[len(results) :]:
        results.append(op.constant(0, spec.shape, spec.dtype))
    return results


def _softmax(value: Value, along: int) -> tuple[Value, Value, Value]:
    """Softmax along a dim, the maximum and the sum of exponentials (without the dim)."""
    shape = op.shape_of(value)
    best = op.reduce(value, [along], "maximum")
    shifted = op.exponential(op.subtract(value, op.keep(best, shape, [along])))
    total = op.reduce(shifted, [along])
    return op.divide(shifted, op.keep(total, shape, [along])), best, total


@lowers("aten._safe_softmax")
def _safe_softmax(call: Call, self: Any, dim: int, *_: Any, **__: Any) -> Value:
    """Zeros in rows where everything is masked."""
    shape = self.shape or (1,)
    along = axis(dim, len(shape))
    value = op.reshape(value_at(self, self.shape, call.compute), shape)
    result, best, _total = _softmax(value, along)
    empty = op.compare("EQ", best, op.like(-math.inf, best))
    none = op.keep(empty, shape, [along])
    return op.reshape(op.select(none, op.like(0, result), result), self.shape)


def _dropped(value: Value, probability: float) -> Value:
    """Dropout: some values removed, the others scaled up."""
    if not probability:
        return value
    scaled = op.multiply(value, op.like(1 / (1 - probability) if probability < 1 else 0.0, value))
    kept = kept_values(op.shape_of(value), probability)
    return op.select(kept, scaled, op.like(0, scaled))


@lowers(*(f"{name}_backward" for name in _KERNELS))
def _backward(call: Call, grad_out: Operand, *args: Any, **kwargs: Any) -> list[Value]:
    given = call.arguments((grad_out, *args), kwargs)
    query, key, value, out = (given[name] for name in ("query", "key", "value", "out"))
    scale, dropout_p, bias = given["scale"], given["dropout_p"], _bias(given)
    q, heads = query.value, query.shape[1]
    k, v = _grouped(key.value, heads), _grouped(value.value, heads)
    grad = value_at(grad_out, out.shape, query.dtype)
    scale = 1 / math.sqrt(query.shape[3]) if scale is None else scale
    scores = _scores(q, k, scale, given["is_causal"], bias)
    shape, dtype = op.shape_of(scores), op.dtype_of(scores)
    level = op.convert(given["logsumexp"].value, dtype)
    if len(op.shape_of(level)) > 3:  # cuDNN's has a last dim of 1
        level = op.reshape(level, shape[:3])
    if op.shape_of(level) != shape[:3]:
        level = op.slice_(level, [0, 0, 0], shape[:3])
    weights = op.exponential(op.subtract(scores, op.keep(level, shape, [3])))
    low = op.dtype_of(q)
    dropped = _dropped(weights, dropout_p)
    grad_v = op.dot(op.convert(dropped, low), grad, ([2], [2]), _HEADS, dtype)
    grad_weights = _dropped(op.dot(grad, v, ([3], [3]), _HEADS, dtype), dropout_p)
    weighted = op.multiply(value_at(grad, out.shape, dtype), value_at(out, out.shape, dtype))
    drift = op.keep(op.reduce(weighted, [3]), shape, [3])
    grad_scores = op.multiply(weights, op.subtract(grad_weights, drift))
    scaled = op.convert(op.multiply(grad_scores, op.like(scale, grad_scores)), low)
    grad_q = op.dot(scaled, k, ([3], [2]), _HEADS, dtype)
    grad_k = op.dot(scaled, q, ([2], [2]), _HEADS, dtype)
    grads = [grad_q, _ungrouped(grad_k, key.shape[1]), _ungrouped(grad_v, value.shape[1])]
    if len(call.targets) > 3:
        if bias is None:
            grads += [op.constant(0, spec.shape, spec.dtype) for spec in call.targets[3:]]
        else:
            lone = [at for at in range(4) if call.targets[3].shape[at] == 1 < shape[at]]
            grads.append(op.reshape(op.reduce(grad_scores, lone), call.targets[3].shape))
    return grads
