"""Opened recordings: views that kernels take as they are.

The idea: between composites, a view is a slice or a transpose of a value, and what a kernel wrote
into a view is an update of the value.  A compiler's own kernels absorb these.  Kernels that stay
what the framework launches, and products, are given an address and strides: nothing is copied for
them, however many read the view.

    %1 = slice %gradients                                       an address within %gradients
    %2 = composite "aten._fused_adamw_.default" %1, ...         reads it there
    %3 = composite "aten._foreach_copy_.default" %shard         writes into a part of %flat
    %4 = dynamic_update_slice %flat, %3, ...                    which has it already
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from flint.graph.graph import WorkloadGraph
from flint.stablehlo.read.records import Module, Op
from flint.stablehlo.recorded.issue_order import without_cost
from flint.stablehlo.walk.scope import Scope

#: Ops that only name memory.
_NAMING = frozenset({"reshape", "transpose", "slice"})
#: Ops that a product takes into the loads of its operands.
_LOADED = frozenset({"convert", "reshape", "transpose"})
_PRODUCTS = frozenset({"dot_general", "convolution", "chlo.ragged_dot"})


def with_read_views(
    graph: WorkloadGraph, module: Module, scope: Scope, opened: Collection[int]
) -> WorkloadGraph:
    """``graph`` in which views of kernels that take them as they are take no time.

    Args:
        graph: of a recorded module's entry function, composites opened.
        module: the records, with ``issues``.
        scope: what the ops' results are in the graph.
        opened: first results of the composites that were opened.
    """
    names = _views(module, opened)
    if not names:
        return graph
    free = np.zeros(len(graph), dtype=bool)
    free[[scope.builder.producer_of(scope.values[value]) for value in names]] = True
    return without_cost(graph, free)


def _views(module: Module, opened: Collection[int]) -> list[int]:
    main = module.functions["main"]
    plumbing = {value for value, issue in module.issues.items() if issue.number < 0}
    takes = _Takes(module, opened, plumbing)
    makers = {value: op for op in main.ops for value in op.results}
    return [
        op.results[0]
        for op in main.ops
        if op.results
        and op.results[0] in plumbing
        and (
            (_is_view(op) and takes(op.results[0]))
            or (op.name == "dynamic_update_slice" and takes.wrote(op.operands[1], makers))
        )
    ]


def _is_view(op: Op) -> bool:
    """Whether an op gives what an address and strides say, without a gap within a row."""
    return op.name == "transpose" or (op.name == "slice" and set(op.attr("strides")) == {1})


class _Takes:
    """Whether all that read a view take it as it is."""

    def __init__(self, module: Module, opened: Collection[int], plumbing: Collection[int]) -> None:
        self._module, self._opened, self._plumbing = module, opened, plumbing
        self._users: dict[int, list[tuple[Op, int]]] = {}
        for op in module.functions["main"].ops:
            for place, value in enumerate(op.operands):
                self._users.setdefault(value, []).append((op, place))
        self._known: dict[tuple[str, int], bool] = {}

    def __call__(self, value: int) -> bool:
        users = self._users.get(value, ())
        return bool(users) and all(self._by(op, place) for op, place in users)

    def wrote(self, value: int, makers: Mapping[int, Op]) -> bool:
        """Whether a kernel that is not opened made what is written into a view."""
        while value in self._plumbing and makers[value].name in _NAMING:
            value = makers[value].operands[0]
        maker = makers.get(value)
        return maker is not None and maker.name == "composite" and not self._is_opened(maker)

    def _by(self, op: Op, place: int) -> bool:
        if op.results and op.results[0] in self._plumbing:
            return op.name in _NAMING and self(op.results[0])
        if op.name != "composite" or not self._is_opened(op):
            return True
        body = str(op.attr("decomposition"))
        if (body, place) not in self._known:
            self._known[body, place] = self._multiplied(body, place)
        return self._known[body, place]

    def _is_opened(self, op: Op) -> bool:
        return op.results[0] in self._opened

    def _multiplied(self, name: str, place: int) -> bool:
        """Whether a function's argument is only an operand of products."""
        body = self._module.functions[name]
        values, products = {body.args[place]}, 0
        for op in body.ops:
            if values.isdisjoint(op.operands):
                continue
            if op.name in _LOADED:
                values.update(op.results)
            elif op.name in _PRODUCTS:
                products += 1
            else:
                return False
        return products > 0
