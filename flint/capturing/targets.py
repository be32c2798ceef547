"""What the compilers can compile for: names, and what is missing here.

The idea: frontends know their compilers' targets; the core asks them through the registry and
knows a target by its name and a few facts.

    target("h100").missing      # "" or what to install
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from flint import registry
from flint.errors import UsageError

if TYPE_CHECKING:
    from flint.cost.hardware import System

#: The level that is the compiler's where it can be, and else the partitioner's.
AUTO: Final = "auto"
#: What its warning says where it is the partitioner's.
NOT_COMPILED: Final = "level auto: partitioned, because {}"
#: What it compiles for where nothing says for what.
USUAL: Final = "h100"
#: What a missing target is refused with.
NO_TARGET: Final = "level optimized needs a target (--target); choose from: {}"


@dataclass(frozen=True, slots=True)
class Target:
    """Something that a compiler compiles for.

    Attributes:
        name: as on the command line.
        device: what one device is.
        platform: the compiler's platform, "cuda" or "tpu".
        memory: bytes of memory of one device.
        accelerator: the device, as systems are described.
        system: the system of such devices that durations are computed for by default.
        largest: devices of the largest mesh; None for any number.
        missing: what has to be installed to compile for it, "" when nothing.
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
    """The target whose devices a system has; None where there is none.

    Of several (40 GB and 80 GB) the one whose memory is nearest.

    Raises:
        UsageError: no such system.
    """
    # Few captures ask for a system's target.
    from flint.cost.accelerators import accelerator_called
    from flint.cost.systems import load_system

    accelerator = load_system(system).accelerator if isinstance(system, str) else system.accelerator
    ours = accelerator_called(accelerator.name)
    found = [item for item in targets() if item.accelerator == ours]
    return min(found, key=lambda item: abs(item.memory - accelerator.memory_bytes), default=None)


def target(name: str) -> Target:
    """The target of that name, for which XLA compiles here.

    Raises:
        UsageError: as ``named``, or what has to be installed.
    """
    found = named(name)
    if found.missing:
        raise UsageError(f"target {found.name}: {found.missing}")
    return found


def named(name: str) -> Target:
    """The target of that name; ``v5p`` is short for ``tpu-v5p``.

    Raises:
        UsageError: an unknown name (the text lists the known).
    """
    known = {item.name: item for item in targets()}
    found = known.get(name) or known.get(f"tpu-{name}")
    if found is None:
        raise UsageError(f"unknown target {name!r}; choose from: {', '.join(known)}")
    return found


def obstacle(name: str, devices: int, framework: str = registry.DEFAULT_FRAMEWORK) -> str:
    """Why a mesh of so many devices cannot be compiled for a target here; "" where it can.

    Args:
        name: of the target.
        devices: of the mesh.
        framework: whose compiler it is.

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
