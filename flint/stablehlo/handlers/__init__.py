"""What each kind of op becomes in the graph: one module per kind, joined in one table.

The idea: a handler is a function of the state of the walk, the scope and the op.  An op without a
handler of its own is ``simple``: its rule describes it completely.

    HANDLERS.get(op.name, simple)(state, scope, op)
"""

from __future__ import annotations

from flint.stablehlo.handlers import calls, collectives, conditionals, kernels, loops
from flint.stablehlo.walk.state import Handler

__all__ = ["HANDLERS"]

HANDLERS: dict[str, Handler] = {
    **calls.HANDLERS,
    **collectives.HANDLERS,
    **conditionals.HANDLERS,
    **kernels.HANDLERS,
    **loops.HANDLERS,
}
