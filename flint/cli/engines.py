"""Which engine simulates: its options, for one simulation and for sweeps.

The idea: an option of one engine is refused with another, never silently ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from flint.cli.parsing import positive
from flint.cli.refusals import refuse

#: Environment variable that names ASTRA-sim's binary.
ASTRA_SIM_VARIABLE = "FLINT_ASTRA_SIM"
#: Both engines side by side, with the same links; not itself an engine.
BOTH = "both"

EngineOption = Annotated[
    str,
    typer.Option(
        "--engine",
        help="Simulator to use: embedded, or astra-sim, which runs your own binary on the "
        "traces; flint simulate also accepts both, which compares them.",
    ),
]
AstraSimOption = Annotated[
    Path | None,
    typer.Option(
        "--astra-sim",
        help="ASTRA-sim's analytical binary, or its built checkout "
        "[default: $FLINT_ASTRA_SIM, else one on the PATH].",
    ),
]
TimeLimitOption = Annotated[
    float | None,
    typer.Option(
        "--time-limit",
        help="Time limit in seconds for ASTRA-sim [default: 600].",
        callback=positive,
    ),
]


def refuse_of_others(engine: str, owner: str, options: Mapping[str, object]) -> None:
    """Refuse options of one engine that were given with another.

    Raises:
        UsageError: one was.
    """
    if engine in ("embedded", "astra-sim", BOTH) and engine != owner:
        refuse(options, f"for --engine {owner}, not for {engine}")
