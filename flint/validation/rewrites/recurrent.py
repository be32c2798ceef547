"""Recurrent layers, which the CPU runs in another form than accelerators.

The idea: a capture has the products of every step, and a kernel for each step's cell.  The CPU
multiplies a GRU's inputs of all steps at once, runs cells op by op, and an LSTM in one op of a
library (RNN.cpp and mkldnn/RNN.cpp in aten/src/ATen/native).  A product of all steps replaces those
of each step, with the same weight, whose rows add up.  A packed batch has fewer rows in later
steps.

    in_cells(matching)      # before the other products
    at_once(matching)       # after them
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import NamedTuple, TypeAlias

from flint.observed.classes import RECURRENT_LIBRARY, OpClass, base_name
from flint.observed.columns import Gemm
from flint.validation.matching.equivalence import either_way
from flint.validation.matching.pairing import Evidence, Matching, equal
from flint.validation.rewrites.cpu_substitutes import (
    Free,
    Key,
    Shape,
    key_of,
    unmatched_light,
)
from flint.validation.rewrites.recurrent_cells import CELLS

JOINED = "products of a recurrent layer's steps, which the CPU runs as one product"
LIGHT = "light ops of a recurrent layer: accelerators have a kernel for each step, the CPU has none"

#: Ops of PyTorch's that run a recurrent layer over all of its steps.
LAYERS = frozenset({"aten::gru", "aten::lstm", "aten::rnn_tanh", "aten::rnn_relu"})
#: The op that packs a batch of sequences of several lengths.
PACKING = "aten::_pack_padded_sequence"
#: Ops that matter here if they enclose others.
AROUND = LAYERS | {PACKING}

_Captured: TypeAlias = dict[Gemm, list[int]]


class Weight(NamedTuple):
    """A weight that was multiplied for all steps of a layer at once.

    Attributes:
        rows: of each step's input.
        gates, inputs: the weight's shape.
    """

    rows: tuple[int, ...]
    gates: int
    inputs: int

    def forward(self, rows: int) -> Gemm:
        """The product of an input of this many rows."""
        return 1, rows, self.gates, self.inputs

    def of_weight(self, rows: int) -> Gemm:
        """The product for the weight's gradient."""
        return 1, self.gates, self.inputs, rows

    def of_input(self, rows: int) -> Gemm:
        """The product for the input's gradient."""
        return 1, rows, self.inputs, self.gates


def in_cells(matching: Matching) -> None:
    """Pair the products of steps' cells only by their sizes.

    Within a cell the CPU multiplies in another order, so the order is no evidence.
    """
    sizes = {*cell_sizes(matching)}
    if not sizes:
        return
    rules = matching.rules
    captured, executed = (
        [n for n in ids if _of_a_cell(ops[n].gemms, sizes)]
        for ops, ids in zip(
            (matching.captured, matching.executed), matching.unmatched(OpClass.GEMM), strict=True
        )
    )
    keys, ran = (
        [rules.key(ops[n]) for n in ids]
        for ops, ids in ((matching.captured, captured), (matching.executed, executed))
    )
    matching.regrouped = True
    for x, y in equal(keys, ran):
        matching.pair(captured[x], executed[y], Evidence.SIZES)


def cell_sizes(matching: Matching) -> list[Shape]:
    """(rows, gates) of the captured cells, forward, in order."""
    return [
        facts.operands[0][0]
        for facts in matching.captured
        if facts.operands and base_name(facts.name) in CELLS and "backward" not in facts.name
    ]


def _of_a_cell(gemms: tuple[Gemm, ...] | None, sizes: set[Shape]) -> bool:
    """Whether a product is of a step's input or state with a weight, or of a gradient of those."""
    return any(batch == 1 and {(m, n), (k, m), (m, k)} & sizes for batch, m, n, k in gemms or ())


def at_once(matching: Matching) -> None:
    """Pair products of all steps with those of each, and explain the sums of weights' gradients
    that one product has summed, and the biases of all steps.
    """
    captured: _Captured = defaultdict(list)
    for i in matching.unmatched(OpClass.GEMM)[0]:
        for size in matching.captured[i].gemms or ():
            captured[either_way(size)].append(i)
    weights = _by_library(matching, captured) + _at_once(matching, captured)
    matching.recurrent += weights
    matching.regrouped |= bool(weights)
    added: Counter[Key] = Counter()
    biased: Counter[Key] = Counter()
    for weight in weights:
        rows, bias = weight.rows, (weight.gates,)
        for shape in ((weight.gates, weight.inputs), bias):
            added[key_of("add", shape)] += len(rows) - 1
        # Inputs that are not contiguous (batch_first) are multiplied without the bias.
        biased[key_of("add", (len(rows), rows[0], weight.gates), bias)] += 1
    captured_ids, executed_ids = unmatched_light(matching)
    inside = [j for j in executed_ids if matching.around and matching.around[j] in LAYERS]
    matching.explain(
        LIGHT,
        Free(matching.captured, captured_ids).take(added),
        Free(matching.executed, inside).take(biased),
    )


def _by_library(matching: Matching, captured: _Captured) -> list[Weight]:
    """Pair a library's ops with the products of their steps, and explain their cells."""
    cells: dict[bool, list[int]] = defaultdict(list)
    for i in unmatched_light(matching)[0]:
        base = base_name(matching.captured[i].name)
        if base in CELLS and "lstm" in base:
            cells["backward" in base].append(i)
    found: list[Weight] = []
    for j in matching.unmatched(OpClass.GEMM)[1]:
        facts = matching.executed[j]
        if not base_name(facts.name).startswith(RECURRENT_LIBRARY) or not facts.gemms:
            continue
        (steps, rows, _), *shapes = (shape for shape, _ in (facts.operands or ())[:3])
        weights = [Weight((rows,) * steps, *shape) for shape in shapes]
        backward = base_name(facts.name).endswith("backward")
        needed = [(one.of_weight if backward else one.forward)(rows) for one in weights]
        # The gradient of an input that needs none is not captured; a library computes it.
        spare = [one.of_input(rows) for one in weights] if backward else []
        if not _enough(captured, needed * steps):
            continue
        for size in (needed + spare) * steps:
            _take(matching, j, captured, size)
        matching.explained[JOINED] += 1
        matching.explain(LIGHT, cells[backward][:steps], [])
        del cells[backward][:steps]
        found += weights
    return found


def _at_once(matching: Matching, captured: _Captured) -> list[Weight]:
    """Pair products of all steps' inputs, in an op that runs a layer, and of their gradients."""
    found: list[Weight] = []
    executed = [j for j in matching.unmatched(OpClass.GEMM)[1] if matching.executed[j].gemms]
    cells = cell_sizes(matching)
    for j in executed:
        _, rows, gates, inputs = (matching.executed[j].gemms or ())[0]
        if not matching.around or matching.around[j] not in LAYERS:
            continue
        weight = Weight((), gates, inputs)
        for steps in chain(_in_cells(cells, gates, rows), _steps(captured, weight, rows)):
            weight = weight._replace(rows=steps)
            if _all(matching, j, captured, map(weight.forward, steps)):
                found.append(weight)
                break
    for weight in found:
        for product in (weight.of_weight, weight.of_input):
            of_all = either_way(product(sum(weight.rows)))
            for j in executed:
                same = [of_all] == [*map(either_way, matching.executed[j].gemms or ())]
                if not same or j not in matching.unmatched_executed:
                    continue
                if _all(matching, j, captured, map(product, weight.rows)):
                    break
    return found


def _in_cells(cells: Sequence[Shape], gates: int, rows: int) -> Iterator[tuple[int, ...]]:
    """The rows of cells in sequence that together have so many, of each such sequence once."""
    ends = [0, *accumulate(of for of, gates_of in cells if gates_of == gates)]
    place = {end: number for number, end in enumerate(ends)}
    seen: set[tuple[int, ...]] = set()
    for begin, end in enumerate(ends):
        last = place.get(end + rows, begin)
        steps = tuple(y - x for x, y in pairwise(ends[begin : last + 1]))
        if len(steps) > 1 and steps not in seen:
            seen.add(steps)
            yield steps


def _steps(captured: _Captured, weight: Weight, rows: int) -> Iterator[tuple[int, ...]]:
    """The rows that a layer's steps may have, if together they have so many: those of the first
    captured products with the weight, or else as many in each step.
    """
    sizes = ((of, either_way(weight.forward(of))) for of in range(1, rows + 1))
    first = sorted((i, of) for of, size in sizes for i in captured.get(size, ()))
    ends = [*accumulate(of for _, of in first)]
    if rows in ends[1:]:
        yield tuple(of for _, of in first[: ends.index(rows) + 1])
    yield from ((rows // steps,) * steps for steps in range(2, rows + 1) if not rows % steps)


def _all(matching: Matching, j: int, captured: _Captured, sizes: Iterable[Gemm]) -> bool:
    """Pair an executed product with one of each step, if they are there."""
    of_steps = [*sizes]
    if not _enough(captured, of_steps):
        return False
    for size in of_steps:
        _take(matching, j, captured, size)
    matching.explained[JOINED] += 1
    return True


def _enough(captured: _Captured, sizes: list[Gemm]) -> bool:
    wanted = Counter(map(either_way, sizes))
    return all(len(captured[size]) >= times for size, times in wanted.items())


def _take(matching: Matching, j: int, captured: _Captured, size: Gemm) -> None:
    if captured[either_way(size)]:
        matching.pair(captured[either_way(size)].pop(0), j, Evidence.SIZES)
