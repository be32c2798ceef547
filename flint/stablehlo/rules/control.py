"""Calls, loops, branches, terminators: ops that the walker opens, and kernels whose work it
computes.

The idea: a control op has no work of its own.  A composite, or a fusion of optimized HLO, is one
kernel that reads its operands and writes its results; its FLOPs are those of the ops inside, which
the walker adds.
"""

from __future__ import annotations

import re

from flint.graph.work import Role
from flint.stablehlo.rules.bytes import alias, boundary, nothing
from flint.stablehlo.rules.names import names
from flint.stablehlo.rules.rule import Rule

#: PyTorch's ops that write their first argument; ``aten.index_add_.default`` only some rows.
_IN_PLACE = re.compile(r"aten\.\w*[^_\W]_\.")

_CONTROL = names("async_start call case func.call func.return if return while")

RULES: dict[str, Rule] = {
    **{name: Rule(Role.CONTROL, nothing) for name in _CONTROL},
    "async_done": Rule(Role.ALIAS, alias),
    "composite": Rule(Role.OPAQUE, boundary, types_only=False),
    "fusion": Rule(Role.OPAQUE, boundary, types_only=False),
}


def writes_in_place(name: str) -> bool:
    """Whether a composite of this name is an op that writes its first argument."""
    return _IN_PLACE.match(name) is not None
