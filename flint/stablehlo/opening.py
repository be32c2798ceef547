"""What calls, loops and conditionals share: opening blocks, finding what communicates, gates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flint.errors import FlintError
from flint.graph.graph import EdgeKind, NodeKind
from flint.graph.work import Role
from flint.stablehlo.read.records import Block, Op
from flint.stablehlo.scope import Scope

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
    names = [function] if function is not None else op.attr("called", ())
    inside = [walker.module.functions[name] for name in names]
    return any(communicates(walker, body, depth + 1) for body in (*inside, *op.regions))


def refuse_hidden(walker: Walker, op: Op) -> None:
    """Computations that a custom call is handed are the target's own matter, unless they talk.

    Raises:
        FlintError: a communication inside, of which nobody knows when and how often it runs.
    """
    if _is_or_holds_communication(walker, op, 0):
        raise FlintError(
            f"{walker.where(op)}: custom_call @{op.attr('target', '')} is given a computation "
            "with a communication in it, and how often that runs is unknown"
        )


def free_values(blocks: tuple[Block, ...]) -> set[int]:
    """Values from outside that the ops of ``blocks`` use."""
    used: set[int] = set()
    made: set[int] = set()
    pending = list(blocks)
    while pending:
        block = pending.pop()
        made.update(block.args)
        used.update(block.yields)
        for op in block.ops:
            made.update(op.results)
            used.update(op.operands)
            pending.extend(op.regions)
    return used - made


def behind(walker: Walker, scope: Scope, op: Op, values: list[int], predicate: int) -> None:
    """Let each of ``values`` be what it is and, from here on, wait for ``predicate`` as well."""
    name, source = walker.tables.op(op.name), walker.source(op.loc)
    order = [(scope.builder.producer_of(predicate), EdgeKind.ORDER)]
    for value in values:
        (scope.values[value],) = scope.builder.node(
            NodeKind.COMPUTE,
            name,
            [scope.values[value]],
            [walker.module.value_type[value]],
            role=Role.ALIAS,
            source=source,
            ops_merged=0,
            order=order,
        )
