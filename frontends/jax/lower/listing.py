"""A captured module as text, for reading and for ``flint convert``.

The idea: the partitioner dumps an HLO proto, from which the graph is built; the workload folder
also keeps the same module as StableHLO text with names and source lines.

    listing_of_hlo(proto)       # (b"module @jit_step ...", ".mlir")
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flint.frontends.jax.internals.modules import stablehlo_of
from flint.frontends.jax.lower.mesh_orders import put_in_order
from flint.hlo.messages import parse_module
from flint.stablehlo.read.attributes import entries
from flint.stablehlo.read.bindings import ir, parse
from flint.workload.programs import Form

#: Larger text (bytes) is not written; the module itself is kept in any case.
MAX_BYTES = 2**25

#: JAX's mark of a parameter whose buffer may be used again.
DONOR = "jax.buffer_donor"


def listing_of(bytecode: bytes, donors: Iterable[int] = ()) -> Form | None:
    """The text of an MLIR module; None for a very large one.

    Args:
        bytecode: the module.
        donors: parameters of ``@main`` whose buffers any output may take, besides those it states.
    """
    if len(bytecode) > MAX_BYTES:
        return None
    module = parse(bytecode)
    _mark(module, set(donors))
    text: str = module.operation.get_asm(enable_debug_info=True)
    return text.encode(), ".mlir"


def _mark(module: Any, donors: set[int]) -> None:
    """Mark parameters as donors, as JAX does; HLO's conversion omits that."""
    if not donors:
        return
    main: Any = ir.SymbolTable(module.operation)["main"]
    with module.context:
        known: list[dict[str, Any]] = [{} for _ in main.type.inputs]
        if "arg_attrs" in main.attributes:
            listed = ir.ArrayAttr(main.attributes["arg_attrs"])
            known = [{item.name: item.attr for item in entries(one)} for one in listed]
        for number in donors:
            known[number][DONOR] = ir.BoolAttr.get(True)
        main.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(one) for one in known])


def listing_of_hlo(proto: bytes) -> Form | None:
    """The text of an HLO module as StableHLO; None if XLA would not convert it or its groups."""
    if len(proto) > MAX_BYTES:
        return None
    module = parse_module(proto)
    if not put_in_order(module):
        return None
    converted = stablehlo_of(module.SerializeToString())
    donors = (entry.parameter_number for entry in module.buffer_donor.entries)
    return listing_of(converted, donors) if converted is not None else None
