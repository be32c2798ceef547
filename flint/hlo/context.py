"""What attribute decoders share, and their form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flint.stablehlo.read.records import ReplicaGroups


class Context:
    """What decoders share within one module: its payload table and the caches.

    ``meshes`` collects the distinct meshes that replica groups name, under invented names.
    """

    __slots__ = ("attributes", "groups", "meshes", "payloads")

    def __init__(self, payloads: tuple[bytes, ...]) -> None:
        self.payloads = payloads
        self.attributes: dict[tuple[object, ...], dict[str, Any] | None] = {}
        self.meshes: dict[tuple[tuple[str, int], ...], str] = {}
        self.groups: dict[tuple[int, bytes], ReplicaGroups] = {}


#: (instruction, context) -> attributes.
Decoder = Callable[[Any, Context], "dict[str, Any] | None"]
