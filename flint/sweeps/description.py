"""The description of a sweep, with the values of the command line.

The idea: this module imports next to nothing, because the forking process
(``flint.sweeps.processes``) starts before the rest of a sweep is imported.

    Sweep(("train.py:step",), ("64,8", "32,16"), ("dgx-h100",), Path("out"))
    Sweep((), ("64",), ("dgx-h100",), Path("out"), program=("python", "train.py", "--tp={tp}"),
          varied=(("tp", ("1", "8")),))
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

#: The file that marks the folder of a sweep.
MARK = "sweep.json"
#: A point without what-if passes.
NO_PASS = "none"


@dataclass(frozen=True, slots=True)
class Sweep:
    """What to sweep over.

    Attributes:
        steps: FILE.py:FUNCTION or a workload folder each; none if a whole program is swept over.
        meshes: device grids as on the command line; for a program, numbers of devices.
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
        program: the command of a whole program, with ``{NAME}`` where a value varies.
        varied: for each such name, its values.
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
    program: tuple[str, ...] = ()
    varied: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def step(self) -> str:
        """The steps, or the program, as text."""
        return shlex.join(self.program) if self.program else ", ".join(self.steps)
