"""Op records: what a reader passes to the walker.

The idea: two readers (MLIR modules here, HLO protos in ``hlo/``) convert their input into one plain
form, so that one table of rules and one walker serve both.  A record has the op's StableHLO name,
values as module-wide integers, and only those attributes that a rule reads. Records exist for one
conversion; the result is the ``WorkloadGraph``.

    %2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0]
    Op("dot_general", operands=(0, 1), results=(2,), attrs={"lhs_contracting": (1,), ...})

Attributes by op (all plain Python; absent means the default of the StableHLO specification):

    dot_general          lhs_batching, rhs_batching, lhs_contracting, rhs_contracting, exact (both
                         operands in the highest precision; only from MLIR modules)
    chlo.ragged_dot      + rhs_group
    convolution          input_batch, input_feature, input_spatial, kernel_input_feature,
                         kernel_output_feature, kernel_spatial, output_batch, output_feature,
                         output_spatial, strides, padding ((low, high), ...), lhs_dilation,
                         rhs_dilation, feature_group_count, batch_group_count
    transpose, broadcast_in_dim, reverse, reduce    dimensions
    iota, concatenate                               dimension
    slice                start, limit, strides
    dynamic_slice        sizes
    pad                  low, high, between (edge_padding_low, ..._high, interior_padding)
    gather               offset_dims, collapsed_slice_dims, operand_batching_dims,
                         start_indices_batching_dims, start_index_map, index_vector_dim, slice_sizes
    scatter              update_window_dims, inserted_window_dims, input_batching_dims,
                         scatter_indices_batching_dims, scatter_dims_to_operand_dims,
                         index_vector_dim
    reduce_window        window_dimensions, strides, base_dilations, window_dilations, padding
    select_and_scatter   window_dimensions, strides, padding
    fft                  fft_length
    einsum               config ("ab,bc->ac")
    compare              direction ("LT", "EQ", ...)
    constant             value: numpy array, only when it has at most 2**20 elements, else absent;
                         splats and scalars are 0-d arrays
    custom_call          target, backend_config (str or dict); of a collective for groups of several
                         sizes also groups, channel_id, use_global_device_ids and reduction
                         ("add", ...); called (names of the functions that it is handed; of an HLO
                         proto they are its regions), flint.cost_estimate (JSON)
    composite            name, decomposition (function name)
    call                 callee
    all_gather, all_reduce, all_to_all, reduce_scatter, collective_broadcast
                         groups (``ReplicaGroups``), channel_id, use_global_device_ids
    collective_permute, send, recv      pairs: int64 array [P, 2], channel_id, is_host_transfer
    get_tuple_element    index
    while                trip_count (when the input states it)
    case, if             flint.branch (number of the one that was taken, when the input states it)

What only an HLO proto has:

    fusion               kind ("kLoop", ...), name (of the kernel: "loop_add_fusion"), aliases
                         ((output_index, operand_index), ...); one region, with arguments
    mhlo.copy            made: an optimised module's copies are kernels, others only names
    async_done           -; its operands are the results of the record that the first half became
    mhlo.ragged_dot      as chlo.ragged_dot         mhlo.scaled_dot   as dot_general
    custom_call "ragged_all_to_all"                 + groups, channel_id, use_global_device_ids
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flint.graph.tensor_types import TensorType

if TYPE_CHECKING:
    from flint.graph.allocations import Allocations

#: Where frontends attach what they know about a custom call (StableHLO's name for HLO's field), and
#: the entries with a kernel's work and with what it sends, which are also the record's attributes.
FRONTEND_ATTRIBUTES = "mhlo.frontend_attributes"
COST_ESTIMATE = "flint.cost_estimate"
REMOTE_COPIES = "flint.remote_copies"
#: The attribute with the branch that a run of the program took.
BRANCH = "flint.branch"

#: Warnings of readers about a dim whose size the program does not fix.
BOUNDED = "a dynamic dim: counted at its bound"
#: The error of readers about a dim that has none at all.
UNBOUNDED = (
    "has a dim whose size the program leaves open: state the sizes of its arguments "
    "(--shape 0=64x128, for StableHLO), or export it for sizes that are known"
)


class Op:
    """One operation.  Plain and slotted, for speed: a module may hold hundreds of thousands.

    Attributes:
        name: StableHLO op name without the dialect (``"add"``); ops of another dialect keep theirs
            (``"chlo.erf"``, ``"sdy.sharding_constraint"``, ``"mhlo.copy"``).
        operands: value ids.
        results: value ids.
        attrs: attributes that rules need (see the module's table); None if there are none.
        regions: blocks of the op's regions, one block each.
        loc: anything hashable that the module's ``location`` function turns into a ``SourceInfo``.
    """

    __slots__ = ("attrs", "loc", "name", "operands", "regions", "results")

    def __init__(
        self,
        name: str,
        operands: tuple[int, ...],
        results: tuple[int, ...],
        attrs: dict[str, Any] | None = None,
        regions: tuple[Block, ...] = (),
        loc: Hashable = None,
    ) -> None:
        self.name = name
        self.operands = operands
        self.results = results
        self.attrs = attrs
        self.regions = regions
        self.loc = loc

    def attr(self, key: str, default: Any = None) -> Any:
        """The attribute ``key``, or ``default``."""
        return default if self.attrs is None else self.attrs.get(key, default)

    def __repr__(self) -> str:
        return f"Op({self.name}, {self.operands} -> {self.results}, {self.attrs})"


class Block:
    """Ops in text order, the block's arguments and what its terminator yields (value ids)."""

    __slots__ = ("args", "ops", "yields")

    def __init__(self, args: tuple[int, ...], ops: list[Op], yields: tuple[int, ...]) -> None:
        self.args = args
        self.ops = ops
        self.yields = yields


@dataclass(frozen=True, slots=True)
class ReplicaGroups:
    """Replica groups as the input writes them; one of three forms.

    Attributes:
        table: dense list [groups, members], ragged rows padded with -1; None for the other forms.
        iota: (group shape, reshape dims, transpose permutation), HLO's ``[G,S]<=[dims]T(perm)``.
        mesh: (mesh as ((axis, size), ...), axes as ((name, None) | (name, (pre_size, size)), ...)):
            groups along mesh axes, ``(pre_size, size)`` selecting a sub-axis as in Shardy. An
            optional explicit device order of the mesh follows as a third entry (int64 array).
        All three None (or an empty table): one group of all ranks.
    """

    table: NDArray[np.int64] | None = None
    iota: tuple[tuple[int, int], tuple[int, ...], tuple[int, ...]] | None = None
    mesh: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """Where an op comes from: the framework's op path and the user's source line ("" unknown).

    Recorded modules state ``layer`` and ``phase``; otherwise they follow from the op path.
    """

    name: str = ""
    file: str = ""
    line: int = 0
    layer: str = ""
    phase: str = ""


@dataclass(frozen=True, slots=True)
class Issue:
    """How a framework issued an op that a recorder has seen.

    Attributes:
        number: its position in the recording; -1 for plumbing between kernels (a view), which takes
            no time.
        stream: the stream it ran on.
        after: numbers of the ops that it waited for, in addition to those before it on its stream.
        graphed: whether a CUDA graph launched it.
    """

    number: int = -1
    stream: int = 0
    after: tuple[int, ...] = ()
    graphed: bool = False


@dataclass(slots=True)
class Module:
    """A whole module as records.

    Attributes:
        name: the module's name.
        functions: name -> body; the entry is ``"main"``.
        value_type: value id -> index into ``types``.
        types: the interned types.
        num_partitions, num_replicas: as the module states them (1 where it does not).
        meshes: name -> ((axis, size), ...) as the module declares them.
        donated: entry parameter number -> entry output index, for aliased buffers.
        donors: entry parameters whose buffers any output may take; the compiler chooses.
        input_shardings, output_shardings: XLA's or Shardy's sharding text per entry parameter.
        input_names: names for entry parameters, if the source has them.
        location: ``Op.loc`` -> ``SourceInfo`` (None: no locations).
        partitioned: False while shapes are global: inputs, outputs or ops are annotated with
            shardings over devices and no partitioner has run.
        annotated: whether ops are.
        warnings: remarks of the reader, text -> count.
        scheduled: the ops of a block are in the order in which a backend issues them.
        optimized: a backend has compiled it; its fusions and copies are kernels.
        input_roles: role per entry parameter, if the source states it ("" if unknown).
        issues: first result of an op of ``main`` -> how it was issued; only recorded modules have
            them, and their ops are in the order in which a framework issued them.
        allocations: the framework's allocations; only recorded modules have them.
    """

    name: str
    functions: dict[str, Block]
    value_type: list[int]
    types: list[TensorType]
    num_partitions: int = 1
    num_replicas: int = 1
    meshes: dict[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    donated: dict[int, int] = field(default_factory=dict)
    donors: frozenset[int] = frozenset()
    input_shardings: tuple[str, ...] = ()
    output_shardings: tuple[str, ...] = ()
    input_names: tuple[str, ...] = ()
    location: Any = None
    partitioned: bool = True
    annotated: bool = False
    warnings: dict[str, int] = field(default_factory=dict)
    scheduled: bool = False
    optimized: bool = False
    input_roles: tuple[str, ...] = ()
    issues: dict[int, Issue] = field(default_factory=dict)
    allocations: Allocations | None = None

    def type_of(self, value: int) -> TensorType:
        """The type of a value id."""
        return self.types[self.value_type[value]]

    def blocks(self) -> Iterator[Block]:
        """All blocks once: those of functions, and those inside ops, which may share them."""
        return blocks_within(self.functions.values())


def blocks_within(blocks: Iterable[Block]) -> Iterator[Block]:
    """Blocks and those inside their ops, each once."""
    pending, seen = list(blocks), set[int]()
    while pending:
        block = pending.pop()
        if id(block) in seen:
            continue
        seen.add(id(block))
        yield block
        for op in block.ops:
            pending.extend(op.regions)


def is_sharded(text: str) -> bool:
    """Whether a sharding, as XLA or Shardy writes it, spreads a tensor over devices."""
    return "devices=[" in text or '{"' in text


def details(op: Op, value_type: list[int]) -> Hashable:
    """Attributes and regions of an op; equal if rules cannot distinguish two ops.

    Regions with more than ops without attributes are compared by identity.
    """
    attrs = None if op.attrs is None else tuple(op.attrs.items())
    regions: list[Hashable] = []
    for block in op.regions:
        if any(inner.attrs is not None or inner.regions for inner in block.ops):
            regions.append(id(block))
        else:
            regions += [
                (inner.name, *[value_type[value] for value in (*inner.operands, *inner.results)])
                for inner in block.ops
            ]
    return (attrs, len(op.regions), *regions)
