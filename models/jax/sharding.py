"""Which mesh axes split which dims: one table for all models.

The idea: a dim has a logical name, a mesh axis has one too, and the table says which axes split
which dim.  Axes that a mesh lacks are left out, so that the same model runs data parallel, fully
sharded, tensor parallel or on one device, as the mesh in context states.

    with jax.set_mesh(jax.make_mesh((4, 2), ("data", "model"))):
        x = constrain(x, "batch", "sequence", None)     # x: P("data", None, None)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import PartitionSpec

#: Logical dim -> the mesh axes that split it, outermost first.
#:
#: ``replica`` and ``data`` both split the batch; parameters are split over ``data`` only, so that a
#: mesh with both is hybrid-sharded (HSDP: replicas of fully sharded groups).
AXES: dict[str, tuple[str, ...]] = {
    "batch": ("replica", "data", "node", "expert"),
    "fsdp": ("data",),
    "tensor": ("model",),
    "sequence": ("context",),
    "sequence_tensor": ("context", "model"),
    "experts": ("node", "expert"),
    "stages": ("stage",),
}

#: A dim's logical name, or None for a dim that is not split.
Dim = str | None


def spec(dims: Sequence[Dim], mesh: Any) -> PartitionSpec:
    """The PartitionSpec of an array whose dims have these logical names, on a mesh.

    Args:
        dims: a name of ``AXES`` or None per dim.
        mesh: a ``jax.sharding.Mesh`` or ``AbstractMesh``.
    """
    entries = []
    for dim in dims:
        axes = tuple(axis for axis in AXES[dim] if axis in mesh.axis_names) if dim else ()
        entries.append(axes[0] if len(axes) == 1 else axes or None)
    return PartitionSpec(*entries)


def parts(dim: str, mesh: Any) -> int:
    """Into how many parts a mesh splits the dims of a logical name."""
    return math.prod(mesh.shape[axis] for axis in AXES[dim] if axis in mesh.axis_names)


def constrain(x: jax.Array, *dims: Dim) -> jax.Array:
    """``x`` split by its dims' names on the mesh in context; unchanged without such a mesh.

    Args:
        x: an array with as many dims as there are names.
        dims: a name of ``AXES`` or None per dim.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return x
    return jax.lax.with_sharding_constraint(x, spec(dims, mesh))
