"""Calls of Python on the host (``pure_callback``, ``io_callback``, ``debug.print``): no devices.

The idea: XLA runs such a call on the first device alone or, in a manual computation, on each; which
devices there are does not matter, only their kind.  JAX asks for devices all the same: for an
abstract mesh it refuses, and for another platform than this machine's it wants that one's client,
whose only part is to keep the function until a run calls it.  Nothing here ever does.
"""

from __future__ import annotations

from typing import Any

from jax._src import callback

#: Devices are needed only where the user names the one that calls.
CALLS = frozenset((callback.pure_callback_p, callback.io_callback_p))

_emit = callback.emit_python_callback


class _Keeper:
    """What stands for a platform's client."""

    def __init__(self, platform: str) -> None:
        self.platform = platform

    def make_python_callback_from_host_send_and_recv(self, *_arguments: Any) -> object:
        """What TPUs' clients make of a function; it is only kept."""
        return object()


def replacements() -> list[tuple[Any, str, Any]]:
    """The functions to replace in JAX: module, name, replacement."""
    return [(callback, "emit_python_callback", _emit_without_client)]


def _emit_without_client(ctx: Any, *arguments: Any, **known: Any) -> Any:
    context = ctx.module_context
    if len(context.platforms) == 1:
        context = context.replace(backend=_Keeper(context.platforms[0]))
    return _emit(ctx.replace(module_context=context), *arguments, **known)
