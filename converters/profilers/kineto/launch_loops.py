"""Steps of a loop in a profile without host ops that tell them apart, by what was launched.

The idea: one call launches a kernel, or all kernels of a CUDA graph.  Equal launches again and
again are a loop like one of host ops (``repeats``), and the same rules tell it from the layers of
one step: all products are in the repetitions, and each of them, or a graph in it, holds layers
which repeat themselves.

    launch_loop(events)        # [(0, 70), (70, 140), (140, 210)]
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import pairwise
from typing import Final

import numpy as np

from flint.converters.profilers.kineto.events import Events, Kernel
from flint.converters.profilers.repeats import has_layers, is_heavy, steps_of

#: In the names of kernels that multiply.
_PRODUCT: Final = re.compile(
    r"gemm|gemv|matmul|conv|attention|attn|fmha|flash|cutlass|xmma|nvjet|Cijk_|splitK|_mm_",
    re.IGNORECASE,
)


def launch_loop(events: Events) -> list[tuple[int, int]]:
    """Start and end of each step, in order; none unless the loop is clear."""
    if any(is_heavy(op.name) for op in events.ops):
        return []
    of_call: dict[object, list[Kernel]] = defaultdict(list)
    for kernel in events.kernels:
        if kernel.correlation in events.runtime:
            of_call[kernel.correlation].append(kernel)
    launches = sorted(
        (events.runtime[call][1], tuple(kernel.name for kernel in sorted(kernels)))
        for call, kernels in of_call.items()
    )
    if not events.runtime:  # no calls were recorded
        launches = sorted((kernel.start, (kernel.name,)) for kernel in events.kernels)
    numbers: dict[tuple[str, ...], int] = {}
    tokens = [numbers.setdefault(names, len(numbers)) for _, names in launches]
    heavy = [len(names) > 1 or _PRODUCT.search(names[0]) is not None for names in numbers]
    layered = [len(names) > 1 and _has_layers(names) for names in numbers]
    bounds = steps_of(tokens, [heavy[t] for t in tokens], [layered[t] for t in tokens])
    if not bounds:
        return []
    begins = [when for when, _ in launches]
    ends = [*begins, begins[-1] + 1]
    return list(pairwise(ends[place] for place in bounds))


def _has_layers(names: tuple[str, ...]) -> bool:
    """Whether kernels of a graph repeat themselves."""
    numbers: dict[str, int] = {}
    kernels = np.array([numbers.setdefault(name, len(numbers)) for name in names])
    return has_layers(kernels, [True] * len(names))
