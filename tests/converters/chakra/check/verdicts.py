"""The checker's verdict on a random set of traces, against the outcome of every order of events.

verdict(7)        # Verdict(accepted=False, wrong=("hangs",), rules=("cross-rank-cycle",), ...)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from random import Random
from typing import NamedTuple

from flint.converters.chakra import et_def_pb2 as pb
from flint.converters.chakra.check.checker import Severity, check_traces
from tests.converters.chakra.check.all_orders import meets, outcome
from tests.converters.chakra.check.random_traces import random_traces
from tests.converters.chakra.check.traces import in_memory


class Verdict(NamedTuple):
    """The checker's verdict, and the truth.

    Attributes:
        accepted: whether the checker finds no error.
        wrong: what happens in some order: "hangs", "leftover", "mispairs".
        rules: what the checker objects to.
        loose: whether some rank's own dependencies leave the order open among collectives of one
            group or messages of one kind.  The checker may refuse that where other ranks' messages
            close it.
    """

    accepted: bool
    wrong: tuple[str, ...]
    rules: tuple[str, ...]
    loose: bool

    @property
    def agrees(self) -> bool:
        """The checker refuses exactly the sets that can go wrong."""
        return self.accepted != bool(self.wrong)

    @property
    def careful(self) -> bool:
        """The checker refuses a set that cannot go wrong, in the documented cases.

        One rank alone does not order it, or COLLs of several ranks might hold their slots against
        each other, which `unordered_holds` refuses without proof.
        """
        unproven = self.loose or self.rules == ("slot-order",)
        return not self.accepted and not self.wrong and unproven


def verdict(number: int) -> Verdict:
    """Of the set with this number.

    Raises:
        TooMany: it has more states than are looked at.
    """
    ranks, groups = random_traces(Random(number))
    found = outcome(ranks, groups)
    report = check_traces(in_memory(ranks, groups=groups))
    rules = {item.rule for item in report.findings if item.severity is Severity.ERROR}
    happens = {"hangs": found.hangs, "leftover": found.leftover, "mispairs": found.mispairs}
    return Verdict(
        report.ok,
        tuple(name for name, does in happens.items() if does),
        tuple(sorted(rules)),
        any(_loose(rank, nodes) for rank, nodes in enumerate(ranks)),
    )


def _loose(rank: int, nodes: Sequence[pb.Node]) -> bool:
    above: dict[int, set[int]] = {node.id: set(node.data_deps) for node in nodes}
    for _ in nodes:  # a longer way each time
        for node in nodes:
            above[node.id] |= {far for near in above[node.id] for far in above[near]}
    return any(
        meets(rank, one) == meets(rank, other)
        and one.id not in above[other.id]
        and other.id not in above[one.id]
        for one, other in combinations([node for node in nodes if meets(rank, node)], 2)
    )
