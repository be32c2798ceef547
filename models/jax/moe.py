"""Mixture of experts: training steps of models whose sizes were published, and tiny ones.

The idea: ``llama3.py`` with experts in place of feed-forward networks.  A model is a period of
layers, repeated in one ``lax.scan``, after some dense ones; what a layer sees and whether it has
experts is its ``Layer``.  Experts are split over the mesh axis "expert", which elsewhere splits the
batch like "data" does; how tokens get to experts on other devices is a config's ``dispatch``
(``moe_dispatch.py``):

    ("data", "expert")                       fully sharded (FSDP) over data, expert parallel
    ("data", "expert", "model")              every expert is tensor parallel too
    ("replica", "data", "expert", "model")   replicas of all that
    ("data", "node", "expert")               experts over nodes and the devices of each

    flint capture models/jax/moe.py:train_mixtral --mesh 64,8 -o out/

Published models are in ``moe_sizes.py``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from flint.models.jax import llama3, moe_attention
from flint.models.jax.layers import (
    attention,
    attention_parameters,
    cross_entropy,
    cudnn_attention,
    embedding,
    head,
    norm_parameters,
    normed_after,
    rms_norm,
    swiglu,
    swiglu_parameters,
    vocabulary_parameters,
)
from flint.models.jax.low_precision import narrow
from flint.models.jax.moe_dispatch import DISPATCHES
from flint.models.jax.moe_routing import expert_parameters, route, shared_expert
from flint.models.jax.parameters import Tree, stacked
from flint.models.jax.sharding import constrain, parts
from flint.models.jax.training import accumulated, state_and_batch, training_step
from flint.models.mixtures import DENSE, SPARSE, Experts, Form, Heads, Layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A model and how it is trained.

    Attributes:
        layers: number of blocks; those after the dense ones in one ``lax.scan``.
        width: elements of the residual stream.
        heads: sizes of the attention.
        experts: sizes of the mixture.
        period: layers that repeat.
        dense: layers before all others that have a feed-forward network and no experts.
        hidden: width of the feed-forward network of layers without experts.
        form: what the attention has beyond Llama's; None: nothing, and ``mixer`` is it.
        dispatch: a key of ``DISPATCHES``: how tokens get to their experts.
        balance: weight of the load-balancing loss; 0 leaves it out.
        vocabulary: number of tokens.
        sequence: tokens of a training sequence.
        sequences: sequences of a (micro)batch per part of the batch dim.
        microbatches: whose gradients are added up before a step; 0: the batch is not split.
        remat: a key of ``REMAT``: what is kept for the backward pass instead of being computed
            again.
        mixer: self-attention, as of ``llama3.Config``.
        normed_after: as of ``llama3.Config``; where experts have a shared network, its result and
            theirs have a norm each, too (Gemma 4).
        precision: as of ``llama3.Config``, of products with matrices: attention, dense and shared
            networks; experts multiply in ``dtype``.
        dtype: of activations, and of weights in products; parameters and routing are float32.
    """

    layers: int
    width: int
    heads: Heads
    experts: Experts
    period: tuple[Layer, ...] = (SPARSE,)
    dense: int = 0
    hidden: int = 0
    form: Form | None = None
    dispatch: str = "all_to_all"
    balance: float = 0.02
    vocabulary: int = 32000
    sequence: int = 4096
    sequences: int = 1
    microbatches: int = 0
    remat: str = "full"
    mixer: Callable[[jax.Array, Any, Heads, jax.Array], jax.Array] = attention
    normed_after: bool = False
    precision: str = ""
    dtype: Any = jnp.bfloat16

    @property
    def periods(self) -> int:
        """How often the period repeats.

        Raises:
            ValueError: the period does not divide the layers.
        """
        times, rest = divmod(self.layers - self.dense, len(self.period))
        if rest or times < 1:
            raise ValueError(f"{self.layers} layers: no whole periods of {len(self.period)}")
        return times


TINY = Config(
    layers=2, width=64, heads=Heads(queries=8, keys=4, size=8), vocabulary=256, sequence=16,
    experts=Experts(count=8, chosen=2, hidden=128),
)  # fmt: skip
#: "Mixtral of Experts" (2024), table 1.  Unlike the published model, which drops no token, an
#: expert has a capacity.
MIXTRAL_8X7B = Config(
    layers=32, width=4096, heads=Heads(queries=32, keys=8, size=128, theta=1e6),
    experts=Experts(count=8, chosen=2, hidden=14336), mixer=cudnn_attention,
)  # fmt: skip

#: Llama's policies; one that keeps what came over the network, so that it is not sent again; and
#: one that keeps a block's input and the rows of dispatch "permuted" that experts made on the host.
REMAT: dict[str, Callable[..., Any]] = {
    **llama3.REMAT,
    "offloaded experts": llama3.offloading("block_input", "expert_out"),
    "exchanged": functools.partial(
        jax.checkpoint, policy=jax.checkpoint_policies.save_only_these_names("sent", "returned")
    ),
}


def block_parameters(config: Config, layer: Layer) -> Tree:
    """One layer's."""
    width, norm = config.width, norm_parameters(config.width)
    if config.form is None:
        attends = attention_parameters(width, config.heads)
    else:
        attends = moe_attention.attention_parameters(width, config.heads, config.form)
    tree = {"attention_norm": norm, "attention": attends}
    if config.normed_after:
        tree |= {"attention_after": norm, "mlp_after": norm}
    if not layer.sparse:
        return {**tree, "mlp_norm": norm, "mlp": swiglu_parameters(width, config.hidden)}
    experts = expert_parameters(width, config.experts)
    if config.normed_after and config.experts.shared:
        experts |= {"routed_after": norm, "shared_after": norm}
    return {**tree, "moe_norm": norm, "moe": experts}


def parameters(config: Config) -> Tree:
    """Everything that is learned; layers in arrays with a leading dim.

    If a period has several layers, there is a list of such arrays.
    """
    made = [stacked(block_parameters(config, each), config.periods) for each in config.period]
    tree = {"blocks": made[0] if len(made) == 1 else made}
    if config.dense:
        tree["dense"] = stacked(block_parameters(config, DENSE), config.dense)
    return {**tree, **vocabulary_parameters(config.width, config.vocabulary)}


def mixture(config: Config, x: jax.Array, layer: Any) -> tuple[jax.Array, jax.Array]:
    """Experts' results for ``x`` (B, S, D), and how uneven their load is, (B,)."""
    with jax.named_scope("moe"):
        experts = config.experts
        routing = route(x, layer, experts)
        sent = x
        if experts.gate == "input":  # the input is weighted; a token has one expert
            sent = x * routing.weight.astype(x.dtype)
            routing = routing._replace(weight=jnp.ones_like(routing.weight))
        mixed = DISPATCHES[config.dispatch](sent, layer, routing, experts)
        if experts.shared:
            shared = normed_after(shared_expert(x, layer), layer, "shared")
            mixed = normed_after(mixed, layer, "routed") + shared
        return mixed, routing.balance


def block(
    config: Config, x: jax.Array, layer: Any, kind: Layer = SPARSE
) -> tuple[jax.Array, jax.Array]:
    """One transformer block; ``x`` (B, S, D).  Also how uneven the experts' load is, (B,)."""
    x = checkpoint_name(x, "block_input")
    layer = narrow(layer, config.precision)
    positions = jnp.arange(x.shape[1], dtype=jnp.int32)
    mixer: Callable[..., jax.Array] = config.mixer
    if config.form is not None:
        mixer = functools.partial(moe_attention.attention, form=config.form, span=kind.span)
    mixed = mixer(rms_norm(x, layer["attention_norm"]), layer["attention"], config.heads, positions)
    mixed = normed_after(checkpoint_name(mixed, "attention_out"), layer, "attention")
    x = constrain(x + mixed, "batch", "sequence", None)
    if kind.sparse:
        mixed, balance = mixture(config, rms_norm(x, layer["moe_norm"]), layer["moe"])
    else:
        mixed = swiglu(rms_norm(x, layer["mlp_norm"]), layer["mlp"])
        balance = jnp.ones(x.shape[0], jnp.float32)
    mixed = normed_after(checkpoint_name(mixed, "mlp_out"), layer, "mlp")
    return constrain(x + mixed, "batch", "sequence", None), balance


def _kept(config: Config, kind: Layer) -> Any:
    """A block that keeps for the backward pass what the config states."""
    return REMAT[config.remat](functools.partial(block, config, kind=kind), prevent_cse=False)


def periods(config: Config, x: jax.Array, blocks: Any) -> tuple[jax.Array, jax.Array]:
    """``x`` (B, S, D) after all periods of layers; loads (periods, sparse layers of one, B).

    Args:
        config: the model.
        x: the residual stream.
        blocks: parameters with a leading dim, as ``parameters`` has them.
    """

    def one_period(x: jax.Array, layers: Any) -> tuple[jax.Array, Any]:
        if len(config.period) == 1:
            return _kept(config, config.period[0])(x, layers)  # type: ignore[no-any-return]  # of jax
        balances = []
        for kind, layer in zip(config.period, layers, strict=True):
            x, balance = _kept(config, kind)(x, layer)
            balances += [balance] if kind.sparse else []
        return x, jnp.stack(balances)

    found: tuple[jax.Array, jax.Array] = jax.lax.scan(one_period, x, blocks)
    return found


def logits(config: Config, params: Any, tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Scores of the next token, float32 (B, S, V), of ``tokens`` (B, S); loads of ``periods``."""
    x = embedding(params, tokens, config.dtype, "batch", "sequence", None)
    if config.dense:
        with jax.named_scope("dense"):
            x, _ = jax.lax.scan(_kept(config, DENSE), x, params["dense"])
    with jax.named_scope("blocks"):
        x, balances = periods(config, x, params["blocks"])
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
    shape: tuple[int, ...] = config.sequences * parts("batch", mesh), config.sequence
    dims: tuple[str | None, ...] = "batch", "sequence"
    if config.microbatches:
        shape, dims = (config.microbatches, *shape), (None, *dims)
    return state_and_batch(parameters(config), shape, dims, mesh)


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
    objective = functools.partial(loss, config)
    gradients = accumulated if config.microbatches else jax.value_and_grad
    return training_step(objective, setup, mesh, axes, gradients)


train_tiny = training(TINY, mesh=(2, 4))
train_tiny_einsum = training(replace(TINY, dispatch="einsum"), mesh=(2, 4))
train_tiny_ragged = training(replace(TINY, dispatch="ragged"), mesh=(2, 4))
train_mixtral = training(MIXTRAL_8X7B, mesh=(64, 8))
