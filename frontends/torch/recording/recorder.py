"""What PyTorch dispatches, as a recording.

The idea: a dispatch mode sees every op after autograd, composite ops and DTensor have been taken
apart: on local shards, collectives between them.  Tensors become views of numbered storages, and
with streams, groups and places an op is written down in full.  Views cost nothing and are no ops:
whoever reads one says so.  Waiting is order, no op.

    recorder = Recorder(tracker, device="flint")
    with recorder: step()
    recorder.ops
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from flint.frontends.torch.cluster.device import current_stream, timeline
from flint.frontends.torch.modes import dispatch_mode
from flint.frontends.torch.recording import communication, inplace_gradients
from flint.frontends.torch.recording.collective_checks import fits
from flint.frontends.torch.recording.hazards import Extent, Hazards, extent
from flint.frontends.torch.recording.recording import Argument, Op, View
from flint.frontends.torch.recording.tracking import Place, Tracker
from flint.frontends.torch.shims import attention, reducer

#: Tensor types that are not taken apart further.
_PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor, torch.nn.Buffer)

#: Ops that move no data: they ask, annotate or change what a tensor refers to.
_IGNORED = frozenset(
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
        "_c10d_functional._wrap_tensor_autograd.default",
    )
)

#: Arguments that an op writes though its schema does not say so: op -> positions, and the position
#: of the flag that says whether it does.
_HIDDEN_WRITES: Mapping[str, tuple[tuple[int, ...], int]] = {
    "aten.native_batch_norm.default": ((3, 4), 5),
    "aten.cudnn_batch_norm.default": ((3, 4), 5),
    "aten.miopen_batch_norm.default": ((3, 4), 5),
    "aten.batch_norm_gather_stats_with_counts.default": ((3, 4), 5),
}

#: Ops after which the host has what it copies from the device.
_COPIES = frozenset(("aten._to_copy.default", "aten.copy_.default"))

#: In-place ops that overwrite without reading.
_OVERWRITES = frozenset(
    (
        "copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_",
        "_foreach_zero_", "_foreach_copy_", "log_normal_", "cauchy_", "geometric_",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Rule:
    """What an op's schema says.

    Attributes:
        name: "aten.mm.default".
        written: positions of positional arguments that it writes.
        written_kwargs: names of keyword arguments that it writes.
        overwrites: it does not read what it writes.
        ignored: it is no op of a recording.
        parts: what it is made of, where it comes here whole: below autograd, which otherwise
            takes such ops apart.
    """

    name: str
    written: tuple[int, ...]
    written_kwargs: tuple[str, ...]
    overwrites: bool
    ignored: bool
    parts: Callable[..., Any] | None


@cache
def _rule(op: Any, device: str) -> _Rule:
    schema = op._schema
    positional = [item for item in schema.arguments if not item.kwarg_only]
    written = [i for i, item in enumerate(positional) if _is_written(item)]
    kwargs = tuple(item.name for item in schema.arguments if item.kwarg_only and _is_written(item))
    name = str(op)
    base = op._schema.name.split("::")[1]
    written.extend(communication.WRITES.get((op.namespace, base), ()))
    return _Rule(
        name,
        tuple(written),
        kwargs,
        bool(kwargs) or base in _OVERWRITES or (op.namespace, base) in communication.OVERWRITES,
        name in _IGNORED or op.namespace == "profiler",
        _parts(op, "CPU" if device == "cpu" else "PrivateUse1"),
    )


def _parts(op: Any, backend: str) -> Callable[..., Any] | None:
    """How an op that is only a name for others is taken apart; None for a kernel of its own."""
    if op is torch.ops.aten.scaled_dot_product_attention.default and backend == "PrivateUse1":
        return attention.on_device
    has_kernel: Any = torch._C._dispatch_has_kernel_for_dispatch_key
    composite = op.namespace == "aten" and has_kernel(op.name(), "CompositeImplicitAutograd")
    decompose: Callable[..., Any] = op.decompose
    return decompose if composite and not has_kernel(op.name(), backend) else None


def _waits_for_host(args: tuple[Any, ...], kwargs: Any, given: list[torch.Tensor]) -> bool:
    """Whether a copy is one to the host that is not told to go on meanwhile: ``.cpu()``."""
    later = kwargs.get("non_blocking", args[2] if len(args) > 2 else False)
    return not later and any(item.device.type == "cpu" for item in given)


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


def tensors_in(item: Any) -> Iterator[torch.Tensor]:
    """Every tensor in an argument, lists and tuples opened."""
    if isinstance(item, torch.Tensor):
        yield item
    elif isinstance(item, list | tuple):
        for part in item:
            yield from tensors_in(part)


class Recorder:
    """Records one step.

    Attributes:
        ops: so far.
        storage_bytes: of every storage, the largest that it ever had.
        made: storages that the step made.
        exposed: storage -> the view by which its value from before the step was first read.
        written: storage -> a view by which it was written.
        host: storages that the host's own ops made -> where.
        constants: storage -> bytes, where the host knows them.
        groups: that have been used.
        warnings: what could not be told, text -> count.
    """

    def __init__(self, tracker: Tracker, device: str) -> None:
        self.ops: list[Op] = []
        self.storage_bytes: list[int] = []
        self.made: set[int] = set()
        self.exposed: dict[int, View] = {}
        self.written: dict[int, View] = {}
        self.host: dict[int, str] = {}
        self.constants: dict[int, bytes] = {}
        self.groups = communication.Groups()
        self.warnings: Counter[str] = Counter()
        self._tracker = tracker
        self._device = device
        self._numbers: dict[int, int] = {}
        self._keep: list[Any] = []  # storages, so that their addresses stay theirs
        self._covered: dict[int, list[tuple[int, int]]] = {}
        self._hazards = Hazards()
        self._streams: dict[Hashable, int] = {0: 0}
        self._works: dict[int, tuple[Any, int]] = {}
        self._flying: dict[int, int] = {}  # storage -> the functional collective that fills it

    def __enter__(self) -> Recorder:
        self._mode = dispatch_mode(self._see)
        self._mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._mode.__exit__(*error)

    def _see(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for kind in types:
            if kind not in _PLAIN:
                return NotImplemented  # DTensor and its like first become what they are made of
        rule = _rule(func, self._device)
        if rule.ignored:
            return func(*args, **kwargs)
        if rule.parts is not None:
            with dispatch_mode(self._see):
                return rule.parts(*args, **kwargs)
        if reducer.untouched and rule.name == "aten.copy_.default":
            told = reducer.untouched.get(args[0].untyped_storage()._cdata)
            if told is not None:
                with dispatch_mode(self._see):
                    told()
                return args[0]
        if func in inplace_gradients.IN_PLACE and self._fills_new_zeros(args[0]):
            func, more = inplace_gradients.IN_PLACE[func]
            args, rule = (*args, *more), _rule(func, self._device)
        place = self._tracker.place()
        self._tracker.made(place)
        result = func(*args, **kwargs)
        self._note(func, rule, place, args, kwargs, result)
        return result

    def _fills_new_zeros(self, tensor: torch.Tensor) -> bool:
        made = inplace_gradients.made(self.ops)
        return made is not None and made.storage == self.number_of(tensor)

    # tensors

    def storage(self, tensor: torch.Tensor) -> int:
        """The number of a tensor's storage."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        number = self._numbers.get(key)
        if number is None:
            number = len(self.storage_bytes)
            self._numbers[key] = number
            self._keep.append(storage)
            self.storage_bytes.append(storage.nbytes())
        else:
            size = storage.nbytes()
            if size > self.storage_bytes[number]:
                self.storage_bytes[number] = size
        return number

    def number_of(self, tensor: torch.Tensor) -> int | None:
        """The number of a tensor's storage, if the step has touched it."""
        return self._numbers.get(tensor.untyped_storage()._cdata)

    def view(self, tensor: torch.Tensor) -> View:
        """A tensor as a view of its storage."""
        return View(
            self.storage(tensor),
            int(tensor.storage_offset()),
            tuple(tensor.shape),
            tuple(tensor.stride()),
            _name(tensor.dtype),
            tensor.is_conj(),
        )

    def _argument(self, item: Any) -> Argument:
        if isinstance(item, torch.Tensor):
            return self.view(item)
        if isinstance(item, list | tuple):
            return tuple(self._argument(part) for part in item)
        if item is None or isinstance(item, bool | int | float | complex | str):
            return item
        if isinstance(item, torch.dtype | torch.device | torch.layout | torch.memory_format):
            return str(item)
        return None if isinstance(item, torch.Generator) else communication.plain(item)

    # ops

    def _note(
        self,
        func: Any,
        rule: _Rule,
        place: Place,
        args: tuple[Any, ...],
        kwargs: Any,
        result: Any,
    ) -> None:
        taken = [*tensors_in(args), *tensors_in(tuple(kwargs.values()))]
        given = list(tensors_in(result))
        if rule.name == "_c10d_functional.wait_tensor.default":
            self._wait(taken[0], given[0])
            return
        if rule.name == "aten._local_scalar_dense.default":
            self._read_value(taken[0])
            return
        if rule.name == "c10d.barrier.default":
            taken, args = [], (None, *args[1:])  # its tensor only says which device's backend
        elif not any(item.device.type == self._device for item in (*taken, *given)):
            self._host_op(place, taken, given)
            if func.namespace in communication.NAMESPACES:
                at = f"{place.file}:{place.line}"
                self.warnings[f"{rule.name} on CPU tensors at {at}: left out"] += 1
            return
        message = communication.message(func, args, kwargs, self.groups)
        if message is not None:
            fits(func, args, len(self.groups.used[message.group].ranks), place)
        if message is not None and message.peer >= 0 and self._tracker.is_gradient(taken[0]):
            place = replace(place, phase="backward")
        written = self._written(rule, args, kwargs, given)
        known = {self.storage(item) for item in taken}
        in_known = bool(given) and all(self.storage(item) in known for item in given)
        if message is None and not written and in_known:
            return  # a view
        if message is None and given and not any(item.numel() for item in (*given, *written)):
            return  # no elements: PyTorch launches nothing
        views = [self.view(item) for item in written]
        fresh = [item for item in given if self.storage(item) not in known]
        writes = [_extent(view, item) for view, item in zip(views, written, strict=True)]
        hidden = {id(item) for item in written} if rule.overwrites else set()
        reads = [_extent(self.view(item), item) for item in taken if id(item) not in hidden]
        for item in taken:
            if id(item) not in hidden:
                self._expose(item)
            if item.device.type == "cpu" != self._device:
                self._keep_value(item)
        made = [_extent(self.view(item), item) for item in fresh]
        number = self._issue(message, reads, writes, made)
        for view, where in zip(views, writes, strict=True):
            self._cover(view, where)
        self.made.update(item.storage for item in made)
        self.ops.append(
            Op(
                name=rule.name,
                args=tuple(self._argument(item) for item in args),
                kwargs={name: self._argument(item) for name, item in kwargs.items()},
                results=self._results(result),
                writes=tuple(views),
                group=message.group if message else -1,
                peer=message.peer if message else -1,
                reduction=message.reduction if message else "",
                tag=message.tag if message else 0,
                stream=number[1],
                after=number[2],
                phase=place.phase,
                module=place.module,
                file=place.file,
                line=place.line,
            )
        )
        if rule.name in _COPIES and _waits_for_host(args, kwargs, given):
            timeline().host_wait(timeline().after_op(number[0]))
        if message is not None:
            for work in communication.works_in(result):
                self._works[id(work)] = work, number[0]
            for item in fresh:
                self._flying[self.storage(item)] = number[0]

    def _results(self, result: Any) -> tuple[Argument, ...]:
        flat: list[Argument] = []

        def add(item: Any) -> None:
            if isinstance(item, list | tuple):
                for part in item:
                    add(part)
            else:
                flat.append(self._argument(item))

        if isinstance(result, list | tuple):
            add(result)
        elif result is not None:
            flat.append(self._argument(result))
        return tuple(flat)

    def _written(
        self, rule: _Rule, args: tuple[Any, ...], kwargs: Any, given: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        if rule.name == "fsdp.all_gather_copy_in.default":
            return given[:1]  # this rank's part of the gathered buffer
        found: list[torch.Tensor] = []
        for position in rule.written:
            if position < len(args):
                found.extend(tensors_in(args[position]))
        for name in rule.written_kwargs:
            found.extend(tensors_in(kwargs.get(name)))
        hidden = _HIDDEN_WRITES.get(rule.name)
        if hidden is not None and args[hidden[1]]:
            for position in hidden[0]:
                found.extend(tensors_in(args[position]))
        return found

    def _issue(
        self,
        message: communication.Message | None,
        reads: list[Extent],
        writes: list[Extent],
        made: list[Extent],
    ) -> tuple[int, int, tuple[int, ...]]:
        """Number, stream and waits of the next op."""
        line = timeline()
        current = current_stream().stream_id
        stream: Hashable = current
        if message is not None and message.queue is not None:
            # A process group's own stream waits for the one that the collective was issued on.
            stream = message.queue
            line.wait(stream, line.moment(current))
        before = self._hazards.before(reads, writes)
        place = line.issue(stream, before.data, before.order)
        self._hazards.access(place.number, stream, reads, [*writes, *made])
        return place.number, self._streams.setdefault(stream, len(self._streams)), place.after

    # values from before the step

    def _expose(self, tensor: torch.Tensor) -> None:
        number = self.storage(tensor)
        if number in self.made or number in self.exposed:
            return
        view = self.view(tensor)
        wanted = _extent(view, tensor)
        if wanted.low < wanted.high and not _inside(self._covered.get(number, []), wanted):
            self.exposed[number] = view

    def _cover(self, view: View, where: Extent) -> None:
        if where.storage in self.made:
            return
        self.written.setdefault(where.storage, view)
        if where.dense:
            known = self._covered.setdefault(where.storage, [])
            known.append((where.low, where.high))
            known[:] = _merged(known)

    # the host

    def _host_op(self, place: Place, taken: list[torch.Tensor], given: list[torch.Tensor]) -> None:
        """An op on the CPU: no kernel; its results are constants for the device."""
        known = {self.storage(item) for item in taken}
        at = f"{place.file}:{place.line}" if place.file else "the host"
        for item in given:
            number = self.storage(item)
            if number not in known:
                self.host[number] = at
                if self._device != "cpu" and item.numel() > 1 and item.is_floating_point():
                    self.warnings[f"computed on the CPU at {at}, not on the device: left out"] += 1

    def _keep_value(self, tensor: torch.Tensor) -> None:
        """Remember what the host knows of a tensor that the device takes."""
        constant = getattr(tensor, "constant", None)
        if constant is not None:
            self.constants[self.storage(tensor)] = _bytes(constant)

    def _read_value(self, tensor: torch.Tensor) -> None:
        """The host waits for a value: what it issues afterwards comes after its producers."""
        if tensor.device.type != self._device:
            return
        line = timeline()
        view = self.view(tensor)
        self._expose(tensor)
        for op in self._hazards.before([_extent(view, tensor)], []).data:
            line.host_wait(line.after_op(op))

    # waiting for communication

    def wait_work(self, work: Any) -> None:
        """The current stream waits for a collective."""
        found = self._works.get(id(work))
        if found is not None:
            line = timeline()
            line.wait(current_stream().stream_id, line.after_op(found[1]))

    def _wait(self, tensor: torch.Tensor, result: torch.Tensor) -> None:
        number = self.storage(tensor)
        if result.untyped_storage()._cdata not in self._numbers:
            # Fake tensors get another storage here; really it is the same one.
            self._keep.append(result.untyped_storage())
            self._numbers[result.untyped_storage()._cdata] = number
        op = self._flying.get(number)
        if op is not None:
            line = timeline()
            line.wait(current_stream().stream_id, line.after_op(op))


def _name(dtype: torch.dtype) -> str:
    return _NAMES.get(dtype) or _NAMES.setdefault(dtype, str(dtype).removeprefix("torch."))


_NAMES: dict[torch.dtype, str] = {}


def _extent(view: View, tensor: torch.Tensor) -> Extent:
    return extent(view.storage, view.offset, view.shape, view.stride, tensor.element_size())


def _inside(covered: list[tuple[int, int]], wanted: Extent) -> bool:
    return any(low <= wanted.low and wanted.high <= high for low, high in covered)


def _merged(parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for low, high in sorted(parts):
        if found and low <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], high)
        else:
            found.append((low, high))
    return found


def _bytes(tensor: torch.Tensor) -> bytes:
    storage = tensor.untyped_storage()
    return ctypes.string_at(storage.data_ptr(), storage.nbytes()) if storage.nbytes() else b""
