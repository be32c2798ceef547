"""Ranks from the names of their files, if no trace names its rank.

The idea: a user numbers the files of a run's ranks.  A number in the names that is different in
each, and 0 to one less than their number in all of them, is the rank; others, such as a time or a
process, are not.

    ranks_of_names(["worker-1.json", "worker-0.json"])      # [1, 0]
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from flint.errors import FlintError
from flint.observed.columns import UNKNOWN_RANK
from flint.post_execution.load_rank import Linked

BY_NAME: Final = "no trace names its rank: the numbers in the files' names are taken for the ranks"


def ranks_of_names(names: Sequence[str]) -> list[int] | None:
    """The rank that each name has; None if there is none, or more than one numbering.

    Args:
        names: names of files that differ only in numbers.
    """
    parts = [re.split(r"(\d{1,7})", name) for name in names]
    if len({tuple(one[::2]) for one in parts}) != 1:
        return None
    numbers = [[int(digits) for digits in one[1::2]] for one in parts]
    whole = list(range(len(names)))
    found = {column for column in zip(*numbers, strict=True) if sorted(column) == whole}
    return list(found.pop()) if len(found) == 1 else None


def named(traces: Sequence[Linked], strict: bool, warnings: dict[str, int]) -> list[Linked]:
    """The traces with ranks from their files' names, if none names its own.

    Args:
        traces: of a run's files.
        strict: whether nothing may be inferred.
        warnings: that ranks were inferred is added here.

    Raises:
        FlintError: they were, and ``strict``.
    """
    found = list(traces)
    if len(found) < 2 or not all(UNKNOWN_RANK in item.trace.notes for item in found):
        return found
    ranks = ranks_of_names(["/".join(Path(item.trace.path).parts[-2:]) for item in found])
    if ranks is None:
        return found
    if strict:
        raise FlintError(f"{found[0].trace.path}: --strict: {BY_NAME}")
    warnings[BY_NAME] = 1
    return [_of_rank(item, rank) for item, rank in zip(found, ranks, strict=True)]


def _of_rank(item: Linked, rank: int) -> Linked:
    notes = {text: count for text, count in item.trace.notes.items() if text != UNKNOWN_RANK}
    trace = replace(item.trace, rank=np.full_like(item.trace.rank, rank), notes=notes)
    return replace(item, trace=trace, units=replace(item.units, rank=rank))
