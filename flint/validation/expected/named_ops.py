"""The light ops of a captured XLA program by the names that the framework gave them.

The idea: XLA fuses ops, computes some twice and merges others, but each instruction that it makes
keeps the name of an op that it was made from ("jit(step)/jvp(mid)/reduce_window_max").  So every
name in a run is one of the program's, and what XLA neither drops nor makes into another op (a
pooling, a lookup) leaves its name in the run.

    missing(captured_names(program), ran)     # [("not captured", "reduce_window_max", "mid")]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from flint.hlo import hlo_pb2 as pb
from flint.hlo.locations import Locations
from flint.hlo.messages import parse_module
from flint.observed.classes import OpClass, hlo_class, hlo_says
from flint.observed.columns import Functions, NamedOp
from flint.stablehlo.sources.phases import named_by
from flint.workload.programs import Program

#: Opcodes that XLA neither drops nor replaces by ops with another name, if their result is used and
#: is no constant.
_STAY = frozenset(
    {"reduce-window", "select-and-scatter", "gather", "scatter", "reverse", "cbrt", "is-finite"}
)
#: Reductions of a kind that nothing else is made into.
_REDUCERS = frozenset({"maximum", "minimum", "multiply", "or"})
#: Ops that each platform has in a form of its own: libraries, and bits that are shifted for random
#: numbers, in a loop or without.
_OPAQUE = frozenset({"custom-call", "ragged-dot", "topk", "rng-bit-generator", "rng", "shift-left"})
#: Elements of the longest running sum that XLA computes as one window.
_LONGEST = 16
#: Opcodes of values that no input changes.
_FIXED = frozenset({"constant", "iota"})


class CapturedNames(NamedTuple):
    """Names in a program.

    Attributes:
        all: names of all ops.
        stay: for ops that look alike, of which XLA may have merged some, (layer, op) of each; only
            of those that stay in any compiled form.
        opaque: layers with ops that each platform has in a form of its own.
    """

    all: frozenset[NamedOp]
    stay: frozenset[frozenset[tuple[str, str]]]
    opaque: frozenset[str]


_NONE = CapturedNames(frozenset(), frozenset(), frozenset())


def missing(captured: CapturedNames, ran: Functions) -> list[tuple[str, str, str]]:
    """Ops that only one of capture and run has: what is wrong, the op and its layer."""
    if not ran.named or not captured.all:
        return []
    found = {
        ("not captured", op, layer)
        for layer, _, op in ran.named - captured.all
        if not any(f"{layer}/".startswith(f"{one}/") or not one for one in captured.opaque)
    }
    for alike in captured.stay:
        if not alike & ran.traces:
            found |= {("not executed", op, layer) for layer, op in alike}
    return sorted(found)


def captured_names(program: Program) -> CapturedNames | None:
    """The names in a program; None if its module as captured is not HLO.

    A program for one device still has its calls: XLA puts their names before those of the ops in
    them when it opens them, which it has done where it has partitioned.
    """
    if program.module is None or not program.module[1].endswith("hlo.pb"):
        return None
    return _names(program.module[0])


@lru_cache(maxsize=1)  # all ranks run the same one
def _names(data: bytes) -> CapturedNames:
    module = parse_module(data)
    if any(item.opcode == "call" for one in module.computations for item in one.instructions):
        return _NONE
    locations = Locations(module.stack_frame_index, tuple(module.payloads))
    names: set[NamedOp] = set()
    alike: dict[Hashable, set[tuple[str, str]]] = defaultdict(set)
    opaque: set[str] = set()
    computations = {one.id: one for one in module.computations}
    applied = _applied(module)
    for computation in module.computations:
        fixed: set[int] = set()
        looks: dict[int, tuple[str, bytes]] = {}
        for item in computation.instructions:
            looks[item.id] = item.opcode, item.shape
            number = locations.numbers.setdefault(item.metadata, len(locations.numbers))
            found = list(named_by(locations(number).name))
            names.update(found)
            if item.opcode in _OPAQUE:
                opaque.update(layer for layer, _, _ in found)
            if _is_fixed(item, fixed):
                fixed.add(item.id)
            elif item.opcode in ("gather", "scatter") and _at_one_place(item, looks):
                continue
            elif computation.id not in applied and _stays(item, computations):
                for layer, _, op in found:
                    of = (looks.get(operand) for operand in item.operand_ids)
                    alike[op, item.shape, *of].add((layer, op))
    return CapturedNames(
        frozenset(names), frozenset(map(frozenset, alike.values())), frozenset(opaque)
    )


def _applied(module: pb.HloModuleProto) -> set[int]:
    """Computations that are applied to elements."""
    return {
        number
        for computation in module.computations
        for item in computation.instructions
        if hlo_class(item.opcode) == OpClass.REDUCTION or item.opcode in ("scatter", "sort", "map")
        for number in item.called_computation_ids
    }


def _is_fixed(item: Any, fixed: set[int]) -> bool:
    if item.opcode in _FIXED:
        return True
    return (
        bool(item.operand_ids)
        and hlo_says(item.opcode) | (item.opcode == "broadcast")
        and all(number in fixed for number in item.operand_ids)
    )


def _stays(item: Any, computations: dict[int, Any]) -> bool:
    if item.opcode == "reduce-window" and _is_tiled(item):
        return False
    if item.opcode in _STAY:
        return True
    return item.opcode == "reduce" and any(
        inner.opcode in _REDUCERS
        for number in item.called_computation_ids
        for inner in _instructions(computations, number)
    )


def _at_one_place(item: Any, looks: dict[int, tuple[str, bytes]]) -> bool:
    """Whether a lookup or an update may have one index only, so that XLA makes a slice of it."""
    indices = looks.get(item.operand_ids[1]) if len(item.operand_ids) > 1 else None
    if indices is None:
        return True
    wide = [size for size in pb.ShapeProto.FromString(indices[1]).dimensions if size > 1]
    if not wide or item.opcode == "scatter":
        return not wide
    numbers = pb.GatherDimensionNumbers.FromString(item.gather_dimension_numbers)
    return wide == [len(numbers.start_index_map)]  # the numbers of the one index


def _is_tiled(item: Any) -> bool:
    """Whether a window may be a running sum, which XLA makes into windows without names."""
    dims = pb.Window.FromString(item.window).dimensions
    return any(dim.size > _LONGEST and (dim.padding_low or dim.padding_high) for dim in dims)


def _instructions(computations: dict[int, Any], number: int) -> Iterator[Any]:
    found = computations.get(number)
    yield from found.instructions if found is not None else ()
