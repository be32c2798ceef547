"""Calls of Python on the host (``pure_callback``, ``io_callback``, ``debug.print``): no devices.

The idea: XLA runs such a call on the first device alone or, in a manual computation, on each; the
devices do not matter, only their kind.  JAX still asks for devices: for an abstract mesh it
refuses, and for a platform other than this machine's it needs that platform's client, whose only
role is to keep the function until a run calls it, which never happens here.
"""

from __future__ import annotations

from typing import Any

from jax._src import callback

#: Devices are needed only if the user names the one that calls.
CALLS = frozenset((callback.pure_callback_p, callback.io_callback_p))

_emit = callback.emit_python_callback


class _Keeper:
    """The substitute for a platform's client."""

    def __init__(self, platform: str) -> None:
        self.platform = platform

    def make_python_callback_from_host_send_and_recv(self, *_arguments: Any) -> object:
        """The form that TPUs' clients give to a function; it is only kept."""
        return object()


def replacements() -> list[tuple[Any, str, Any]]:
    """The functions to replace in JAX: module, name, replacement."""
    return [(callback, "emit_python_callback", _emit_without_client)]


def _emit_without_client(ctx: Any, *arguments: Any, **known: Any) -> Any:
    context = ctx.module_context
    if len(context.platforms) == 1:
        context = context.replace(backend=_Keeper(context.platforms[0]))
    return _emit(ctx.replace(module_context=context), *arguments, **known)
