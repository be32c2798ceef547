"""What is done with the events of a Kineto trace, by their category.

sort_of("cuda_runtime")        # Sort.CALL
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from flint.converters.profilers.kineto.events import DEVICE
from flint.converters.profilers.kineto.kept import ANNOTATION, PYTHON
from flint.post_execution.host_device_links import CALLS, RESOLVED
from flint.post_execution.source_lines import names_line

#: Categories from libkineto's ActivityType.cpp, and those of older versions.
_OPS = frozenset({"cpu_op", "operator"})
#: Categories of what neither a host nor a device does: spans and times of other events.
_OTHERS = frozenset(
    {
        "trace", "gpu_user_annotation", "overhead", "external_correlation", "cuda_profiler_range",
        "collective_comm", "mtia_insight", "enqueue", "dequeue",
    }
)  # fmt: skip
#: Categories with useful arguments, besides ops, kernels and calls.
_KEPT = RESOLVED | {ANNOTATION}


class Sort(IntEnum):
    """What is done with an event, by its category."""

    OP = 0
    KERNEL = 1
    CALL = 2
    FRAME = 3
    KEPT = 4
    LEFT_OUT = 5


def sort_of(category: str) -> Sort:
    """What is done with events of a category, in small letters."""
    for sort, some in _SORTS.items():
        if category in some:
            return sort
    return Sort.CALL if category.endswith(CALLS) else Sort.LEFT_OUT


_SORTS: Final = {
    Sort.OP: _OPS,
    Sort.KERNEL: DEVICE,
    Sort.FRAME: frozenset({PYTHON}),
    Sort.KEPT: _KEPT,
}


def is_unknown(category: str) -> bool:
    """Whether nothing is known of a category, in small letters."""
    return sort_of(category) is Sort.LEFT_OUT and category not in _OTHERS


def is_line(name: str, known: dict[str, bool]) -> bool:
    """Whether a Python call names a place; cached, because names repeat."""
    found = known.get(name)
    if found is None:
        found = known[name] = names_line(name)
    return found
