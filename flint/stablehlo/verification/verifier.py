"""The verifier of op records, for all readers.

The idea: each kind of op has a check of its operands' and results' types, in tables by op name.
Equal ops are checked once.  MLIR has verified what it parses; HLO protos come unverified.

    verify(read_hlo(data), where=lambda op: op.name)
"""

from __future__ import annotations

from collections.abc import Callable

from flint.errors import FlintError
from flint.stablehlo.read.records import Module, Op
from flint.stablehlo.verification import (
    collectives,
    contraction,
    control,
    element_types,
    elementwise,
    indexing,
    library,
    movement,
    windows,
)
from flint.stablehlo.verification.kinds import Check, Unfit, counted

#: Op name -> check of its types and attributes; ``control.CHECKS`` look into blocks as well.
_SHAPES: dict[str, Check] = (
    elementwise.CHECKS
    | movement.CHECKS
    | indexing.CHECKS
    | library.CHECKS
    | contraction.CHECKS
    | windows.CHECKS
    | collectives.CHECKS
)
#: In an optimised module a reshape is a bitcast, which may count padding as elements.
_SHAPES_IN_OPTIMIZED: dict[str, Check] = _SHAPES | {
    "reshape": lambda _op, ins, outs: counted(ins, outs, 1)
}
#: Numbers and shapes, then what relies on them.
_TABLES = _SHAPES, element_types.CHECKS
_IN_OPTIMIZED = _SHAPES_IN_OPTIMIZED, element_types.IN_OPTIMIZED


def verify(module: Module, where: Callable[[Op], str]) -> None:
    """Check that the operands and results of every op fit it.

    Args:
        module: op records.
        where: an op's name in the error.

    Raises:
        FlintError: names the first op that fails.
    """
    tables = _IN_OPTIMIZED if module.optimized else _TABLES
    kind, types = module.value_type.__getitem__, module.types
    alike: set[tuple[object, ...]] = set()
    for block in reversed(list(module.blocks())):  # what is inside first: errors are closer
        for op in block.ops:
            values = op.operands + op.results
            key = (op.name, id(op.attrs), len(op.results), *map(kind, values))
            if key in alike:
                continue
            try:
                if op.name in control.CHECKS:
                    control.CHECKS[op.name](module, op)
                    continue
                alike.add(key)
                if op.name in tables[0]:
                    ins, outs = (
                        [types[kind(value)] for value in part] for part in (op.operands, op.results)
                    )
                    for checks in tables:
                        if op.name in checks:
                            checks[op.name](op, ins, outs)
            except Unfit as error:
                raise FlintError(f"{where(op)}: {error}") from error
