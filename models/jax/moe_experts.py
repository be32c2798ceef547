"""The experts themselves: feed-forward networks of rows in places or in groups, and which
device has which.

The idea: every device has some of the experts, and of these the part of F that its tensor axis
gives it.  ``on_devices`` runs a function on every device's own tokens, with the weights of its own
experts gathered over the axes that only split parameters.

    mixed = on_devices(device, x, layer, routing, experts)      # device(x, routing, weights)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from flint.models.jax.moe_routing import Routing, expert_parameters
from flint.models.jax.sharding import AXES, spec
from flint.models.mixtures import Experts

#: The mesh axis over which the experts are split.
AXIS = "expert"


#: Parameters of the experts that products take, and the dim of each that FSDP splits.
_FSDP_DIM = {"gate": 1, "up": 1, "down": 2}
#: GPT-OSS: activations are limited, and the gate's sigmoid is steeper.
_LIMIT, _STEEPNESS = 7.0, 1.702


def names_of(experts: Experts) -> tuple[str, ...]:
    """Parameters of the experts themselves."""
    names = tuple(_FSDP_DIM)
    return (*names, *(f"{name}_bias" for name in names)) if experts.biases else names


def _gated(gate: jax.Array, up: jax.Array, experts: Experts) -> jax.Array:
    """SwiGLU (Shazeer, 2020), or its limited form in GPT-OSS."""
    if not experts.biases:
        return jax.nn.silu(gate) * up
    gate, up = jnp.minimum(gate, _LIMIT), jnp.clip(up, -_LIMIT, _LIMIT)
    return (up + 1) * (gate * jax.nn.sigmoid(_STEEPNESS * gate))


#: What a routing states about each token.
_BY_TOKEN = ("expert", "place", "weight")

Product = Callable[[jax.Array, str], jax.Array]


def _network(x: jax.Array, product: Product, experts: Experts) -> jax.Array:
    """The experts' feed-forward network of ``x``; ``product`` is one with a named weight."""
    with jax.named_scope("experts"):
        gate, up = product(x, "gate"), product(x, "up")
        return product(_gated(gate, up, experts), "down")


def apply_experts(x: jax.Array, weights: Any, experts: Experts) -> jax.Array:
    """Each expert's feed-forward network of its places ``x`` (B, E, C, D)."""

    def product(x: jax.Array, name: str) -> jax.Array:
        made = jnp.einsum("becd,edf->becf", x, weights[name])
        return made + weights[f"{name}_bias"][:, None] if experts.biases else made

    return _network(x, product, experts)


def apply_grouped(x: jax.Array, sizes: jax.Array, weights: Any, experts: Experts) -> jax.Array:
    """The same of rows ``x`` (R, D) sorted by expert; ``sizes`` (E,): rows of each.  What rows
    beyond these become is not defined."""

    def product(x: jax.Array, name: str) -> jax.Array:
        made = jax.lax.ragged_dot(x, weights[name], sizes)
        if not experts.biases:
            return made
        bias = weights[f"{name}_bias"]
        return made + jnp.repeat(bias, sizes, axis=0, total_repeat_length=x.shape[0])

    return _network(x, product, experts)


def sequence_axes(mesh: Any) -> tuple[str, ...]:
    """The mesh axes that split sequences only, experts not."""
    split = (axis for axis in AXES["batch"] if axis in mesh.axis_names)
    return tuple(axis for axis in split if axis not in AXES["experts"])


def _axes(mesh: Any, dim: str) -> tuple[str, ...]:
    return tuple(axis for axis in AXES[dim] if axis in mesh.axis_names)


def on_devices(
    device: Callable[[jax.Array, Routing, Any], jax.Array],
    x: jax.Array,
    layer: Any,
    routing: Routing,
    experts: Experts,
) -> jax.Array:
    """``device`` on every device of the mesh in context.

    Args:
        device: its sequences (B, S, D), their routing and its experts' weights -> their results,
            which are summed over the tensor axis.
        x: tokens (B, S, D).
        layer: parameters as of ``expert_parameters``.
        routing: of the tokens.
        experts: their sizes.
    """
    mesh = jax.sharding.get_abstract_mesh()
    tensor, fsdp = _axes(mesh, "tensor"), _axes(mesh, "fsdp")
    replicas = tuple(axis for axis in sequence_axes(mesh) if axis not in fsdp)
    names = names_of(experts)

    def whole(name: str, weights: jax.Array) -> jax.Array:
        """Weights gathered over the axes that split parameters."""
        with jax.named_scope("weights"):
            # Stated before the gather: the gradient is then summed over replicas after its scatter.
            varying = (*replicas, *(() if name in _FSDP_DIM else fsdp))
            weights = jax.lax.pcast(weights, varying, to="varying") if varying else weights
            if name not in _FSDP_DIM or not fsdp:
                return weights
            return jax.lax.all_gather(weights, fsdp, axis=_FSDP_DIM[name], tiled=True)

    def one(x: jax.Array, *given: jax.Array) -> jax.Array:
        """One device's part: its sequences, its experts, its part of F."""
        # Each device of the tensor axis has a part of every result; stated here, the gradient is
        # summed over them once per token and not once per place.
        x = jax.lax.pcast(x, tensor, to="varying") if tensor else x
        own = dict(zip(names, given[len(_BY_TOKEN) :], strict=True))
        if tensor and experts.biases:  # one of them adds it
            first = jax.lax.axis_index(tensor) == 0
            bias = jax.lax.pcast(own["down_bias"], tensor, to="varying")
            own["down_bias"] = jnp.where(first, bias, 0)
        weights = {name: whole(name, own[name]) for name in names}
        mine = Routing(*given[: len(_BY_TOKEN)], balance=routing.balance)
        mixed = device(x, mine, weights)
        with jax.named_scope("combine"):
            return jax.lax.psum(mixed, tensor) if tensor else mixed

    dims = expert_parameters(x.shape[2], experts)
    tokens = spec(("batch", None, None), mesh)
    split = (tokens,) * (1 + len(_BY_TOKEN)) + tuple(spec(dims[n].dims, mesh) for n in names)
    given = [getattr(routing, name) for name in _BY_TOKEN]
    mixed: jax.Array = jax.shard_map(
        one, in_specs=split, out_specs=tokens, axis_names={*mesh.axis_names} - {*mesh.manual_axes}
    )(x, *given, *(layer[name].astype(x.dtype) for name in names))
    return mixed
