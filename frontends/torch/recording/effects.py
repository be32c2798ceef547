"""The effects of ops on storages beyond their schemas, and whether they launch a kernel.

The idea: recording and emission look up ops here by name.  Most ops write the arguments that their
schema marks; a few do not mark them.  Views, allocations and queries to the runtime launch no
kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flint.frontends.torch.recording.recording import Op, View, views_in

#: Namespace of ops that represent a compiler's kernels, each named as its kernel.
KERNELS = "inductor_kernel"

#: Namespace of Transformer Engine's kernels.
TRANSFORMER_ENGINE = "transformer_engine"

#: Namespaces whose ops do not read the arguments that they write.
ONLY_WRITING = (KERNELS, TRANSFORMER_ENGINE)

#: Ops that return memory without values.
_ALLOCATIONS = frozenset(
    f"aten.{name}"
    for name in (
        "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided",
        "empty_permuted", "empty_quantized", "resize_", "resize_as_", "set_",
    )
)  # fmt: skip

#: Ops that return views of their arguments.
_VIEWS = frozenset(
    f"aten.{name}"
    for name in (
        "_conj", "_neg_view", "_reshape_alias", "_unsafe_view", "alias", "as_strided", "chunk",
        "detach", "detach_", "diagonal", "expand", "expand_as", "flatten", "imag", "lift_fresh",
        "movedim", "narrow", "permute", "real", "reshape", "select", "slice", "split",
        "split_with_sizes", "squeeze", "squeeze_", "swapaxes", "t", "t_", "tensor_split",
        "transpose", "transpose_", "unbind", "unfold", "unflatten", "unsafe_chunk",
        "unsafe_split", "unsafe_split_with_sizes", "unsqueeze", "unsqueeze_", "view", "view_as",
        "view_as_complex", "view_as_real",
    )
)  # fmt: skip

#: Ops that pass a value on, in other memory or the same, and launch nothing.
_FORWARDING = frozenset(
    {
        "_c10d_functional.wait_tensor",
        "_c10d_functional._wrap_tensor_autograd",
        "_c10d_functional_autograd.wait_tensor",
    }
)

#: Ops that inform the host or the allocator, or check a value.
_QUESTIONS = frozenset(
    f"aten.{name}"
    for name in (
        "_assert_async", "_assert_scalar", "_has_same_storage_numel", "_linalg_check_errors",
        "_local_scalar_dense", "is_same_size", "record_stream",
    )
)  # fmt: skip

#: Ops that write arguments though their schema does not say so -> positions of these, and of the
#: flag that says whether they do.
HIDDEN_WRITES: Mapping[str, tuple[tuple[int, ...], int]] = dict.fromkeys(
    (
        "aten.native_batch_norm.default", "aten.cudnn_batch_norm.default",
        "aten.miopen_batch_norm.default", "aten.batch_norm_gather_stats_with_counts.default",
    ),
    ((3, 4), 5),
)  # fmt: skip

#: Ops that overwrite without reading, by their names without namespace.
OVERWRITING = frozenset(
    (
        "copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_",
        "_foreach_zero_", "_foreach_copy_", "log_normal_", "cauchy_", "geometric_",
    )
)  # fmt: skip

#: Ops that are not recorded: they query, annotate or change the reference of a tensor.
IGNORED = frozenset(
    (
        "prim.device.default",
        "prim.layout.default",
        "aten.record_stream.default",
        "aten.resize_.default",
        "aten.set_.source_Storage",
        "aten.set_.source_Storage_storage_offset",
        "aten.set_.source_Tensor",
        "aten.set_.default",
        "aten.is_pinned.default",
        "aten.sym_size.default",
        "aten.detach_.default",
        "aten.as_strided_.default",
        "aten._sparse_coo_tensor_with_dims_and_tensors.default",
        "_c10d_functional._wrap_tensor_autograd.default",
    )
)


def hidden_writes(name: str, args: Sequence[Any]) -> tuple[int, ...]:
    """Positions of arguments that a call of an op writes though its schema does not say so."""
    positions, flag = HIDDEN_WRITES.get(name, ((), 0))
    return positions if positions and args[flag] else ()


def shown_name(op: Op) -> str:
    """The name of an op in programs: "aten.mm.default", "inductor.triton_poi_fused_add_0"."""
    namespace, _, name = op.name.partition(".")
    return f"inductor.{name.removesuffix('.default')}" if namespace == KERNELS else op.name


def plain_name(op: Op) -> str:
    """The op's name without its overload."""
    return op.name.rpartition(".")[0]


def is_allocation(op: Op) -> bool:
    """Whether an op only allocates memory."""
    return only_allocates(op.name)


def only_allocates(name: str) -> bool:
    """The same for an op's full name."""
    return name.rpartition(".")[0] in _ALLOCATIONS


def is_forwarding(op: Op) -> bool:
    """Whether an op only passes its first argument on."""
    return plain_name(op) in _FORWARDING


def is_question(op: Op) -> bool:
    """Whether an op that returns no tensors is known to have no effect on a graph."""
    return plain_name(op) in _QUESTIONS


def is_view(op: Op) -> bool:
    """Whether an op only changes the view of its arguments' memory.

    ``t_`` and similar ops change a tensor, but not its memory.
    """
    name = plain_name(op)
    if name not in _VIEWS or (op.writes and not _in_place(name)):
        return False
    own = {view.storage for view in views_in(op.args)}
    return all(view.storage in own for view in views_in(op.results))


def targets(op: Op) -> tuple[View, ...]:
    """The tensors that an op gives values to: existing views that it writes, then new tensors."""
    existing = set(op.writes)
    return op.writes + tuple(view for view in views_in(op.results) if view not in existing)


def _in_place(name: str) -> bool:
    base = name.rpartition(".")[2]
    return base.endswith("_") and not base.endswith("__")
