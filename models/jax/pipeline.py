"""Pipeline parallelism: layers split into stages, batches into microbatches.

The idea: the devices along the axis "stage" hold consecutive layers.  One SPMD program runs on all
of them: a loop of ticks, in each of which a stage applies its layers to its microbatch
and passes the result on to the next stage (collective-permute).  Stage s works on microbatch t - s
in tick t; m microbatches on n stages take m + n - 1 ticks, and n - 1 ticks of every stage are the
bubble, whose results are never read.  The backward pass is the loop's transpose: all microbatches
forward, then all backward, as in GPipe (Huang et al., 2019).

    tick       0   1   2   3   4   5   6            m = 4 microbatches, n = 4 stages
    stage 0    0   1   2   3   .   .   .
    stage 1    .   0   1   2   3   .   .
    stage 2    .   .   0   1   2   3   .
    stage 3    .   .   .   0   1   2   3

Embedding and head are not part of a stage: microbatches are split over the stages for them, so
that no stage waits while another one does all of it.  Microbatches come to the first stage, and
results go from the last one to where they belong, one hop towards the first stage per tick.

Only "stage" is manual; XLA's partitioner handles the other axes, as in ``llama3.py``.
It gathers the weights that "data" splits in every tick: call the axis "replica" to keep them whole.

The layers are those of ``llama3.py`` or ``moe.py``, by the type of the config.

    flint capture models/jax/pipeline.py:train_70b --mesh 8,8,8 -o out/
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from flint.models.jax import llama3, moe
from flint.models.jax.layers import cross_entropy, embedding, head
from flint.models.jax.llama3 import LLAMA3_70B, REMAT, TINY
from flint.models.jax.parameters import Tree, stacked
from flint.models.jax.sharding import constrain, parts
from flint.models.jax.training import state_and_batch, training_step

#: The mesh axis along which activations go from stage to stage.
AXIS = "stage"


#: What is trained.
Config = llama3.Config | moe.Config


def parameters(config: Config, stages: int) -> Tree:
    """The model's parameters with blocks of leading dims (stages, layers of a stage).

    Raises:
        ValueError: the stages do not divide the layers; a mixture with dense layers before the
            others, a load-balancing loss, which stages do not pass on, or a dispatch in
            ``shard_map``, which JAX cannot split within a stage's.
    """
    if config.layers % stages:
        raise ValueError(f"{config.layers} layers cannot be split into {stages} equal stages")
    layers = config.layers // stages
    if isinstance(config, llama3.Config):
        tree = llama3.parameters(replace(config, layers=layers, scan=True))
    elif config.dense or config.balance or config.dispatch != "einsum":
        raise ValueError('a mixture in a pipeline: give dense=0, balance=0 and dispatch="einsum"')
    else:
        tree = moe.parameters(replace(config, layers=layers))
    return {**tree, "blocks": stacked(tree["blocks"], stages, "stages")}


def _shifted(x: jax.Array, by: int) -> jax.Array:
    """What the stage ``by`` before this one has; zeros where there is none."""
    size = jax.lax.axis_size(AXIS)
    hops = [(stage, stage + by) for stage in range(size) if 0 <= stage + by < size]
    return jax.lax.ppermute(x, AXIS, hops)


def _stage(config: Config, layers: Any, x: jax.Array) -> jax.Array:
    """One stage's layers, arrays with a leading dim, applied to a microbatch ``x`` (B, S, D)."""
    if isinstance(config, moe.Config):
        return moe.periods(config, x, layers)[0]
    apply = REMAT[config.remat](functools.partial(llama3.block, config), prevent_cse=False)
    x, _ = jax.lax.scan(lambda x, layer: (apply(x, layer), None), x, layers, unroll=not config.scan)
    return x


def _ticks(config: Config, blocks: Any, stream: jax.Array) -> jax.Array:
    """One stage's part of the pipeline.

    The stream is a queue over all stages: in tick t, slot t mod its slots moves one stage towards
    the first, which works on what was there, and the last stage's result comes in at the end.  So
    the first stage reads microbatch t in tick t.  The result of microbatch i enters in tick
    i + n - 1, in slot (i + n - 1) mod slots, and comes back to the stage that microbatch i was on.

    Args:
        blocks: parameters with leading dims (1, layers).
        stream: this stage's microbatches (slots, B, S, D).

    Returns:
        Results of the same microbatches.
    """
    stages, stage, slots = jax.lax.axis_size(AXIS), jax.lax.axis_index(AXIS), stream.shape[0]
    layers = jax.tree.map(lambda weights: weights[0], blocks)

    def tick(carry: tuple[jax.Array, jax.Array], number: jax.Array) -> tuple[Any, None]:
        stream, arrived = carry
        slot = number % slots
        waiting = jax.lax.dynamic_index_in_dim(stream, slot, keepdims=False)
        with jax.named_scope("stage"):
            x = _stage(config, layers, jnp.where(stage == 0, waiting, arrived))
        with jax.named_scope("next"):
            arrived = _shifted(x, 1)
        with jax.named_scope("stream"):
            waiting = jnp.where(stage == stages - 1, x, _shifted(waiting, -1))
            stream = jax.lax.dynamic_update_index_in_dim(stream, waiting, slot, 0)
        return (stream, arrived), None

    first = jax.lax.pcast(jnp.zeros(stream.shape[1:], stream.dtype), AXIS, to="varying")
    ticks = jnp.arange(slots * stages + stages - 1, dtype=jnp.int32)
    (stream, _), _ = jax.lax.scan(tick, (stream, first), ticks)
    return jnp.roll(stream, 1 - stages, 0)


def logits(config: Config, params: Any, tokens: jax.Array) -> jax.Array:
    """Scores of the next token, float32 (M, B, S, V), of M microbatches of ``tokens`` (M, B, S)."""
    split_more = isinstance(config, llama3.Config) and config.sequence_parallel
    residual = "sequence_tensor" if split_more else "sequence"
    x = embedding(params, tokens, config.dtype, "stages", "batch", "sequence", None)
    with jax.named_scope("embedding"):
        x = constrain(x, "stages", "batch", residual, None)
    with jax.named_scope("pipeline"):
        split = PartitionSpec(AXIS)
        x = jax.shard_map(
            functools.partial(_ticks, config),
            in_specs=(split, split),
            out_specs=split,
            axis_names={AXIS},
        )(params["blocks"], x)
        x = constrain(x, "stages", "batch", residual, None)
    return head(params, x, "stages", "batch", "sequence", "tensor")


def loss(config: Config, params: Any, batch: Any) -> jax.Array:
    """Mean cross entropy of the next token; batch: tokens and targets (M, B, S) of int32."""
    return cross_entropy(logits(config, params, batch["tokens"]), batch["targets"])


def abstract_arguments(config: Config, microbatches: int, mesh: Any) -> tuple[Any, Any]:
    """State and batch of a training step, abstract, split over a mesh.

    Raises:
        ValueError: the stages do not divide the layers or the microbatches.
    """
    stages = parts("stages", mesh)
    if microbatches % stages:
        raise ValueError(f"{microbatches} microbatches cannot be split over {stages} stages")
    shape = microbatches, config.sequences * parts("batch", mesh), config.sequence
    dims = "stages", "batch", "sequence"
    return state_and_batch(parameters(config, stages), shape, dims, mesh)


def training(
    config: Config,
    microbatches: int,
    mesh: tuple[int, ...],
    axes: tuple[str, ...] = (AXIS, "data", "model"),
) -> Any:
    """A training step of a pipelined model: ``training(LLAMA3_70B, 32, mesh=(8, 8, 8)).capture()``.

    Args:
        config: the model; ``sequences`` are those of a microbatch per part of the batch dim.
        microbatches: of a step; a multiple of the stages.
        mesh: devices per axis.
        axes: their names, out of ``sharding.AXES``; "stage" is one of them.

    Returns:
        ``step(state, batch) -> (state, loss)``, jitted, with the state donated.
    """
    setup = functools.partial(abstract_arguments, config, microbatches)
    return training_step(functools.partial(loss, config), setup, mesh, axes)


PIPELINE_TINY = replace(TINY, layers=4)
PIPELINE_MIXTURE = replace(moe.TINY, layers=4, balance=0.0, dispatch="einsum")
PIPELINE_70B = replace(LLAMA3_70B, sequence_parallel=True)

train_tiny = training(PIPELINE_TINY, 4, mesh=(2, 2, 2))
train_tiny_mixture = training(PIPELINE_MIXTURE, 4, mesh=(2, 2, 2), axes=(AXIS, "data", "expert"))
train_70b = training(PIPELINE_70B, 32, mesh=(8, 8, 8))
