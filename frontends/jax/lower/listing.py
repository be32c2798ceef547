"""A captured module as text, for people to read and for ``flint convert`` to take.

The idea: what the partitioner dumps is an HLO proto, which is what the graph is made of; beside it
the workload folder keeps the same module as StableHLO text with names and source lines.

    listing_of_hlo(proto)       # (b"module @jit_step ...", ".mlir")
"""

from __future__ import annotations

from flint.frontends.jax.internals.modules import stablehlo_of
from flint.hlo.messages import parse_module
from flint.stablehlo.read.bindings import parse

#: Larger text (bytes) is not written; the module itself is kept in any case.
MAX_BYTES = 2**25

Listing = tuple[bytes, str]


def listing_of(bytecode: bytes) -> Listing | None:
    """The text of an MLIR module; None for a very large one."""
    if len(bytecode) > MAX_BYTES:
        return None
    text: str = parse(bytecode).operation.get_asm(enable_debug_info=True)
    return text.encode(), ".mlir"


def listing_of_hlo(proto: bytes) -> Listing | None:
    """The text of an HLO module as StableHLO; None where XLA does not convert it."""
    if len(proto) > MAX_BYTES:
        return None
    converted = stablehlo_of(parse_module(proto).SerializeToString())
    return listing_of(converted) if converted is not None else None
