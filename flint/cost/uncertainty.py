"""Ranges: how far off a simulated time may be.

The idea: blind runs, which were predicted before their measured times were known, show how far off
a prediction is (``blind_errors.csv``: measured / predicted, one row per run).  The range of a step
covers two of three of them; similar runs count more:

- four times if on the same kind of device (TPUs or others) with the same basis for the speed of
  products: measured in training steps, or else stated or assumed;
- sixteen times if the program is of the same kind: dense, with products narrower than 16 bits, or a
  mixture of experts;
- four times if on the same accelerator.

How often a run is within a range that is not based on it: ``docs/accuracy.md``.

Errors are factors: a share of 0.2 is a step between t / 1.2 and 1.2 t.  Exposed communication also
depends on the network's efficiency: its share of the step counts with ``_NETWORK``, which is an
estimate, not measured. Both are independent:

    share = sqrt(blind^2 + (exposed / step * network)^2)

Points on one system share most of their error: only the difference between the errors of two runs
of one campaign matters when points of a sweep are compared.

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

#: What a figure can be based on, the best first.
BASES: Final = ("measured", "datasheet", "assumed")
#: Kinds of programs of blind runs.
PROGRAMS: Final = ("dense", "narrow", "mixture")
#: Words in sources that show the basis.
_ASSUMED: Final = re.compile(r"\bassumed\b")
_MEASURED: Final = re.compile(r"\b(fitted|measured|published runs)\b")
#: Relative error of exposed communication by the basis of the network's figures; an estimate.
_NETWORK: Final = {"measured": 0.1, "datasheet": 0.2, "assumed": 0.4}
#: How much more a run counts on the same kind of device, with the same kind of program, or on the
#: same accelerator.
_ALIKE: Final = (4.0, 16.0, 4.0)
#: The share of the runs that a range covers.
HELD: Final = 2 / 3
#: Names of the products of a mixture's experts, and of the ops that choose experts.
_MIXTURE: Final = ("ragged_dot", "grouped_mm", "top_k", "topk")
#: Names of modules and scopes of mixtures.
_EXPERTS: Final = re.compile(r"(?<![a-z])(moe|experts?|router)(?![a-z])", re.IGNORECASE)
_FILE: Final = Path(__file__).with_name("blind_errors.csv")


@dataclass(frozen=True, slots=True)
class Blind:
    """A run that was predicted before its measured time was known.

    Attributes:
        accelerator: a word of its name, as in descriptions.
        basis: what the speed of products was based on then; all except ``measured`` count as one.
        program: one of ``PROGRAMS``.
        campaign: who measured it.
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
    """How far off a time may be.

    Attributes:
        share: the time may be longer or shorter by a factor of 1 + share.
        basis: what the speed of products is based on.
        network: what the network's figures are based on.
        program: the kind of program.
        runs: number of blind runs on such devices, of such programs, or both.
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
    """What a figure is based on, from the words of its source; a figure without a source is
    assumed.
    """
    if not source or _ASSUMED.search(source):
        return "assumed"
    return "measured" if _MEASURED.search(source) else "datasheet"


def spread_of(system: System, exposed: float = 0.0, program: str = "dense") -> Spread:
    """The range of a step's time on a system.

    Args:
        system: the system, with the sources of its figures.
        exposed: exposed communication as a share of the step.
        program: one of ``PROGRAMS``.
    """
    accelerator = system.accelerator
    curves = any(curve.kernel == "matmul" for curve in accelerator.curves)
    basis = "measured" if curves else _worst(accelerator.stated, ("matmul_efficiency",))
    network = _worst(system.stated, ("efficiency", "latency"))
    # No blind run shows that products timed alone predict a step better than an assumption does.
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
    """The error (a logarithm) that a share of ``HELD`` of the runs, by weight, did not exceed."""
    off = np.array([run.off for run in runs])
    order = np.argsort(off)
    counts = np.array(weights)[order]
    return float(np.interp(HELD, (counts.cumsum() - counts / 2) / counts.sum(), off[order]))


def weight(devices: bool, program: bool, accelerator: bool) -> float:
    """The weight of a blind run, from what it has in common with a step."""
    return math.prod(
        more if common else 1.0
        for more, common in zip(_ALIKE, (devices, program, accelerator), strict=True)
    )


def program_of(graphs: Iterable[WorkloadGraph]) -> str:
    """The kind of program that the graphs make up.

    A mixture of experts is recognised by grouped products, by a choice of the largest scores, or by
    the names of its layers; in a narrow program, most FLOPs of products outside attention have
    types of fewer than 16 bits.
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
    """Whether the steps of two points on one system can be distinguished."""
    return abs(math.log(seconds / other)) > between_runs()


@cache
def between_runs() -> float:
    """The difference, as a logarithm, between the errors of two runs of one campaign on one device
    with programs of one kind: two of three pairs are closer.
    """
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
    """The basis of the weakest of some figures; assumed if there is none."""
    found = [basis_of(item.source) for item in stated if item.entry.rsplit(".", 1)[-1] in names]
    return max(found, key=BASES.index, default="assumed")
