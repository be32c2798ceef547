"""Llama 3: training steps of the published sizes, and a tiny one that a laptop runs.

The idea: one ``Config`` per size; layers in a scan (one body, whatever the depth) or unrolled;
what the backward pass keeps is a rematerialisation policy; how everything is split follows from the
names of the mesh's axes (``sharding.py``):

    ("data", "model")              fully sharded (FSDP) and tensor parallel
    ("replica", "data", "model")   hybrid sharded: replicas of FSDP groups
    ("data", "context", "model")   also the sequence is split (of activations; keys are gathered)

    flint capture models/jax/llama3.py:train_8b --mesh 64,8 -o out/

Sizes: "The Llama 3 Herd of Models" (2024), table 3.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from flint.models.jax.layers import (
    Heads,
    attention,
    attention_parameters,
    cross_entropy,
    cudnn_attention,
    embedding,
    gelu,
    gelu_parameters,
    head,
    norm_parameters,
    normed_after,
    rms_norm,
    swiglu,
    swiglu_parameters,
    vocabulary_parameters,
)
from flint.models.jax.low_precision import narrow
from flint.models.jax.parameters import Tree, stacked
from flint.models.jax.sharding import constrain, parts
from flint.models.jax.tiled_loss import tiled_cross_entropy
from flint.models.jax.training import state_and_batch, training_step


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A model and how it is trained.

    Attributes:
        layers: number of blocks.
        width: elements of the residual stream.
        heads: sizes of the attention.
        hidden: width of the feed-forward network.
        vocabulary: number of tokens.
        sequence: tokens of a training sequence.
        sequences: sequences of a batch per part of the batch dim (per data-parallel rank).
        scan: layers in one ``lax.scan`` instead of one after another in the program.
        gated: the feed-forward network is Llama's (SwiGLU), else GPT-3's (GELU).
        remat: a key of ``REMAT``: what is kept for the backward pass instead of being computed
            again.
        sequence_parallel: split the residual stream's sequence over the tensor axis too, between
            attention and feed-forward network (Korthikanti et al., 2022).
        normed_after: what attention and feed-forward network make has a norm before it is added,
            besides the norm of what they get (Gemma 2 to 4).
        tiles: parts of the batch whose loss is computed one after another; 0: at once.
        mixer: self-attention, ``mixer(x, layer, heads, positions)``: ``layers.cudnn_attention``
            calls cuDNN's kernel, as training on GPUs does; ``layers.attention`` spells it out, for
            CPUs, TPUs, and to see how XLA compiles it.
        precision: a key of ``low_precision.PRODUCTS``: what the blocks' products are computed in;
            "": in ``dtype``.
        dtype: of activations, and of weights in products; parameters are float32.
    """

    layers: int
    width: int
    heads: Heads
    hidden: int
    vocabulary: int = 128256
    sequence: int = 8192
    sequences: int = 1
    scan: bool = True
    gated: bool = True
    remat: str = "full"
    sequence_parallel: bool = False
    normed_after: bool = False
    tiles: int = 0
    mixer: Callable[[jax.Array, Any, Heads, jax.Array], jax.Array] = attention
    precision: str = ""
    dtype: Any = jnp.bfloat16


TINY = Config(
    layers=2, width=64, heads=Heads(queries=8, keys=4, size=8), hidden=128, vocabulary=256,
    sequence=32,
)  # fmt: skip
LLAMA3_8B = Config(
    layers=32, width=4096, heads=Heads(queries=32, keys=8, size=128), hidden=14336,
    mixer=cudnn_attention,
)  # fmt: skip
LLAMA3_70B = replace(
    LLAMA3_8B, layers=80, width=8192, heads=Heads(queries=64, keys=8, size=128), hidden=28672
)
LLAMA3_405B = replace(
    LLAMA3_8B, layers=126, width=16384, heads=Heads(queries=128, keys=8, size=128), hidden=53248
)


def _saving(*names: str) -> Callable[..., Any]:
    """A wrapper of a block that keeps results of these names, and its arguments."""
    policy = jax.checkpoint_policies.save_only_these_names(*names)
    return functools.partial(jax.checkpoint, policy=policy)


def offloading(*names: str) -> Callable[..., Any]:
    """A wrapper of a block that keeps results of these names in the host's memory, nothing else."""
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=list(names),
        offload_src="device",
        offload_dst="pinned_host",
    )
    return functools.partial(jax.checkpoint, policy=policy)


#: Name -> wrapper of a block.  "dots" keeps the results of matrix products without batch dims,
#: "projections" queries, keys and values, "context" also what the attention kernel returns,
#: "attention" what attention adds to the residual stream in place of that, "narrow" all products
#: but those of the feed-forward network's hidden width.  "offloaded" keeps only the block's input,
#: and that on the host; "offloaded outputs" and "offloaded attention" also what their names say.
#: ``prevent_cse`` puts in the barriers without which a compiler finds that blocks are computed
#: twice; in a scan, where it cannot find that, they only cost overlap.
REMAT: dict[str, Callable[..., Any]] = {
    "none": lambda block, prevent_cse: block,
    "full": jax.checkpoint,
    "dots": functools.partial(
        jax.checkpoint, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    ),
    "outputs": _saving("attention_out", "mlp_out"),
    "projections": _saving("query", "key", "value"),
    "context": _saving("query", "key", "value", "context"),
    "attention": _saving("query", "key", "value", "attention_out"),
    "narrow": _saving("query", "key", "value", "attention_out", "mlp_out"),
    "offloaded": offloading("block_input"),
    "offloaded outputs": offloading("block_input", "mlp_out"),
    "offloaded attention": offloading("block_input", "query", "key", "value", "attention_out"),
}


def parameters(config: Config) -> Tree:
    """Everything that is learned; blocks in arrays with a leading dim where they are scanned."""
    width = config.width
    block = {
        "attention_norm": norm_parameters(width),
        "attention": attention_parameters(width, config.heads),
        "mlp_norm": norm_parameters(width),
        "mlp": (swiglu_parameters if config.gated else gelu_parameters)(width, config.hidden),
    }
    if config.normed_after:
        block |= {"attention_after": norm_parameters(width), "mlp_after": norm_parameters(width)}
    blocks = stacked(block, config.layers) if config.scan else [block] * config.layers
    return {"blocks": blocks, **vocabulary_parameters(width, config.vocabulary)}


def block(config: Config, x: jax.Array, layer: Any) -> jax.Array:
    """One transformer block; ``x`` (B, S, D)."""
    x = checkpoint_name(x, "block_input")
    layer = narrow(layer, config.precision)
    sequence = "sequence_tensor" if config.sequence_parallel else "sequence"
    positions = jnp.arange(x.shape[1], dtype=jnp.int32)
    mixed = config.mixer(
        rms_norm(x, layer["attention_norm"]), layer["attention"], config.heads, positions
    )
    mixed = normed_after(checkpoint_name(mixed, "attention_out"), layer, "attention")
    x = constrain(x + mixed, "batch", sequence, None)
    feed_forward = swiglu if config.gated else gelu
    mixed = feed_forward(rms_norm(x, layer["mlp_norm"]), layer["mlp"])
    mixed = normed_after(checkpoint_name(mixed, "mlp_out"), layer, "mlp")
    return constrain(x + mixed, "batch", sequence, None)


def hidden(config: Config, params: Any, tokens: jax.Array) -> jax.Array:
    """(B, S, D) after all blocks, of ``tokens`` (B, S)."""
    x = embedding(params, tokens, config.dtype, "batch", "sequence", None)
    apply = REMAT[config.remat](functools.partial(block, config), prevent_cse=not config.scan)
    with jax.named_scope("blocks"):
        if config.scan:
            x, _ = jax.lax.scan(lambda x, layer: (apply(x, layer), None), x, params["blocks"])
        else:
            for number, layer in enumerate(params["blocks"]):
                with jax.named_scope(f"block_{number}"):
                    x = apply(x, layer)
    return x


def logits(config: Config, params: Any, tokens: jax.Array) -> jax.Array:
    """Scores of the next token, float32 (B, S, V), of ``tokens`` (B, S)."""
    return head(params, hidden(config, params, tokens), "batch", "sequence", "tensor")


def loss(config: Config, params: Any, batch: Any) -> jax.Array:
    """Mean cross entropy of the next token; batch: tokens and targets (B, S) of int32."""
    if config.tiles:
        x = hidden(config, params, batch["tokens"])
        return tiled_cross_entropy(params, x, batch["targets"], config.tiles)
    return cross_entropy(logits(config, params, batch["tokens"]), batch["targets"])


def abstract_arguments(config: Config, mesh: Any) -> tuple[Any, Any]:
    """State and batch of a training step, abstract, split over a mesh."""
    shape = config.sequences * parts("batch", mesh), config.sequence
    return state_and_batch(parameters(config), shape, ("batch", "sequence"), mesh)


def training(
    config: Config, mesh: tuple[int, ...], axes: tuple[str, ...] = ("data", "model")
) -> Any:
    """A training step of a model: ``training(LLAMA3_8B, mesh=(64, 8)).capture()``.

    Args:
        config: the model.
        mesh: devices per axis.
        axes: their names, out of ``sharding.AXES``.

    Returns:
        ``step(state, batch) -> (state, loss)``, jitted, with the state donated.
    """
    setup = functools.partial(abstract_arguments, config)
    return training_step(functools.partial(loss, config), setup, mesh, axes)


train_tiny = training(TINY, mesh=(4, 2))
train_8b = training(LLAMA3_8B, mesh=(64, 8))
train_8b_plain = training(replace(LLAMA3_8B, mixer=attention), mesh=(64, 8))
train_70b = training(LLAMA3_70B, mesh=(64, 8))
train_405b = training(LLAMA3_405B, mesh=(128, 16))
