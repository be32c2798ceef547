"""When two ops count as the same: keys, and the named reasons why they may differ in form.

The idea: a key holds what must agree (class, sizes, element type, group) in a form in which known,
harmless transformations have been undone; what they were is told for every pair, so that nothing is
hidden.  Where a trace has no sizes the key is a name, and a match by name is a weak one.

    rules.key(captured) == rules.key(executed) and rules.reasons(captured, executed)
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

from flint.observed.classes import OpClass, aten_class
from flint.observed.columns import Gemm, OpFacts, Tensor
from flint.observed.selection import LIBRARY_NAMES, plain_name

MESSAGES = (OpClass.SEND, OpClass.RECV)
_REDUCING = (OpClass.ALL_REDUCE, OpClass.REDUCE_SCATTER)

PROMOTED = "bfloat16 is computed and sent as float32 on the CPU"
PROMOTED_8_BITS = "floats of 8 bits are computed and sent as float16 on the CPU"
WIDENED = "a matrix product of narrower floats, which the CPU converts to float32 before"
WIDENED_INTEGERS = "a matrix product of narrower integers, which the CPU converts to int32 before"
PROMOTED_4_BITS = "integers of 4 bits are computed and sent as 8 bits on the CPU"
SCATTERED = "a reduce-scatter that runs as the all-reduce and slice of the program"
SWAPPED = "a matrix product with its operands swapped: the transpose of the result"
LIBRARY = "the profiler records the library's name of the op"
ANOTHER_OP = "another op that computes the same matrix product"
IN_PLACE = "in place or into a new tensor: autograd decides by what else holds it"
ATTENTION = "another library's attention kernel than the one captured"
UNREAD = "the profiler records arguments that the op does not read, or lists without element types"
UNTOLD = "the profiler does not record the tensors of an optional list, such as indices"
LONG_LIST = "the profiler does not record lists of more than 30 tensors: only names are compared"
FOREACH = "one kernel for a list of tensors on accelerators, one op per tensor on the CPU"
DUPLICATE = "the same op on the same values as another one, which the compiler runs once"
HOISTED = "the same op on the same values in all iterations of a loop, run once before it"
CONSTANT = "a collective on a constant, whose result the compiler knows"
LAYOUT = "a convolution with its dims in another order"
POINTWISE = "a convolution with a window of one element, computed as a matrix product"
MULTIPLIED = "a matrix product of vectors, or one without a sum, which runs as a multiplication"
SUMMED = (
    "a matrix product of vectors whose sum the trace does not name: only how many numbers are "
    "multiplied is compared"
)
RAGGED = "a ragged product, which runs as a dense one of all groups, with zeros in between"
SCALED = "a matrix product with a single number, which is element-wise work: fused or folded"
#: Per class of collectives.
COMBINED = {
    kind: f"{kind}s that the compiler combined into one" for kind in OpClass if kind.collective
}
BUFFERS = "an all-to-all with one buffer per member, of the same bytes in all"
ROOTED = (
    "a reduce to one rank, captured as an all-reduce, because StableHLO has no reduce to one rank"
)
BARRIER = "a barrier, captured as the all-reduce of one number that NCCL runs for it"
STOPPED = "a product that began and never ran: activation checkpointing already had all it needed"
TOGETHER = "collectives issued as one batch, whose kernel no single op launched"
PARTED = "one collective of several buffers that runs as several"

#: What XLA's CPU backend has no arithmetic for -> what it uses in its place and calls it by
#: (float normalization in xla/service/cpu/cpu_compiler.cc).
_PROMOTED = (
    {"bf16": ("f32", PROMOTED)}
    | dict.fromkeys(
        ("f8E3M4", "f8E4M3", "f8E4M3FN", "f8E4M3FNUZ", "f8E4M3B11FNUZ", "f8E5M2", "f8E5M2FNUZ"),
        ("f16", PROMOTED_8_BITS),
    )
    | {"i4": ("i8", PROMOTED_4_BITS), "ui4": ("ui8", PROMOTED_4_BITS)}
)

#: Tensors of a list that Kineto still writes out (kTruncatLength in torch/csrc/profiler/util.cpp).
_LONGEST_LIST = 30

_OTHER_COLLECTIVES = {
    "reduce_": ROOTED, "reduce": ROOTED, "_reduce_oop": ROOTED, "barrier": BARRIER,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rules:
    """How a capture and a trace are compared.

    Attributes:
        by_name: classes in which the trace has no sizes.
        recorded: the capture is a recording of PyTorch's ops, else XLA's program.
        promoted: the backend computes bfloat16 as float32, and floats of 8 bits as float16.
        scattered: the backend has no reduce-scatter.
        on_host: it ran on the CPU.
        grouped: the trace tells the groups of collectives.
        addressed: the trace tells who messages go to and come from.
        rooted: the capture has reduces to one rank, which it has written as all-reduces.
        distinct: the trace tells of every collective of an XLA program what it sends and what it
            reduces with, so that others of the same bytes are told apart.
        convolved: the trace tells how much every convolution of an XLA program computes.
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
        """What must be equal of two ops whose sizes are known."""
        kind = self.kind(facts)
        if kind.collective:
            group = facts.group if self.grouped else None
            kind_of = kind, self._told_type(facts.dtype, facts.compared)
            if kind in MESSAGES:
                return *kind_of, sum(self.parts(facts)), facts.peer if self.addressed else None
            if kind == OpClass.ALL_TO_ALL:
                return *kind_of, sum(self.parts(facts)), group
            return kind, self.reduction(facts), tuple(sorted(self.buffers(facts))), group
        if facts.gemms is not None and kind == OpClass.GEMM:
            # XLA may compute the transpose; what PyTorch calls is what was recorded.
            products = facts.gemms if self.recorded else map(_either_way, facts.gemms)
            dtype = self._dtype(facts.compared or facts.dtype)
            return kind, dtype, tuple(sorted(products))
        if kind == OpClass.CONVOLUTION and not self.recorded:
            sizes = sorted(math.prod(shape) for shape, _ in facts.operands or ())
            made = facts.convolved if self.convolved else ()
            return kind, self._dtype(facts.dtype), tuple(sizes), made
        shapes = _arguments(facts)
        if kind == OpClass.ATTENTION:  # what else kernels keep for the backward pass is their own
            shapes = tuple(item for item in shapes if len(item[0]) > 3)
        return kind, plain_name(facts.name), shapes

    def typed(self, facts: OpFacts) -> bool:
        """Whether the backend may run an op in a wider type than captured."""
        return self.promoted and (facts.kind.collective or facts.kind == OpClass.GEMM)

    def reduction(self, facts: OpFacts) -> str:
        """What a collective reduces with, where it is compared by that."""
        return facts.reduction if self.distinct else ""

    def buffers(self, facts: OpFacts) -> tuple[tuple[int, str], ...]:
        """Bytes of a collective's buffers, as the backend sends them, each with its type."""
        parts = self.parts(facts)
        types = [dtype for _, dtype in facts.operands or ()]
        if len(types) != len(parts) or not facts.dtype:  # nobody knows which buffer is of which
            types = [facts.dtype] * len(parts)
        told = [self._told_type(dtype, facts.compared) for dtype in types]
        return tuple(zip(parts, told, strict=True))

    def _told_type(self, dtype: str, compared: str) -> str:
        """The element type of a buffer, where a trace of the backend tells it in any case.

        What is converted to the wider type, and back, stays in the program, bfloat16 aside.
        """
        before = compared or dtype
        told = self.promoted and before != "bf16" and (compared or dtype in _PROMOTED)
        if told or not self.distinct:
            return before if told else ""
        return _width(self._dtype(dtype))

    def contradicts(self, captured: OpFacts, executed: OpFacts) -> bool:
        """Whether a trace tells something of an op that its partner's key did not have to have.

        The group and the element type of a collective, who a message goes to, and, in a class of
        which some ops have no sizes, those of the others.
        """
        if self.kind(executed) in self.by_name and self._other_sizes(captured, executed):
            return True
        if not executed.kind.collective:
            return False
        if executed.kind in MESSAGES:
            if min(captured.peer, executed.peer) >= 0 and captured.peer != executed.peer:
                return True
        elif _OTHER_COLLECTIVES.get(_tail(executed.name)) == ROOTED and not self.rooted:
            return True
        elif captured.group is not None:
            if executed.group is not None and captured.group != executed.group:
                return True
            to_one = executed.kind == OpClass.COLLECTIVE_PERMUTE
            if executed.members >= 0 and not to_one and len(captured.group) != executed.members:
                return True
        return self._other_type(captured, executed)

    def _other_sizes(self, captured: OpFacts, executed: OpFacts) -> bool:
        if _sized(executed, self.recorded):
            return self.sized_key(captured) != self.sized_key(executed)
        if not executed.operands or captured.operands is None:
            return False
        if executed.kind.collective:  # of lists of tensors there are shapes, and no element types
            return _elements(captured) != _elements(executed)
        ours, theirs = (
            {shape for shape, _ in facts.operands or ()} for facts in (captured, executed)
        )
        return executed.kind == OpClass.GEMM and not theirs <= ours and not ours <= theirs

    def _other_type(self, captured: OpFacts, executed: OpFacts) -> bool:
        """Whether what is sent is of another element type, the sign of integers aside."""
        if not captured.dtype or not executed.dtype:
            return False
        return _width(self._dtype(captured.dtype)) != _width(self._dtype(executed.dtype))

    def untold(self, captured: OpFacts, executed: OpFacts) -> bool:
        """Whether a trace does not tell among whom a captured communication ran."""
        if not executed.kind.collective:
            return False
        if executed.kind in MESSAGES:
            return executed.peer < 0
        return executed.group is None and captured.group is not None and len(captured.group) > 1

    def product(self, facts: OpFacts) -> Hashable:
        """What a convolution must have in common with a matrix product that computes the same."""
        shapes = [(b, min(m, n), max(m, n), k) for b, m, n, k in facts.gemms or ()]
        return self._dtype(facts.dtype), tuple(sorted(shapes))

    def multiplication(self, facts: OpFacts) -> Hashable | None:
        """What a product that is a multiplication in truth has in common with that; None of others.

        A product without a sum has the sizes (batch, m, n, 1), one of vectors (batch, 1, 1, k).
        """
        if facts.gemms is None or len(facts.gemms) != 1:
            return None
        [size] = facts.gemms
        _, m, n, k = size
        return (self._dtype(facts.dtype), _either_way(size)) if k == 1 or m == n == 1 else None

    def multiplied_in_all(self, facts: OpFacts) -> Hashable | None:
        """The same where a compiler has put the sum of a product of vectors together with another.

        Of the executed one k is 0 then, and the batch is how many numbers are multiplied.
        """
        if facts.gemms is None or len(facts.gemms) != 1:
            return None
        [(batch, m, n, k)] = facts.gemms
        ran = facts.kind == OpClass.ELEMENTWISE
        if not m == n == 1 or (ran and k):
            return None
        return self._dtype(facts.dtype), batch if ran else batch * k

    def parts(self, facts: OpFacts) -> tuple[int, ...]:
        """Bytes of a collective's buffers, as the backend sends them."""
        sizes = facts.parts or ()
        if not self.promoted or facts.operands is None or len(facts.operands) != len(sizes):
            return (sum(sizes),) if self.recorded else sizes
        return tuple(
            size * (2 if dtype in _PROMOTED else 1)
            for size, (_, dtype) in zip(sizes, facts.operands, strict=True)
        )

    def computed_as(self, dtype: str) -> str:
        """The element type that the backend computes with in place of this one."""
        return self._dtype(dtype)

    def _dtype(self, dtype: str) -> str:
        return _PROMOTED[dtype][0] if self.promoted and dtype in _PROMOTED else dtype

    def argument_reason(self, captured: OpFacts, executed: OpFacts) -> str:
        """Why two ops of the same name list other arguments; "" where no reason is known.

        Lists of tensors have no element type in Kineto's traces; their shapes count.  An op that
        makes a tensor reads nothing, whatever the profiler lists.  Of those that must match only a
        convolution may list more, its weight, and attention keys and values of grouped heads,
        which other kernels want repeated.
        """
        ours, theirs = set(_arguments(captured)), set(_arguments(executed))
        if not theirs and len(captured.operands or ()) > _LONGEST_LIST:
            return LONG_LIST
        untyped = {shape for shape, dtype in theirs if not dtype}
        more = {shape for shape, _ in theirs} - {shape for shape, _ in ours}
        results = {batch * m * n for batch, m, n, _ in captured.gemms or ()}
        if captured.kind == OpClass.ATTENTION and not all(
            any(_grouped(shape, whole) for whole, _ in ours) for shape in more
        ):
            return ""
        # The gradient of a weight alone does not read the weight, which has the result's sizes.
        if captured.kind == OpClass.CONVOLUTION and not {math.prod(s) for s in more} <= results:
            return ""
        if all(item in theirs or item[0] in untyped for item in ours):
            return UNREAD
        return UNTOLD if self.recorded and theirs and theirs < ours else ""

    def reasons(self, captured: OpFacts, executed: OpFacts) -> tuple[str, ...]:
        """Why two ops with the same key do not look the same; () where they do."""
        found = []
        if self.promoted and captured.dtype in _PROMOTED:
            dtype, reason = _PROMOTED[captured.dtype]
            if executed.dtype == dtype:
                found.append(reason)
        if executed.compared and captured.kind == OpClass.GEMM and not found:
            whole = captured.dtype.startswith(("i", "ui"))
            found.append(WIDENED_INTEGERS if whole else WIDENED)
        if captured.kind != executed.kind:
            found.append(SCATTERED)
        if captured.gemms and executed.gemms and not _same(captured.gemms, executed.gemms):
            found.append(SWAPPED)
        if captured.kind == OpClass.CONVOLUTION and not self.recorded:
            ours, theirs = _shapes(captured.operands), _shapes(executed.operands)
            if [shape for shape, _ in ours] != [shape for shape, _ in theirs]:
                found.append(LAYOUT)
        exchange = captured.kind == executed.kind == OpClass.ALL_TO_ALL and not self.recorded
        if exchange and len(captured.parts or ()) != len(executed.parts or ()):
            found.append(BUFFERS)
        if self.recorded and not captured.kind.collective:
            found += _names(captured.name, executed.name)
        elif self.recorded and _tail(executed.name) in _OTHER_COLLECTIVES:
            found.append(_OTHER_COLLECTIVES[_tail(executed.name)])
        return tuple(found)


def _either_way(size: Gemm) -> Gemm:
    batch, m, n, k = size
    return batch, min(m, n), max(m, n), k


def _elements(facts: OpFacts) -> int:
    return sum(math.prod(shape) for shape, _ in facts.operands or ())


def _width(dtype: str) -> str:
    """An element type as it is sent: booleans as bytes, integers without their sign."""
    return "i8" if dtype == "i1" else dtype.removeprefix("u")


def _made_reduce_scatter(facts: OpFacts) -> bool:
    return facts.kind == OpClass.REDUCE_SCATTER and "(written as all_reduce" in facts.name


def _same(ours: tuple[Gemm, ...], theirs: tuple[Gemm, ...]) -> bool:
    return sorted(ours) == sorted(theirs)


def _grouped(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether a tensor (batch, heads, ...) is another with fewer heads, each for a group of its."""
    if len(shape) != len(whole) or len(shape) < 3 or not shape[1]:
        return False
    return shape[:1] + shape[2:] == whole[:1] + whole[2:] and whole[1] % shape[1] == 0


def _shapes(operands: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
    """Distinct operands but numbers: an op that reads a tensor twice lists it once or twice."""
    return tuple(sorted({tensor for tensor in operands or () if tensor[0]}))


def _arguments(facts: OpFacts) -> tuple[Tensor, ...]:
    """Distinct operands; PyTorch runs a convolution over one dim as one over two, the first 1.

    (``view1d_as_2d`` in aten/src/ATen/native/Convolution.cpp)
    """
    if facts.kind != OpClass.CONVOLUTION:
        return _shapes(facts.operands)
    return _shapes(
        tuple(
            ((*shape[:2], 1, *shape[2:]) if len(shape) == 3 else shape, dtype)
            for shape, dtype in facts.operands or ()
        )
    )


def _names(captured: str, executed: str) -> list[str]:
    found = []
    ours, theirs = _tail(captured), _tail(executed)
    if aten_class(captured) == OpClass.GEMM and plain_name(captured) != plain_name(executed):
        return [ANOTHER_OP]
    if aten_class(captured) == OpClass.ATTENTION:
        if ours != theirs:
            found.append(ATTENTION)
    elif theirs in LIBRARY_NAMES and LIBRARY_NAMES[theirs] != theirs and ours != theirs:
        found.append(LIBRARY)
    elif ours.endswith("_") != theirs.endswith("_") and not captured.endswith(".out"):
        found.append(IN_PLACE)
    return found


def _tail(name: str) -> str:
    if "::" in name:
        return name.rsplit("::", 1)[1]
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def rules_for(
    captured: list[OpFacts],
    executed: list[OpFacts],
    *,
    recorded: bool,
    backend: str,
    rooted: bool = True,
) -> Rules:
    """Rules for the ops of one rank and step (arguments as in ``Rules``)."""
    by_name = {facts.kind for facts in executed if not _sized(facts, recorded)}
    collectives = [facts for facts in executed if facts.kind.collective]
    kinds = {facts.kind for facts in collectives}
    if not recorded and OpClass.REDUCE_SCATTER in by_name:
        by_name.add(OpClass.ALL_REDUCE)
    del captured
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
            facts.dtype and (facts.reduction or facts.kind not in _REDUCING)
            for facts in collectives
        ),
        convolved=not recorded
        and all(facts.convolved for facts in executed if facts.kind == OpClass.CONVOLUTION),
    )


def _sized(facts: OpFacts, recorded: bool) -> bool:
    """Whether the trace tells the sizes of an op."""
    if facts.kind.collective:
        return facts.parts is not None
    if facts.kind == OpClass.GEMM:
        return facts.gemms is not None
    return facts.operands is not None if recorded or facts.kind.must_match else True
