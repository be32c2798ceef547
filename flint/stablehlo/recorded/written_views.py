"""Opened recordings: ops in place that write through a view.

The idea: between composites, a view of a tensor is a slice of its value, and writing to the view is
an update of the value with the slice's new content.  If an in-place op makes this content, nothing
is copied: slice and update are names of memory that the op writes in place.

    %1 = slice %cache                                       %1 is a view of %cache
    %2 = composite "aten.index_copy_.default" %1, ...       writes a row of it
    %3 = dynamic_update_slice %cache, %2, ...               %3 is a view of %2
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from flint.graph.graph import WorkloadGraph
from flint.mesh.ragged import pointer
from flint.stablehlo.read.records import Module, Op
from flint.stablehlo.recorded.issue_order import without_cost
from flint.stablehlo.rules.accessed_bytes import updated_arguments
from flint.stablehlo.rules.control import writes_in_place
from flint.stablehlo.walk.scope import Scope

_RENAMING = frozenset({"reshape", "transpose"})


@dataclass(slots=True)
class _Views:
    """Plumbing that only names memory.

    Attributes:
        names: results of such ops.
        back: those of them that are results of updates: names of what they would have written.
    """

    names: set[int] = field(default_factory=set)
    back: set[int] = field(default_factory=set)


def with_written_views(graph: WorkloadGraph, module: Module, scope: Scope) -> WorkloadGraph:
    """``graph`` in which views that ops in place write take no time.

    Args:
        graph: of a recorded module's entry function, composites opened.
        module: the records, with ``issues``.
        scope: what the ops' results are in the graph.
    """
    views = _written_views(module)
    if not views.names:
        return graph
    free = np.zeros(len(graph), dtype=bool)
    free[[scope.builder.producer_of(scope.values[value]) for value in views.names]] = True
    back = np.zeros(len(graph), dtype=bool)
    back[[scope.builder.producer_of(scope.values[value]) for value in views.back]] = True
    number = np.arange(len(graph.operand)) - graph.operand_ptr[graph.consumer]
    kept = ~back[graph.consumer] | (number == 1)
    counts = np.bincount(graph.consumer[kept], minlength=len(graph))
    named = replace(graph, operand=graph.operand[kept], operand_ptr=pointer(counts))
    return without_cost(named, free)


def _written_views(module: Module) -> _Views:
    main = module.functions["main"]
    plumbing = {value for value, issue in module.issues.items() if issue.number < 0}
    makers = {value: op for op in main.ops for value in op.results}
    users: dict[int, list[Op]] = {}
    for op in main.ops:
        for value in op.operands:
            users.setdefault(value, []).append(op)
    views = _Views()
    for op in main.ops:
        if op.name == "composite" and writes_in_place(str(op.attr("name", ""))):
            body = module.functions[op.attr("decomposition")]
            for result, argument in updated_arguments(module, body).items():
                before = _before(op.operands[argument], makers, plumbing)
                _look(module, views, before, op.results[result], makers, users)
    return views


def _before(value: int, makers: Mapping[int, Op], plumbing: set[int]) -> list[Op]:
    """The views between a value and its memory, the last one first."""
    found = []
    while value in plumbing and makers[value].name in (*_RENAMING, "slice"):
        found.append(makers[value])
        value = makers[value].operands[0]
    return found


def _look(
    module: Module,
    views: _Views,
    before: list[Op],
    result: int,
    makers: Mapping[int, Op],
    users: Mapping[int, list[Op]],
) -> None:
    """Add the views of one operand that is written in place, and those of its result."""
    slices = [op for op in before if op.name == "slice"]
    if len(slices) > 1:
        return
    after, update = _after(result, users)
    if slices:
        if update is None or not _same_place(module, slices[0], update, makers):
            return
        views.back.add(update.results[0])
        after = [*after, update]
    views.names.update(op.results[0] for op in (*before, *after))


def _after(value: int, users: Mapping[int, list[Op]]) -> tuple[list[Op], Op | None]:
    """The views of a result on its way back, and the update."""
    found: list[Op] = []
    while True:
        back = [
            op
            for op in users.get(value, ())
            if op.name in _RENAMING
            or (op.name == "dynamic_update_slice" and op.operands[1] == value)
        ]
        update = next((op for op in back if op.name == "dynamic_update_slice"), None)
        if update is not None or not back:
            return found, update
        found.append(back[0])
        value = back[0].results[0]


def _same_place(module: Module, taken: Op, written: Op, makers: Mapping[int, Op]) -> bool:
    """Whether an update writes to where a slice was taken from the same value."""
    starts = []
    for value in written.operands[2:]:
        maker = makers.get(value)
        constant = None if maker is None else maker.attr("value")
        if constant is None:
            return False
        starts.append(int(constant))
    return (
        list(taken.attr("start")) == starts
        and set(taken.attr("strides")) == {1}
        and module.type_of(taken.operands[0]) == module.type_of(written.operands[0])
        and module.type_of(taken.results[0]) == module.type_of(written.operands[1])
        and _memory(taken.operands[0], makers) == _memory(written.operands[0], makers)
    )


def _memory(value: int, makers: Mapping[int, Op]) -> int:
    """The value of which this one is a reshape."""
    while value in makers and makers[value].name == "reshape":
        value = makers[value].operands[0]
    return value
