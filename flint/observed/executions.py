"""How often a computation of a program ran, from how often its instructions did.

executions(["add.1", "tanh.2"], Counter({"add.1": 8, "tanh.2": 8}))      # 8
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping


def executions(names: Iterable[str], counts: Mapping[str, int]) -> int:
    """How often a computation ran: as most of its executed instructions; 0 for never.

    An instruction that has several kernels has more events, so that of equally frequent numbers
    the smallest is right.

    Args:
        names: of its instructions.
        counts: how often each instruction ran, those that did.
    """
    found = Counter(counts[name] for name in names if name in counts)
    return max(found, key=lambda times: (found[times], -times), default=0)
