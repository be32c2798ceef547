"""Ops of other dialects that stay in a module: Shardy's, MHLO's own, CHLO's constants.

The idea: only ops without a StableHLO counterpart are listed.  Every StableHLO op has an MHLO twin
of the same name and meaning, whose rule is the same (see ``twins``).

Shardy's annotations state where data is and move nothing; a program that still has them is at the
logical level, where communication is not decided yet.  ``sdy.all_slice`` takes a rank's own part.
"""

from __future__ import annotations

from collections.abc import Mapping

from flint.graph.work import Role
from flint.stablehlo.rules.bytes import alias, boundary, nothing
from flint.stablehlo.rules.names import names
from flint.stablehlo.rules.rule import Rule

_ALIASES = names(
    "sdy.data_flow_edge sdy.func_data_flow_edge sdy.propagation_barrier sdy.reshard",
    "sdy.replicated_to_unreduced sdy.sharded_to_unreduced sdy.sharding_constraint",
    "sdy.sharding_group",
    "mhlo.add_dependency mhlo.async_update mhlo.bitcast mhlo.domain mhlo.trace",
    "builtin.unrealized_conversion_cast tensor.cast",
)
_DECLARATIONS = names(
    "chlo.constant chlo.constant_like mhlo.minimum_broadcast_shapes sdy.constant sdy.mesh",
)
_CONTROL = names("sdy.manual_computation sdy.named_computation sdy.return")

RULES: dict[str, Rule] = {
    **{name: Rule(Role.ALIAS, alias) for name in _ALIASES},
    **{name: Rule(Role.GENERATE, nothing) for name in _DECLARATIONS},
    **{name: Rule(Role.CONTROL, nothing) for name in _CONTROL},
    "sdy.all_slice": Rule(Role.MOVEMENT, boundary),
}


def twins(rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """The MHLO twins of the StableHLO ops among ``rules``."""
    return {f"mhlo.{name}": rule for name, rule in rules.items() if "." not in name}
