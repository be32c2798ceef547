"""What tracing a step on an abstract mesh needs of JAX that is not public.

The idea: ``jax.set_mesh`` wants a mesh of real devices, and code that has called it, or that writes
bare PartitionSpecs, finds its mesh in two thread-local settings.  ``mesh_context`` puts an abstract
mesh into both, so that such code traces for a mesh of any size.

    with mesh_context(AbstractMesh((64, 8), ("data", "model"))):
        jax.jit(step, in_shardings=PartitionSpec("data")).trace(...)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jax._src import config
from jax.sharding import AbstractMesh


@contextmanager
def mesh_context(mesh: AbstractMesh | None) -> Iterator[None]:
    """Make ``mesh``, or none, the mesh in context, whatever ``jax.set_mesh`` has set before."""
    settings: tuple[Any, ...] = (config.abstract_mesh_context_manager, config.device_context)
    before = [setting.swap_local(mesh) for setting in settings]
    try:
        yield
    finally:
        for setting, value in zip(settings, before, strict=True):
            setting.set_local(value)


def stated_sharding(leaf: Any) -> Any:
    """The sharding of an array or ShapeDtypeStruct; a bare PartitionSpec stays one."""
    # The public property resolves a PartitionSpec against a mesh of devices, or raises.
    return leaf._sharding if hasattr(leaf, "_sharding") else getattr(leaf, "sharding", None)
