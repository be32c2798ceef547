"""Inserting transposes and copies of values, for passes that follow XLA's layouts.

The idea: a transpose is made once, before the first of the operand entries that are to read it.  It
is told from a program's own ones by what it does as a kernel (``Tables.heroes``): nothing takes it
in.

    with_transposes(graph, {value: Transpose([3, 7], (1, 0, 2))})
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np

from flint.graph.graph import Form, Ints, NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.passes.permute import permuted

TRANSPOSE: Final = "transpose"
COPY: Final = "copy"
Entry = tuple[str, str, Form]
#: What a table of ops has of a padding in memory.
PADDED: Final[Entry] = ("pad", "pad", ())


def entry_of(order: Form) -> Entry:
    """What a table of ops has of a transpose in memory."""
    return TRANSPOSE, TRANSPOSE, order


class Transpose(NamedTuple):
    """A transpose of a value.

    Attributes:
        entries: the operand entries that read the result.
        order: its permutation of dims in memory.
        made: the number of its type; -1: the type stays that of the value.
        leaves: whether the result leaves the block in place of the value.
    """

    entries: list[int]
    order: Form
    made: int = -1
    leaves: bool = False

    @property
    def entry(self) -> Entry:
        """What a table of ops has of it."""
        return entry_of(self.order)

    @property
    def role(self) -> Role:
        """It may be a part of other kernels."""
        return Role.MOVEMENT


class Copy(NamedTuple):
    """A copy of a value, made after everything else is fused.

    Attributes:
        entries: the operand entries that read the result.
        made: its type is that of the value.
    """

    entries: list[int]
    made: int = -1

    @property
    def entry(self) -> Entry:
        """What a table of ops has of it."""
        return COPY, "", ()

    @property
    def role(self) -> Role:
        """Nothing takes it in."""
        return Role.OPAQUE


class Pad(NamedTuple):
    """A value with zeros behind it, which no product loads as if they were there.

    Attributes:
        entries: the operand entries that read the result.
        made: the number of its type.
    """

    entries: list[int]
    made: int

    @property
    def entry(self) -> Entry:
        """What a table of ops has of it."""
        return PADDED

    @property
    def role(self) -> Role:
        """It may be a part of other kernels."""
        return Role.MOVEMENT


def with_transposes(
    graph: WorkloadGraph, found: Mapping[int, Transpose | Copy | Pad]
) -> WorkloadGraph:
    """One block with transposes or copies of values.

    Args:
        graph: the block; its table of ops has their entries, or the plain one for them.
        found: value -> its transpose or copy.
    """
    if not found:
        return graph
    numbers = {entry: number for number, entry in enumerate(graph.tables.entries())}
    plain = numbers[TRANSPOSE, "", ()]
    values = np.array(list(found), dtype=np.int64)
    operand, outputs = graph.operand.copy(), graph.outputs.copy()
    users = np.zeros(len(found), dtype=np.int64)
    for number, (value, each) in enumerate(found.items()):
        operand[each.entries] = graph.values + number
        if isinstance(each, Transpose) and each.leaves:
            outputs[graph.outputs == value] = graph.values + number
        behind = graph.producer[value] + 1
        users[number] = graph.consumer[min(each.entries)] if each.entries else behind
    size, count = graph.value_bytes[values], len(values)
    made = np.array([each.made for each in found.values()], dtype=np.int64)

    def more(name: str, added: Ints | int) -> Any:
        column = getattr(graph, name)
        return np.concatenate([column, np.broadcast_to(added, count)]).astype(column.dtype)

    def longer(name: str, each: int) -> Ints:
        ptr: Ints = getattr(graph, name)
        return np.concatenate([ptr, ptr[-1] + each * np.arange(1, count + 1)])

    appended = replace(
        graph,
        kind=more("kind", NodeKind.COMPUTE),
        role=more("role", np.array([each.role for each in found.values()])),
        op=more("op", np.array([numbers.get(each.entry, plain) for each in found.values()])),
        detail=more("detail", -1),
        source=more("source", graph.source[np.minimum(users, len(graph) - 1)]),
        ops_merged=more("ops_merged", 0),
        bytes_read=more("bytes_read", size),
        bytes_written=more("bytes_written", size),
        bytes_aliased=more("bytes_aliased", 0),
        result_ptr=longer("result_ptr", 1),
        result_type=more("result_type", np.where(made < 0, graph.value_type[values], made)),
        operand_ptr=longer("operand_ptr", 1),
        operand=np.concatenate([operand, values]),
        outputs=outputs,
        order_ptr=longer("order_ptr", 0),
        work_ptr=longer("work_ptr", 0),
    )
    place = np.concatenate([2 * np.arange(len(graph)) + 1, 2 * users])
    return permuted(appended, np.argsort(place, kind="stable").astype(np.int64))
