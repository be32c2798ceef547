"""Systems without the parts that only some simulators model: launches, PyTorch's host, protocols,
reductions in switches, and kernels that communication slows down.

The idea: two simulators can be compared if both have the same hardware.  Parts that one of them
lacks are left out of the system, by name, and the system lists them.

    plain = without(load_system("dgx-h100"), ("launches", "protocols", "in-network"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from flint.cost.hardware import System, Tier
from flint.errors import UsageError


def _no_launches(system: System) -> System:
    accelerator = replace(system.accelerator, launch_overhead=0.0)
    return replace(system, accelerator=accelerator)


def _no_protocols(system: System) -> System:
    return _of_tiers(system, lambda tier: replace(tier, protocols=()))


def _no_in_network(system: System) -> System:
    def others(tier: Tier) -> Tier:
        names = tuple(name for name in tier.algorithms if name != "in-network")
        return replace(tier, algorithms=names or ("ring",))

    return _of_tiers(system, others)


def _no_contention(system: System) -> System:
    kernel = replace(system.accelerator.kernel, beside_communication=1.0, beside_copies=1.0)
    system = replace(system, accelerator=replace(system.accelerator, kernel=kernel))
    return _of_tiers(system, lambda tier: replace(tier, beside_communication=0.0))


def _of_tiers(system: System, change: Callable[[Tier], Tier]) -> System:
    return replace(system, network=tuple(map(change, system.network)))


#: What can be left out -> how.
PARTS: Final[Mapping[str, Callable[[System], System]]] = {
    "launches": _no_launches,
    "host": lambda system: system,  # of PyTorch, which simulations add (flint.simulation.launches)
    "protocols": _no_protocols,
    "in-network": _no_in_network,
    "contention": _no_contention,
}


def parse_parts(texts: Iterable[str]) -> tuple[str, ...]:
    """``["launches,protocols", "in-network"]`` as names, in the table's order.

    Raises:
        UsageError: no such part.
    """
    named = {part.strip() for text in texts for part in text.split(",")}
    unknown = sorted(named - set(PARTS))
    if unknown:
        raise UsageError(
            f"unknown part {unknown[0]!r} of a system; choose from: {', '.join(PARTS)}"
        )
    return tuple(part for part in PARTS if part in named)


def without(system: System, parts: Iterable[str]) -> System:
    """The system without some of ``PARTS``.

    Raises:
        UsageError: no such part.
    """
    left_out = parse_parts([*system.without, *parts])
    for part in left_out:
        system = PARTS[part](system)
    return replace(system, without=left_out)
