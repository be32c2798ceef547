"""The kind of a collective node: its attribute's, else its name's; never a default.

collective_kind(trace, 3, print)        # CollectiveKind.ALL_REDUCE
"""

from __future__ import annotations

import re
from collections.abc import Callable

from flint.converters.chakra.read.trace import Trace
from flint.converters.chakra.schema import CollectiveKind

#: A collective's name in kernels and profilers: ncclDevKernel_AllGather_RING_LL, nccl:all_gather.
_NAMED = re.compile(
    r"(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast)", re.IGNORECASE
)
_KINDS = {
    "allreduce": CollectiveKind.ALL_REDUCE,
    "allgather": CollectiveKind.ALL_GATHER,
    "reducescatter": CollectiveKind.REDUCE_SCATTER,
    "alltoall": CollectiveKind.ALL_TO_ALL,
    "broadcast": CollectiveKind.BROADCAST,
}
NAMELESS = "collectives without comm_type, whose kind the name does not show either"
FROM_NAME = "collectives without comm_type: their kind is read from their names"


def collective_kind(trace: Trace, row: int, note: Callable[[str], None]) -> CollectiveKind | None:
    """The kind of the collective in a row; None if it has none that the schema knows.

    Args:
        trace: the trace.
        row: the node's row.
        note: told what the node does not say.
    """
    if trace.field["comm_type"][row]:
        number = int(trace.comm_type[row])
        return CollectiveKind(number) if number in set(CollectiveKind) else None
    named = _NAMED.search(trace.names[trace.name[row]])
    note(FROM_NAME if named else NAMELESS)
    return _KINDS[named[1].lower().replace("_", "")] if named else None
