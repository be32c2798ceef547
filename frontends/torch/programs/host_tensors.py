"""Host real, device fake: tensors of the CPU have values, those of the device have none.

The idea: a whole program reads data, shuffles it and draws numbers on the host, and its shapes
depend on what comes out.  Every op whose tensors are all real runs as it is.  An op that takes a
fake tensor, or makes one on the device, is left to the fake tensors, and so are parameters and very
large tensors: a model is as large on the host as on the device, and its values are not needed.

Values that the device writes into a host tensor (``host.copy_(device)``) are not known: from then
on that tensor is treated as fake.

    with fake_mode, dispatch_mode(see): torch.randperm(8).tolist()     # real numbers
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

from flint.frontends.torch.context import capture
from flint.frontends.torch.modes import unseen
from flint.frontends.torch.patching import around, replace, replace_of_type
from flint.frontends.torch.programs import random_draws
from flint.frontends.torch.recording.known_values import is_overwritten, known_value
from flint.frontends.torch.recording.schemas import rule_of, tensors_in, written_tensors
from flint.frontends.torch.shims.parameters import swap
from flint.frontends.torch.shims.refused import raise_sized_by_values

#: Tensors with more elements than this are not made on the host; those of integers may have more
#: bytes, because programs read files of tokens into them.
_MOST, _MOST_BYTES = 1 << 24, 1 << 28

#: Ops that take a size first and no tensor.
_SIZED = frozenset(
    ("empty", "zeros", "ones", "full", "rand", "randn", "randint", "normal", "empty_strided")
)

#: Classes of tensors that PyTorch's own code makes.
_PLAIN = (torch.Tensor, FakeTensor, torch.nn.Parameter, torch.nn.Buffer)
#: What a class has that sees no ops.
_NOT_SEEING = torch._C._disabled_torch_dispatch_impl

_COPY: Any = torch.ops.aten.copy_.default
_COPIES = (_COPY, torch.ops.aten._to_copy.default)


def apply() -> None:
    """Make parameters fake from the start, and allow host tensors to become fake."""
    random_draws.apply()
    around(torch.nn.Parameter, "__new__", _make_parameter)
    plain: Any = torch._C.TensorBase.data
    replace(torch.Tensor, "data", property(plain.__get__, _assigning(plain)))
    for name in ("tolist", "numpy", "__array__"):
        around(torch.Tensor, name, _leaving)
    generator: Any = torch._C.Generator
    plain_state = generator.set_state

    def set_state(self: Any, state: torch.Tensor) -> Any:
        """Do not accept states from other ranks that are not known."""
        real = known_value(state) if isinstance(state, FakeTensor) else state
        return self if real is None else plain_state(self, real.clone())

    replace_of_type(generator, "set_state", set_state)


def is_host(tensor: Any) -> bool:
    """Whether a tensor is a real one of the host, with values that are known."""
    return (
        not isinstance(tensor, FakeTensor)
        and tensor.device.type == "cpu"
        and type(tensor) in _PLAIN
        and not is_overwritten(tensor)
    )


def is_of_host(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an op of PyTorch's takes or makes tensors, and all are real ones of the host.

    It is asked before every op that takes no fake tensor: data loaders run millions of them.
    """
    if kwargs.get("pin_memory") or not _is_pytorchs(op):
        return False
    device = kwargs.get("device")
    if device is not None and torch.device(device).type != "cpu":
        return False
    found = False
    for item in (*args, *kwargs.values()):
        for part in item if isinstance(item, list | tuple) else (item,):
            if isinstance(part, torch.Tensor):
                if not part.is_cpu or is_overwritten(part):
                    return False
                found = True
    return found or _made_on_host(op, args, kwargs)


@functools.cache
def _is_pytorchs(op: Any) -> bool:
    return bool(op.namespace == "aten")


def plain(args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Arguments of an op, where a host tensor of a program's own class is a plain one.

    Such a class sees functions of PyTorch, and not ops; fake mode does not know it.
    """
    if all(map(_is_known, _tensors(args, kwargs))):
        return args, kwargs
    return _each(args), {key: _each(item) for key, item in kwargs.items()}


def _is_known(tensor: torch.Tensor) -> bool:
    kind = type(tensor)
    return kind in _PLAIN or kind.__torch_dispatch__ is not _NOT_SEEING


def _each(item: Any) -> Any:
    if isinstance(item, torch.Tensor):
        return item if _is_known(item) else item.as_subclass(torch.Tensor)
    return type(item)(map(_each, item)) if type(item) in (list, tuple) else item


def see(op: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run host-only ops for real: a handler directly above the fake tensors."""
    tensors = list(_tensors(args, kwargs))
    real = [tensor for tensor in tensors if is_host(tensor)]
    if len(real) < len(tensors):
        written = _note_written(op, args, kwargs) if real and op._schema.is_mutable else []
        if op in random_draws.DRAWING:
            random_draws.draw(op, args, kwargs)
        result = op(*args, **kwargs)
        random_draws.draw_made(op, args, kwargs, result)
        if isinstance(result, FakeTensor) and any(item is args[0] for item in written):
            return args[0]  # the fake tensors have replaced it
        return _noted(op, real, args, result)
    if not tensors and not _made_on_host(op, args, kwargs):
        made = op(*args, **kwargs)
        random_draws.draw_made(op, args, kwargs, made)
        return made
    device = kwargs.get("device")
    if device is not None and torch.device(device).type != "cpu":
        if any(item.layout is not torch.strided for item in real):
            raise_sized_by_values("a copy")
        return _noted(op, real, args, op(*args, **kwargs))
    if kwargs.get("pin_memory"):
        kwargs = {**kwargs, "pin_memory": False}
    with unset_fake_temporarily():
        return op(*args, **kwargs)


def _noted(op: Any, real: list[torch.Tensor], args: tuple[Any, ...], result: Any) -> Any:
    """The result of a copy to the device, noted as part of a batch."""
    if op in _COPIES and real and real[0] is args[op is _COPY]:
        capture().batches.add(result.untyped_storage())
    return result


def _tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    yield from tensors_in(args)
    yield from tensors_in(tuple(kwargs.values()))


def _made_on_host(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    device = kwargs.get("device")
    if device is not None and torch.device(device).type != "cpu":
        return False
    if op.namespace != "aten":
        return False
    if op._opname not in _SIZED:
        return True
    size = next((item for item in args if isinstance(item, list | tuple)), None)
    if size is None:
        return True
    kind = kwargs.get("dtype") or torch.get_default_dtype()
    if kind.is_floating_point or kind.is_complex:
        return math.prod(size) <= _MOST
    return math.prod(size) * kind.itemsize <= _MOST_BYTES


def _note_written(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Real tensors that an op writes, which are not known from then on."""
    written = written_tensors(rule_of(op), args, kwargs, [])
    plain = [tensor for tensor in written if not isinstance(tensor, FakeTensor)]
    for tensor in filter(is_host, plain):
        storage = tensor.untyped_storage()
        capture().overwritten[storage._cdata] = storage
    return plain


def _fake_of(tensor: torch.Tensor) -> torch.Tensor:
    """A fake tensor that looks like a real one."""
    return in_fake_mode(tensor.shape, tensor.stride(), tensor.dtype, tensor.device)


def in_fake_mode(
    shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """A new fake tensor, which no recorder sees."""
    with capture().fake_mode, unseen():
        return torch.empty_strided(shape, stride, dtype=dtype, device=device)


def _make_parameter(
    make: Any, kind: Any, data: Any = None, requires_grad: bool = True, *args: Any, **kwargs: Any
) -> Any:
    if type(data) is torch.Tensor and data.device.type == "cpu":
        data = _fake_of(data)
    return make(kind, data, requires_grad, *args, **kwargs)


def _assigning(plain: Any) -> Any:
    def assign(tensor: torch.Tensor, value: torch.Tensor) -> None:
        """``tensor.data = value``, where a real tensor may become a fake one."""
        if isinstance(value, FakeTensor) and not isinstance(tensor, FakeTensor):
            swap(tensor, value.detach().requires_grad_(tensor.requires_grad))
        else:
            plain.__set__(tensor, value)

    return assign


def _leaving(leave: Any, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Values of a tensor, which below the dispatcher are read from memory."""
    if isinstance(tensor, FakeTensor) or not is_overwritten(tensor):
        return leave(tensor, *args, **kwargs)
    return getattr(_fake_of(tensor), leave.__name__)(*args, **kwargs)
