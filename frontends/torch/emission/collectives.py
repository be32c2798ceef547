"""Communication ops of torch.distributed as StableHLO collectives with every rank's groups.

The idea: the in-place ops of ``c10d`` and the functional ones of ``_c10d_functional`` are a few
collectives with tensors in other places of the schema; a row per op says which tensors go in and
where results are written.  What torch lays out otherwise than StableHLO (lists of outputs, flat
buffers) is reshaped around the collective, which costs nothing.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flint.errors import FlintError
from flint.frontends.torch.emission.replica_groups import Table, full_groups, full_pairs
from flint.frontends.torch.emission.rooted import barrier, gather_to_root, scatter_from_root
from flint.frontends.torch.emission.storages import Storages
from flint.frontends.torch.lowerings import operations as build
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.recording import Op, Recording, View, views_in
from flint.stablehlo.bindings import ir
from flint.stablehlo.bindings import stablehlo as hlo

_NAMESPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor")
_REDUCTIONS = {
    "sum": "add", "avg": "add", "max": "maximum", "min": "minimum", "product": "multiply",
    "band": "and", "bor": "or", "bxor": "xor",
}  # fmt: skip


def is_communication(op: Op) -> bool:
    """Whether an op is a communication (and no wait for one)."""
    namespace, base, *_ = op.name.split(".")
    return namespace in _NAMESPACES and base not in ("wait_tensor", "_wrap_tensor_autograd")


class Collectives:
    """Emits the communications of a recording."""

    def __init__(self, recording: Recording, storages: Storages) -> None:
        self.recording = recording
        self.storages = storages
        #: What was assumed, and for how many ops.
        self.warnings: Counter[str] = Counter()
        self.shape = tuple(size for _, size in recording.mesh) or (recording.world_size,)
        self._channel = 0
        self._tables: dict[tuple[int, int], Any] = {}
        self._pairs: dict[tuple[int, int], Any] = {}

    def emit(self, op: Op, attributes: dict[str, Any], location: Any) -> None:
        """One communication.

        Args:
            op: of one of torch.distributed's namespaces.
            attributes: the discardable ones.
            location: where it was called.

        Raises:
            FlintError: an op that is not known here: a lost communication would be worse.
        """
        base = op.name.split(".")[1].rstrip("_")
        handler = _HANDLERS.get(base.removeprefix("_"))
        if handler is None:
            raise FlintError("this communication cannot be written as a StableHLO collective")
        handler(_Emitter(self, op, attributes, location))

    def groups(self, op: Op, root: int) -> Any:
        """Replica groups of an op's process group, every rank's; ``root`` (a position) first."""
        if op.group < 0:
            raise FlintError("the recording names no process group")
        key = (op.group, root)
        if key not in self._tables:
            ranks = self.recording.groups[op.group].ranks
            if root:
                ranks = (ranks[root], *ranks[:root], *ranks[root + 1 :])
            self._tables[key] = _integers(full_groups(ranks, self.shape))
        return self._tables[key]

    def size(self, op: Op) -> int:
        """How many ranks an op's process group has."""
        if op.group < 0:
            raise FlintError("the recording names no process group")
        return len(self.recording.groups[op.group].ranks)

    def pairs(self, source: int, target: int) -> Any:
        """A message's source-target pairs, every rank's."""
        if (source, target) not in self._pairs:
            self._pairs[source, target] = _integers(full_pairs(source, target, self.shape))
        return self._pairs[source, target]

    def channel(self) -> Any:
        """A channel of its own for a collective among devices."""
        self._channel += 1
        return hlo.ChannelHandle.get(self._channel, 1)


def _integers(table: Table) -> Any:
    dense: Any = np.ascontiguousarray(table)
    return ir.DenseIntElementsAttr.get(dense)


class _Emitter:
    """One communication on its way into the module."""

    def __init__(
        self, among: Collectives, op: Op, attributes: dict[str, Any], location: Any
    ) -> None:
        self.among = among
        self.op = op
        self.attributes = attributes
        self.location = location
        self.read = among.storages.read
        self.write = among.storages.write
        self.size = among.size(op) if op.group >= 0 else 1

    def views(self, position: int) -> list[View]:
        """The views of an argument."""
        return list(views_in(self.op.args[position : position + 1]))

    def results(self) -> list[View]:
        """The views that it returns."""
        return list(views_in(self.op.results))

    def made(
        self,
        name: str,
        operands: Sequence[Value],
        results: Sequence[Any],
        extra: dict[str, Any],
        regions: int = 0,
    ) -> Any:
        """The collective itself."""
        return ir.Operation.create(
            f"stablehlo.{name}",
            results=list(results),
            operands=list(operands),
            attributes={**self.attributes, **extra},
            regions=regions,
            loc=self.location,
        )

    def grouped(self, root: int = 0, ids: bool = True) -> dict[str, Any]:
        """Groups and channel as attributes."""
        found = {
            "replica_groups": self.among.groups(self.op, root),
            "channel_handle": self.among.channel(),
        }
        if ids:
            found["use_global_device_ids"] = ir.UnitAttr.get()
        return found

    def kind(self) -> str:
        """The reduction as the name of an op; unknown ones are taken for sums."""
        known = _REDUCTIONS.get(self.op.reduction)
        if known is None:
            self.among.warnings[f"reduction {self.op.reduction or '(none)'} taken as a sum"] += 1
        return known or "add"

    def averaged(self, value: Value) -> Value:
        """A sum divided by the group's size when an average is asked for."""
        if self.op.reduction != "avg":
            return value
        return build.divide(value, build.like(self.size, value))

    def ranks(self) -> tuple[int, ...]:
        """Global ranks of the op's process group, in its order."""
        return self.among.recording.groups[self.op.group].ranks

    def root(self) -> int:
        """The root's position in its process group."""
        return (_numbers(self.op) or [0])[0]

    def all_reduce(self, values: list[Value], kind: str = "") -> list[Value]:
        kinds = sorted({build.dtype_of(value) for value in values})
        if len(kinds) != 1:
            raise FlintError(f"one all-reduce of several dtypes: {', '.join(kinds)}")
        types = [value.type for value in values]
        op = self.made("all_reduce", values, types, self.grouped(), regions=1)
        build.body_of(op.regions[0], kinds, kind or self.kind())
        return [self.averaged(result) for result in op.results]

    def all_gather(self, values: list[Value]) -> list[Value]:
        """Along dim 0, which every value must have."""
        types = [
            build.tensor(
                (build.shape_of(value)[0] * self.size, *build.shape_of(value)[1:]),
                build.dtype_of(value),
            )
            for value in values
        ]
        extra = self.grouped() | {"all_gather_dim": build.number(0)}
        return list(self.made("all_gather", values, types, extra).results)

    def reduce_scatter(self, value: Value) -> Value:
        """Along dim 0, which the group's size divides."""
        shape = build.shape_of(value)
        kind = build.tensor((shape[0] // self.size, *shape[1:]), build.dtype_of(value))
        extra = self.grouped() | {"scatter_dimension": build.number(0)}
        op = self.made("reduce_scatter", [value], [kind], extra, regions=1)
        build.body_of(op.regions[0], [build.dtype_of(value)], self.kind())
        return self.averaged(op.results[0])

    def all_to_all(self, value: Value, split: int = 0, concat: int = 0) -> Value:
        """Equal parts along ``split``, put together along ``concat``."""
        shape = list(build.shape_of(value))
        if shape[split] % self.size:
            raise FlintError(f"dim {split} of {shape} does not divide among {self.size} ranks")
        shape[split] //= self.size
        shape[concat] *= self.size
        extra = self.grouped(ids=False) | {
            "split_dimension": build.number(split),
            "concat_dimension": build.number(concat),
            "split_count": build.number(self.size),
        }
        kind = build.tensor(shape, build.dtype_of(value))
        return self.made("all_to_all", [value], [kind], extra).results[0]

    def ragged_all_to_all(
        self, value: Value, out: View, sent: Sequence[int], received: Sequence[int]
    ) -> Value:
        """Rows ``sent[i]`` to member i, ``received[i]`` from it.

        Where rows arrive at another member depends on what that one receives, which one rank's
        recording does not say: the offsets are this rank's own.
        """
        target = build.constant(0, out.shape, out.dtype)
        vectors = [_starts(sent), list(sent), _starts(received), list(received)]
        literals = [build.literal(np.array(vector, np.int64), "int64") for vector in vectors]
        groups = {
            "replica_groups": self.among.groups(self.op, 0),
            "channel_id": build.number(self._channel_number()),
        }
        extra = {
            "call_target_name": ir.StringAttr.get("ragged_all_to_all"),
            "backend_config": ir.DictAttr.get(groups),
            "api_version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 4),
        }
        kind = build.tensor(out.shape, out.dtype)
        return self.made("custom_call", [value, target, *literals], [kind], extra).results[0]

    def _channel_number(self) -> int:
        return int(hlo.ChannelHandle(self.among.channel()).handle)

    def broadcast(self, value: Value, root: int) -> Value:
        """From the group's member ``root``."""
        extra = self.grouped(root, ids=False)
        return self.made("collective_broadcast", [value], [value.type], extra).results[0]

    def permute(self, value: Value, source: int, target: int) -> Value:
        """A message."""
        extra = {
            "source_target_pairs": self.among.pairs(source, target),
            "channel_handle": self.among.channel(),
        }
        return self.made("collective_permute", [value], [value.type], extra).results[0]


def _starts(sizes: Sequence[int]) -> list[int]:
    ends = itertools.accumulate(sizes, initial=0)
    return list(ends)[: len(sizes)]


def _numbers(op: Op) -> list[int]:
    """Plain integer arguments after the tensors, in order."""
    return [item for item in op.args if isinstance(item, int) and not isinstance(item, bool)]


def _flat(value: Value) -> Value:
    return build.reshape(value, (math.prod(build.shape_of(value)),))


# In place, on lists of tensors.


def _all_reduce(emitter: _Emitter) -> None:
    views = emitter.views(0)
    values = emitter.all_reduce([emitter.read(view) for view in views])
    for view, value in zip(emitter.results() or views, values, strict=True):
        emitter.write(view, value)


def _all_reduce_in_place(emitter: _Emitter) -> None:
    views = emitter.views(0)
    values = emitter.all_reduce([emitter.read(view) for view in views])
    for view, value in zip(views, values, strict=True):
        emitter.write(view, value)


def _broadcast_in_place(emitter: _Emitter) -> None:
    (view,) = emitter.views(0)
    emitter.write(view, emitter.broadcast(emitter.read(view), emitter.root()))


def _broadcast(emitter: _Emitter) -> None:
    if emitter.op.name.startswith("c10d."):
        return _broadcast_in_place(emitter)
    (view,) = emitter.views(0)
    value = emitter.broadcast(emitter.read(view), emitter.root())
    for result in emitter.results() or [view]:
        emitter.write(result, value)
    return None


def _gather_into(emitter: _Emitter, inputs: list[View], outputs: list[View]) -> None:
    values = []
    for view, out in zip(inputs, outputs, strict=True):
        value = emitter.read(view)
        fits = view.shape and out.shape == (view.shape[0] * emitter.size, *view.shape[1:])
        values.append(value if fits else _flat(value))
    for out, value in zip(outputs, emitter.all_gather(values), strict=True):
        emitter.write(out, build.reshape(value, out.shape))


def _all_gather_base(emitter: _Emitter) -> None:
    _gather_into(emitter, emitter.views(1), emitter.views(0))


def _all_gather_functional(emitter: _Emitter) -> None:
    out = list(views_in(emitter.op.kwargs.get("out"))) or emitter.results()
    _gather_into(emitter, emitter.views(0), out)


def _all_gather_lists(emitter: _Emitter) -> None:
    """Outputs per rank in lists of their own."""
    (source,) = emitter.views(1)
    outputs = emitter.views(0)
    value = emitter.read(source)
    if len({math.prod(out.shape) for out in outputs}) > 1:
        # Of parts of several sizes each is broadcast by its owner, as NCCL's process group does.
        for root, out in enumerate(outputs):
            own = emitter.ranks()[root] == emitter.among.recording.rank
            part = value if own else build.constant(0, out.shape, out.dtype)
            emitter.write(out, emitter.broadcast(build.reshape(part, out.shape), root))
        return
    (gathered,) = emitter.all_gather([_flat(value)])
    count = math.prod(source.shape)
    for at, out in enumerate(outputs):
        part = build.slice_dim(gathered, 0, at * count, (at + 1) * count)
        emitter.write(out, build.reshape(part, out.shape))


def _scatter_into(emitter: _Emitter, inputs: list[View], outputs: list[View]) -> None:
    if len(inputs) == 1:
        view, out = inputs[0], outputs[0]
        value = emitter.read(view)
        fits = view.shape and view.shape == (out.shape[0] * emitter.size, *out.shape[1:])
        reduced = emitter.reduce_scatter(value if fits else _flat(value))
        emitter.write(out, build.reshape(reduced, out.shape))
        return
    # Several tensors in one call are one communication: the shares of each rank side by side.
    rows = [
        build.reshape(emitter.read(view), (emitter.size, math.prod(out.shape)))
        for view, out in zip(inputs, outputs, strict=True)
    ]
    reduced = emitter.reduce_scatter(build.concatenate(rows, 1))
    starts = _starts([math.prod(out.shape) for out in outputs])
    for out, start in zip(outputs, starts, strict=True):
        part = build.slice_dim(reduced, 1, start, start + math.prod(out.shape))
        emitter.write(out, build.reshape(part, out.shape))


def _reduce_scatter_base(emitter: _Emitter) -> None:
    _scatter_into(emitter, emitter.views(1), emitter.views(0))


def _reduce_scatter_functional(emitter: _Emitter) -> None:
    """Also the coalesced one, whose name both namespaces have."""
    if emitter.op.name.startswith("c10d."):
        return _reduce_scatter_base(emitter)
    out = list(views_in(emitter.op.kwargs.get("out"))) or emitter.results()
    return _scatter_into(emitter, emitter.views(0), out)


def _reduce_scatter_lists(emitter: _Emitter) -> None:
    (out,) = emitter.views(0)
    parts = [_flat(emitter.read(view)) for view in emitter.views(1)]
    reduced = emitter.reduce_scatter(build.concatenate(parts, 0))
    emitter.write(out, build.reshape(reduced, out.shape))


def _exchange(
    emitter: _Emitter, source: View, out: View, received: list[int], sent: list[int]
) -> None:
    value = emitter.read(source)
    even = len(set(sent)) <= 1 and len(set(received)) <= 1
    if even:
        fits = source.shape and source.shape == out.shape and not source.shape[0] % emitter.size
        moved = emitter.all_to_all(value if fits else _flat(value))
        emitter.write(out, build.reshape(moved, out.shape))
    else:
        emitter.among.warnings["uneven all-to-all: offsets at the receivers assumed"] += 1
        emitter.write(out, emitter.ragged_all_to_all(value, out, sent, received))


def _splits(emitter: _Emitter, source: View, out: View) -> tuple[list[int], list[int]]:
    """Rows received from and sent to each member."""
    lists = [
        list(item)
        for item in emitter.op.args
        if isinstance(item, tuple | list) and all(isinstance(part, int) for part in item)
    ]
    received, sent = [*lists, [], []][:2]
    even = [
        [view.shape[0] // emitter.size if view.shape else 0] * emitter.size
        for view in (out, source)
    ]
    return received or even[0], sent or even[1]


def _all_to_all_base(emitter: _Emitter) -> None:
    (out,), (source,) = emitter.views(0), emitter.views(1)
    _exchange(emitter, source, out, *_splits(emitter, source, out))


def _all_to_all_functional(emitter: _Emitter) -> None:
    (source,), (out,) = emitter.views(0), emitter.results()
    _exchange(emitter, source, out, *_splits(emitter, source, out))


def _all_to_all_lists(emitter: _Emitter) -> None:
    outputs, inputs = emitter.views(0), emitter.views(1)
    sent = [math.prod(view.shape) for view in inputs]
    received = [math.prod(view.shape) for view in outputs]
    value = build.concatenate([_flat(emitter.read(view)) for view in inputs], 0)
    if len(set(sent)) == 1 and sent == received:
        moved = emitter.all_to_all(value)
    else:
        emitter.among.warnings["uneven all-to-all: offsets at the receivers assumed"] += 1
        whole = View(-1, 0, (sum(received),), (1,), outputs[0].dtype)
        moved = emitter.ragged_all_to_all(value, whole, sent, received)
    for out, start in zip(outputs, _starts(received), strict=True):
        part = build.slice_dim(moved, 0, start, start + math.prod(out.shape))
        emitter.write(out, build.reshape(part, out.shape))


def _shard_dim_all_to_all(emitter: _Emitter) -> None:
    gather_dim, shard_dim = _numbers(emitter.op)[:2]
    (source,), (out,) = emitter.views(0), emitter.results()
    rank = len(source.shape)
    value = emitter.all_to_all(emitter.read(source), shard_dim % rank, gather_dim % rank)
    emitter.write(out, build.reshape(value, out.shape))


def _send(emitter: _Emitter) -> None:
    for view in emitter.views(0):
        emitter.permute(emitter.read(view), emitter.among.recording.rank, _peer(emitter))


def _receive(emitter: _Emitter) -> None:
    for view in emitter.views(0):
        nothing = build.constant(0, view.shape, view.dtype)
        emitter.write(view, emitter.permute(nothing, _peer(emitter), emitter.among.recording.rank))


def _peer(emitter: _Emitter) -> int:
    if emitter.op.peer < 0:
        raise FlintError("the recording does not say which rank is at the other end")
    return emitter.op.peer


def _reduce(emitter: _Emitter) -> None:
    """To one rank: an all-reduce, which is what the other ranks' values may be taken for."""
    emitter.among.warnings["reduce to one rank written as an all-reduce"] += 1
    _all_reduce_in_place(emitter)


_HANDLERS: dict[str, Callable[[_Emitter], None]] = {
    "allreduce": _all_reduce_in_place,
    "allreduce_coalesced": _all_reduce_in_place,
    "all_reduce": _all_reduce,
    "all_reduce_coalesced": _all_reduce,
    "broadcast": _broadcast,
    "allgather_base": _all_gather_base,
    "allgather_into_tensor_coalesced": _all_gather_base,
    "allgather": _all_gather_lists,
    "all_gather_into_tensor": _all_gather_functional,
    "all_gather_into_tensor_out": _all_gather_functional,
    "all_gather_into_tensor_coalesced": _all_gather_functional,
    "reduce_scatter_base": _reduce_scatter_base,
    "reduce_scatter": _reduce_scatter_lists,
    "reduce_scatter_tensor_coalesced": _reduce_scatter_functional,
    "reduce_scatter_tensor": _reduce_scatter_functional,
    "reduce_scatter_tensor_out": _reduce_scatter_functional,
    "alltoall_base": _all_to_all_base,
    "alltoall": _all_to_all_lists,
    "all_to_all_single": _all_to_all_functional,
    "shard_dim_alltoall": _shard_dim_all_to_all,
    "gather": gather_to_root,
    "scatter": scatter_from_root,
    "send": _send,
    "recv": _receive,
    "barrier": barrier,
    "reduce": _reduce,
}
