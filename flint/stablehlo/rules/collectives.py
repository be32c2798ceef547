"""Communication: only roles; the walker computes from groups and types what is sent.

The idea: a collective's node is made by the walker (kind, communicator, bytes).  Its rule gives
the role, with operands read and results written and no FLOPs: the additions of a reduction happen
in the network or in the collective's kernel (XLA counts one FLOP per element, assuming 2 replicas).
"""

from __future__ import annotations

from flint.graph.work import Role
from flint.stablehlo.rules.bytes import boundary
from flint.stablehlo.rules.names import names
from flint.stablehlo.rules.rule import Rule

_NAMES = names(
    "all_gather all_reduce all_to_all collective_broadcast collective_permute cross-replica-sum",
    "recv reduce_scatter send",
    "mhlo.ragged_all_to_all",
    "sdy.all_gather sdy.all_reduce sdy.all_to_all sdy.collective_permute sdy.reduce_scatter",
)

RULES: dict[str, Rule] = {name: Rule(Role.COLLECTIVE, boundary) for name in _NAMES}
