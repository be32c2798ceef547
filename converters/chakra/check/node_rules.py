"""Rules of what a file's nodes say: kinds and sizes of communication, tags, costs, groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from flint.converters.chakra.check.findings import ERROR, WARNING, Hits, Round
from flint.converters.chakra.check.refused_settings import NO_MEMORY
from flint.converters.chakra.check.trace_views import Facts, View
from flint.converters.chakra.schema import (
    MAX_TAG,
    MEMORY_TYPES,
    SIMULATED_KINDS,
    CollectiveKind,
    NodeType,
)

NODE_RULES: Final = Round[[View, Facts]]()
_P2P: Final = (NodeType.SEND, NodeType.RECV)


@NODE_RULES.rule("cpu-op", ERROR)
def cpu_op(view: View, facts: Facts) -> Iterator[Hits]:
    """`is_cpu_op` is false on communication: consumers throw on a host-side COLL."""
    rows = np.flatnonzero(view.of_types(NodeType.COLL, *_P2P) & (view.trace.is_cpu_op != 0))
    yield from view.hits(rows, "is_cpu_op is true on a communication: consumers throw; write false")


@NODE_RULES.rule("no-cpu-op", WARNING)
def no_cpu_op(view: View, facts: Facts) -> Iterator[Hits]:
    """`is_cpu_op` is there on a COLL: older consumers take one without it for true and throw."""
    rows = view.rows(NodeType.COLL)
    yield from view.hits(
        rows[view.trace.field["is_cpu_op"][rows] == 0],
        "COLL without is_cpu_op: older consumers treat it as true and throw; write false",
    )


@NODE_RULES.rule("host-compute", WARNING)
def host_compute(view: View, facts: Facts) -> Iterator[Hits]:
    """A COMP with `is_cpu_op` runs on the host's slot, beside the device's compute."""
    rows = np.flatnonzero(view.of_types(NodeType.COMP) & (view.trace.is_cpu_op != 0))
    yield from view.hits(
        rows,
        "is_cpu_op is true: it overlaps all device compute; write false unless it is work of the "
        "host",
    )


@NODE_RULES.rule("remote-memory", ERROR)
def remote_memory(view: View, facts: Facts) -> Iterator[Hits]:
    """Copies to and from remote memory need a cluster that has some: ASTRA-sim ends at them."""
    if facts.set.memory.get("memory-type") == NO_MEMORY:
        yield from view.hits(
            np.flatnonzero(view.of_types(*MEMORY_TYPES)),
            f"copies to or from remote memory, and remote_memory.json says {NO_MEMORY}: ASTRA-sim "
            "ends there; write PER_NPU_MEMORY_EXPANSION with its latency and bandwidth",
        )


@NODE_RULES.rule("comm-size", ERROR)
def comm_size(view: View, facts: Facts) -> Iterator[Hits]:
    """Sizes are positive: P2P of size 0 asserts, an all-gather of size 0 hangs."""
    trace = view.trace
    there = view.of_types(NodeType.COLL, *_P2P) & (trace.field["comm_size"] != 0)
    yield from view.hits(
        np.flatnonzero(there & (trace.comm_size <= 0)),
        lambda row: (
            f"comm_size is {trace.comm_size[row]} bytes: consumers assert or hang; leave "
            "out empty communication or write its size"
        ),
    )


@NODE_RULES.rule("collective-kind", ERROR)
def collective_kind(view: View, facts: Facts) -> Iterator[Hits]:
    """Consumers model all-reduce, all-gather, reduce-scatter and all-to-all, and no others."""
    trace = view.trace
    rows = view.rows(NodeType.COLL)
    bad = ~np.isin(trace.comm_type[rows], np.array(sorted(SIMULATED_KINDS)))
    names = {int(kind): kind.name for kind in CollectiveKind}
    yield from view.hits(
        rows[bad & (trace.field["comm_type"][rows] != 0)],
        lambda row: (
            f"comm_type {names.get(int(trace.comm_type[row]), trace.comm_type[row])} is "
            "not modelled: consumers abort or replay a duration; write it as SEND and RECV nodes "
            "or as one of ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL"
        ),
    )


@NODE_RULES.rule("gather-splits", ERROR)
def gather_splits(view: View, facts: Facts) -> Iterator[Hits]:
    """An all-gather of fewer bytes than `preferred-dataset-splits` has empty chunks and hangs."""
    splits = facts.set.system.get("preferred-dataset-splits")
    if type(splits) is not int:
        return
    trace = view.trace
    small = (trace.type == NodeType.COLL) & (trace.comm_type == CollectiveKind.ALL_GATHER)
    small &= (trace.comm_size > 0) & (trace.comm_size < splits)
    yield from view.hits(
        np.flatnonzero(small),
        lambda row: (
            f"an all-gather of {trace.comm_size[row]} bytes is cut into {splits} chunks "
            "(preferred-dataset-splits), some of them empty, and hangs; lower the splits or merge "
            "it with another collective"
        ),
    )


@NODE_RULES.rule("tag-range", ERROR)
def tag_range(view: View, facts: Facts) -> Iterator[Hits]:
    """Tags lie in [0, 5e8): consumers take them modulo that, so others collide."""
    tag = view.trace.comm_tag
    bad = view.of_types(*_P2P) & ((tag < 0) | (tag >= MAX_TAG))
    yield from view.hits(
        np.flatnonzero(bad),
        lambda row: (
            f"comm_tag {tag[row]} is outside 0..{MAX_TAG - 1}: consumers reduce it modulo "
            f"{MAX_TAG}, so tags may collide; number tags from 0"
        ),
    )


@NODE_RULES.rule("duration-range", ERROR)
def duration_range(view: View, facts: Facts) -> Iterator[Hits]:
    """`duration_micros` x 1000 must fit a signed 64-bit count of nanoseconds."""
    limit = np.uint64((1 << 63) // 1000)
    yield from view.hits(
        np.flatnonzero(view.trace.duration >= limit),
        lambda row: (
            f"duration_micros {view.trace.duration[row]} overflows when counted in ns; it is not "
            "a duration in microseconds"
        ),
    )


@NODE_RULES.rule("no-cost", WARNING)
def no_cost(view: View, facts: Facts) -> Iterator[Hits]:
    """A COMP with neither duration nor num_ops costs nothing anywhere (1 ns)."""
    trace = view.trace
    free = (trace.type == NodeType.COMP) & (trace.duration == 0) & (trace.num_ops <= 0)
    yield from view.hits(
        np.flatnonzero(free),
        "has neither duration_micros nor num_ops: it takes 1 ns; give it a cost or merge it into a "
        "neighbour",
    )


@NODE_RULES.rule("comp-cost", WARNING)
def comp_cost(view: View, facts: Facts) -> Iterator[Hits]:
    """num_ops and tensor_size, where given, are at least 1: 0 hangs with the roofline model."""
    trace = view.trace
    comp = trace.type == NodeType.COMP
    bad = comp & (trace.field["num_ops"] != 0) & (trace.num_ops < 1)
    bad |= comp & (trace.field["tensor_size"] != 0) & (trace.tensor_size < 1)
    yield from view.hits(
        np.flatnonzero(bad),
        lambda row: (
            f"num_ops {trace.num_ops[row]}, tensor_size {trace.tensor_size[row]}: with the "
            "roofline model on, consumers hang on 0; write at least 1"
        ),
    )


@NODE_RULES.rule("roofline-cost", ERROR)
def roofline_cost(view: View, facts: Facts) -> Iterator[Hits]:
    """With `roofline-enabled` in the system file every COMP has num_ops and tensor_size >= 1."""
    if facts.set.system.get("roofline-enabled") not in (1, True):
        return
    trace = view.trace
    bad = (trace.type == NodeType.COMP) & ((trace.num_ops < 1) | (trace.tensor_size < 1))
    yield from view.hits(
        np.flatnonzero(bad),
        lambda row: (
            f"num_ops {trace.num_ops[row]}, tensor_size {trace.tensor_size[row]} with "
            "roofline-enabled 1: consumers throw or hang; write both, at least 1, or switch it off"
        ),
    )


@NODE_RULES.rule("ctrl-deps", WARNING)
def ctrl_deps(view: View, facts: Facts) -> Iterator[Hits]:
    """Order belongs in `data_deps`: some consumers ignore `ctrl_deps`."""
    yield from view.hits(
        np.flatnonzero(np.diff(view.trace.ctrl_deps.start)),
        "has ctrl_deps, which some consumers ignore (the checks of order ignore them too); write "
        "every ordering dependency into data_deps",
    )


@NODE_RULES.rule("group-key", ERROR, blocks=True)
def group_key(view: View, facts: Facts) -> Iterator[Hits]:
    """pg_name is a decimal integer >= 1 and involved_dim has one entry per network dim."""
    communicators, of_row = view.communicators
    for index, communicator in enumerate(communicators):
        if communicator.problem:
            rows = np.flatnonzero(of_row == index)
            yield from view.hits(rows, communicator.problem)


@NODE_RULES.rule("both-groups", WARNING)
def both_groups(view: View, facts: Facts) -> Iterator[Hits]:
    """involved_dim is ignored where pg_name is set."""
    trace = view.trace
    named = np.array([name not in ("", "0") for name in trace.pg_names] + [False])[trace.pg_name]
    rows = np.flatnonzero((trace.type == NodeType.COLL) & named & (trace.involved_dim >= 0))
    yield from view.hits(
        rows,
        "has both pg_name and involved_dim: the latter is ignored; write the one meant",
    )
