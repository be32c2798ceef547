"""How attention that a program spells out is timed: as written, or as training's fused kernels.

The idea: what is a kernel in the program is one in time: the call of cuDNN, of a Pallas kernel, of
PyTorch's, or a composite.  A product, a softmax and a product are no such call, and no compiler
makes one of them: XLA runs what is written.  Only the user can know that another program will run.
Where that would make a difference, both times are told.

    simulate(workload, attention="fused")
"""

from __future__ import annotations

from typing import Final

from flint.errors import UsageError
from flint.host.readable import human_seconds, percentage

FUSED: Final = "fused"
AS_WRITTEN: Final = "as-written"
CHOICES: Final = (FUSED, AS_WRITTEN)

#: Times that differ by more are both told, as a share of the shorter.
_MATTERS: Final = 0.1


def check_attention(choice: str | None) -> None:
    """That there is such a choice.

    Raises:
        UsageError: there is none.
    """
    if choice is not None and choice not in CHOICES:
        raise UsageError(f"attention {choice!r}: choose from {', '.join(CHOICES)}")


def told(written: float, fused: float) -> list[str]:
    """What is said of attention that is timed as written, though nobody asked for it.

    Args:
        written, fused: seconds of a step either way.
    """
    if max(written, fused) <= (1 + _MATTERS) * min(written, fused):
        return []
    share = percentage(abs(written - fused), written)
    return [
        "attention is written out in the program and timed as written, as XLA runs it: the step "
        f"takes {human_seconds(written)}; with fused kernels it would take {human_seconds(fused)}, "
        f"{share} {'less' if fused < written else 'more'} (--attention fused)"
    ]
