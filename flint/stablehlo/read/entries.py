"""The functions of a module, and the one that it starts from.

functions = functions_of(module)
main = functions[entry_of(functions, None, "step.mlir")]
"""

from __future__ import annotations

from typing import Any

from flint.errors import FlintError, UsageError
from flint.stablehlo.read.bindings import attribute_text, ir


def functions_of(module: Any, name: str = "<module>") -> dict[str, Any]:
    """Name -> function, of an ``ir.Module``.

    Args:
        module: the parsed module.
        name: file name for errors.

    Raises:
        FlintError: the module consists of other modules, as a text with several is parsed.
    """
    ops = [view.operation for view in module.body.operations]
    inner = sum(op.name == "builtin.module" for op in ops)
    if inner:
        raise FlintError(f"{name}: it holds {inner} modules; make a file of the one that runs")
    return {
        ir.StringAttr(op.attributes["sym_name"]).value: op for op in ops if op.name == "func.func"
    }


def entry_of(functions: dict[str, Any], wanted: str | None, name: str) -> str:
    """The name of the function to start from.

    Args:
        functions: those of the module.
        wanted: the user's choice; default ``main``, else the only public one.
        name: file name for errors.

    Raises:
        UsageError: the module has no such function.
        FlintError: it has none to start from, or several.
    """
    if wanted is not None and wanted not in functions:
        raise UsageError(f"{name}: no function @{wanted}; choose from {_listed(functions)}")
    if wanted is not None or "main" in functions:
        return wanted or "main"
    public = [
        symbol
        for symbol, op in functions.items()
        if "sym_visibility" not in op.attributes
        or attribute_text(op.attributes["sym_visibility"]) != "private"
    ]
    if len(public) == 1:
        return public[0]
    if not functions:
        raise FlintError(f"{name}: the module has no functions")
    raise FlintError(f"{name}: no function @main; choose one with --entry: {_listed(functions)}")


def _listed(functions: dict[str, Any]) -> str:
    names = sorted(functions)
    return ", ".join(f"@{name}" for name in names[:8]) + (", ..." if len(names) > 8 else "")
