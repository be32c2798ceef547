"""Meshes that a step's own code builds of ``jax.devices()``, in place of the capture's.

The idea: the abstract form of such a mesh is the capture's, except for the kind of device that it
names.  Its ranks are numbered by its devices, so they must be in the order of ``jax.devices()``:
another order would form other groups than the capture has.

    lowered = attempt(mesh_context(of_devices(mesh)), in_order)
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh

from flint.errors import UsageError
from flint.frontends.jax.internals.platform_forms import equations


def of_devices(mesh: AbstractMesh) -> AbstractMesh:
    """``mesh`` in the abstract form of meshes that code builds from ``jax.devices()``.

    They name their kind of device, and a mesh that does not is different: shard_map accepts only
    the mesh in context.
    """
    device = Mesh(np.array(jax.devices()[:1]), ("device",)).abstract_mesh.abstract_device
    return AbstractMesh(
        mesh.axis_sizes, mesh.axis_names, axis_types=mesh.axis_types, abstract_device=device
    )


def in_order(traced: Any) -> None:
    """Search a traced step for maps over devices in another order.

    Raises:
        UsageError: there is one.
    """
    ids = [device.id for device in jax.devices()]
    for equation in equations(traced.jaxpr.jaxpr):
        mesh = equation.params.get("mesh")
        if isinstance(mesh, Mesh):
            found = [device.id for device in mesh.devices.flat]
            if found != ids[: len(found)]:
                raise UsageError(
                    f"{equation.primitive.name} uses a mesh whose device order differs from "
                    "jax.devices(), which numbers the ranks: use the mesh that setup receives, or "
                    "permute the axes of --mesh"
                )
