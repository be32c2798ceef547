"""A workload against post-execution traces.

The idea: every trace is read into observed ops, of one step per rank, and held against what the
capture says that this rank runs.  Where nothing can be concluded (another number of ranks, another
model, steps that are not alike) that is an error and not a verdict.

    report = validate(flint.load("out/"), [Path("kineto_rank0.json.gz")])
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from flint.errors import FlintError, UsageError
from flint.validation.classes import OpClass
from flint.validation.dependencies import contradictions
from flint.validation.duplicates import repeated
from flint.validation.expected import Expected, expected_of
from flint.validation.keys import DUPLICATE, Rules, rules_for
from flint.validation.matching import Evidence, Matching, match
from flint.validation.observed import Ints, Observed, OpFacts
from flint.validation.reading import read_trace
from flint.validation.report import Difference, Report, described
from flint.validation.selection import plain_name, selected
from flint.workload import Level, Order, Workload

#: Below this part of heavy ops with a partner nothing but "another program" can be concluded.
_ALIKE = 0.25
_LISTED_EDGES = 20
#: With more kinds of ops without a partner no duplicates are looked for.
_LOOKED_AT = 100


def validate(workload: Workload, traces: Sequence[Path], *, step: str | None = None) -> Report:
    """Compare a workload with what profilers recorded.

    Args:
        workload: partitioned or recorded, of the same mesh as the run.
        traces: one file or folder per trace; each rank at most once.
        step: which step of the traces, by its name or the number in it ("ProfilerStep#4", "4");
            the last whole one without.

    Raises:
        UsageError: no such step, no traces, a rank twice, a logical workload.
        FlintError: a trace that cannot be read, or of which nothing can be concluded.
    """
    if workload.level == Level.LOGICAL:
        raise UsageError("the program is not partitioned: there is nothing that a rank would run")
    if not traces:
        raise UsageError("give at least one --trace")
    report = Report([str(path) for path in traces], workload.mesh.size, False)
    report.comparable = workload.order == Order.RECORDED
    for path in traces:
        trace = read_trace(path)
        _check_world(workload, trace)
        for text, count in trace.notes.items():
            report.notes[text] = report.notes.get(text, 0) + count
        for rank in trace.ranks:
            if rank in report.ranks:
                raise UsageError(f"{path}: rank {rank} is in another trace as well")
            number = _step(trace, rank, step)
            report.ranks.append(rank)
            report.step.append(trace.steps[number])
            _compare(workload, trace, rank, number, report)
    return report


def _check_world(workload: Workload, trace: Observed) -> None:
    size = workload.mesh.size
    recorded = workload.order == Order.RECORDED
    if trace.form in ("kineto", "pytorch-et") and not recorded:
        raise FlintError(f"{trace.path}: a PyTorch trace; the capture is of an XLA program")
    if trace.form == "xplane" and recorded:
        raise FlintError(f"{trace.path}: a JAX trace; the capture is of a PyTorch program")
    if trace.world is not None and trace.world != size:
        raise FlintError(
            f"{trace.path}: a run on {trace.world:,} ranks; the capture is for {size:,} "
            f"({workload.mesh}): capture it for the mesh of the run"
        )
    if trace.ranks and trace.ranks[-1] >= size:
        raise FlintError(f"{trace.path}: has rank {trace.ranks[-1]}; the capture is for {size:,}")
    if not trace.ranks:
        raise FlintError(f"{trace.path}: no ops in it")


def _step(trace: Observed, rank: int, wanted: str | None) -> int:
    """The step to compare.

    Raises:
        UsageError: no step of that name or number.
        FlintError: the steps are of different length, and none was asked for.
    """
    if wanted is not None:
        for number, name in enumerate(trace.steps):
            if wanted in (name, name.rpartition("#")[2].rpartition(" ")[2]):
                return number
        raise UsageError(f"{trace.path}: no step {wanted!r}; there are: {', '.join(trace.steps)}")
    heavy = np.array([facts.kind.must_match for facts in trace.facts])
    mine = (trace.rank == rank) & heavy[trace.op]
    counts = np.bincount(trace.step[mine & (trace.step >= 0)], minlength=len(trace.steps))
    whole = [n for n in range(len(trace.steps)) if trace.whole[n] and counts[n]]
    if not whole:
        raise FlintError(
            f"{trace.path}: no step with a collective, GEMM, convolution or attention in it"
        )
    if len({int(counts[n]) for n in whole}) > 1:
        found = ", ".join(f"{trace.steps[n]}: {counts[n]}" for n in whole[:8])
        raise FlintError(
            f"{trace.path}: the steps are not alike (collectives, GEMMs, convolutions and "
            f"attentions in {found}): choose one with --step"
        )
    return whole[-1]


def _compare(workload: Workload, trace: Observed, rank: int, step: int, report: Report) -> None:
    expected = expected_of(workload, rank)
    captured = [expected.facts[number] for number in expected.op.tolist()]
    rows, time = _rows(trace, rank, step, expected)
    executed = [trace.facts[number] for number in trace.op[rows].tolist()]
    if trace.form == "chakra":
        captured, expected = _as_in_chakra(captured, executed, expected)
    rules = rules_for(captured, executed, recorded=report.comparable, backend=trace.backend)
    found = match(captured, executed, rules, expected.address())
    if not report.comparable:
        _run_once(expected, captured, found, rules)
    _check_alike(trace, captured, executed, found)
    _count(report, trace, captured, executed, time, found, rules)
    _differences(report, rank, captured, executed, found, trace, rows)
    _edges(report, trace, rank, expected, captured, rows, found)


def _rows(trace: Observed, rank: int, step: int, expected: Expected) -> tuple[Ints, Ints]:
    rows = trace.rows(rank, step)
    if trace.form in ("kineto", "pytorch-et"):
        names = {plain_name(facts.name) for facts in expected.facts if not facts.kind.collective}
        return selected(trace, rows, names)
    left_out = {OpClass.FREE}
    if trace.form == "chakra" and not any(f.kind == OpClass.RECV for f in expected.facts):
        left_out.add(OpClass.RECV)
    free = np.array([facts.kind in left_out for facts in trace.facts])
    rows = rows[~free[trace.op[rows]]]
    return rows, np.maximum(trace.duration[rows], 0)


def _run_once(expected: Expected, captured: list[OpFacts], found: Matching, rules: Rules) -> None:
    """Explain captured ops without a partner by ops that look the same and repeat each other.

    Which of several that look alike has no partner cannot be told; that as many are repetitions
    can.  They get the partner of one that looks the same.
    """
    left: dict[Hashable, list[int]] = {}
    for i in found.unmatched_captured:
        if captured[i].kind in (OpClass.GEMM, OpClass.CONVOLUTION):
            left.setdefault(rules.key(captured[i]), []).append(i)
    if not left or len(left) > _LOOKED_AT:
        return
    partner = {rules.key(captured[i]): j for i, j, _ in found.pairs}
    for key, without in left.items():
        alike = [i for i, facts in enumerate(captured) if rules.key(facts) == key]
        if key not in partner or repeated(expected, alike) < len(without):
            continue
        for i in without:
            found.pairs.append((i, partner[key], Evidence.SIZES))
            found.unmatched_captured.remove(i)
            found.explained[DUPLICATE] += 1
        found.certain.difference_update(alike)


def _as_in_chakra(
    captured: list[OpFacts], executed: list[OpFacts], expected: Expected
) -> tuple[list[OpFacts], Expected]:
    """Captured ops in Chakra's words, without those that its traces do not tell.

    Compute has PyTorch's names there, or none that could be compared; a permute is a send, and a
    receive that ``_rows`` leaves out.
    """
    told = {facts.kind for facts in executed}
    kept, words = [], []
    for number, facts in enumerate(captured):
        if facts.kind == OpClass.COLLECTIVE_PERMUTE:
            if not facts.group:  # a rank that sends to nobody
                continue
            facts = replace(facts, kind=OpClass.SEND)
        if facts.kind.collective or facts.kind in told:
            kept.append(number)
            words.append(facts)
    return words, expected.only(kept)


def _check_alike(
    trace: Observed, captured: list[OpFacts], executed: list[OpFacts], found: Matching
) -> None:
    heavy = sum(facts.kind.must_match for facts in captured)
    theirs = sum(facts.kind.must_match for facts in executed)
    paired = sum(captured[i].kind.must_match for i, _, _ in found.pairs)
    if heavy and not theirs:
        raise FlintError(f"{trace.path}: none of the step's ops is one that can be compared")
    if max(heavy, theirs) >= 4 and paired < _ALIKE * max(heavy, theirs):
        raise FlintError(
            f"{trace.path}: of {heavy:,} captured collectives, GEMMs, convolutions and attentions "
            f"and {theirs:,} in the trace only {paired:,} match: a trace of another model, other "
            "sizes or another parallelism, from which nothing can be concluded"
        )


def _count(
    report: Report,
    trace: Observed,
    captured: list[OpFacts],
    executed: list[OpFacts],
    time: Ints,
    found: Matching,
    rules: Rules,
) -> None:
    for facts in captured:
        count = report.of(facts.kind)
        count.captured += 1
        count.captured_bytes += max(0, facts.bytes)
    for number, facts in enumerate(executed):
        count = report.of(facts.kind)
        count.executed += 1
        count.executed_bytes += max(0, facts.bytes)
        count.nanoseconds += int(time[number])
    seen = set()
    for i, _, evidence in found.pairs:
        if i in seen:  # one op of several buffers that ran as several ops
            continue
        seen.add(i)
        count = report.of(captured[i].kind)
        if evidence == Evidence.NAME:
            count.by_name += 1
        else:
            count.matched += 1
        report.identified += evidence == Evidence.IDENTITY
    for kind, number in found.in_order.items():
        report.of(kind).in_order += number
    for reason, number in found.explained.items():
        report.explained[reason] = report.explained.get(reason, 0) + number
    for kind in rules.by_name:
        if kind.must_match:
            report.notes[f"{kind}: the trace has no sizes, so only names and order count"] = 1
    if not rules.grouped and any(facts.kind.collective for facts in executed):
        report.notes["the trace does not tell the groups of collectives"] = 1


def _differences(
    report: Report,
    rank: int,
    captured: list[OpFacts],
    executed: list[OpFacts],
    found: Matching,
    trace: Observed,
    rows: Ints,
) -> None:
    for what, ops, positions in (
        ("not executed", captured, found.unmatched_captured),
        ("not captured", executed, found.unmatched_executed),
    ):
        for i in positions:
            facts = ops[i]
            place = facts.source or facts.origin
            if what == "not captured":
                place = facts.source or f"row {int(rows[i])} of {trace.path}"
            report.add(
                Difference(
                    what, facts.kind, rank, i, described(facts), place, facts.kind.must_match
                )
            )
    for i, _ in found.reordered:
        facts = captured[i]
        place = facts.source or facts.origin
        report.add(
            Difference(
                "in another order", facts.kind, rank, i, described(facts), place,
                facts.kind.must_match,
            )
        )  # fmt: skip


def _edges(
    report: Report,
    trace: Observed,
    rank: int,
    expected: Expected,
    captured: list[OpFacts],
    rows: Ints,
    found: Matching,
) -> None:
    """Dependencies among heavy ops against when they began (or, without times, their order)."""
    began = np.full(len(expected), -1, dtype=np.int64)
    times = trace.start[rows] if trace.timed else np.arange(len(rows), dtype=np.int64)
    for i, j, _ in found.pairs:
        if captured[i].kind.must_match and i in found.certain:
            began[i] = max(began[i], int(times[j]))
    unsure = sum(captured[i].kind.must_match and i not in found.certain for i, _, _ in found.pairs)
    if unsure:
        text = "pairs among several that look alike, whose dependencies are not checked"
        report.notes[text] = report.notes.get(text, 0) + unsure
    checked, wrong = contradictions(expected, began)
    report.edges += checked
    report.contradicted += len(wrong)
    for producer, consumer in wrong[: max(0, _LISTED_EDGES - len(report.contradictions))]:
        report.contradictions.append(
            f"rank {rank}: {described(captured[consumer])} ({captured[consumer].source}) waits for "
            f"{described(captured[producer])} ({captured[producer].source}) but began before it"
        )


def totals(report: Report) -> Counter[str]:
    """Captured, executed and matched ops over all classes that must match."""
    found: Counter[str] = Counter()
    for kind, count in report.classes.items():
        if kind.must_match:
            found.update(
                captured=count.captured, executed=count.executed, matched=count.matched,
                by_name=count.by_name,
            )  # fmt: skip
    return found
