"""How a router's choices spread over experts: the stated model of counts that are data.

The idea: which expert gets which token is known only when a program runs.  Before that it is
assumed, and every report repeats the assumption: all experts get the same number, or the i-th most
popular one gets a share that falls as 1 / i^S, or loads were measured.

    routing_of("zipf:1.2").counts(choices=80, experts=4)    # [9, 35, 15, 21]
    routing_of((4, 2, 1, 1)).busiest(experts=4, ranks=2)    # 1.5: of 8 choices one rank gets 6
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from flint.errors import UsageError

#: The order of experts by popularity: fixed, but unrelated to their numbers.
_MIXING: Final = 2654435761
#: The most experts of a model.
_MOST: Final = 1 << 16
#: The largest file of loads, in bytes.
_LONGEST: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Routing:
    """How choices spread over experts.

    Attributes:
        name: what reports call it.
        loads: relative loads of the experts; if empty, ``exponent`` is used.
        exponent: S of Zipf's law; with 0, all experts get the same number.
        experts: number of experts, if given; 0: as in the program.
    """

    name: str = "balanced"
    loads: tuple[float, ...] = ()
    exponent: float = 0.0
    experts: int = 0

    @property
    def is_balanced(self) -> bool:
        """Whether all experts get the same number of tokens."""
        return not self.loads and not self.exponent

    def shares(self, experts: int) -> list[float]:
        """Each expert's part of all choices; they add up to 1.

        Raises:
            UsageError: the routing is of another number of experts.
        """
        if self.experts and self.experts != experts:
            raise UsageError(
                f"routing gives loads of {self.experts} experts, but the program chooses among "
                f"{experts}"
            )
        loads = self.loads or _zipf(experts, self.exponent)
        whole = math.fsum(loads)
        return [load / whole for load in loads]

    def counts(self, choices: int, experts: int, most: int | None = None) -> list[int]:
        """Choices per expert, as close to the loads as whole numbers allow; they add up to all
        choices.

        Args:
            choices: number of choices.
            experts: number of experts.
            most: the most that one expert may have (tokens, none of which chooses an expert
                twice); what is beyond it goes to the others, by their loads.

        Raises:
            UsageError: the routing is of another number of experts.
        """
        full: set[int] = set()
        while True:
            found = self._shared(choices, experts, full, most or 0)
            beyond = {i for i, count in enumerate(found) if most is not None and count > most}
            if not beyond:
                return found
            full |= beyond

    def _shared(self, choices: int, experts: int, full: set[int], most: int) -> list[int]:
        """The same, where the experts of ``full`` have ``most`` choices each."""
        shares = [0.0 if i in full else share for i, share in enumerate(self.shares(experts))]
        rest, whole = choices - most * len(full), math.fsum(shares)
        if not whole and rest > 0:  # all that are left have a load of 0
            shares = [float(i not in full) for i in range(experts)]
            whole = math.fsum(shares)
        exact = [rest * (share / whole) if whole else 0.0 for share in shares]
        found = [int(part) for part in exact]
        by_rest = sorted(set(range(experts)) - full, key=lambda i: (found[i] - exact[i], i))
        for expert in by_rest[: rest - sum(found)]:
            found[expert] += 1
        return [most if i in full else count for i, count in enumerate(found)]

    def busiest(self, experts: int, ranks: int) -> float:
        """The load of the rank with the most popular experts, divided by the mean of all ranks.

        Args:
            experts: number of experts on all ranks; consecutive ones are on one rank.
            ranks: number of ranks that they are split among.

        Raises:
            UsageError: the experts do not divide among the ranks, or the routing is of another
                number of them.
        """
        if experts % ranks:
            raise UsageError(f"routing: {experts} experts do not divide evenly over {ranks} ranks")
        shares, each = self.shares(experts), experts // ranks
        return ranks * max(
            math.fsum(shares[first : first + each]) for first in range(0, experts, each)
        )


def _zipf(experts: int, exponent: float) -> tuple[float, ...]:
    order = sorted(range(experts), key=lambda expert: (expert + 1) * _MIXING % 2**32)
    loads = [0.0] * experts
    for place, expert in enumerate(order):
        loads[expert] = (place + 1) ** -exponent
    return tuple(loads)


def routing_of(setting: Any) -> Routing:
    """The routing that a setting names.

    Args:
        setting: None, "balanced" or "uniform"; "zipf:S", with "/E" for E experts; a file of one
            number per expert; or the relative loads of the experts themselves.

    Raises:
        UsageError: another setting, or a file with another content.
    """
    if setting is None or setting in ("balanced", "uniform"):
        return Routing()
    if isinstance(setting, Routing):
        return setting
    if isinstance(setting, str):
        law = re.fullmatch(r"zipf:(\d{1,3}(?:\.\d{1,9})?)(?:/(\d{1,5}))?", setting)
        if law:
            return _by_law(setting, float(law[1]), law[2])
        if not setting.startswith("zipf") and Path(setting).is_file():
            return _of_loads(_read(Path(setting)), f"{setting}")
    elif isinstance(setting, Sequence):
        text = ":".join(f"{load:g}" if _is_load(load) else "?" for load in setting[:8])
        return _of_loads(setting, f"loads {text}" + (":..." if len(setting) > 8 else ""))
    raise _refusal(setting)


def _by_law(text: str, exponent: float, experts: str | None) -> Routing:
    stated = int(experts) if experts is not None else 0
    if exponent > 100 or (experts is not None and not 0 < stated <= _MOST):
        raise _refusal(text)
    return Routing(f"zipf:{exponent:g}", (), exponent, stated)


def _of_loads(loads: Sequence[Any], name: str) -> Routing:
    if not loads or not all(map(_is_load, loads)) or not sum(loads) > 0 or len(loads) > _MOST:
        raise _refusal(loads if len(loads) < 16 else f"{len(loads)} loads")
    return Routing(name, tuple(float(load) for load in loads), experts=len(loads))


def _is_load(load: Any) -> bool:
    return isinstance(load, int | float) and 0 <= load < 1e15


def _read(path: Path) -> list[float]:
    """Numbers of a file, separated by white space, commas or brackets; lines with # are
    comments.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_LONGEST + 1)
        if len(content) > _LONGEST:
            raise UsageError(f"{path}: too large for a file of experts' loads")
        lines = [line.partition("#")[0] for line in content.decode("utf-8").splitlines()]
        return [float(word) for word in re.split(r"[\s,;\[\]]+", " ".join(lines)) if word]
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path}: not a file of experts' loads, one number each: {error}"
        ) from error


def _refusal(setting: Any) -> UsageError:
    return UsageError(
        f'routing={setting!r}: expected "balanced"; "zipf:1.2", where the i-th most popular '
        'expert gets a share of 1 / i^1.2 ("zipf:1.2/64": of 64 experts); the relative loads of '
        "the experts, one number each, none negative and not all 0; or a file of these loads"
    )
