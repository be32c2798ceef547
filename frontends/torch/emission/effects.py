"""What a recorded op does to storages: what it writes, and whether it launches anything.

The idea: written views come with the recording; here are the few ops whose schema hides one, and
those that are a view, an allocation or a question to the runtime and launch no kernel.
"""

from __future__ import annotations

from flint.frontends.torch.recording.recording import Op, View, views_in

#: Ops that return memory whose values are nobody's.
_ALLOCATIONS = frozenset(
    f"aten.{name}"
    for name in (
        "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided",
        "empty_permuted", "empty_quantized", "resize_", "resize_as_", "set_",
    )
)  # fmt: skip

#: Ops that return views of what they are given.
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

#: Ops that hand a value on, in other memory or the same, and launch nothing.
_FORWARDING = frozenset(
    {
        "_c10d_functional.wait_tensor",
        "_c10d_functional._wrap_tensor_autograd",
        "_c10d_functional_autograd.wait_tensor",
    }
)

#: Ops that tell the host or the allocator something, or check a value.
_QUESTIONS = frozenset(
    f"aten.{name}"
    for name in (
        "_assert_async", "_assert_scalar", "_has_same_storage_numel", "_local_scalar_dense",
        "is_same_size", "record_stream",
    )
)  # fmt: skip

#: Batch norms that update running statistics in training though their schema does not say so.
_HIDDEN = {
    "aten.native_batch_norm": (3, 4, 5),
    "aten.cudnn_batch_norm": (3, 4, 5),
    "aten.miopen_batch_norm": (3, 4, 5),
}


def plain_name(op: Op) -> str:
    """The op's name without its overload."""
    return op.name.rpartition(".")[0]


def is_allocation(op: Op) -> bool:
    """Whether an op only gets memory."""
    return plain_name(op) in _ALLOCATIONS


def is_forwarding(op: Op) -> bool:
    """Whether an op only hands its first argument on."""
    return plain_name(op) in _FORWARDING


def is_question(op: Op) -> bool:
    """Whether an op without tensors to give is known to do nothing to a graph."""
    return plain_name(op) in _QUESTIONS


def is_view(op: Op) -> bool:
    """Whether an op only looks at the memory of its arguments in another way.

    ``t_`` and its like change a tensor, but no memory.
    """
    name = plain_name(op)
    if name not in _VIEWS or (op.writes and not _in_place(name)):
        return False
    own = {view.storage for view in views_in(op.args)}
    return all(view.storage in own for view in views_in(op.results))


def written(op: Op) -> tuple[View, ...]:
    """Views of existing storages that an op writes, in the order of its arguments."""
    name = plain_name(op)
    if name == "fsdp.all_gather_copy_in":
        # It fills this rank's part of the gathered buffer, which it returns first.
        return tuple(views_in(op.results[:1]))
    found = list(op.writes)
    if name in _HIDDEN:
        mean, variance, training = (op.args[at] for at in _HIDDEN[name])
        if training:
            found += [view for view in views_in((mean, variance)) if view not in found]
    if not found and _in_place(name):
        found = list(views_in(op.args[:1]))
    if len(found) > 1:
        order = {view: at for at, view in reversed(list(enumerate(_arguments(op))))}
        found.sort(key=lambda view: order.get(view, len(order)))
    return tuple(found)


def targets(op: Op) -> tuple[View, ...]:
    """What an op gives values to: existing views that it writes, then new tensors."""
    existing = written(op)
    seen = set(existing)
    return existing + tuple(view for view in views_in(op.results) if view not in seen)


def _arguments(op: Op) -> list[View]:
    return [*views_in(op.args), *views_in(tuple(op.kwargs.values()))]


def _in_place(name: str) -> bool:
    base = name.rpartition(".")[2]
    return base.endswith("_") and not base.endswith("__")
