"""PyTorch's cache of what ops on fake tensors give, in fewer steps.

The idea: ``FakeTensorMode`` keeps what an op gives under a key of all that decides it.  Where the
op is known, nearly all of the time goes into describing each tensor by a dataclass of 17 fields,
which is then taken apart for the key, and into the checks with which a fake tensor is made.
Without symbolic sizes a strided tensor is as well described by one tuple, and a new fake tensor has
the attributes of any other one on its device.  Everything else is left to PyTorch.

    with quick(): ...            # torch 2.12 to 2.14
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from flint.frontends.torch.patching import around

#: Values of these types are their own key, together with their type: 1 and 1.0 are equal.
_PLAIN = frozenset(
    (int, float, bool, str, complex, type(None), torch.dtype, torch.device, torch.layout,
     torch.memory_format)
)  # fmt: skip

_META = torch.device("meta")


@contextlib.contextmanager
def quick() -> Iterator[None]:
    """Within it, fake tensors are looked up and made here."""
    with contextlib.ExitStack() as stack:
        stack.callback(around(FakeTensorMode, "_prep_args_for_hash", _describe))
        stack.callback(around(FakeTensorMode, "_get_output_tensor_from_cache_entry", _Makers()))
        yield


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
    for item in args:
        kind = type(item)
        if kind is FakeTensor and _is_strided(mode, item):
            result.append(_look(item))
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
    """The fields of PyTorch's ``TensorMetadata`` but those of sparse tensors and the memory format,
    which follows from shape and strides."""
    return (
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
        tensor.device,
        tensor.storage_offset(),
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
        attributes = None if known is None else self._attributes.get(known.device)
        if (
            attributes is None or attributes["fake_mode"] is not mode or mode.shape_env is not None
            or entry.inplace_idx is not None or known.requires_grad or known.is_conj or known.is_neg
        ):  # fmt: skip
            made = original(mode, state, entry, key, op, args)
            if known is not None and entry.inplace_idx is None:
                self._attributes[known.device] = dict(vars(made))
            return made
        with torch._C._DisableTorchDispatch():
            form = torch.empty_strided(known.shape, known.stride, dtype=known.dtype, device=_META)
            if op.is_view:
                storage = args[entry.view_idx].untyped_storage()
                form.set_(storage, known.storage_offset, known.shape, known.stride)
        made = torch.Tensor._make_subclass(
            FakeTensor, form, False, dispatch_device=True, device_for_backend_keys=known.device
        )
        if mode._allow_unsafe_data_ptr_access:
            torch._C._set_warn_deprecated_on_mutable_data_ptr(made)
        else:
            torch._C._set_throw_on_mutable_data_ptr(made)
        vars(made).update(attributes)
        return made
