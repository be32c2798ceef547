"""PyTorch's cache of what ops on fake tensors give, in fewer steps.

The idea: ``FakeTensorMode`` keeps what an op gives under a key of all that decides it.  Where the
op is known, nearly all of the time goes into describing each tensor by a dataclass of 17 fields,
which is then taken apart for the key, and into the checks with which a fake tensor is made.
Without symbolic sizes a strided tensor is as well described by one tuple, and a new fake tensor has
the attributes of any other one on its device.  Everything else is left to PyTorch.

Programs loop over rows of a tensor: what an op gives of one row, it gives of each.  Where in a
storage its tensors begin is left out of the key, and so is which row or part is taken; a view's
beginning is kept relative to that of its tensor.

    with quick(): ...            # torch 2.12 to 2.14
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorMode,
    _DispatchCacheEntryOutputInfo,
)

from flint.frontends.torch.patching import around

#: Values of these types are their own key, together with their type: 1 and 1.0 are equal.
_PLAIN = frozenset(
    (int, float, bool, str, complex, type(None), torch.dtype, torch.device, torch.layout,
     torch.memory_format)
)  # fmt: skip

_META = torch.device("meta")
_aten = torch.ops.aten


def _as_it_is(args: tuple[Any, ...]) -> tuple[tuple[Any, ...], int]:
    return args, 0


def _is_plain(tensor: Any, dim: int, *numbers: Any) -> bool:
    """Whether there is such a dim, and no number is a symbol; errors are PyTorch's."""
    known = all(item is None or type(item) is int for item in numbers)
    return known and -tensor.dim() <= dim < tensor.dim()


def _row(args: tuple[Any, ...]) -> tuple[tuple[Any, ...], int]:
    """``x.select(dim, index)``: all indices within the tensor are alike."""
    tensor, dim, index = args
    if not _is_plain(tensor, dim, index):
        return args, 0
    size = tensor.shape[dim]
    if not -size <= index < size:
        return args, 0
    return (tensor, dim, "row"), index % size * tensor.stride(dim)


def _part(args: tuple[Any, ...]) -> tuple[tuple[Any, ...], int]:
    """``x.slice(dim, start, end, step)``: all parts of one length are alike."""
    defaults: tuple[Any, ...] = None, 0, None, None, 1
    tensor, dim, start, end, step = args + defaults[len(args) :]
    if not _is_plain(tensor, dim, start, end, step) or step < 1:
        return args, 0
    start, end, step = slice(start, end, step).indices(tensor.shape[dim])
    length = len(range(start, end, step))
    return (tensor, dim, "part", length, step), start * tensor.stride(dim)


#: View whose beginning moves with that of its tensor -> the function that gives what of its
#: arguments decides on the result's form, and by how many elements the others move it.
_MOVING: Mapping[Any, Callable[[tuple[Any, ...]], tuple[tuple[Any, ...], int]]] = {
    _aten.select.int: _row,
    _aten.slice.Tensor: _part,
    **dict.fromkeys(
        (
            _aten.alias.default, _aten.detach.default, _aten.diagonal.default,
            _aten.expand.default, _aten.permute.default, _aten.squeeze.default,
            _aten.squeeze.dim, _aten.squeeze.dims, _aten.t.default, _aten.transpose.int,
            _aten.unfold.default, _aten.unsqueeze.default, _aten.view.default,
        ),
        _as_it_is,
    ),
}  # fmt: skip


class _Moving(_DispatchCacheEntryOutputInfo):
    """A known view whose beginning is relative: to its tensor's, moved by its arguments."""

    __slots__ = ()


@contextlib.contextmanager
def quick() -> Iterator[None]:
    """Within it, fake tensors are looked up and made here."""
    with contextlib.ExitStack() as stack:
        stack.callback(around(FakeTensorMode, "_cache_key", _key))
        stack.callback(around(FakeTensorMode, "_prep_args_for_hash", _describe))
        stack.callback(around(FakeTensorMode, "_get_output_info_for_cache_entry", _relative))
        stack.callback(around(FakeTensorMode, "_get_output_tensor_from_cache_entry", _Makers()))
        yield


def _key(original: Callable[..., Any], mode: Any, state: Any, op: Any, args: Any, of: Any) -> Any:
    """The key of a call (``_cache_key``)."""
    if op in _MOVING and mode.shape_env is None and not of:
        args, _ = _MOVING[op](args)
    return original(mode, state, op, args, of)


def _relative(
    original: Callable[..., Any], mode: Any, state: Any, key: Any, op: Any, args: Any, of: Any,
    output: Any,
) -> Any:  # fmt: skip
    """What is kept of a result (``_get_output_info_for_cache_entry``)."""
    info = original(mode, state, key, op, args, of, output)
    if op not in _MOVING or mode.shape_env is not None or info.view_idx is None:
        return info
    info.metadata.storage_offset -= _beginning(op, args, info)
    return _Moving(*(getattr(info, field.name) for field in dataclasses.fields(info)))


def _beginning(op: Any, args: Any, entry: Any) -> int:
    """Where a view that is kept as relative begins, but for what its form adds."""
    begins: int = args[entry.view_idx].storage_offset()
    return begins + _MOVING[op](args)[1]


@functools.cache
def _is_free(op: Any) -> bool:
    """Whether its result's form is the same wherever in their storages its tensors begin.

    Views in terms of other elements or of the storage itself need that; copies of such, too.
    """
    if not isinstance(op, OpOverload) or op.namespace != "aten":
        return False
    name, results = op._schema.name, op._schema.returns
    if op.is_view or any(part in name for part in ("as_strided", "complex", "view")):
        return op in _MOVING
    return all("Tensor" in str(item.type) for item in results)


def _describe(
    original: Callable[..., None], mode: Any, result: list[Any], args: Any, state: Any,
    hashed_by_id: list[Any],
) -> None:  # fmt: skip
    """Append to a key what tells these arguments from others (``_prep_args_for_hash``)."""
    if mode.shape_env is not None or isinstance(args, dict):
        original(mode, result, args, state, hashed_by_id)
        return
    if isinstance(args, list | tuple):
        result += type(args), len(args)
    is_free = _is_free(result[0])
    for item in args:
        kind = type(item)
        if kind is FakeTensor and _is_strided(mode, item):
            result.append(_look(item))
            if not is_free:
                result.append(item.storage_offset())
        elif kind in _PLAIN:
            result += kind, item
        elif kind is list or kind is tuple:
            _describe(original, mode, result, item, state, hashed_by_id)
        else:
            original(mode, result, (item,), state, hashed_by_id)


def _is_strided(mode: Any, tensor: Any) -> bool:
    """Whether it is a tensor of this mode's without a known value or another layout."""
    own = tensor.fake_mode is mode and tensor.constant is None
    return own and tensor.layout is torch.strided


def _look(tensor: torch.Tensor) -> tuple[Any, ...]:
    """The fields of PyTorch's ``TensorMetadata`` but the offset, those of sparse tensors and the
    memory format, which follows from shape and strides."""
    return (
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
        tensor.device,
        tensor.untyped_storage().nbytes(),
        tensor.requires_grad,
        tensor.is_quantized,
        tensor.is_conj(),
        tensor.is_neg(),
        tensor.is_inference(),
    )


class _Makers:
    """Makes what an op gives that is known (``_get_output_tensor_from_cache_entry``)."""

    def __init__(self) -> None:
        """Attributes of fake tensors are those of the first one on the same device."""
        self._attributes: dict[torch.device, dict[str, Any]] = {}

    def __call__(
        self, original: Callable[..., Any], mode: Any, state: Any, entry: Any, key: Any, op: Any,
        args: Any,
    ) -> Any:  # fmt: skip
        known = entry.metadata
        begins = 0 if known is None else known.storage_offset
        if type(entry) is _Moving:
            begins += _beginning(op, args, entry)
        attributes = None if known is None else self._attributes.get(known.device)
        if (
            attributes is None or attributes["fake_mode"] is not mode or mode.shape_env is not None
            or entry.inplace_idx is not None or known.requires_grad or known.is_conj or known.is_neg
        ):  # fmt: skip
            if type(entry) is _Moving:
                at_it = dataclasses.replace(known, storage_offset=begins)
                entry = dataclasses.replace(entry, metadata=at_it)
            made = original(mode, state, entry, key, op, args)
            if known is not None and entry.inplace_idx is None:
                self._attributes[known.device] = dict(vars(made))
            return made
        with torch._C._DisableTorchDispatch():
            form = torch.empty_strided(known.shape, known.stride, dtype=known.dtype, device=_META)
            if op.is_view:
                storage = args[entry.view_idx].untyped_storage()
                form.set_(storage, begins, known.shape, known.stride)
        made = torch.Tensor._make_subclass(
            FakeTensor, form, False, dispatch_device=True, device_for_backend_keys=known.device
        )
        if mode._allow_unsafe_data_ptr_access:
            torch._C._set_warn_deprecated_on_mutable_data_ptr(made)
        else:
            torch._C._set_throw_on_mutable_data_ptr(made)
        vars(made).update(attributes)
        return made
