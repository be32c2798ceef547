"""Abstract meshes for tests."""

from jax.sharding import AbstractMesh, AxisType


def auto_mesh(shape, axes):
    """A mesh without devices, whose axes the partitioner uses; jax 0.11 and newer take an abstract
    mesh for explicit if it is not stated."""
    return AbstractMesh(shape, axes, axis_types=(AxisType.Auto,) * len(axes))
