"""The description of a sweep, with the values of the command line.

The idea: this module imports nothing, because the forking process (``flint.sweeps.processes``)
starts before the rest of a sweep is imported.

    Sweep(("train.py:step",), ("64,8", "32,16"), ("dgx-h100",), Path("out"))
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

#: A point without what-if passes.
NO_PASS = "none"


@dataclass(frozen=True, slots=True)
class Sweep:
    """What to sweep over.

    Attributes:
        steps: FILE.py:FUNCTION each.
        meshes: device grids as on the command line.
        systems: names or TOML files.
        folder: where everything goes.
        axes: names of the mesh axes; None: the step's.
        setup: function of the file that makes the arguments; None: the step's.
        granularity: op, kernel, xla or region.
        algorithm: how collectives run; None: the cheapest.
        capture: further options of ``flint capture``, as on the command line.
        passes: what-if passes, each entry those of one point, joined by ``+``; ``none`` for a point
            without any.
        simulation: further options of ``flint simulate``, as on the command line.
    """

    steps: tuple[str, ...]
    meshes: tuple[str, ...]
    systems: tuple[str, ...]
    folder: Path
    axes: str | None = None
    setup: str | None = None
    granularity: str = "kernel"
    algorithm: str | None = None
    capture: tuple[str, ...] = ()
    passes: tuple[str, ...] = ("none",)
    simulation: tuple[str, ...] = ()

    @property
    def step(self) -> str:
        """The steps as text."""
        return ", ".join(self.steps)
