"""The private parts of JAX that tracing a step on an abstract mesh needs.

The idea: ``jax.set_mesh`` requires a mesh of real devices, and code that has called it, or that
writes bare PartitionSpecs, finds its mesh in two thread-local settings.  ``mesh_context`` puts an
abstract mesh into both, so that such code traces for a mesh of any size.

    with mesh_context(AbstractMesh((64, 8), ("data", "model"))):
        jax.jit(step, in_shardings=PartitionSpec("data")).trace(...)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import jax
from jax._src import config
from jax._src import mesh as meshes
from jax._src.mesh import empty_abstract_mesh, empty_concrete_mesh
from jax.sharding import AbstractMesh

_config: Any = config  # one of its settings is replaced
#: jax before 0.10 asks the mesh of devices in context for devices when it lowers.
_DEVICES_MAY_BE_ABSTRACT = jax.__version_info__ >= (0, 10)
#: Since 0.11, the settings are where meshes are.
_in_context: Any = meshes if jax.__version_info__ >= (0, 11) else config
_constant_folding = _config.eager_constant_folding


class _WithoutMesh:
    """The setting of ``jax.ensure_compile_time_eval``, without a mesh.

    Constants are computed while a step is traced, on this machine, and not on devices of the mesh.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(_constant_folding, name)

    @contextmanager
    def __call__(self, on: bool) -> Iterator[None]:
        with _constant_folding(on), mesh_context(None):
            yield


@contextmanager
def mesh_context(mesh: AbstractMesh | None) -> Iterator[None]:
    """Make ``mesh``, or none, the mesh in context, regardless of an earlier ``jax.set_mesh``."""
    settings = (_in_context.abstract_mesh_context_manager, _in_context.device_context)
    none = (empty_abstract_mesh, empty_concrete_mesh)
    wanted = none if mesh is None else (mesh, mesh if _DEVICES_MAY_BE_ABSTRACT else none[1])
    before = [setting.swap_local(value) for setting, value in zip(settings, wanted, strict=True)]
    folding, _config.eager_constant_folding = _config.eager_constant_folding, _WithoutMesh()
    try:
        yield
    finally:
        _config.eager_constant_folding = folding
        for setting, value in zip(settings, before, strict=True):
            setting.set_local(value)


def is_folding() -> bool:
    """Whether constants are computed while a function is traced: they are no part of a step."""
    return bool(_config.eager_constant_folding.value)


def computes_on_host() -> bool:
    """Whether it is ``with jax.default_device(cpu)``, beside the cluster's devices.

    As a setting for the whole program, it replaces the cluster's devices no more than
    ``jax_platforms`` does.
    """
    chosen = _config.default_device.value
    if chosen is None or chosen is _config.default_device.get_global():
        return False
    return jax.default_backend() != "cpu" and getattr(chosen, "platform", chosen) == "cpu"


def on_host() -> Any:
    """The sharding of an array on the host's processor."""
    return jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0])


def is_on_host(place: Any) -> bool:
    """Whether a device or sharding is the host's processor, beside the cluster's devices."""
    some: Any = getattr(place, "device_set", {place})
    return jax.default_backend() != "cpu" and all(
        isinstance(device, jax.Device) and device.platform == "cpu" for device in some
    )


def not_folding() -> AbstractContextManager[None]:
    """Trace what has no operands, too, instead of computing it."""
    off: AbstractContextManager[None] = _constant_folding(False)
    return off


def whole_tracebacks() -> AbstractContextManager[None]:
    """Keep JAX's own frames in tracebacks, which show the source of an error."""
    whole: AbstractContextManager[None] = config.traceback_filtering("off")
    return whole


def stated_sharding(leaf: Any) -> Any:
    """The sharding of an array or ShapeDtypeStruct; a bare PartitionSpec stays one."""
    # The public property resolves a PartitionSpec against a mesh of devices, or raises.
    return leaf._sharding if hasattr(leaf, "_sharding") else getattr(leaf, "sharding", None)
