"""What calls, loops and conditionals share: opening blocks, finding what communicates, gates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flint.errors import FlintError
from flint.graph import EdgeKind, NodeKind
from flint.stablehlo.records import Block, Op
from flint.stablehlo.scope import Scope
from flint.work import Role

if TYPE_CHECKING:
    from flint.stablehlo.walker import Walker

#: Calls nested deeper than this are taken for a cycle.
MAX_CALL_DEPTH = 200


def open_block(walker: Walker, scope: Scope, block: Block, operands: tuple[int, ...]) -> None:
    """Walk a block in place, its arguments bound to values of ``scope``."""
    for argument, operand in zip(block.args, operands, strict=True):
        walker.alias(scope, operand, argument)
    walker.block(scope, block)


def communicates(walker: Walker, block: Block, depth: int = 0) -> bool:
    """Whether anything that ``block`` runs is a communication."""
    known = walker.communicating.get(id(block))
    if known is None:
        if depth > MAX_CALL_DEPTH:
            raise FlintError("composites or calls nest too deeply")
        known = any(_is_or_holds_communication(walker, op, depth) for op in block.ops)
        walker.communicating[id(block)] = known
    return known


def _is_or_holds_communication(walker: Walker, op: Op, depth: int) -> bool:
    if walker.exchange.kind_of(op) is not None:
        return True
    function = op.attr("callee") or op.attr("decomposition")
    inside = [walker.module.functions[function]] if function is not None else []
    return any(communicates(walker, body, depth + 1) for body in (*inside, *op.regions))


def behind(walker: Walker, scope: Scope, op: Op, values: list[int], predicate: int) -> None:
    """Let ``values`` be what they are and, from here on, wait for ``predicate`` as well."""
    if not values:
        return
    operands = [scope.values[value] for value in values]
    results = scope.builder.node(
        NodeKind.COMPUTE,
        walker.tables.op(op.name),
        operands,
        [walker.module.value_type[value] for value in values],
        role=Role.ALIAS,
        source=walker.source(op.loc),
        order=[(scope.builder.producer_of(predicate), EdgeKind.ORDER)],
    )
    for value, number in zip(values, results, strict=True):
        scope.values[value] = number
