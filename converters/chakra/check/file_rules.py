"""Rules of a file's form, which it can break on its own: ids, dependencies, types, attributes.

The idea: a rule is a function from a view to hits; adding a rule is adding a function.  Every rule
works on whole columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from flint.converters.chakra.check.findings import ERROR, NO_ROWS, Hits, Round
from flint.converters.chakra.check.trace_views import Facts, View
from flint.converters.chakra.schema import (
    EMITTED_TYPES,
    FIELD_OF,
    MEMORY_TYPES,
    REQUIRED_ATTRIBUTES,
    NodeType,
    ValueField,
)

FILE_RULES: Final = Round[[View, Facts]]()


@FILE_RULES.rule("empty-graph", ERROR, blocks=True)
def empty_graph(view: View, facts: Facts) -> Iterator[Hits]:
    """Every rank needs at least one node: consumers abort on an empty graph."""
    if not len(view.trace):
        text = "has no nodes: consumers abort; give the rank at least one COMP node"
        yield Hits(view.index, NO_ROWS, view.ranks, text)


@FILE_RULES.rule("duplicate-id", ERROR, blocks=True)
def duplicate_id(view: View, facts: Facts) -> Iterator[Hits]:
    """Ids are unique: of two nodes with one id consumers drop the first, silently."""
    yield from view.hits(
        view.links.duplicate,
        lambda row: (
            f"id {view.trace.id[row]} already belongs to an earlier node, which consumers drop "
            "silently; give every node its own id"
        ),
    )


@FILE_RULES.rule("missing-dep", ERROR, blocks=True)
def missing_dep(view: View, facts: Facts) -> Iterator[Hits]:
    """Every dependency names a node of the file: consumers abort otherwise."""
    lost: dict[int, int] = dict(
        zip(view.links.missing.tolist(), view.links.missing_id.tolist(), strict=True)
    )
    yield from view.hits(
        np.array(list(lost), np.int64),
        lambda row: (
            f"depends on id {lost[row]}, which no node has: consumers abort; add the node "
            "or drop the dependency"
        ),
    )


@FILE_RULES.rule("self-dep", ERROR, blocks=True)
def self_dep(view: View, facts: Facts) -> Iterator[Hits]:
    """No node depends on itself: it would be dropped silently, exit status 0."""
    yield from view.hits(
        view.links.own,
        "depends on itself, so it never runs and consumers drop it silently; remove the dependency",
    )


@FILE_RULES.rule("cycle", ERROR, blocks=True)
def cycle(view: View, facts: Facts) -> Iterator[Hits]:
    """Dependencies have no cycle: its nodes would be dropped silently, exit status 0."""
    rows = view.links.cycle
    if len(rows):
        ids = view.trace.id[rows].tolist()
        shown = " -> ".join(str(node) for node in [*ids[:8], *(["..."] if len(ids) > 8 else [])])
        text = (
            f"is on a dependency cycle of {len(ids)} nodes ({shown} -> {ids[0]}): "
            "consumers drop them silently; remove one of the dependencies"
        )
        yield from view.hits(rows[:1], text)


@FILE_RULES.rule("node-type", ERROR, blocks=True)
def node_type(view: View, facts: Facts) -> Iterator[Hits]:
    """COMP, SEND, RECV and COLL, and sized copies to and from remote memory: others stall."""
    sized = view.of_types(*MEMORY_TYPES) & (view.trace.tensor_size > 0)
    bad = ~view.of_types(*EMITTED_TYPES) & ~sized
    names = {int(item): item.name for item in NodeType}
    yield from view.hits(
        np.flatnonzero(bad),
        lambda row: (
            f"has type {names.get(int(view.trace.type[row]), view.trace.type[row])}: "
            "consumers stall, assert or access remote memory; use COMP, SEND, RECV or COLL, or "
            "MEM_LOAD and MEM_STORE with a tensor_size"
        ),
    )


@FILE_RULES.rule("required-attr", ERROR, blocks=True)
def required_attr(view: View, facts: Facts) -> Iterator[Hits]:
    """COLL has comm_type and comm_size; SEND and RECV peer, tag and size: consumers throw."""
    for kind, names in REQUIRED_ATTRIBUTES.items():
        rows = view.rows(kind)
        for name in names:
            absent = rows[view.trace.field[name][rows] == 0]
            text = (
                f"{kind.name} without {name}: consumers throw or read 0; write it as "
                f"{FIELD_OF[name].proto_name}"
            )
            yield from view.hits(absent, text)


@FILE_RULES.rule("attr-field", ERROR)
def attr_field(view: View, facts: Facts) -> Iterator[Hits]:
    """Each attribute in its own field: some consumers read any other field as 0."""
    for name, wanted in FIELD_OF.items():
        used = view.trace.field[name]
        for wrong in np.unique(used[(used != 0) & (used != wanted)]).tolist():
            text = (
                f"{name} is in {ValueField(wrong).proto_name}: consumers that expect "
                f"{wanted.proto_name} read 0 or stop; write {wanted.proto_name}"
            )
            yield from view.hits(np.flatnonzero(used == wrong), text)


@FILE_RULES.rule("repeated-attr", ERROR)
def repeated_attr(view: View, facts: Facts) -> Iterator[Hits]:
    """An attribute appears once: which of two values counts differs between consumers."""
    for name, rows in view.trace.repeated.items():
        text = f"{name} appears more than once; write it once"
        yield from view.hits(np.array(sorted(set(rows)), np.int64), text)
