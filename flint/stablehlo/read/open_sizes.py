"""Sizes for the arguments of a program that leaves them open: ``tensor<?x128xf32>``.

The idea: programs are exported once for any batch (``jax.export`` with symbolic shapes).  Once the
arguments' sizes are stated, StableHLO's and XLA's passes find all others, fold what was computed
from them, and check what ``jax.export`` requires of them.

    with_sizes(data, {"1": (64, 128)}, "step.mlirbc")   # bytecode in which argument 1 is 64x128
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from flint.errors import FlintError, UsageError
from flint.stablehlo.read.bindings import ir, parse, refined
from flint.stablehlo.read.entries import entry_of, functions_of
from flint.stablehlo.read.locations import source_info

#: In the messages of its assertions, of the custom call ``shape_assertion``.
_SPECIFIED = re.compile(r"polymorphic shapes specifications: (.{1,300}?)\. Obtained")


def with_sizes(
    data: bytes, shapes: Mapping[str, Sequence[int]], name: str, entry: str | None = None
) -> bytes:
    """The bytecode of a module whose arguments have these sizes.

    Args:
        data: a StableHLO module (text, bytecode or VHLO).
        shapes: argument -> its dims, in elements; by its number from 0, or by its name if the
            module has one.
        name: file name for errors.
        entry: the function to start from, as for ``read_mlir``.

    Raises:
        UsageError: no such argument, or a size that it does not leave open.
        FlintError: not a module, or a program that requires other sizes.
    """
    module = parse(data, name)
    functions = functions_of(module, name)
    main = functions[entry_of(functions, entry, name)]
    arguments, required = ",".join(_types(main, shapes, name)), _required(module)
    try:
        return refined(module, arguments)
    except FlintError as error:
        why = required or f": {error}"
        raise FlintError(f"{name}: the sizes of --shape do not fit{why}") from error


def _types(main: Any, shapes: Mapping[str, Sequence[int]], name: str) -> list[str]:
    """The types of the arguments, with stated sizes."""
    arguments = list(main.regions[0].blocks[0].arguments)
    places = {str(place): place for place in range(len(arguments))}
    for place, argument in enumerate(arguments):
        places.setdefault(source_info(argument.location).name or str(place), place)
    types = [str(argument.type) for argument in arguments]
    for key, sizes in shapes.items():
        if key not in places:
            raise UsageError(
                f"--shape {key}: {name} has no such argument; with open sizes: {_open(types)}"
            )
        kind = ir.RankedTensorType(arguments[places[key]].type)
        dims = [None if kind.is_dynamic_dim(dim) else kind.shape[dim] for dim in range(kind.rank)]
        if len(dims) != len(sizes) or any(
            known not in (None, size) for known, size in zip(dims, sizes, strict=True)
        ):
            stated = "x".join(map(str, sizes))
            raise UsageError(f"--shape {key}={stated}: the argument is {kind}")
        types[places[key]] = f"tensor<{''.join(f'{size}x' for size in sizes)}{kind.element_type}>"
    return types


def _open(types: Sequence[str]) -> str:
    found = [f"{place} ({kind})" for place, kind in enumerate(types) if "?" in kind]
    return ", ".join(found[:8]) + (", ..." if len(found) > 8 else "") if found else "none"


def _required(module: Any) -> str:
    """What jax.export says of the arguments' sizes: ``args[1].shape = (2*b, 16)``."""
    found: list[str] = []

    def collect(op: Any) -> Any:
        if op.name == "stablehlo.custom_call" and "error_message" in op.attributes:
            message = ir.StringAttr(op.attributes["error_message"]).value
            found.extend(_SPECIFIED.findall(message))
        return ir.WalkResult.ADVANCE

    module.operation.walk(collect)
    return f"; the program requires {found[0]}" if found else ""
