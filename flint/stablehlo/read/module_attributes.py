"""Attributes of a whole module: numbers, and the buffers that inputs and outputs share.

integer_of(module.operation.attributes, "mhlo.num_partitions")      # 8
"""

from __future__ import annotations

from typing import Any

from flint.errors import FlintError
from flint.stablehlo.read.bindings import ir


def integer_of(attributes: Any, key: str) -> int:
    """The number of a module's attribute, 1 if there is none.

    Raises:
        FlintError: it is something else, which the bindings report in several ways.
    """
    if key not in attributes:
        return 1
    try:
        return int(ir.IntegerAttr(attributes[key]).value)
    except (ValueError, TypeError):
        raise FlintError(f"the module's {key} is not an integer") from None


def aliases_of(attributes: Any) -> dict[int, int]:
    """Parameter -> the output that may take its buffer, as XLA states it for a whole module."""
    donated = {}
    if "mhlo.input_output_alias" in attributes:
        for item in ir.ArrayAttr(attributes["mhlo.input_output_alias"]):
            entry = ir.DictAttr(item)
            alias = ir.DictAttr(entry["alias"])
            parameter = ir.IntegerAttr(alias["parameter_number"]).value
            output = list(ir.DenseI64ArrayAttr(entry["output_index"]))
            donated[parameter] = output[0] if output else 0
    return donated
