"""Which experts a token goes to: routers as published models have them.

The idea: a router scores every token for every expert, the best few of them each get the token, and
an expert takes a fixed number of tokens of a sequence, its capacity, so that all shapes are known
before anything runs.  Tokens that come after the capacity is used up are dropped: that expert adds
nothing to them.  First choices of all tokens come before second choices, earlier tokens before
later ones (GShard: Lepikhin et al., 2020, algorithm 1).  A key of ``GATES`` names what is made of
the scores:

    "softmax"     a softmax over the chosen experts' scores (Mixtral, Qwen3, GPT-OSS)
    "sigmoid"     sigmoids, chosen with a bias that balances the load without a loss and among the
                  best groups of experts only, then normalised (DeepSeek-V3, 2024, section 2.1.2)
    "input"       the sigmoid of a score, on what goes into the expert (Llama 4)
    "probability" a softmax over all, chosen among the groups with the best ones (DeepSeek-V2, 2024,
                  section 2.2)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from flint.models.jax.layers import swiglu, swiglu_parameters
from flint.models.jax.parameters import Parameter, Tree
from flint.models.jax.sharding import constrain
from flint.models.mixtures import Experts


class Routing(NamedTuple):
    """Where the tokens go.

    Attributes:
        expert: (B, S, k) of int32: the token's experts, best first.
        place: (B, S, k) of int32: which of that expert's places; C and above: dropped.
        weight: (B, S, k) of float32: of the expert's result, or of its input (gate "input").
        balance: (B,) of float32: how uneven the sequence's routing is (see ``route``).
    """

    expert: jax.Array
    place: jax.Array
    weight: jax.Array
    balance: jax.Array


def expert_parameters(width: int, experts: Experts) -> Tree:
    """router (D, E); gate and up (E, D, F), down (E, F, D); where it has them, biases of all four,
    the router's correction (E,) and a shared network."""
    count, hidden = experts.count, experts.hidden
    inward = Parameter((count, width, hidden), ("experts", "fsdp", "tensor"))
    tree: dict[str, Any] = {
        "router": Parameter((width, count), (None, None)),
        "gate": inward,
        "up": inward,
        "down": Parameter((count, hidden, width), ("experts", "tensor", "fsdp")),
    }
    if experts.biases:
        tree["router_bias"] = Parameter((count,), (None,), scale=0.0)
        tree["gate_bias"] = Parameter((count, hidden), ("experts", "tensor"), scale=0.0)
        tree["up_bias"] = Parameter((count, hidden), ("experts", "tensor"), scale=0.0)
        tree["down_bias"] = Parameter((count, width), ("experts", None), scale=0.0)
    if experts.gate == "sigmoid":
        tree["correction"] = Parameter((count,), (None,), scale=0.0)
    if experts.shared:
        tree["shared"] = swiglu_parameters(width, experts.shared)
    return tree


def _best(scores: jax.Array, chosen: int) -> jax.Array:
    """Indices (B, S, k), int32, of the largest scores (B, S, E), best first.

    One maximum after another: XLA's partitioner would gather all devices' scores for ``top_k``.
    """
    found = []
    for _ in range(chosen):
        found.append(scores.argmax(-1))
        taken = jax.nn.one_hot(found[-1], scores.shape[-1], dtype=bool)
        scores = jnp.where(taken, -jnp.inf, scores)
    return jnp.stack(found, axis=-1)


def _in_best_groups(scores: jax.Array, experts: Experts, pair: bool = True) -> jax.Array:
    """``scores`` (B, S, E), minus infinity outside of the token's best groups: those whose best
    expert, or pair of experts, scores most."""
    if experts.groups == experts.kept_groups:
        return scores
    grouped = scores.reshape(*scores.shape[:-1], experts.groups, -1)
    most = grouped.max(-1)
    if pair:
        first = jax.nn.one_hot(grouped.argmax(-1), grouped.shape[-1], dtype=bool)
        most = most + jnp.where(first, -jnp.inf, grouped).max(-1)
    best = _best(most, experts.kept_groups)
    kept = jax.nn.one_hot(best, experts.groups, dtype=bool).any(-2)
    return jnp.where(kept[..., None], grouped, -jnp.inf).reshape(scores.shape)


def _softmax(scores: jax.Array, layer: Any, experts: Experts) -> tuple[jax.Array, jax.Array]:
    expert = _best(jax.lax.stop_gradient(scores), experts.chosen)
    return expert, jax.nn.softmax(_of_chosen(scores, expert), axis=-1)


def _sigmoid(scores: jax.Array, layer: Any, experts: Experts) -> tuple[jax.Array, jax.Array]:
    affinity = jax.nn.sigmoid(scores)
    wanted = jax.lax.stop_gradient(affinity + layer["correction"])
    expert = _best(_in_best_groups(wanted, experts), experts.chosen)
    weight = _of_chosen(affinity, expert)
    return expert, experts.scale * weight / (weight.sum(-1, keepdims=True) + 1e-20)


def _input(scores: jax.Array, layer: Any, experts: Experts) -> tuple[jax.Array, jax.Array]:
    expert = _best(jax.lax.stop_gradient(scores), experts.chosen)
    return expert, jax.nn.sigmoid(_of_chosen(scores, expert))


def _probability(scores: jax.Array, layer: Any, experts: Experts) -> tuple[jax.Array, jax.Array]:
    chance = jax.nn.softmax(scores, axis=-1)
    wanted = _in_best_groups(jax.lax.stop_gradient(chance), experts, pair=False)
    expert = _best(wanted, experts.chosen)
    return expert, experts.scale * _of_chosen(chance, expert)


#: Name -> the experts (B, S, k) of scores (B, S, E), and their weights.
GATES: dict[str, Callable[[jax.Array, Any, Experts], tuple[jax.Array, jax.Array]]] = {
    "softmax": _softmax,
    "sigmoid": _sigmoid,
    "input": _input,
    "probability": _probability,
}


def _of_chosen(scores: jax.Array, expert: jax.Array) -> jax.Array:
    mask = jax.nn.one_hot(expert, scores.shape[-1], dtype=jnp.int32)  # (B, S, k, E)
    return (mask * scores[:, :, None]).sum(-1)


def route(x: jax.Array, layer: Any, experts: Experts) -> Routing:
    """The experts of every token, in float32.

    ``balance`` of a sequence is the sum over experts of (part of the choices) * (mean probability),
    times E: 1 where all experts get equally much, more where few get most (GShard's auxiliary loss,
    scaled as in Fedus et al., 2021, equation 4).

    Args:
        x: (B, S, D).
        layer: parameters as of ``expert_parameters``.
        experts: their sizes.
    """
    with jax.named_scope("router"):
        scores = x.astype(jnp.float32) @ layer["router"]
        if experts.biases:
            scores = scores + layer["router_bias"]
        scores = constrain(scores, "batch", "sequence", None)
        expert, weight = GATES[experts.gate](scores, layer, experts)
        mask = jax.nn.one_hot(expert, experts.count, dtype=jnp.int32)  # (B, S, k, E)
        batch, length, chosen, count = mask.shape
        in_order = jnp.swapaxes(mask, 1, 2).reshape(batch, chosen * length, count)
        before = (jnp.cumsum(in_order, axis=1) - 1) * in_order
        place = jnp.swapaxes(before.sum(-1).reshape(batch, chosen, length), 1, 2)
        part = mask.sum((1, 2)) / (length * chosen)
        balance = count * (part * jax.nn.softmax(scores, axis=-1).mean(1)).sum(-1)
        return Routing(expert, place, weight, balance)


def shared_expert(x: jax.Array, layer: Any) -> jax.Array:
    """The result of the shared network, which takes every token, for ``x`` (B, S, D)."""
    with jax.named_scope("shared"):
        return swiglu(x, layer["shared"])
