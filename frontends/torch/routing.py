"""How a router's choices spread over experts: the stated model of counts that are data.

routing_of((4, 2, 1, 1)).counts(choices=80, experts=4)      # [40, 20, 10, 10]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flint.errors import UsageError


@dataclass(frozen=True, slots=True)
class Routing:
    """How choices spread over experts.

    Attributes:
        name: what reports call it.
        loads: relative loads of the experts; empty: all get equally many.
    """

    name: str = "balanced"
    loads: tuple[float, ...] = ()

    def counts(self, choices: int, experts: int) -> list[int]:
        """Choices per expert, as near to the loads as whole numbers get; they add up.

        Raises:
            UsageError: there are loads for another number of experts.
        """
        loads = self.loads or (1.0,) * experts
        if len(loads) != experts:
            raise UsageError(
                f"routing gives loads of {len(loads)} experts; the program counts choices of "
                f"{experts}"
            )
        exact = [choices * load / sum(loads) for load in loads]
        found = [int(part) for part in exact]
        by_rest = sorted(range(experts), key=lambda i: (found[i] - exact[i], i))
        for expert in by_rest[: choices - sum(found)]:
            found[expert] += 1
        return found


def routing_of(setting: Any) -> Routing:
    """The routing that a capture's setting names.

    Args:
        setting: None or "balanced"; or the relative loads of the experts.

    Raises:
        UsageError: something else.
    """
    if setting is None or setting == "balanced":
        return Routing()
    if isinstance(setting, Sequence) and not isinstance(setting, str):
        loads = tuple(setting)
        number = all(isinstance(x, int | float) and 0 <= x < float("inf") for x in loads)
        if loads and number and sum(loads) > 0:
            text = ":".join(f"{load:g}" for load in loads[:8]) + (":..." if len(loads) > 8 else "")
            return Routing(f"loads {text}", tuple(float(load) for load in loads))
    raise UsageError(
        f'routing={setting!r}: it is "balanced", or the relative loads of the experts, one number '
        "each, none negative and not all 0"
    )
