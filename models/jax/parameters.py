"""Trees of described parameters: counted, abstract on a mesh, or made for real.

The idea: a model states once what its parameters are (shape, logical dims, initial scale);
everything else follows: their number, ShapeDtypeStructs with shardings for a capture, arrays for a
run.

    tree = {"w": Parameter((4096, 14336), ("fsdp", "tensor"))}
    count(tree)                                     # 58720256
    abstract(tree, mesh)                            # no memory, any mesh
    initial(tree, jax.random.key(0))                # real arrays
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from flint.models.jax.sharding import Dim, spec

#: A nested container of ``Parameter``, and what is made from it.
Tree = Any


@dataclass(frozen=True, slots=True)
class Parameter:
    """An array that a model or an optimizer keeps.

    Attributes:
        shape: its dims' sizes.
        dims: their logical names (``sharding.AXES``), or None.
        scale: standard deviation of the initial normal distribution; 0: all equal to ``mean``.
        mean: mean of it.
        dtype: of the elements.
    """

    shape: tuple[int, ...]
    dims: tuple[Dim, ...]
    scale: float = 0.02
    mean: float = 0.0
    dtype: Any = jnp.float32

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.dims):
            raise ValueError(f"shape {self.shape} and dims {self.dims} differ in length")


def _is_parameter(item: Any) -> bool:
    return isinstance(item, Parameter)


def tree_map(function: Any, tree: Tree) -> Tree:
    """``function`` of every ``Parameter`` of a tree."""
    return jax.tree.map(function, tree, is_leaf=_is_parameter)


def leaves(tree: Tree) -> list[Parameter]:
    """Every ``Parameter`` of a tree."""
    return jax.tree.leaves(tree, is_leaf=_is_parameter)


def count(tree: Tree) -> int:
    """Number of elements of all parameters."""
    return sum(math.prod(item.shape) for item in leaves(tree))


def stacked(tree: Tree, layers: int, dim: Dim = None) -> Tree:
    """The parameters of ``layers`` equal layers, in arrays with a leading dim.

    Args:
        tree: one layer's parameters.
        layers: how many.
        dim: logical name of the leading dim ("stages" for a pipeline).
    """
    return tree_map(lambda p: replace(p, shape=(layers, *p.shape), dims=(dim, *p.dims)), tree)


def zeros_like(tree: Tree, dtype: Any = jnp.float32) -> Tree:
    """Parameters of the same shapes and splits that begin at zero: an optimizer's moments."""
    return tree_map(lambda p: replace(p, scale=0.0, mean=0.0, dtype=dtype), tree)


def abstract(tree: Tree, mesh: Any) -> Tree:
    """``jax.ShapeDtypeStruct`` of every parameter, with its sharding on a mesh."""

    def one(p: Parameter) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(
            p.shape, p.dtype, sharding=NamedSharding(mesh, spec(p.dims, mesh))
        )

    return tree_map(one, tree)


def initial(tree: Tree, key: jax.Array) -> Tree:
    """Real arrays; under ``jax.jit`` with out_shardings each is made on its own devices.

    Args:
        tree: what to make.
        key: of ``jax.random.key``.
    """
    found = leaves(tree)
    keys = iter(jax.random.split(key, max(len(found), 1)))

    def one(p: Parameter) -> jax.Array:
        number = next(keys)
        if p.scale == 0.0:
            return jnp.full(p.shape, p.mean, p.dtype)
        return (p.mean + p.scale * jax.random.normal(number, p.shape, jnp.float32)).astype(p.dtype)

    return tree_map(one, tree)
