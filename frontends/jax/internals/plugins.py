"""jax's plugins for accelerators, which a capture has no use for.

The idea: an installed plugin is loaded with jax, and says on stderr that there is no device of its
kind.  Steps are lowered for accelerators without them, and compiled for them in processes of their
own.

Private: ``xla_bridge.discover_pjrt_plugins``, as of jax 0.8.3 to 0.10.2.
"""

from __future__ import annotations

from jax._src import xla_bridge


def discover_none() -> None:
    """Have jax find none when it makes its clients."""
    xla_bridge.discover_pjrt_plugins = lambda: None
