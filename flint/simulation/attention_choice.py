"""How attention that a program writes out is timed: op by op, or as a fused kernel.

The idea: a kernel in the program is timed as a kernel: a call of cuDNN, of a Pallas kernel or of
PyTorch's, or a composite.  A product, a softmax and a product are not such a call, and no compiler
turns them into one: XLA runs what is written.  Only the user can know that another program will
run.  If that would make a difference, both times are reported.

    simulate(workload, attention="fused")
"""

from __future__ import annotations

from typing import Final

from flint.errors import UsageError
from flint.host.readable import human_seconds, percentage

FUSED: Final = "fused"
AS_WRITTEN: Final = "as-written"
CHOICES: Final = (FUSED, AS_WRITTEN)

#: If times differ by more than this share of the shorter one, both are reported.
_MATTERS: Final = 0.1


def check_attention(choice: str | None) -> None:
    """Check that a choice exists.

    Raises:
        UsageError: it does not.
    """
    if choice is not None and choice not in CHOICES:
        raise UsageError(f"attention {choice!r}: choose from {', '.join(CHOICES)}")


def notes_on_attention(written: float, fused: float) -> list[str]:
    """The note about attention that is timed as written by default.

    Args:
        written, fused: seconds of a step in both cases.
    """
    if max(written, fused) <= (1 + _MATTERS) * min(written, fused):
        return []
    share = percentage(abs(written - fused), written)
    return [
        "attention is written out in the program and timed as written, as XLA runs it: the step "
        f"takes {human_seconds(written)}; with fused kernels it would take {human_seconds(fused)}, "
        f"{share} {'less' if fused < written else 'more'} (--attention fused)"
    ]
