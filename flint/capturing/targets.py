"""What the compilers can compile for: names, and what is missing here.

The idea: frontends know their compilers' targets; the core asks them through the registry and
knows a target by its name and a few facts.

    target("h100").missing      # "" or what to install
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from flint import registry
from flint.errors import UsageError


@dataclass(frozen=True, slots=True)
class Target:
    """Something that a compiler compiles for.

    Attributes:
        name: as on the command line.
        device: what one device is.
        platform: the compiler's platform, "cuda" or "tpu".
        memory: bytes of memory of one device.
        system: the system of such devices that durations are computed for by default.
        largest: devices of the largest mesh; None for any number.
        missing: what has to be installed to compile for it, "" when nothing.
    """

    name: str
    device: str
    platform: str
    memory: int
    system: str
    largest: int | None
    missing: str

    def to_json(self) -> dict[str, Any]:
        """The record in JSON's types."""
        return asdict(self) | {"available": not self.missing}


def targets() -> tuple[Target, ...]:
    """All targets of all frontends."""
    return tuple(target for listed in registry.targets() for target in listed)


def target(name: str) -> Target:
    """The target of that name; ``v5p`` is short for ``tpu-v5p``.

    Raises:
        UsageError: an unknown name (the text lists the known), or what has to be installed.
    """
    known = {item.name: item for item in targets()}
    found = known.get(name) or known.get(f"tpu-{name}")
    if found is None:
        raise UsageError(f"no target {name!r}; there are: {', '.join(known)}")
    if found.missing:
        raise UsageError(f"target {found.name}: {found.missing}")
    return found
