"""Functions that a region calls, written out in it.

The idea: rules count what a region's ops do per application (``rules/reduction.py``), and see no
functions.  Older versions of jax made one of ``logaddexp`` in the region of a ``reduce_window``.

    inline_calls(functions, value_type)     # no op of a region that is applied is a call any more
"""

from __future__ import annotations

from collections.abc import Mapping

from flint.errors import FlintError
from flint.stablehlo.read.records import Block, Op

#: Ops that apply a region to elements.  The regions of others are parts of the program.
_APPLYING = frozenset(
    ("all_reduce", "chlo.scan", "map", "mhlo.scan", "reduce", "reduce_scatter", "reduce_window",
     "scatter", "select_and_scatter", "sort")
)  # fmt: skip


def inline_calls(functions: Mapping[str, Block], value_type: list[int]) -> None:
    """Write called functions out in the regions of ops that apply them to elements.

    Args:
        functions: name -> body; regions inside them are changed.
        value_type: of the module; gets those of new values.

    Raises:
        FlintError: a function calls itself.
    """
    pending = list(functions.values())
    while pending:
        for op in pending.pop().ops:
            if not op.regions:
                continue
            if op.name not in _APPLYING:
                pending.extend(op.regions)
                continue
            for region in op.regions:
                if any(inner.name == "call" for inner in region.ops):
                    made = _written_out(region, {}, functions, value_type, ())
                    region.ops[:], region.yields = made


def _written_out(
    block: Block,
    values: dict[int, int],
    functions: Mapping[str, Block],
    value_type: list[int],
    inside: tuple[str, ...],
) -> tuple[list[Op], tuple[int, ...]]:
    """A block's ops with calls written out, and what it yields.

    Args:
        block: a region, or the body of a function.
        values: value of the block -> value that stands for it; gets those of its results.
        functions, value_type: as above.
        inside: the functions whose bodies these are.
    """
    ops: list[Op] = []
    for op in block.ops:
        operands = tuple(values.get(value, value) for value in op.operands)
        if op.name == "call":
            callee = op.attr("callee")
            if callee in inside:
                raise FlintError(f"function @{callee} calls itself")
            body = functions[callee]
            given = dict(zip(body.args, operands, strict=True))
            more, yields = _written_out(body, given, functions, value_type, (*inside, callee))
            ops += more
            values.update(zip(op.results, yields, strict=True))
            continue
        results = op.results
        if inside:  # the function may be called more than once
            start = len(value_type)
            value_type += [value_type[value] for value in op.results]
            results = tuple(range(start, len(value_type)))
            values.update(zip(op.results, results, strict=True))
        ops.append(Op(op.name, operands, results, op.attrs, op.regions, op.loc))
    return ops, tuple(values.get(value, value) for value in block.yields)
