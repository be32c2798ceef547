"""As many host devices as the capture's mesh has, for code that builds its own mesh of devices.

The idea: ``Mesh(jax.devices())`` in a user's file means the cluster's devices.  XLA's CPU client
has as many as a flag requests; it is created at the first call that needs devices, so the flag
costs nothing otherwise.  It must be set before jax creates its client, hence no jax is imported
here.  If the machine has too few threads, one device is local and the others appear to be
elsewhere: code can build meshes of them but cannot run on them.

    prepare(512)      # then import the user's file
"""

from __future__ import annotations

import os
import sys
from typing import Any

from flint.host.imports import watch_imports

_FLAG = "--xla_force_host_platform_device_count"

#: Parts of jax's plugins, which jax imports when it is imported.
_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin", "jax_rocm60_plugin", "jax_rocm7_plugin")

#: With more local devices, each with its threads, the client does not start reliably.
MAX_DEVICES = 8192


def prepare(devices: int | None) -> None:
    """Set the flag, unless the user's environment has it, and avoid waiting for an accelerator.

    Args:
        devices: of the mesh; None if only the user's file defines it.
    """
    no_accelerators()
    flags = os.environ.get("XLA_FLAGS", "")
    if devices is None:
        return
    watch_imports({"jax": lambda: _show(devices)})
    if _FLAG in flags:
        return
    if devices <= MAX_DEVICES:
        os.environ["XLA_FLAGS"] = f"{flags} {_FLAG}={devices}".strip()
        return
    from flint.frontends.jax.internals.cpu_devices import use_devices_of_another_process

    use_devices_of_another_process(devices)


def no_accelerators() -> None:
    """Make jax look for no plugins, before it is imported: its plugins write on stderr."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if "jax" not in sys.modules:
        hidden: dict[str, Any] = dict.fromkeys(_PLUGINS)  # as if they were not installed
        sys.modules.update(hidden)
    watch_imports({"jax": _without_plugins})


def _without_plugins() -> None:
    from flint.frontends.jax.internals import device_attributes, plugins, xla_flags

    plugins.discover_none()
    device_attributes.assume(*xla_flags.drop_unknown())


def _show(devices: int) -> None:
    """Put all devices on one host, in one slice unless the user's file builds a mesh of more."""
    from flint.frontends.jax.cluster.layout import Layout
    from flint.frontends.jax.internals.device_attributes import show

    show(Layout(devices=devices))
