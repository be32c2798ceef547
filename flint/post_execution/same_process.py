"""A process that several files of a run have, in the forms of several tools.

The idea: AMD's rpd2tracing.py writes JSON beside the database that it reads, so that a folder has
the same kernels twice.  No two processes begin all of theirs in the same microsecond.

    once([of_the_database, of_its_json], warnings)      # [of_the_database]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from flint.mesh.ragged import Ints
from flint.post_execution.load_rank import Linked

TWICE: Final = "files of a process that another one in the folder has, too, left out: {}"
#: What is left of a time if only whole microseconds are kept (ns).
_CUT: Final = 1000


def once(traces: Sequence[Linked], warnings: dict[str, int]) -> list[Linked]:
    """The traces without those whose kernels an earlier one of another form has, too.

    Args:
        traces: of a run's files; those of exact forms come first.
        warnings: how many are left out is added here.
    """
    kept: list[Linked] = []
    forms: list[tuple[str, Ints]] = []
    for item in traces:
        starts = np.sort(item.links.kernel_start) if item.links is not None else np.empty(0, int)
        if any(form != item.trace.form and _same(begun, starts) for form, begun in forms):
            continue
        kept.append(item)
        forms.append((item.trace.form, starts))
    if len(kept) < len(traces):
        warnings[TWICE.format(len(traces) - len(kept))] = 1
    return kept


def _same(these: Ints, those: Ints) -> bool:
    """Whether kernels begin at the same times, as far as microseconds tell; some must run."""
    return 0 < len(these) == len(those) and bool((np.abs(these - those) < _CUT).all())
