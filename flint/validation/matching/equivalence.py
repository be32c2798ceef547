"""When two ops count as the same: keys that must be equal.

The idea: a key has everything that must agree (class, sizes, element type, group), with known,
harmless transformations undone; ``form_reasons`` names these.  If a trace has no sizes, the key is
a name, and a match by name is a weak one.

    rules.key(captured) == rules.key(executed)
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

from flint.observed.classes import OpClass
from flint.observed.columns import Gemm, OpFacts, Tensor
from flint.observed.selection import has_heads, plain_name

MESSAGES = (OpClass.SEND, OpClass.RECV)
REDUCING = (OpClass.ALL_REDUCE, OpClass.REDUCE_SCATTER)

#: Types without arithmetic in XLA's CPU backend -> the types that it uses instead
#: (float normalization in xla/service/cpu/cpu_compiler.cc).
WIDER = {"bf16": "f32", "i4": "i8", "ui4": "ui8"} | dict.fromkeys(
    ("f8E3M4", "f8E4M3", "f8E4M3FN", "f8E4M3FNUZ", "f8E4M3B11FNUZ", "f8E5M2", "f8E5M2FNUZ"), "f16"
)
#: Names of a reduce to one rank, which captures have as an all-reduce.
TO_ROOT = frozenset({"reduce_", "reduce", "_reduce_oop"})


@dataclass(frozen=True, slots=True)
class Rules:
    """How a capture and a trace are compared.

    Attributes:
        by_name: classes for which the trace has no sizes.
        recorded: whether the capture is a recording of PyTorch's ops, not an XLA program.
        promoted: the backend computes bfloat16 as float32, and floats of 8 bits as float16.
        scattered: the backend has no reduce-scatter.
        on_host: it ran on the CPU.
        grouped: the trace has the groups of collectives.
        addressed: the trace has the senders and receivers of messages.
        rooted: the capture has reduces to one rank, written as all-reduces.
        distinct: the trace has the element type and the reduction of every collective of an XLA
            program, so that two of the same bytes can be distinguished.
        convolved: the trace has the work of every convolution of an XLA program.
    """

    by_name: frozenset[OpClass]
    recorded: bool
    promoted: bool
    scattered: bool
    on_host: bool
    grouped: bool
    addressed: bool
    rooted: bool = True
    distinct: bool = False
    convolved: bool = False

    def kind(self, facts: OpFacts) -> OpClass:
        """The class in which an op is compared."""
        if self.scattered and _made_reduce_scatter(facts):
            return OpClass.ALL_REDUCE
        return facts.kind

    def key(self, facts: OpFacts) -> Hashable:
        """What must be equal."""
        kind = self.kind(facts)
        if kind in self.by_name:
            return kind, "" if kind.collective else plain_name(facts.name)
        return self.sized_key(facts)

    def sized(self, facts: OpFacts) -> bool:
        """Whether the sizes of an executed op are known."""
        return self.kind(facts) not in self.by_name or _sized(facts, self.recorded)

    def sized_key(self, facts: OpFacts) -> Hashable:
        """The key of an op with known sizes."""
        kind = self.kind(facts)
        if kind.collective:
            group = facts.group if self.grouped else None
            kind_of = kind, self._sent_type(facts.dtype, facts.compared)
            if kind in MESSAGES:
                return *kind_of, sum(self.parts(facts)), facts.peer if self.addressed else None
            if kind == OpClass.ALL_TO_ALL:
                return *kind_of, sum(self.parts(facts)), group
            return kind, self.reduction(facts), tuple(sorted(self.buffers(facts))), group
        if facts.gemms is not None and kind == OpClass.GEMM:
            # XLA may compute the transpose; what PyTorch calls is what was recorded.
            products = facts.gemms if self.recorded else map(either_way, facts.gemms)
            dtype = self.computed_as(facts.compared or facts.dtype)
            return kind, dtype, tuple(sorted(products))
        if kind == OpClass.CONVOLUTION and not self.recorded:
            sizes = sorted(math.prod(shape) for shape, _ in facts.operands or ())
            made = facts.convolved if self.convolved else ()
            return kind, self.computed_as(facts.dtype), tuple(sizes), made
        shapes = arguments(facts)
        if kind == OpClass.ATTENTION:
            shapes = tuple(item for item in shapes if has_heads(item[0]))
        if kind == OpClass.ELEMENTWISE and self.recorded:
            return kind, plain_name(facts.name), shapes, tensors_read(facts)
        return kind, plain_name(facts.name), shapes

    def typed(self, facts: OpFacts) -> bool:
        """Whether the backend may run an op in a wider type than captured."""
        return self.promoted and (facts.kind.collective or facts.kind == OpClass.GEMM)

    def reduction(self, facts: OpFacts) -> str:
        """The reducing op of a collective, if it is compared by that."""
        return facts.reduction if self.distinct else ""

    def buffers(self, facts: OpFacts) -> tuple[tuple[int, str], ...]:
        """Bytes of a collective's buffers as sent by the backend, each with its type."""
        parts = self.parts(facts)
        types = [dtype for _, dtype in facts.operands or ()]
        if len(types) != len(parts) or not facts.dtype:  # it is unknown which buffer has which type
            types = [facts.dtype] * len(parts)
        sent = [self._sent_type(dtype, facts.compared) for dtype in types]
        return tuple(zip(parts, sent, strict=True))

    def _sent_type(self, dtype: str, compared: str) -> str:
        """The element type of a buffer, if every trace of the backend shows it; else "".

        The executed program converts to the wider type and back, except for bfloat16.
        """
        before = compared or dtype
        known = self.promoted and before != "bf16" and (compared or dtype in WIDER)
        if known or not self.distinct:
            return before if known else ""
        return _width(self.computed_as(dtype))

    def contradicts(self, captured: OpFacts, executed: OpFacts) -> bool:
        """Whether a trace shows a fact about an op that contradicts the capture but is in no key.

        The group, the root, the reduction and the element type of a collective, the receiver of a
        message, and, in a class of which some ops have no sizes, those of the others.
        """
        if self.kind(executed) in self.by_name and self._other_sizes(captured, executed):
            return True
        if not executed.kind.collective:
            return False
        if executed.kind in MESSAGES:
            if min(captured.peer, executed.peer) >= 0 and captured.peer != executed.peer:
                return True
        elif last_name(executed.name) in TO_ROOT and not self.rooted:
            return True
        elif captured.group is not None:
            if executed.group is not None and captured.group != executed.group:
                return True
            to_one = executed.kind == OpClass.COLLECTIVE_PERMUTE
            if executed.members >= 0 and not to_one and len(captured.group) != executed.members:
                return True
        if min(captured.root, executed.root) >= 0 and captured.root != executed.root:
            return True
        if captured.reduction and executed.reduction and captured.reduction != executed.reduction:
            return True
        return self._other_type(captured, executed)

    def _other_sizes(self, captured: OpFacts, executed: OpFacts) -> bool:
        if _sized(executed, self.recorded):
            return self.sized_key(captured) != self.sized_key(executed)
        if not executed.operands or captured.operands is None:
            return False
        if executed.kind.collective:  # of lists of tensors there are shapes, and no element types
            return captured.elements != executed.elements
        shapes, ran = ({shape for shape, _ in op.operands or ()} for op in (captured, executed))
        return executed.kind == OpClass.GEMM and not ran <= shapes and not shapes <= ran

    def _other_type(self, captured: OpFacts, executed: OpFacts) -> bool:
        """Whether the sent data has another element type, ignoring the sign of integers."""
        if not captured.dtype or not executed.dtype:
            return False
        return _width(self.computed_as(captured.dtype)) != _width(self.computed_as(executed.dtype))

    def of_unknown_group(self, captured: OpFacts, executed: OpFacts) -> bool:
        """Whether a trace does not show among which ranks a captured communication ran."""
        if not executed.kind.collective:
            return False
        if executed.kind in MESSAGES:
            return executed.peer < 0
        return executed.group is None and captured.group is not None and len(captured.group) > 1

    def parts(self, facts: OpFacts) -> tuple[int, ...]:
        """Bytes of a collective's buffers, as the backend sends them."""
        sizes = facts.parts or ()
        if not self.promoted or facts.operands is None or len(facts.operands) != len(sizes):
            return (sum(sizes),) if self.recorded else sizes
        return tuple(
            size * (2 if dtype in WIDER else 1)
            for size, (_, dtype) in zip(sizes, facts.operands, strict=True)
        )

    def computed_as(self, dtype: str) -> str:
        """The element type that the backend computes with in place of this one."""
        return WIDER.get(dtype, dtype) if self.promoted else dtype


def either_way(size: Gemm) -> Gemm:
    """A product's size, the same for its transpose."""
    batch, m, n, k = size
    return batch, min(m, n), max(m, n), k


def _width(dtype: str) -> str:
    """An element type as it is sent: booleans as bytes, integers without their sign."""
    return "i8" if dtype == "i1" else dtype.removeprefix("u")


def _made_reduce_scatter(facts: OpFacts) -> bool:
    return facts.kind == OpClass.REDUCE_SCATTER and "(written as all_reduce" in facts.name


def distinct_tensors(operands: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
    """Distinct operands except numbers: an op that reads a tensor twice may list it once or
    twice.
    """
    return tuple(sorted({tensor for tensor in operands or () if tensor[0]}))


def tensors_read(facts: OpFacts) -> int:
    """How many operands are not single numbers: two equal tensors, or a tensor and a number.

    A capture lists a number only if it is in a tensor, a profiler whenever an op takes one. A
    capture also names the overload with an output argument; a profiler lists that tensor.
    """
    read = sum(bool(shape) for shape, _ in facts.operands or ())
    is_out = "::" not in facts.name and facts.name.rpartition(".")[2].endswith("out")
    return read + (is_out and read > 0)


def number_instead(captured: OpFacts, executed: OpFacts) -> bool:
    """Whether an elementwise op ran with a number in place of a captured tensor."""
    if captured.kind != OpClass.ELEMENTWISE or tensors_read(captured) <= tensors_read(executed):
        return False
    return _numbers(executed) > _numbers(captured)


def _numbers(facts: OpFacts) -> int:
    return sum(not shape for shape, _ in facts.operands or ())


def arguments(facts: OpFacts) -> tuple[Tensor, ...]:
    """Distinct operands; PyTorch runs a convolution over one dim as one over two, the first 1.

    (``view1d_as_2d`` in aten/src/ATen/native/Convolution.cpp)
    """
    if facts.kind != OpClass.CONVOLUTION:
        return distinct_tensors(facts.operands)
    return distinct_tensors(
        tuple(
            ((*shape[:2], 1, *shape[2:]) if len(shape) == 3 else shape, dtype)
            for shape, dtype in facts.operands or ()
        )
    )


def last_name(name: str) -> str:
    """``c10d::reduce_`` as ``reduce_``, ``aten.mm.default`` as ``mm``."""
    if "::" in name:
        return name.rsplit("::", 1)[1]
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def rules_for(
    executed: list[OpFacts], *, recorded: bool, backend: str, rooted: bool = True
) -> Rules:
    """Rules for the executed ops of one rank and step (arguments as in ``Rules``)."""
    by_name = {facts.kind for facts in executed if not _sized(facts, recorded)}
    collectives = [facts for facts in executed if facts.kind.collective]
    kinds = {facts.kind for facts in collectives}
    if not recorded and OpClass.REDUCE_SCATTER in by_name:
        by_name.add(OpClass.ALL_REDUCE)
    return Rules(
        by_name=frozenset(by_name),
        recorded=recorded,
        promoted=not recorded and backend == "cpu",
        # XLA makes reduce-scatters of such all-reduces for accelerators, and none for the CPU.
        scattered=not recorded and (backend == "cpu" or OpClass.REDUCE_SCATTER not in kinds),
        on_host=backend == "cpu",
        grouped=all(facts.group is not None for facts in collectives if facts.kind not in MESSAGES),
        addressed=all(facts.peer >= 0 for facts in collectives if facts.kind in MESSAGES),
        rooted=rooted,
        distinct=not recorded
        and all(
            facts.dtype and (facts.reduction or facts.kind not in REDUCING) for facts in collectives
        ),
        convolved=not recorded
        and all(facts.convolved for facts in executed if facts.kind == OpClass.CONVOLUTION),
    )


def _sized(facts: OpFacts, recorded: bool) -> bool:
    """Whether the trace has the sizes of an op."""
    if facts.kind.collective:
        return facts.parts is not None
    if facts.kind == OpClass.GEMM:
        return facts.gemms is not None
    return facts.operands is not None if recorded or facts.kind.must_match else True
