"""Mixture of experts: Mixtral's training step, and a tiny one that a laptop runs.

The idea: ``llama3.py`` with experts in place of the feed-forward network.  Experts are split over
the mesh axis "expert", which elsewhere splits the batch like "data" does; how tokens get to experts
on other devices is a config's ``dispatch`` (``moe_dispatch.py``):

    ("data", "expert")                       fully sharded (FSDP) over data, expert parallel
    ("data", "expert", "model")              every expert is tensor parallel too
    ("replica", "data", "expert", "model")   replicas of all that

    flint capture models/jax/moe.py:train_mixtral --mesh 64,8 -o out/

Sizes: "Mixtral of Experts" (2024), table 1.  Unlike the published model, which drops no token, an
expert has a capacity.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from flint.models.jax import llama3
from flint.models.jax.layers import (
    Heads,
    attention,
    attention_parameters,
    cross_entropy,
    cudnn_attention,
    embedding,
    head,
    rms_norm,
    vocabulary_parameters,
)
from flint.models.jax.moe_dispatch import DISPATCHES, Experts, expert_parameters, route
from flint.models.jax.parameters import Parameter, Tree, stacked
from flint.models.jax.sharding import constrain, parts
from flint.models.jax.training import state_and_batch, training_step


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A model and how it is trained.

    Attributes:
        layers: number of blocks, in one ``lax.scan``.
        width: elements of the residual stream.
        heads: sizes of the attention.
        experts: sizes of the mixture.
        dispatch: a key of ``DISPATCHES``: how tokens get to their experts.
        balance: weight of the load-balancing loss; 0 leaves it out.
        vocabulary: number of tokens.
        sequence: tokens of a training sequence.
        sequences: sequences of a batch per part of the batch dim.
        remat: a key of ``REMAT``: what the backward pass finds instead of computing it again.
        mixer: self-attention, as of ``llama3.Config``.
        dtype: of activations, and of weights in products; parameters and routing are float32.
    """

    layers: int
    width: int
    heads: Heads
    experts: Experts
    dispatch: str = "all_to_all"
    balance: float = 0.02
    vocabulary: int = 32000
    sequence: int = 4096
    sequences: int = 1
    remat: str = "full"
    mixer: Callable[[jax.Array, Any, Heads, jax.Array], jax.Array] = attention
    dtype: Any = jnp.bfloat16


TINY = Config(
    layers=2, width=64, heads=Heads(queries=8, keys=4, size=8), vocabulary=256, sequence=16,
    experts=Experts(count=8, chosen=2, hidden=128),
)  # fmt: skip
MIXTRAL_8X7B = Config(
    layers=32, width=4096, heads=Heads(queries=32, keys=8, size=128, theta=1e6),
    experts=Experts(count=8, chosen=2, hidden=14336), mixer=cudnn_attention,
)  # fmt: skip

#: Llama's policies, and one that keeps what came over the network instead of sending it again.
REMAT: dict[str, Callable[..., Any]] = {
    **llama3.REMAT,
    "exchanged": functools.partial(
        jax.checkpoint, policy=jax.checkpoint_policies.save_only_these_names("sent", "returned")
    ),
}


def parameters(config: Config) -> Tree:
    """Everything that is learned; blocks in arrays with a leading dim."""
    width = config.width
    block = {
        "attention_norm": Parameter((width,), (None,), scale=0.0, mean=1.0),
        "attention": attention_parameters(width, config.heads),
        "moe_norm": Parameter((width,), (None,), scale=0.0, mean=1.0),
        "moe": expert_parameters(width, config.experts),
    }
    blocks = stacked(block, config.layers)
    return {"blocks": blocks, **vocabulary_parameters(width, config.vocabulary)}


def mixture(config: Config, x: jax.Array, layer: Any) -> tuple[jax.Array, jax.Array]:
    """Experts' results for ``x`` (B, S, D), and how uneven their load is, (B,)."""
    with jax.named_scope("moe"):
        routing = route(x, layer["router"], config.experts)
        mixed = DISPATCHES[config.dispatch](x, layer, routing, config.experts)
        return mixed, routing.balance


def block(config: Config, x: jax.Array, layer: Any) -> tuple[jax.Array, jax.Array]:
    """One transformer block; ``x`` (B, S, D).  Also how uneven the experts' load is, (B,)."""
    x = checkpoint_name(x, "block_input")
    positions = jnp.arange(x.shape[1], dtype=jnp.int32)
    mixed = config.mixer(
        rms_norm(x, layer["attention_norm"]), layer["attention"], config.heads, positions
    )
    mixed = checkpoint_name(mixed, "attention_out")
    x = constrain(x + mixed, "batch", "sequence", None)
    mixed, balance = mixture(config, rms_norm(x, layer["moe_norm"]), layer["moe"])
    mixed = checkpoint_name(mixed, "mlp_out")
    return constrain(x + mixed, "batch", "sequence", None), balance


def logits(config: Config, params: Any, tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Scores of the next token, float32 (B, S, V), of ``tokens`` (B, S); loads (layers, B)."""
    x = embedding(params, tokens, config.dtype, "batch", "sequence", None)
    apply = REMAT[config.remat](functools.partial(block, config), prevent_cse=False)
    with jax.named_scope("blocks"):
        x, balances = jax.lax.scan(apply, x, params["blocks"])
    return head(params, x, "batch", "sequence", "tensor"), balances


def loss(config: Config, params: Any, batch: Any) -> jax.Array:
    """Mean cross entropy of the next token and the weighted load-balancing loss.

    Args:
        config: the model.
        params: arrays as ``parameters`` describes them.
        batch: tokens and targets (B, S) of int32.
    """
    scores, balances = logits(config, params, batch["tokens"])
    value = cross_entropy(scores, batch["targets"])
    return value + config.balance * balances.mean() if config.balance else value


def abstract_arguments(config: Config, mesh: Any) -> tuple[Any, Any]:
    """State and batch of a training step, abstract, split over a mesh."""
    shape = config.sequences * parts("batch", mesh), config.sequence
    return state_and_batch(parameters(config), shape, ("batch", "sequence"), mesh)


def training(
    config: Config, mesh: tuple[int, ...], axes: tuple[str, ...] = ("data", "expert")
) -> Any:
    """A training step of a model: ``training(MIXTRAL_8X7B, mesh=(64, 8)).capture()``.

    Args:
        config: the model.
        mesh: devices per axis.
        axes: their names: "replica", "data", "expert", "model", or some of them.

    Returns:
        ``step(state, batch) -> (state, loss)``, jitted, with the state donated.
    """
    setup = functools.partial(abstract_arguments, config)
    return training_step(functools.partial(loss, config), setup, mesh, axes)


train_tiny = training(TINY, mesh=(2, 4))
train_tiny_einsum = training(replace(TINY, dispatch="einsum"), mesh=(2, 4))
train_mixtral = training(MIXTRAL_8X7B, mesh=(64, 8))
