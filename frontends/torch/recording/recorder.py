"""The recorder of the ops that PyTorch dispatches.

The idea: a dispatch mode sees every op after autograd, composite ops and DTensor have been
decomposed: ops on local shards with collectives between them.  Tensors become views of numbered
storages, and with streams, groups and places an op is recorded completely.  Views cost nothing and
are not recorded: an op that reads one records the view.  Waiting is order, not an op.

    recorder = Recorder(tracker, device="flint")
    with recorder: step()
    recorder.ops

Longer than 300 lines because all that an op is recorded with is read in one place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from flint.frontends.torch.cluster.device import current_stream, timeline
from flint.frontends.torch.context import capture
from flint.frontends.torch.modes import Handler, dispatch_mode, run
from flint.frontends.torch.recording import communication, inplace_gradients
from flint.frontends.torch.recording.collective_checks import check_sizes
from flint.frontends.torch.recording.effects import only_allocates
from flint.frontends.torch.recording.filled_first import fill_first
from flint.frontends.torch.recording.grouped_products import by_groups
from flint.frontends.torch.recording.hazards import Extent, Hazards
from flint.frontends.torch.recording.packed_lengths import with_lengths
from flint.frontends.torch.recording.pending_works import PendingWorks
from flint.frontends.torch.recording.precision import exact, recurrent
from flint.frontends.torch.recording.recording import Argument, Op
from flint.frontends.torch.recording.schemas import (
    Rule,
    flat,
    is_plain,
    parts_of,
    returned,
    rule_of,
    tensors_in,
    waits_for_host,
    written_tensors,
)
from flint.frontends.torch.recording.sparse_rows import sparse_bags
from flint.frontends.torch.recording.storages import Storages, extent_of
from flint.frontends.torch.recording.tracking import Place, Tracker


class Recorder:
    """Records one step.

    Attributes:
        ops: the ops so far.
        storages: the storages of all tensors.
        host: storages that host ops created -> where.
        read_from_host: storages of host tensors that the device has read.
        groups: the groups that have been used.
        warnings: omissions, text -> count.
    """

    def __init__(
        self,
        tracker: Tracker,
        device: str,
        taken_apart: Mapping[Any, Callable[..., Any]] | None = None,
        below: Handler = run,
    ) -> None:
        """A recorder of ops on tensors of a device.

        Args:
            tracker: gives the module, phase and line of an op.
            device: type of the device.
            taken_apart: op -> its replacement, if PyTorch would decompose it differently.
            below: the next handler of every op.
        """
        self.ops: list[Op] = []
        self.storages = Storages(lambda: len(self.ops))
        self.host: dict[int, str] = {}
        self.read_from_host: set[int] = set()
        self.groups = communication.Groups()
        self.warnings: Counter[str] = Counter()
        self._tracker = tracker
        self._device = device
        self._backend = "CPU" if device == "cpu" else "PrivateUse1"
        self._instead: Mapping[Any, Callable[..., Any]] = taken_apart or {}
        self._below = below
        self._hazards = Hazards()
        self._streams: dict[Hashable, int] = {0: 0}
        self._works = PendingWorks()
        self._flying: dict[int, int] = {}  # storage -> the functional collective that fills it
        self._on_host: set[int] = set()  # collectives of tensors that are on the CPU

    def __enter__(self) -> Recorder:
        self._mode = dispatch_mode(self.see)
        self._mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._mode.__exit__(*error)

    def resized(self, storage: Any) -> None:
        """A storage may have another size now."""
        self.storages.lifetimes.resized(storage)

    def see(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an op that is dispatched, and record it; a dispatch mode's handler."""
        for kind in types:
            if not is_plain(kind):
                return NotImplemented  # DTensor and similar types first become their parts
        rule = rule_of(func)
        if rule.ignored:
            return self._below(func, types, args, kwargs)
        parts = self._instead.get(func) or by_groups(func, args, kwargs)
        parts = parts or sparse_bags(func, args, kwargs) or fill_first(func)
        parts = parts or parts_of(func, self._backend)
        if parts is not None:
            with dispatch_mode(self.see):
                return parts(*args, **kwargs)
        preserved = capture().preserved_gradients
        if preserved and rule.name == "aten.copy_.default":
            instead = preserved.get(args[0].untyped_storage()._cdata)
            if instead is not None:
                with dispatch_mode(self.see):
                    instead()
                return args[0]
        if func in inplace_gradients.IN_PLACE and self._fills_new_zeros(args[0]):
            func, more = inplace_gradients.IN_PLACE[func]
            args, rule = (*args, *more), rule_of(func)
        place = self._tracker.place()
        self._tracker.made(place)
        result = returned(rule, args, self._below(func, types, args, kwargs))
        self.note(func, rule, place, args, kwargs, result)
        return result

    def _fills_new_zeros(self, tensor: torch.Tensor) -> bool:
        zeros = inplace_gradients.new_zeros(self.ops)
        return zeros is not None and zeros.storage == self.storages.known_number(tensor)

    def note(
        self, func: Any, rule: Rule, place: Place, args: tuple[Any, ...], kwargs: Any, result: Any
    ) -> None:
        """Record an op that has run."""
        storages = self.storages
        taken = [*tensors_in(args), *tensors_in(tuple(kwargs.values()))]
        given = list(tensors_in(result))
        if rule.name == "_c10d_functional.wait_tensor.default":
            self._wait_tensor(taken[0], given[0])
            return
        if rule.name == "aten._local_scalar_dense.default":
            self._read_value(taken[0])
            return
        on_host = not any(item.device.type == self._device for item in (*taken, *given))
        if rule.name == "c10d.barrier.default":
            args = (None, *args[1:])  # its tensor only selects the device's backend
            taken, on_host = [], False
        message = communication.message(func, args, kwargs, self.groups)
        if on_host and message is None:
            if self._device == "cpu" or any(isinstance(x, FakeTensor) for x in (*taken, *given)):
                self._host_op(rule.name, place, taken, given)
            return
        if message is not None:
            check_sizes(rule.name, args, len(self.groups.used[message.group].ranks), place)
            if message.peer >= 0 and self._tracker.is_gradient(taken[0]):
                place = place.in_phase("backward")
        written = written_tensors(rule, args, kwargs, given)
        known = {storages.number(item) for item in taken}
        if message is None and given:
            if not written and all(storages.number(item) in known for item in given):
                return  # a view
            if not any(item.numel() for item in (*given, *written)):
                return  # no elements: PyTorch launches nothing
        views = [storages.view(item) for item in written]
        fresh = [item for item in given if storages.number(item) not in known]
        writes = [extent_of(view, item) for view, item in zip(views, written, strict=True)]
        overwritten = {id(item) for item in written} if rule.overwrites else set()
        read = [item for item in taken if id(item) not in overwritten]
        reads = [extent_of(storages.view(item), item) for item in read]
        for item in read:
            storages.expose(item)
            if item.device.type == "cpu" != self._device:
                storages.keep_value(item)
                if type(item) is torch.Tensor:
                    self.read_from_host.add(storages.number(item))
        made = [extent_of(storages.view(item), item) for item in fresh]
        for where in (*reads, *writes, *made):
            storages.lifetimes.used(where.storage)
        number, stream, after = self._issue(message, on_host, reads, writes, made)
        for view, where in zip(views, writes, strict=True):
            storages.cover(view, where)
        storages.made.update(item.storage for item in made)
        self.ops.append(
            Op(
                name=rule.name,
                args=with_lengths(func._opname, args, tuple(map(self._argument, args))),
                kwargs={name: self._argument(item) for name, item in kwargs.items()},
                results=tuple(self._argument(item) for item in flat(result)),
                writes=tuple(views),
                group=message.group if message else -1,
                peer=message.peer if message else -1,
                reduction=message.reduction if message else "",
                tag=message.tag if message else 0,
                stream=stream,
                after=after,
                phase=place.phase,
                module=place.module,
                file=place.file,
                line=place.line,
                exact=exact(rule.name, place),
                recurrent=recurrent(place),
            )
        )
        if waits_for_host(rule, args, kwargs, given):
            timeline().host_wait(timeline().after_op(number))
        if message is not None:
            if on_host:
                self._on_host.add(number)
            for work in communication.works_in(result):
                self._works.add(work, number)
            for item in fresh:
                self._flying[storages.number(item)] = number

    def _argument(self, item: Any) -> Argument:
        if isinstance(item, torch.Tensor):
            return self.storages.view(item)
        if isinstance(item, list | tuple):
            return tuple(self._argument(part) for part in item)
        if item is None or isinstance(item, bool | int | float | complex | str):
            return item
        if isinstance(item, torch.dtype | torch.device | torch.layout | torch.memory_format):
            return str(item)
        return None if isinstance(item, torch.Generator) else communication.plain(item)

    def _issue(
        self,
        message: communication.Message | None,
        on_host: bool,
        reads: list[Extent],
        writes: list[Extent],
        made: list[Extent],
    ) -> tuple[int, int, tuple[int, ...]]:
        """Number, stream and waits of the next op."""
        line = timeline()
        current = current_stream().stream_id
        stream: Hashable = current
        if message is not None and on_host:
            stream = ("host", message.group)  # which waits for everything the host has waited for
        elif message is not None and message.queue is not None:
            # A process group's own stream waits for the one that the collective was issued on.
            stream = message.queue
            line.wait(stream, line.moment(current))
        before = self._hazards.before(reads, writes)
        issued = line.issue(stream, before.data, before.order)
        self._hazards.access(issued.number, stream, reads, [*writes, *made])
        number = self._streams.setdefault(stream, len(self._streams))
        return issued.number, number, issued.after

    # the host

    def _host_op(
        self, name: str, place: Place, taken: list[torch.Tensor], given: list[torch.Tensor]
    ) -> None:
        """An op on the CPU: no kernel; its results are constants for the device."""
        known = {self.storages.number(item) for item in taken}
        at = f"{place.file}:{place.line}" if place.file else "the host"
        for item in given:
            number = self.storages.number(item)
            if number not in known:
                self.host[number] = at
                left_out = isinstance(item, FakeTensor) and item.numel() > 1  # real: host work
                left_out = left_out and not only_allocates(name)
                if self._device != "cpu" and left_out and item.is_floating_point():
                    self.warnings[f"computed on the CPU at {at}, not on the device: left out"] += 1

    def _read_value(self, tensor: torch.Tensor) -> None:
        """The host waits for a value: what it issues afterwards comes after its producers."""
        if tensor.device.type != self._device:
            return
        line = timeline()
        view = self.storages.view(tensor)
        self.storages.expose(tensor)
        for op in self._hazards.before([extent_of(view, tensor)], []).data:
            line.host_wait(line.after_op(op))

    # waiting for communication

    def wait_work(self, work: Any) -> None:
        """The current stream waits for a collective."""
        number = self._works.waited(work)
        if number is not None:
            self._wait_for(number)

    def _wait_tensor(self, tensor: torch.Tensor, result: torch.Tensor) -> None:
        number = self.storages.number(tensor)
        # Fake tensors get another storage here; in a real run it is the same one.
        self.storages.alias(result, number)
        op = self._flying.get(number)
        if op is not None:
            self._wait_for(op)

    def _wait_for(self, op: int) -> None:
        line = timeline()
        if op in self._on_host:
            line.host_wait(line.after_op(op))
        else:
            line.wait(current_stream().stream_id, line.after_op(op))
