"""Tokens that order a program's effects with those of the calls before and after it.

The idea: a jitted function with ordered effects (``io_callback(..., ordered=True)``) takes tokens
before its operands and returns them before its results.  They are of the runtime: no argument of
the user's, and no memory.  Here the entry function makes each of them itself, so that its inputs
and outputs are those of the user's function; the order of effects inside of it stays.

    without_tokens(module)        # in place
"""

from __future__ import annotations

from typing import Any

from flint.stablehlo.read.bindings import ir, stablehlo

_ALIAS = "tf.aliasing_output"


def without_tokens(module: Any) -> None:
    """Take the tokens out of the interface of a lowered ``ir.Module``'s entry function."""
    main: Any = ir.SymbolTable(module.operation)["main"]
    block = main.regions[0].blocks[0]
    kind = ir.FunctionType(main.type)
    given, made = list(kind.inputs), list(kind.results)
    taken = [number for number, item in enumerate(given) if _is_token(item)]
    left = [number for number, item in enumerate(made) if not _is_token(item)]
    if not taken and len(left) == len(made):
        return
    with module.context, main.location:
        with ir.InsertionPoint.at_block_begin(block):
            for number in taken:
                block.arguments[number].replace_all_uses_with(stablehlo.CreateTokenOp().result)
        kept = [number for number in range(len(given)) if number not in taken]
        for number in reversed(taken):
            block.erase_argument(number)
        last = block.operations[len(block.operations) - 1]
        with ir.InsertionPoint(last):
            results = [last.operands[number] for number in left]
            ir.Operation.create("func.return", operands=results)
        last.operation.erase()
        types = [given[number] for number in kept], [made[number] for number in left]
        main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*types))
        _keep(main, "arg_attrs", kept, left)
        _keep(main, "res_attrs", left, left)


def _is_token(kind: Any) -> bool:
    return str(kind) == "!stablehlo.token"


def _keep(main: Any, key: str, numbers: list[int], results: list[int]) -> None:
    """Keep the attributes of some arguments or results; results are counted anew in them."""
    if key not in main.attributes:
        return
    found = list(ir.ArrayAttr(main.attributes[key]))
    main.attributes[key] = ir.ArrayAttr.get([_renumbered(found[n], results) for n in numbers])


def _renumbered(item: Any, results: list[int]) -> Any:
    entries: Any = ir.DictAttr(item)
    found = {named.name: named.attr for named in entries}
    if _ALIAS in found:
        alias = ir.IntegerAttr(found[_ALIAS])
        found[_ALIAS] = ir.IntegerAttr.get(alias.type, results.index(alias.value))
    return ir.DictAttr.get(found)
