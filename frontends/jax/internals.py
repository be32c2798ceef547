"""What is used of JAX that is not public in the parent process, and the versions that it is of.

Beside it three modules for one thing each: ``host_calls``, ``partition.rules`` and
``platform_forms``.

The idea: ``jax.set_mesh`` wants a mesh of real devices, and code that has called it, or that writes
bare PartitionSpecs, finds its mesh in two thread-local settings.  ``mesh_context`` puts an abstract
mesh into both, so that such code traces for a mesh of any size.

    with mesh_context(AbstractMesh((64, 8), ("data", "model"))):
        jax.jit(step, in_shardings=PartitionSpec("data")).trace(...)
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jax.sharding import AbstractMesh

from flint.host.environment import check_version

#: Versions of jax and jaxlib whose private parts are known to be as used here.
KNOWN_VERSIONS = ">=0.10.2,<0.11"


def check_versions() -> None:
    """Refuse untried versions.

    Raises:
        FlintError: which version is there and which are known to work.
    """
    check_version("jax", KNOWN_VERSIONS)
    check_version("jaxlib", KNOWN_VERSIONS)


@contextmanager
def mesh_context(mesh: AbstractMesh) -> Iterator[None]:
    """Make ``mesh`` the mesh in context, whatever ``jax.set_mesh`` has set before."""
    from jax._src import config

    settings: tuple[Any, ...] = (config.abstract_mesh_context_manager, config.device_context)
    before = [setting.swap_local(mesh) for setting in settings]
    try:
        yield
    finally:
        for setting, value in zip(settings, before, strict=True):
            setting.set_local(value)


def use_devices_of_another_process(devices: int) -> None:
    """Let ``jax.devices()`` be that many CPU devices, of which one can run something.

    Raises:
        RuntimeError: jax has made its client already.
    """
    from jax._src import xla_bridge

    from flint.frontends.jax.partition.cpu_devices import make_client

    def client() -> Any:
        with tempfile.TemporaryDirectory(prefix="flint-") as folder:
            return make_client(devices, Path(folder))

    xla_bridge.register_backend_factory("cpu", client, priority=0, fail_quietly=False)


def stated_sharding(leaf: Any) -> Any:
    """The sharding of an array or ShapeDtypeStruct; a bare PartitionSpec stays one."""
    # The public property resolves a PartitionSpec against a mesh of devices, or raises.
    return leaf._sharding if hasattr(leaf, "_sharding") else getattr(leaf, "sharding", None)


def batch_partitionable(module: bytes) -> list[str]:
    """Custom calls of a module of which JAX or the user has said that each device can do its part.

    They are those of whose operands all but the batch dims must be whole: LAPACK's, cuSOLVER's,
    and what ``jax.ffi.register_ffi_target_as_batch_partitionable`` was told.  XLA's partitioner
    gathers the operands of any other custom call.

    Args:
        module: MLIR bytecode, in which names stand as they are.
    """
    from jax._src import xla_bridge
    from jaxlib import xla_client

    told = [
        str(item.args[0])
        for item in xla_bridge._plugin_callbacks
        if isinstance(item, functools.partial)
        and item.func is xla_client.register_custom_call_as_batch_partitionable
    ]
    return [name for name in dict.fromkeys(told) if name.encode() in module]
