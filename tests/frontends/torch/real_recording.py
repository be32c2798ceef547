"""A step on real CPU tensors as a ``Recording``, with the values that it started from and ended in.

For tests only: what is recorded is what PyTorch computes, so that an emitted module can be executed
and compared with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from flint.frontends.torch.recording.effects import hidden_writes
from flint.frontends.torch.recording.recording import Group, Input, Op, Recording, View

_SKIPPED = ("profiler.", "prim.")

#: Types of tensors that become their parts first.
_TAKEN_APART = ("DTensor", "AsyncCollectiveTensor", "SparseRows")


def dtype_name(dtype):
    return str(dtype).removeprefix("torch.")


class Recorder(TorchDispatchMode):
    """Records every dispatched op; storages that an op is given first are inputs."""

    def __init__(self):
        super().__init__()
        self.storages = {}
        self.kept = []
        self.sizes = []
        self.before = {}
        self.first = {}
        self.ops = []
        self.groups = {}
        self.world = 1

    def storage(self, tensor):
        own = tensor.untyped_storage()
        if own._cdata not in self.storages:
            self.storages[own._cdata] = len(self.kept)
            self.kept.append(own)
            self.sizes.append(own.nbytes())
        number = self.storages[own._cdata]
        self.sizes[number] = max(self.sizes[number], own.nbytes())
        return number

    def view(self, tensor):
        return View(
            self.storage(tensor),
            tensor.storage_offset(),
            tuple(tensor.shape),
            tuple(tensor.stride()),
            dtype_name(tensor.dtype),
            tensor.is_conj(),
        )

    def given(self, tensor):
        new = tensor.untyped_storage()._cdata not in self.storages
        view = self.view(tensor)
        if new:
            self.before[view.storage] = tensor.untyped_storage().clone()
            self.first[view.storage] = view
        return view

    def opened(self, item, of_tensor):
        if isinstance(item, torch.Tensor):
            return of_tensor(item)
        if isinstance(item, tuple | list):
            return tuple(self.opened(part, of_tensor) for part in item)
        if item is None or isinstance(item, bool | int | float | complex | str):
            return item
        return str(item)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = str(function)
        if name.startswith(_SKIPPED):
            return function(*args, **kwargs)
        if any(kind.__name__ in _TAKEN_APART for kind in types):
            return NotImplemented
        opened = self.opened(args, self.given)
        named = {key: self.opened(item, self.given) for key, item in kwargs.items()}
        out = function(*args, **kwargs)
        results = self.opened(out if isinstance(out, tuple | list) else (out,), self.view)
        flat = []
        for item in results:
            flat.extend(item if isinstance(item, tuple) else (item,))
        writes = []
        for number, argument in enumerate(function._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = opened[number] if number < len(opened) else named.get(argument.name)
                writes += [value] if isinstance(value, View) else list(value or ())
        writes += [opened[position] for position in hidden_writes(name, args)]
        self.ops.append(
            Op(
                name=name,
                args=opened,
                kwargs=named,
                results=tuple(flat),
                writes=tuple(writes),
                **self.communication(name, args),
            )
        )
        return out

    def communication(self, name, args):
        return {}


@dataclass
class Recorded:
    """A recording, its inputs' first values, and what PyTorch made of inputs and results."""

    recording: Recording
    inputs: list[torch.Tensor]
    mutated: dict[int, torch.Tensor]
    results: list[torch.Tensor]
    stray: dict[str, Any] = field(default_factory=dict)


def strided(storage, view):
    whole = torch.empty(0, dtype=getattr(torch, view.dtype)).set_(storage)
    return torch.as_strided(whole, view.shape, view.stride, view.offset)


def whole_view(view, size):
    """The view of an input that the module has as parameter: itself, if it covers its storage."""
    tensor = torch.empty(0, dtype=getattr(torch, view.dtype))
    count = size // tensor.element_size()
    numel = 1
    for length in view.shape:
        numel *= length
    dense = sorted(
        (step, length) for step, length in zip(view.stride, view.shape, strict=True) if length != 1
    )
    expected = 1
    for step, length in dense:
        if step != expected:
            break
        expected *= length
    else:
        if numel == count and not view.offset:
            return view
    return View(view.storage, 0, (count,), (1,), view.dtype)


def record(step, *args, recorder=None, names=None):
    """Run ``step(*args)``, which returns tensors, and record it."""
    recorder = recorder or Recorder()
    with recorder:
        outputs = step(*args)
    outputs = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
    results = [recorder.view(output.detach()) for output in outputs]
    for output, view in zip(outputs, results, strict=True):
        if view.storage not in recorder.first and not any(
            view.storage == other.storage
            for op in recorder.ops
            for other in op.results
            if isinstance(other, View)
        ):
            recorder.first[view.storage] = view
            recorder.before[view.storage] = output.untyped_storage().clone()
    inputs, values = [], []
    mutated = {}
    for number, (storage, view) in enumerate(recorder.first.items()):
        inputs.append(Input(view, "unknown", f"input{number}"))
        shown = whole_view(view, recorder.sizes[storage])
        values.append(strided(recorder.before[storage], shown).clone())
        mutated[number] = strided(recorder.kept[storage], shown).clone()
    recording = Recording(
        rank=0,
        world_size=recorder.world,
        ops=tuple(recorder.ops),
        storage_bytes=tuple(recorder.sizes),
        inputs=tuple(inputs),
        results=tuple(results),
        groups=tuple(Group(str(n), "", ranks) for n, ranks in enumerate(recorder.groups)),
    )
    return Recorded(recording, values, mutated, [output.detach().clone() for output in outputs])


def by_hand(name, tensors, results, *arguments, **options):
    """A recording of one op that this machine has no kernel for.

    Args:
        tensors: its tensor arguments' values.
        results: tensors of the results' shapes and dtypes.
        arguments: its positional arguments, tensors as their place in ``tensors``, in braces.
    """

    def view(number, tensor):
        return View(
            number, 0, tuple(tensor.shape), tensor.contiguous().stride(), dtype_name(tensor.dtype)
        )

    everything = [*tensors, *results]
    views = [view(number, tensor) for number, tensor in enumerate(everything)]
    opened = tuple(views[min(item)] if isinstance(item, set) else item for item in arguments)
    own = views[len(tensors) :]
    op = Op(name=name, args=opened, kwargs=options, results=tuple(own))
    return Recording(
        rank=0,
        world_size=1,
        ops=(op,),
        storage_bytes=tuple(item.numel() * item.element_size() for item in everything),
        inputs=tuple(Input(item, "unknown", "") for item in views[: len(tensors)]),
        results=tuple(own),
    )
