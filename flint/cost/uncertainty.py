"""Ranges: how far a simulated time can be trusted.

The idea: a step is off by what its system's figures rest on.  The speed of products is measured in
training steps, or stated or assumed; for each there are runs that were predicted before they were
compared (``blind_errors.toml``), and the range is where two of three of them were.  Communication
that nothing hides rests on the network's efficiency besides: its share of the step counts with
``_NETWORK``, which is judged, not measured.  Both are independent:

    share = sqrt(blind^2 + (exposed / step * network)^2)

Points on one system share most of their error: what is left between two runs of one campaign is in
the same file, and is what tells points of a sweep apart.

    spread = spread_of(load_system("tpu-v6e-pod"), exposed=0.1)
    spread.share, spread.basis, spread.runs
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from flint.cost.description import Stated
from flint.cost.hardware import System

#: What a figure can rest on, the best first.
BASES: Final = ("measured", "datasheet", "assumed")
#: Sources that say so, whatever else they say.
_ASSUMED: Final = re.compile(r"\bassumed\b")
_MEASURED: Final = re.compile(r"\b(fitted|measured|published runs)\b")
#: Share of exposed communication by what the network's figures rest on: judged.
_NETWORK: Final = {"measured": 0.1, "datasheet": 0.2, "assumed": 0.4}
_FILE: Final = Path(__file__).with_name("blind_errors.toml")


@dataclass(frozen=True, slots=True)
class Spread:
    """How far a time can be trusted.

    Attributes:
        share: half the range, as a share of the time.
        basis: what the speed of products rests on.
        network: what the network's figures rest on.
        runs: blind predictions behind it.
    """

    share: float
    basis: str
    network: str
    runs: int


def basis_of(source: str) -> str:
    """What a figure rests on, by what its source says; a figure without a source is assumed."""
    if not source or _ASSUMED.search(source):
        return "assumed"
    return "measured" if _MEASURED.search(source) else "datasheet"


def spread_of(system: System, exposed: float = 0.0) -> Spread:
    """How far a step's time on a system can be trusted.

    Args:
        system: with the sources of its figures.
        exposed: communication that nothing hides, as a share of the step.
    """
    accelerator = system.accelerator
    curves = any(curve.kernel == "matmul" for curve in accelerator.curves)
    basis = "measured" if curves else _worst(accelerator.stated, ("matmul_efficiency",))
    network = _worst(system.stated, ("efficiency", "latency"))
    # Nothing blind says that products timed alone tell more of a step than an assumption does.
    kind = "measured" if basis == "measured" else "assumed"
    arrays = accelerator.systolic is not None
    [entry] = [e for e in _blind()["kind"] if (e["arrays"], e["basis"]) == (arrays, kind)]
    share = math.hypot(entry["share"], exposed * _NETWORK[network])
    return Spread(share, basis, network, entry["runs"])


def apart(seconds: float, other: float) -> bool:
    """Whether the steps of two points on one system can be told apart."""
    return abs(math.log(seconds / other)) > float(_blind()["pairs"]["share"])


def _worst(stated: Iterable[Stated], names: tuple[str, ...]) -> str:
    """What the weakest of some figures rests on; assumed where there is none."""
    found = [basis_of(item.source) for item in stated if item.entry.rsplit(".", 1)[-1] in names]
    return max(found, key=BASES.index, default="assumed")


@cache
def _blind() -> dict[str, Any]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))
