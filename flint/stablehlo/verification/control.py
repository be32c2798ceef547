"""Checks of control flow: a block takes what goes into it, and what it yields comes out.

Blocks are compared with the op that runs them, which the other checks do not need.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from flint.stablehlo.read.records import Block, Module, Op
from flint.stablehlo.verification.kinds import Types, Unfit, require, same_shape, same_type

#: (module, op).
BlockCheck: TypeAlias = Callable[[Module, Op], None]


def _types(module: Module, values: tuple[int, ...]) -> Types:
    return [module.type_of(value) for value in values]


def _agree(module: Module, one: tuple[int, ...], other: tuple[int, ...], what: str) -> None:
    require(len(one) == len(other), f"has {len(other)} {what}, not {len(one)}")
    for first, second in zip(_types(module, one), _types(module, other), strict=True):
        try:
            same_type(first, second)
        except Unfit:
            raise Unfit(f"has {first}, but {what} have {second}") from None


def _whole(module: Module, op: Op, block: Block) -> None:
    _agree(module, op.operands, block.args, "arguments")
    _agree(module, op.results, block.yields, "yields")


def _while(module: Module, op: Op) -> None:
    require(len(op.regions) == 2, f"has {len(op.regions)} regions, not 2")
    condition, body = op.regions
    _agree(module, op.operands, op.results, "results")
    _agree(module, op.operands, condition.args, "the condition's arguments")
    _whole(module, op, body)
    decided = _types(module, condition.yields)
    scalar = len(decided) == 1 and decided[0].dtype == "i1" and not decided[0].shape
    require(scalar, "has a condition that does not yield a single i1")


def _branches(module: Module, op: Op) -> None:
    require(len(op.operands) == 1 and len(op.regions) > 0, "has no index or no branch")
    require(not module.type_of(op.operands[0]).shape, "has an index that is not a scalar")
    for branch in op.regions:
        _agree(module, op.results, branch.yields, "a branch's yields")


def _function(key: str) -> BlockCheck:
    def check(module: Module, op: Op) -> None:
        function = module.functions.get(op.attr(key))
        if function is None:
            raise Unfit(f"calls @{op.attr(key)}, which is not defined")
        _whole(module, op, function)

    return check


def _fusion(module: Module, op: Op) -> None:
    require(len(op.regions) == 1, f"has {len(op.regions)} regions, not 1")
    _whole(module, op, op.regions[0])


def _map(module: Module, op: Op) -> None:
    require(
        len(op.regions) == 1 and len(op.results) == 1,
        "does not have exactly one region and one result",
    )
    [block], result = op.regions, module.type_of(op.results[0])
    for outside, inside in ((op.operands, block.args), (op.results, block.yields)):
        require(
            len(outside) == len(inside),
            f"has {len(outside)} values, but its function has {len(inside)}",
        )
        for value, number in zip(outside, inside, strict=True):
            whole, element = module.type_of(value), module.type_of(number)
            same_shape(whole, result)
            fits = element.dtype == whole.dtype and not element.shape
            require(fits, f"has {whole}, but its function has {element}")


def _barrier(module: Module, op: Op) -> None:
    _agree(module, op.operands, op.results, "results")


def _done(module: Module, op: Op) -> None:
    """HLO's passes on what was begun; a future of StableHLO does not say of what it is."""
    if [kind.dtype for kind in _types(module, op.operands)] != ["future"]:
        _barrier(module, op)


CHECKS: dict[str, BlockCheck] = {
    "async_done": _done,
    "call": _function("callee"),
    "case": _branches,
    "composite": _function("decomposition"),
    "fusion": _fusion,
    "if": _branches,
    "map": _map,
    "optimization_barrier": _barrier,
    "while": _while,
}
