"""Shared by handlers of ops with regions: opened blocks, which ones communicate, waits.

The idea: an op with a region is opened if its content must be visible (a call, a branch that is
taken) and is one node otherwise; a communication is never hidden inside a node.
"""

from __future__ import annotations

from flint.errors import FlintError
from flint.graph.graph import EdgeKind, NodeKind
from flint.graph.work import Role
from flint.stablehlo.collectives.communications import kind_of
from flint.stablehlo.read.records import REMOTE_COPIES, Block, Op, blocks_within
from flint.stablehlo.walk.scope import Scope
from flint.stablehlo.walk.state import WalkState

#: Calls nested deeper than this count as a cycle.
MAX_CALL_DEPTH = 200


def open_block(state: WalkState, scope: Scope, block: Block, operands: tuple[int, ...]) -> None:
    """Walk a block in place, its arguments bound to values of ``scope``."""
    state.aliases(scope, operands, block.args)
    state.block(scope, block)


def open_instead(
    state: WalkState, scope: Scope, op: Op, block: Block, operands: tuple[int, ...]
) -> None:
    """Walk a block in place of ``op``, whose results are what the block yields."""
    open_block(state, scope, block, operands)
    state.aliases(scope, block.yields, op.results)


def communicates(state: WalkState, block: Block, depth: int = 0) -> bool:
    """Whether ``block`` runs a communication, directly or not."""
    known = state.communicating.get(id(block))
    if known is None:
        if depth > MAX_CALL_DEPTH:
            raise FlintError("composites or calls nest too deeply")
        known = any(is_or_holds_communication(state, op, depth) for op in block.ops)
        state.communicating[id(block)] = known
    return known


def is_or_holds_communication(state: WalkState, op: Op, depth: int = 0) -> bool:
    """Whether an op is a communication, or runs one in a region or a function."""
    if kind_of(op) is not None or op.attr(REMOTE_COPIES) is not None:
        return True
    function = op.attr("callee") or op.attr("decomposition")
    names = [function] if function is not None else op.attr("called", ())
    inside = [state.module.functions[name] for name in names]
    return any(communicates(state, body, depth + 1) for body in (*inside, *op.regions))


def free_values(blocks: tuple[Block, ...]) -> set[int]:
    """Values from outside that the ops of ``blocks`` use."""
    used: set[int] = set()
    made: set[int] = set()
    for block in blocks_within(blocks):
        made.update(block.args)
        used.update(block.yields)
        for op in block.ops:
            made.update(op.results)
            used.update(op.operands)
    return used - made


def wait_for(state: WalkState, scope: Scope, op: Op, predicate: int, values: list[int]) -> None:
    """Make each of ``values`` also wait for ``predicate`` from here on.

    Args:
        state, scope: those of the walk.
        op: the loop or conditional whose results they are.
        predicate: the number of its predicate in the graph.
        values: value ids.
    """
    name, source = state.tables.op(op.name), state.source(op.loc)
    order = [(scope.builder.producer_of(predicate), EdgeKind.ORDER)]
    for value in values:
        (scope.values[value],) = scope.builder.node(
            NodeKind.COMPUTE,
            name,
            [scope.values[value]],
            state.types((value,)),
            role=Role.ALIAS,
            source=source,
            ops_merged=0,
            order=order,
        )
