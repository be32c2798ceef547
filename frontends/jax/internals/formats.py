"""Formats: a sharding, and the order in which an array's dims lie in memory.

The idea: programs read the format that a compiler has chosen and put their arrays into it, which
moves no bytes between devices.  Here each compiler chooses the order of the dims, and what is put
into a format is put on its sharding.

    format_of(sharding, 2)          # Format(Layout(major_to_minor=(0, 1)), sharding)
"""

from __future__ import annotations

from typing import Any

from jax.experimental.layout import Format, Layout


def format_of(sharding: Any, dims: int, stated: Any = None) -> Format:
    """The format of an array.

    Args:
        sharding: its sharding.
        dims: the number of its dims.
        stated: the layout that the program states, if it is one.
    """
    chosen = stated if isinstance(stated, Layout) else Layout(tuple(range(dims)))
    return Format(chosen, sharding)


def placement(device: Any) -> Any:
    """The sharding of a format, or else a device or sharding itself."""
    return device.sharding if isinstance(device, Format) else device
