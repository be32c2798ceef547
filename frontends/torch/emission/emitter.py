"""One communication on its way into a module: its tensors, its groups, the collective itself.

The idea: the tensors of an op of torch.distributed are in its arguments, its ranks in its process
group; the emitter reads both, and builds each StableHLO collective in one way.

    emitter.write(out, emitter.broadcast(emitter.read(view), root=0))
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flint.errors import FlintError
from flint.frontends.torch.lowerings import operations as build
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.recording.recording import Op, View
from flint.stablehlo.read.bindings import ir
from flint.stablehlo.read.bindings import stablehlo as hlo

if TYPE_CHECKING:
    from flint.frontends.torch.emission.collectives import Collectives

_REDUCTIONS = {
    "sum": "add", "avg": "add", "max": "maximum", "min": "minimum", "product": "multiply",
    "band": "and", "bor": "or", "bxor": "xor",
}  # fmt: skip


class Emitter:
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

    def evenly(
        self,
        name: str,
        operands: Sequence[Value],
        results: Sequence[Any],
        extra: dict[str, Any],
        reduction: str = "",
    ) -> Any:
        """A collective that StableHLO has for groups of one size only, which have all ranks.

        If the ranks do not divide into such groups, a custom call represents it.

        Args:
            name: of the op, without its dialect.
            operands, results: input values, and types of the results.
            extra: attributes besides groups and channel.
            reduction: name of the op that it reduces with, "" if it does not reduce.
        """
        groups = self.among.even_groups(self.op)
        if groups is None:
            return self.called(name, operands, results, reduction)
        channel = self.among.channel()
        known = {"replica_groups": groups, "channel_handle": channel, **extra}
        op = self.made(name, operands, results, known, regions=1 if reduction else 0)
        if reduction:
            build.body_of(op.regions[0], [build.dtype_of(value) for value in operands], reduction)
        return op

    def called(
        self, name: str, operands: Sequence[Value], results: Sequence[Any], reduction: str = ""
    ) -> Any:
        """A custom call that represents a collective of this name, with its reduction."""
        config = {
            "replica_groups": self.among.groups(self.op),
            "channel_id": build.number(int(hlo.ChannelHandle(self.among.channel()).handle)),
        }
        if reduction:
            config["reduction"] = ir.StringAttr.get(reduction)
        extra = {
            "call_target_name": ir.StringAttr.get(name),
            "backend_config": ir.DictAttr.get(config),
            "api_version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 4),
        }
        return self.made("custom_call", operands, results, extra)

    def kind(self) -> str:
        """The reduction as the name of an op; unknown ones are taken for sums."""
        known = _REDUCTIONS.get(self.op.reduction)
        if known is None:
            self.among.warnings[f"reduction {self.op.reduction or '(none)'} treated as a sum"] += 1
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
        return (numbers(self.op) or [0])[0]

    def all_reduce(self, values: list[Value], kind: str = "") -> list[Value]:
        kinds = sorted({build.dtype_of(value) for value in values})
        if len(kinds) != 1:
            raise FlintError(f"one all-reduce of several dtypes: {', '.join(kinds)}")
        types = [value.type for value in values]
        extra = {
            "replica_groups": self.among.groups(self.op),
            "channel_handle": self.among.channel(),
            "use_global_device_ids": ir.UnitAttr.get(),
        }
        op = self.made("all_reduce", values, types, extra, regions=1)
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
        extra = {"all_gather_dim": build.number(0), "use_global_device_ids": ir.UnitAttr.get()}
        return list(self.evenly("all_gather", values, types, extra).results)

    def reduce_scatter(self, value: Value) -> Value:
        """Along dim 0, which the group's size divides."""
        shape = build.shape_of(value)
        kind = build.tensor((shape[0] // self.size, *shape[1:]), build.dtype_of(value))
        extra = {"scatter_dimension": build.number(0), "use_global_device_ids": ir.UnitAttr.get()}
        op = self.evenly("reduce_scatter", [value], [kind], extra, self.kind())
        return self.averaged(op.results[0])

    def all_to_all(self, value: Value, split: int = 0, concat: int = 0) -> Value:
        """Equal parts along ``split``, put together along ``concat``."""
        shape = list(build.shape_of(value))
        if shape[split] % self.size:
            raise FlintError(f"dim {split} of {shape} does not divide among {self.size} ranks")
        shape[split] //= self.size
        shape[concat] *= self.size
        extra = {
            "split_dimension": build.number(split),
            "concat_dimension": build.number(concat),
            "split_count": build.number(self.size),
        }
        kind = build.tensor(shape, build.dtype_of(value))
        return self.evenly("all_to_all", [value], [kind], extra).results[0]

    def ragged_all_to_all(
        self, value: Value, out: View, sent: Sequence[int], received: Sequence[int]
    ) -> Value:
        """Rows ``sent[i]`` to member i, ``received[i]`` from it.

        The position of rows at another member depends on all that it receives, which one rank's
        recording does not show: the offsets are this rank's own.
        """
        target = build.constant(0, out.shape, out.dtype)
        vectors = [starts(sent), list(sent), starts(received), list(received)]
        literals = [build.literal(np.array(vector, np.int64), "int64") for vector in vectors]
        kind = build.tensor(out.shape, out.dtype)
        return self.called("ragged_all_to_all", [value, target, *literals], [kind]).results[0]

    def broadcast(self, value: Value, root: int) -> Value:
        """From the group's member ``root``."""
        extra = {
            "replica_groups": self.among.rooted_groups(self.op, root),
            "channel_handle": self.among.channel(),
        }
        return self.made("collective_broadcast", [value], [value.type], extra).results[0]

    def permute(self, value: Value, source: int, target: int) -> Value:
        """A message from a rank to another one."""
        return self._permuted(value, self.among.pairs(source, target))

    def permute_within(self, value: Value, source: int, target: int) -> Value:
        """A message between two positions in the op's process group."""
        return self._permuted(value, self.among.pairs_within(self.op, source, target))

    def _permuted(self, value: Value, pairs: Any) -> Value:
        extra = {"source_target_pairs": pairs, "channel_handle": self.among.channel()}
        return self.made("collective_permute", [value], [value.type], extra).results[0]


def starts(sizes: Sequence[int]) -> list[int]:
    """Where parts of these sizes start, one behind the other."""
    ends = itertools.accumulate(sizes, initial=0)
    return list(ends)[: len(sizes)]


def numbers(op: Op) -> list[int]:
    """Plain integer arguments after the tensors, in order."""
    return [item for item in op.args if isinstance(item, int) and not isinstance(item, bool)]


def flat(value: Value) -> Value:
    """All elements in a row."""
    return build.reshape(value, (math.prod(build.shape_of(value)),))


def write_parts(emitter: Emitter, value: Value, outputs: Sequence[View], dim: int = 0) -> None:
    """Write tensors whose elements lie one behind the other along a dim of a value."""
    counts = [math.prod(out.shape) for out in outputs]
    for out, start, count in zip(outputs, starts(counts), counts, strict=True):
        part = build.slice_dim(value, dim, start, start + count)
        emitter.write(out, build.reshape(part, out.shape))
