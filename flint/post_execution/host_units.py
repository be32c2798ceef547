"""Units of a step on a host: the innermost ops that do work themselves.

The idea: lighter ops that an op calls are part of it: a product copies its bias, a gradient begins
with zeros.  If several ops of the same weight are nested, the innermost counts.  An op of unknown
class works if nothing in it does, and it calls nothing or makes its result (an upsampling); others
only call ops or make views.  Ops of other libraries also write into results that they are given:
those that spend most of their time themselves work, too (a product of vLLM's that reads a number).
Copies in an op are part of it if it is known to work on them (an FFT, a factorisation) or spends
most of its time itself; otherwise it only calls them.

units = host_units(trace, links, rows)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flint.graph.distinct import distinct
from flint.mesh.ragged import Ints
from flint.observed.classes import OpClass, base_name, is_fused_in_cpp
from flint.observed.columns import Observed, OpFacts
from flint.observed.selection import MAKERS
from flint.observed.unfinished_ops import unfinished
from flint.post_execution.kernel_units import NO_EXCHANGE
from flint.post_execution.links import Links
from flint.post_execution.units import NO_STREAM, Units, by_fact

#: Host ops of unknown class that are not kernels: they call others.
_WRAPPERS = (
    "autograd::",
    "torch::",
    "torch.",
    "c10d::",
    "_c10d_functional",
    "Optimizer.",
    "ProfilerStep",
)
#: Annotations of graphs that Inductor compiled.
_COMPILED = "## Call CompiledFxGraph"
UNNAMED_KERNELS = (
    "calls of graphs from torch.compile, whose C++ kernels the profile does not name: their "
    "time counts as the host's, between ops; profile with "
    "torch._inductor.config.cpp.enable_kernel_profile = True"
)
#: Note about a profile whose ops waited for a device that it does not record.
NO_KERNELS = (
    "calls that wait for a device, in a trace without kernels: all times are those of the host, "
    "which launched the kernels; profile with ProfilerActivity.CUDA, and check that the "
    "profiler has permission"
)
NOT_RUN = "products that began and did not run: activation checkpointing already had what it needed"
#: Annotations of gloo's own work.
_GLOO = "gloo:"
#: How names of PyTorch's own ops begin, which make their results or are views.
_PYTORCH = ("aten::", "prim::", "prims::")
#: How names of ops begin that may copy operands, and then work on the copies.
_KEEPS_COPIES = ("_fft_", "linalg_", "_linalg_", "upsample_", "_upsample_", "grid_sampler_")


def _may_be_kernel(fact: OpFacts) -> bool:
    """Whether an op of unknown class may do work itself."""
    named = "::" in fact.name and not fact.name.startswith(_WRAPPERS)
    return fact.kind == OpClass.OTHER and named


def _within_library(trace: Observed, links: Links | None) -> NDArray[np.bool_]:
    """Ops that gloo runs on its own threads for a collective, as parts of it.

    On the thread that issues collectives, an annotation lasts until its work is done elsewhere, and
    ops that begin in the meantime are unrelated.
    """
    inside = np.zeros(len(trace), bool)
    if links is None:
        return inside
    talks = by_fact(trace.facts, _communicates)[trace.op]
    issuing = set(distinct(links.thread[talks]).tolist())
    for span in links.spans:
        if span.name.startswith(_GLOO) and span.thread not in issuing:
            begun = (links.issued >= span.start) & (links.issued < span.end)
            inside |= begun & (links.thread == span.thread)
    return inside


def _communicates(fact: OpFacts) -> bool:
    return fact.kind.collective or fact.kind is OpClass.OTHER_COLLECTIVE


def _unnamed(trace: Observed, links: Links | None, rows: Ints) -> dict[str, int]:
    """Notes about a device, or about graphs called among some rows, that have no kernels."""
    if links is None or not len(rows):
        return {}
    if links.blocking:
        return {NO_KERNELS: len(links.blocking)}
    if any(is_fused_in_cpp(fact.name) for fact in trace.facts):
        return {}
    low, high = int(links.issued[rows].min()), int(links.over[rows].max())
    called = sum(s.name.startswith(_COMPILED) and low <= s.start < high for s in links.spans)
    return {UNNAMED_KERNELS: called} if called else {}


def _of_numbers(fact: OpFacts) -> bool:
    """Whether an op is known to read only single numbers."""
    return bool(fact.operands) and not _of_tensors(fact)


def _of_tensors(fact: OpFacts) -> bool:
    """Whether an op is known to read more than single numbers."""
    return any(shape for shape, _ in fact.operands or ())


def _below(rows: Ints, parent: Ints, marked: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which rows of a trace have marked rows inside them.

    Args:
        rows: the rows that are considered.
        parent: parent of each row of the trace, -1 for none.
        marked: whether each row of the trace is marked.
    """
    found = np.zeros(len(parent), bool)
    inner = rows[marked[rows]]
    while len(inner):
        outer = parent[inner]
        outer = distinct(outer[outer >= 0])
        inner = outer[~found[outer]]
        found[inner] = True
    return found


def _unknown_work(trace: Observed, rows: Ints, inside: Ints) -> NDArray[np.bool_]:
    """Which rows are ops of unknown class that work themselves, shape [rows].

    Args:
        trace: the trace.
        rows: rows that are considered, outer ones first.
        inside: for each row of the trace, the weight of the heaviest op in it.
    """
    parent, op = trace.parent, trace.op
    unknown = by_fact(trace.facts, _may_be_kernel)[op]
    outer, inner = parent[rows], rows[parent[rows] >= 0]
    has_parts = np.zeros(len(trace), bool)
    has_parts[outer[outer >= 0]] = True
    made = np.zeros(len(trace), bool)
    makes = by_fact(trace.facts, lambda fact: base_name(fact.name) in MAKERS)[op]
    copies = by_fact(trace.facts, lambda fact: fact.kind == OpClass.COPY)[op]
    made[parent[inner[(makes | copies)[inner]]]] = True
    # Times decide only where names do not: in a short op, copies may take longer than its work.
    keeps = by_fact(trace.facts, lambda fact: base_name(fact.name).startswith(_KEEPS_COPIES))[op]
    if trace.timed:
        own = trace.duration.copy()
        np.subtract.at(own, parent[inner], trace.duration[inner])
        itself = 2 * own > trace.duration
        keeps |= itself
        made |= itself & by_fact(trace.facts, lambda fact: not fact.name.startswith(_PYTORCH))[op]
    made &= np.where(keeps, inside <= OpClass.COPY.weight, inside == 0)
    found = unknown & np.where(has_parts, made, inside == 0)
    return found[rows] & ~_below(rows, parent, found)[rows]


def host_units(trace: Observed, links: Links | None, rows: Ints) -> Units:
    """The units of some rows of a trace; links are None for execution traces."""
    works = by_fact(trace.facts, lambda fact: fact.kind not in (OpClass.FREE, OpClass.OTHER))
    talks = by_fact(trace.facts, lambda fact: fact.kind.collective)
    parent, op = trace.parent, trace.op
    # A number passed to an op on tensors becomes a tensor inside it: not separate work.
    numbers = works & by_fact(trace.facts, _of_numbers)
    tensors = by_fact(trace.facts, _of_tensors)
    weight = np.array([fact.kind.weight for fact in trace.facts], np.int64)
    inside = np.zeros(len(trace), np.int64)
    for least in range(1, int(weight.max(initial=0)) + 1):
        inside[_below(rows, parent, ((weight >= least) & ~numbers)[op])] = least
    below_numbers = _below(rows, parent, numbers[op])[rows] & ~tensors[op[rows]]
    below_talks = _below(rows, parent, talks[op])
    alone = _unknown_work(trace, rows, inside)
    taken = np.where(
        talks[op[rows]],
        ~below_talks[rows],
        ~below_numbers & ((weight[op[rows]] > inside[rows]) | alone),
    )
    not_run = unfinished(trace, rows)
    taken[list(not_run)] = False
    covered = _within_library(trace, links).tolist()
    chosen = []
    for row, take, outer in zip(rows.tolist(), taken.tolist(), parent[rows].tolist(), strict=True):
        if covered[row] or (outer >= 0 and covered[outer]):
            covered[row] = True
        elif take:
            covered[row] = True
            chosen.append(row)
    row = np.array(chosen, np.int64)
    names = {fact.name: None for fact in trace.facts}
    number = {name: i for i, name in enumerate(names)}
    of_fact = np.array([number[fact.name] for fact in trace.facts], np.int64)
    collective = talks[op[row]]
    started = by_fact(trace.facts, lambda fact: fact.kind.collective and not fact.blocks)[op[row]]
    notes = _unnamed(trace, links, rows)
    others = by_fact(trace.facts, lambda fact: fact.kind is OpClass.OTHER_COLLECTIVE)[op[row]]
    if others.any():
        notes[NO_EXCHANGE] = int(others.sum())
    if not_run:
        notes[NOT_RUN] = len(not_run)
    timed = trace.timed
    thread = links.thread[row] if links is not None else trace.stream[row]
    end = np.where(trace.end[row] >= 0, trace.end[row], trace.start[row] + trace.duration[row])
    units = Units(
        path=trace.path,
        rank=trace.ranks[0],
        device=False,
        timed=timed,
        names=tuple(names),
        name=of_fact[op[row]],
        facts=trace.facts,
        fact=op[row],
        row=row,
        # Work of another thread for a collective began when that thread began.
        start=np.where(collective, end - trace.duration[row], trace.start[row])
        if timed else np.full(len(row), -1, np.int64),
        duration=trace.duration[row] if timed else np.full(len(row), -1, np.int64),
        issued=trace.start[row] if timed else np.arange(len(row), dtype=np.int64),
        launch=np.full(len(row), -1, np.int64),
        thread=thread,
        stream=np.where(started, NO_STREAM, thread),
        collective=collective,
        notes=notes,
    )  # fmt: skip
    return units.taken(np.argsort(units.issued, kind="stable"))
