"""JAX's plugins for accelerators, which a capture does not need.

The idea: an installed plugin is loaded with jax, and reports on stderr that there is no device of
its kind.  Steps are lowered for accelerators without plugins, and compiled for them in separate
processes.

Private: ``xla_bridge.discover_pjrt_plugins``, as of jax 0.8.3 to 0.12.0.
"""

from __future__ import annotations

from jax._src import xla_bridge


def discover_none() -> None:
    """Make jax find no plugins when it creates its clients."""
    xla_bridge.discover_pjrt_plugins = lambda: None
