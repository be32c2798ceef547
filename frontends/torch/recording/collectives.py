"""Every collective and message of torch.distributed: the positions of its tensors, and its effect.

The idea: the in-place ops of ``c10d`` and the functional ones of ``_c10d_functional`` are a few
collectives with tensors at different positions of the schema.  One table has, for each, what
recording, size checks and emission need.

    COLLECTIVES["c10d", "_allgather_base_"]   # Collective("all_gather", "tensors", inputs=1, ...)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: Where ops that communicate are.
NAMESPACES = frozenset(
    ("c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "symm_mem")
)

#: Ops of these namespaces that do not communicate: they wait, or represent another tensor.
_NO_COMMUNICATION = frozenset(("wait_tensor", "_wrap_tensor_autograd"))


@dataclass(frozen=True, slots=True)
class Collective:
    """The effect of an op of torch.distributed.

    Attributes:
        kind: "all_reduce", "all_gather", "send", ...
        layout: "tensor": one tensor, or a list of them, on either side; "list": a tensor per rank
            on one side; "coalesced": several tensors in one communication; "rows": splits of dim 0.
        inputs: position of the argument with the input tensors; None if there are none.
        outputs: position of the argument with the tensors that it writes; None if it returns new
            ones (or has ``out=``).
        rooted: one rank is the root; its position in the group is the first whole number.
        one_block: positions of tensors that ProcessGroupNCCL requires to be contiguous.
    """

    kind: str
    layout: str = "tensor"
    inputs: int | None = 0
    outputs: int | None = None
    rooted: bool = False
    one_block: tuple[int, ...] = ()

    @property
    def reads_outputs(self) -> bool:
        """Whether it works in place, writing the tensors that it reads."""
        return self.inputs == self.outputs


#: Ops of c10d, which write into their arguments, though their schemas do not say so.
_IN_PLACE = {
    "allreduce_": Collective("all_reduce", outputs=0, one_block=(0,)),
    "allreduce_coalesced_": Collective("all_reduce", "coalesced", outputs=0),
    "reduce_": Collective("reduce", outputs=0, rooted=True, one_block=(0,)),
    "broadcast_": Collective("broadcast", outputs=0, rooted=True, one_block=(0,)),
    "_allgather_base_": Collective("all_gather", inputs=1, outputs=0, one_block=(0, 1)),
    "allgather_into_tensor_coalesced_": Collective("all_gather", "coalesced", 1, 0),
    "allgather_": Collective("all_gather", "list", 1, 0, one_block=(1,)),
    "allgather_coalesced_": Collective("all_gather", "coalesced lists", 1, 0),
    "_reduce_scatter_base_": Collective("reduce_scatter", inputs=1, outputs=0),
    "reduce_scatter_tensor_coalesced_": Collective("reduce_scatter", "coalesced", 1, 0),
    "reduce_scatter_": Collective("reduce_scatter", "list", 1, 0, one_block=(0,)),
    "alltoall_base_": Collective("all_to_all", "rows", 1, 0),
    "alltoall_": Collective("all_to_all", "list", 1, 0),
    "gather_": Collective("gather", "list", 1, 0, rooted=True),
    "scatter_": Collective("scatter", "list", 1, 0, rooted=True),
    "send": Collective("send"),
    "recv_": Collective("receive", inputs=None, outputs=0),
    "recv_any_source_": Collective("receive", inputs=None, outputs=0),
    "barrier": Collective("barrier", inputs=None),
}

#: Functional ops, which return new tensors; those that end in "_" write their arguments.
_FUNCTIONAL = {
    "all_reduce": Collective("all_reduce"),
    "all_reduce_": Collective("all_reduce", outputs=0),
    "all_reduce_coalesced": Collective("all_reduce", "coalesced"),
    "all_reduce_coalesced_": Collective("all_reduce", "coalesced", outputs=0),
    "broadcast": Collective("broadcast", rooted=True),
    "broadcast_": Collective("broadcast", outputs=0, rooted=True),
    "all_gather_into_tensor": Collective("all_gather"),
    "all_gather_into_tensor_out": Collective("all_gather"),
    "all_gather_into_tensor_coalesced": Collective("all_gather", "coalesced"),
    "reduce_scatter_tensor": Collective("reduce_scatter"),
    "reduce_scatter_tensor_out": Collective("reduce_scatter"),
    "reduce_scatter_tensor_coalesced": Collective("reduce_scatter", "coalesced"),
    "all_to_all_single": Collective("all_to_all", "rows"),
    "shard_dim_alltoall": Collective("shard_dim_all_to_all"),
}

#: (namespace, name without overload) -> what it does.
COLLECTIVES: Mapping[tuple[str, str], Collective] = {
    **{("c10d", name): row for name, row in _IN_PLACE.items()},
    **{
        (namespace, name): row
        for namespace in sorted(NAMESPACES - {"c10d"})
        for name, row in _FUNCTIONAL.items()
    },
}


def collective_of(name: str) -> Collective | None:
    """What "namespace.name.overload" does; None for ops that are not in the table."""
    namespace, base, *_ = name.split(".")
    return COLLECTIVES.get((namespace, base))


def is_communication(name: str) -> bool:
    """Whether "namespace.name.overload" is a communication, not a wait for one."""
    namespace, base, *_ = name.split(".")
    return namespace in NAMESPACES and base not in _NO_COMMUNICATION
