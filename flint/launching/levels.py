"""Level auto: it depends on the framework, which is known only once the program runs.

request, why = settled(request, "jax")      # why it is not compiled, "" where it is
"""

from __future__ import annotations

from dataclasses import replace

from flint.capturing.targets import obstacle
from flint.launching.program import ProgramRequest


def settled(request: ProgramRequest, framework: str) -> tuple[ProgramRequest, str]:
    """The request, without its target if level auto cannot compile for it, and the reason.

    Raises:
        UsageError: an unknown target.
    """
    if request.target is None or not request.automatic:
        return request, ""
    why = obstacle(request.target, request.cluster.world, framework)
    return (replace(request, target=None) if why else request), why
