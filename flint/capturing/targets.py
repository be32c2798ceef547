"""Compilation targets: their names, and what must be installed.

The idea: frontends know their compilers' targets; the core gets them through the registry, with a
name and a few facts each.

    target("h100").missing      # "" or what to install
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from flint import registry
from flint.errors import UsageError

if TYPE_CHECKING:
    from flint.cost.hardware import System

#: The level that is optimized if possible, else partitioned.
AUTO: Final = "auto"
#: Its warning if it is partitioned.
NOT_COMPILED: Final = "level auto: partitioned, because {}"
#: Its default target.
USUAL: Final = "h100"
#: The error about a missing target.
NO_TARGET: Final = "level optimized needs a target (--target); choose from: {}"


@dataclass(frozen=True, slots=True)
class Target:
    """A compilation target.

    Attributes:
        name: as on the command line.
        device: name of the device.
        platform: the compiler's platform, "cuda" or "tpu".
        memory: bytes of memory of one device.
        accelerator: the device's name in system descriptions.
        system: the system with such devices that durations are computed for by default.
        largest: number of devices of the largest mesh; None for any number.
        missing: what must be installed to compile for it; "" if nothing.
    """

    name: str
    device: str
    platform: str
    memory: int
    accelerator: str
    system: str
    largest: int | None
    missing: str

    def to_json(self) -> dict[str, Any]:
        """The record in JSON's types."""
        return asdict(self) | {"available": not self.missing}


def targets() -> tuple[Target, ...]:
    """All targets of all frontends."""
    return tuple(target for listed in registry.targets() for target in listed)


def listed() -> str:
    """The names of all targets."""
    return ", ".join(item.name for item in targets())


def target_of_system(system: str | System) -> Target | None:
    """The target for a system's devices; None if there is none.

    If there are several (40 GB and 80 GB), the one with the nearest memory size.

    Raises:
        UsageError: no such system.
    """
    # Few captures need a system's target.
    from flint.cost.accelerators import accelerator_called
    from flint.cost.systems import load_system

    accelerator = load_system(system).accelerator if isinstance(system, str) else system.accelerator
    ours = accelerator_called(accelerator.name)
    found = [item for item in targets() if item.accelerator == ours]
    return min(found, key=lambda item: abs(item.memory - accelerator.memory_bytes), default=None)


def target(name: str) -> Target:
    """The target of that name, whose compiler is installed.

    Raises:
        UsageError: as ``named``, or something must be installed.
    """
    found = named(name)
    if found.missing:
        raise UsageError(f"target {found.name}: {found.missing}")
    return found


def named(name: str) -> Target:
    """The target of that name; ``v5p`` is short for ``tpu-v5p``.

    Raises:
        UsageError: an unknown name (the text lists the known ones).
    """
    known = {item.name: item for item in targets()}
    found = known.get(name) or known.get(f"tpu-{name}")
    if found is None:
        raise UsageError(f"unknown target {name!r}; choose from: {', '.join(known)}")
    return found


def obstacle(name: str, devices: int, framework: str = registry.DEFAULT_FRAMEWORK) -> str:
    """Why a mesh of that size cannot be compiled for a target here; "" if it can.

    Args:
        name: name of the target.
        devices: number of devices of the mesh.
        framework: the framework of the compiler.

    Raises:
        UsageError: an unknown name.
    """
    found = named(name)
    platforms = registry.OWN_COMPILERS.get(framework)
    if platforms is not None:
        known = found.platform in platforms
        return "" if known else f"{framework} does not compile for {found.name}"
    if found.missing:
        return f"target {found.name}: {found.missing}"
    if found.largest is not None and devices > found.largest:
        return f"target {found.name} has at most {found.largest:,} devices"
    return ""
