"""Ranges: how far a simulated time can be trusted.

The idea: runs that were predicted before they were compared say how far off a prediction is
(``blind_errors.csv``: measured / predicted, one row per run).  The range of a step holds two of
three of them, those that are like it counting more:

- four times if on devices of its kind (TPUs or others) whose products rest on as much: measured in
  training steps, or stated or assumed;
- sixteen times if of the same kind of program: dense, with products narrower than 16 bits, or a
  mixture of experts;
- four times if on the same accelerator.

How often ranges hold that do not rest on a run: ``docs/accuracy.md``.

Errors are factors: a share of 0.2 is a step between t / 1.2 and 1.2 t.  Communication that nothing
hides rests on the network's efficiency besides: its share of the step counts with ``_NETWORK``,
which is judged, not measured.  Both are independent:

    share = sqrt(blind^2 + (exposed / step * network)^2)

Points on one system share most of their error: what is left between two runs of one campaign is
what tells points of a sweep apart.

    spread = spread_of(load_system("tpu-v6e-pod"), exposed=0.1, program="mixture")
    spread.share, spread.basis, spread.runs
"""

from __future__ import annotations

import csv
import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from flint.cost.classes import is_attention, named
from flint.cost.description import Stated
from flint.cost.hardware import System
from flint.graph.graph import WorkloadGraph
from flint.graph.tensor_types import DTYPE_BITS, DTYPES
from flint.graph.work import Unit
from flint.mesh.ragged import row_of_entry

#: What a figure can rest on, the best first.
BASES: Final = ("measured", "datasheet", "assumed")
#: What blind runs were of.
PROGRAMS: Final = ("dense", "narrow", "mixture")
#: Sources that say so, whatever else they say.
_ASSUMED: Final = re.compile(r"\bassumed\b")
_MEASURED: Final = re.compile(r"\b(fitted|measured|published runs)\b")
#: Share of exposed communication by what the network's figures rest on: judged.
_NETWORK: Final = {"measured": 0.1, "datasheet": 0.2, "assumed": 0.4}
#: How much more a run counts on such devices, of such a program, on the same accelerator.
_ALIKE: Final = (4.0, 16.0, 4.0)
#: How much of the runs a range holds.
HELD: Final = 2 / 3
#: What the products of a mixture's experts, or the choice of them, are called.
_MIXTURE: Final = ("ragged_dot", "grouped_mm", "top_k", "topk")
#: What modules and scopes of mixtures are called.
_EXPERTS: Final = re.compile(r"(?<![a-z])(moe|experts?|router)(?![a-z])", re.IGNORECASE)
_FILE: Final = Path(__file__).with_name("blind_errors.csv")


@dataclass(frozen=True, slots=True)
class Blind:
    """A run that was predicted before it was compared.

    Attributes:
        accelerator: a word of its name, as in descriptions.
        basis: what the speed of products rested on then; all but ``measured`` are alike.
        program: one of ``PROGRAMS``.
        campaign: who measured.
        error: measured seconds / predicted.
    """

    accelerator: str
    basis: str
    program: str
    campaign: str
    error: float

    @property
    def arrays(self) -> bool:
        """Whether its devices' matrix units are systolic arrays."""
        return self.accelerator.startswith("TPU")

    @property
    def off(self) -> float:
        """How far off it was, as |log(measured / predicted)|."""
        return abs(math.log(self.error))


@dataclass(frozen=True, slots=True)
class Spread:
    """How far a time can be trusted.

    Attributes:
        share: the time may be longer or shorter by a factor of 1 + share.
        basis: what the speed of products rests on.
        network: what the network's figures rest on.
        program: what kind of program it is.
        runs: blind runs on such devices, of such programs, or both.
    """

    share: float
    basis: str
    network: str
    program: str
    runs: int

    def bounds(self, seconds: float) -> tuple[float, float]:
        """The least and the most that a time may be."""
        return seconds / (1 + self.share), seconds * (1 + self.share)


def basis_of(source: str) -> str:
    """What a figure rests on, by what its source says; a figure without a source is assumed."""
    if not source or _ASSUMED.search(source):
        return "assumed"
    return "measured" if _MEASURED.search(source) else "datasheet"


def spread_of(system: System, exposed: float = 0.0, program: str = "dense") -> Spread:
    """How far a step's time on a system can be trusted.

    Args:
        system: with the sources of its figures.
        exposed: communication that nothing hides, as a share of the step.
        program: one of ``PROGRAMS``.
    """
    accelerator = system.accelerator
    curves = any(curve.kernel == "matmul" for curve in accelerator.curves)
    basis = "measured" if curves else _worst(accelerator.stated, ("matmul_efficiency",))
    network = _worst(system.stated, ("efficiency", "latency"))
    # Nothing blind says that products timed alone tell more of a step than an assumption does.
    devices = (accelerator.systolic is not None, basis == "measured")
    alike = [
        (
            (run.arrays, run.basis == "measured") == devices,
            run.program == program,
            bool(re.search(rf"\b{run.accelerator}\b", accelerator.name)),
        )
        for run in blind_runs()
    ]
    blind = off_by(blind_runs(), [weight(*each) for each in alike])
    share = math.hypot(math.expm1(blind), exposed * _NETWORK[network])
    return Spread(share, basis, network, program, sum(any(each) for each in alike))


def off_by(runs: Sequence[Blind], weights: Sequence[float]) -> float:
    """What ``HELD`` of some runs, by weight, were not further off than, as a logarithm."""
    off = np.array([run.off for run in runs])
    order = np.argsort(off)
    counts = np.array(weights)[order]
    return float(np.interp(HELD, (counts.cumsum() - counts / 2) / counts.sum(), off[order]))


def weight(devices: bool, program: bool, accelerator: bool) -> float:
    """How much a blind run counts, by what it has in common with a step."""
    return math.prod(
        more if common else 1.0
        for more, common in zip(_ALIKE, (devices, program, accelerator), strict=True)
    )


def program_of(graphs: Iterable[WorkloadGraph]) -> str:
    """What kind of program some graphs are.

    A mixture of experts is known by grouped products, by a choice of the largest scores, or by the
    names of its layers; a narrow one has most FLOPs of its products, attention's aside, in types of
    fewer than 16 bits.
    """
    bits = np.array([DTYPE_BITS[name] for name in DTYPES])
    narrow = wide = 0.0
    for graph in graphs:
        for block, times in graph.walk():
            layers = {source.layer for source in block.tables.sources}
            if named(block, _MIXTURE).any() or any(map(_EXPERTS.search, layers)):
                return "mixture"
            items = (block.work_unit == Unit.MATMUL) & ~is_attention(block)[
                row_of_entry(block.work_ptr)
            ]
            few = items & (bits[block.work_dtype] < 16)
            narrow += times * float(block.work_flops[few].sum())
            wide += times * float(block.work_flops[items & ~few].sum())
    return "narrow" if narrow > wide else "dense"


def apart(seconds: float, other: float) -> bool:
    """Whether the steps of two points on one system can be told apart."""
    return abs(math.log(seconds / other)) > between_runs()


@cache
def between_runs() -> float:
    """How far apart, as a logarithm, errors are of two runs of a campaign on one device and of
    programs of one kind: two of three pairs are closer."""
    campaigns: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for run in blind_runs():
        campaigns[run.campaign, run.accelerator, run.program].append(math.log(run.error))
    pairs = (itertools.combinations(runs, 2) for runs in campaigns.values())
    return float(np.quantile([abs(a - b) for a, b in itertools.chain(*pairs)], HELD))


@cache
def blind_runs() -> tuple[Blind, ...]:
    """All runs that were predicted before they were compared."""
    with _FILE.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return tuple(Blind(**(row | {"error": float(row["error"])})) for row in rows)  # type: ignore[arg-type]  # the file's columns are the fields


def _worst(stated: Iterable[Stated], names: tuple[str, ...]) -> str:
    """What the weakest of some figures rests on; assumed where there is none."""
    found = [basis_of(item.source) for item in stated if item.entry.rsplit(".", 1)[-1] in names]
    return max(found, key=BASES.index, default="assumed")
