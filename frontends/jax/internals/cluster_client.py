"""JAX as on a cluster: its devices, its default backend, and the client that has them.

The idea: the client is XLA's CPU client, with as many devices as the cluster, of which only those
of the first host are local.  It is registered in jax as the accelerator's, so that
``jax.devices()``, ``jax.devices("gpu")`` and ``jax.default_backend()`` answer as on the cluster;
small computations really run on it.  The host's own processor is another client with one device, as
usual.

    shown = use_cluster(layout_of(512, "h100"))
    len(jax.devices()), jax.default_backend()           # 512, "gpu"
"""

from __future__ import annotations

import functools
import types
from typing import Any

from flint.errors import FlintError
from flint.frontends.jax.cluster.layout import Layout
from flint.frontends.jax.internals.cpu_devices import client_of
from flint.frontends.jax.internals.device_attributes import Shown, show

#: Platform as devices say it -> as jax names the backend.
_BACKENDS = {"cpu": "cpu", "gpu": "cuda", "tpu": "tpu"}


def use_cluster(layout: Layout) -> Shown:
    """Make jax's devices those of a cluster, before any code has asked jax for devices.

    Raises:
        RuntimeError: the client cannot be made.
        FlintError: jax has its devices already; a copy of such a process would hang.
    """
    from jax._src import xla_bridge
    from jaxlib import xla_client

    if xla_bridge.backends_are_initialized():
        raise FlintError(
            "jax was used in this process before the program started: use the command flint run"
        )
    shown = show(layout)
    bridge: Any = xla_bridge
    client = client_of(layout.devices, layout.per_host, compiles=False)
    found = {_BACKENDS[layout.platform]: client}
    if layout.platform != "cpu":
        shown.client = client
        found["cpu"] = xla_client.make_cpu_client(num_devices=1)
    bridge._backends.update(found)
    bridge._default_backend = client
    bridge._plugins_registered = True
    # The cluster's devices also replace the CPU devices that a program wants by its settings: their
    # number may still be set, because only such settings ask whether there are devices already, and
    # their platform's name, as ``jax_platforms`` does, selects none.
    bridge.backends_are_initialized = lambda: False
    bridge._PLATFORM_NAME = types.SimpleNamespace(value=None)
    _say_platform(layout.platform)
    return shown


def _say_platform(platform: str) -> None:
    """Make ``jax.default_backend()`` name the cluster's platform."""
    import jax
    from jax._src import xla_bridge

    @functools.wraps(xla_bridge.default_backend)
    def default_backend() -> str:
        return platform

    modules: tuple[Any, ...] = (jax, xla_bridge)
    for module in modules:
        module.default_backend = default_backend
