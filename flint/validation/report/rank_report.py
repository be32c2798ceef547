"""The report about one rank: counts by class, differences, dependencies.

add_counts(report, matching)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from flint.graph.joins import joins
from flint.mesh.ragged import Ints
from flint.observed.columns import Observed
from flint.observed.op_text import described
from flint.validation.expected.dependencies import contradictions
from flint.validation.matching.equivalence import MESSAGES
from flint.validation.matching.pairing import Evidence, Matching
from flint.validation.matching.telling import Telling, telling
from flint.validation.matching.unrecorded import RAN, unrecorded
from flint.validation.report.report import Difference, Report

_LISTED_EDGES = 20
#: Note about parts compiled by ``torch.compile``, whose light ops have no names, and which runs
#: products whenever their data are there.
_COMPILED = ("Torch-Compiled Region", "CompiledFunction")
FUSED = (
    "torch.compile fused parts of the run: lighter ops in them have no names, and it orders "
    "products as it likes"
)
#: Note about updates of lists of parameters that a CPU ran in another form.
ONE_BY_ONE = (
    "an op on a list of parameters has no counterparts: some optimizers (ASGD, Rprop, RAdam) have "
    "other formulas for one parameter at a time, as they run on a CPU; profile with foreach=True"
)
_FOREACH = "_foreach_"
#: Forms of traces that have PyTorch's names of ops.
_WITH_NAMES = ("kineto", "pytorch-et")


def add_counts(report: Report, matching: Matching) -> None:
    """Count ops and pairs by class."""
    captured, executed, rules = matching.captured, matching.executed, matching.rules
    for facts in captured:
        count = report.of(facts.kind)
        count.captured += 1
        count.captured_bytes += max(0, facts.bytes)
    for facts in executed:
        count = report.of(facts.kind)
        count.executed += 1
        count.executed_bytes += max(0, facts.bytes)
    seen = set()
    for i, j, evidence in matching.pairs:
        if i in seen:  # one op of several buffers that ran as several ops
            continue
        seen.add(i)
        count = report.of(captured[i].kind)
        if evidence == Evidence.NAME:
            count.by_name += 1
        else:
            count.matched += 1
        count.of_any_group += rules.of_unknown_group(captured[i], executed[j])
        if captured[i].kind.must_match:
            by_name = evidence == Evidence.NAME
            for fact in unrecorded(rules, captured[i], executed[j], by_name=by_name):
                report.unrecorded[fact] = report.unrecorded.get(fact, 0) + 1
        report.identified += evidence == Evidence.IDENTITY
    for kind, number in matching.in_order.items():
        report.of(kind).in_order += number
    for ops, positions in (
        (captured, matching.without_captured),
        (executed, matching.without_executed),
    ):
        for i in positions:
            count = report.of(ops[i].kind)
            count.explained += 1
            count.explained_captured += ops is captured
    for reason, number in matching.explained.items():
        report.explained[reason] = report.explained.get(reason, 0) + number
    for kind in rules.by_name:
        if kind.must_match:
            text = f"{kind}: without sizes in the trace, only names and order are compared"
            report.notes[text] = report.of(kind).by_name


def add_differences(
    report: Report,
    matching: Matching,
    trace: Observed,
    rows: Ints,
    others: Callable[[], Sequence[Ints]] = tuple,
) -> None:
    """Add ops without a partner, and ops that ran in another order.

    A few light ops may differ between backends; those that reveal another program count.

    Args:
        report: differences are added here.
        matching: the matching of one rank.
        trace: the trace of its executed ops.
        rows: their rows.
        others: rows of the other equal steps.
    """
    captured, executed, rank = matching.captured, matching.executed, matching.rank
    named = report.comparable and trace.form in _WITH_NAMES
    compiled = _is_compiled(trace)
    if named and compiled:
        report.note(FUSED)
    shown = telling(matching, trace, rows, others) if named else Telling()
    if compiled:
        shown.captured.clear()
        shown.moved.clear()
    if shown.forgiven:
        report.unrecorded[RAN] = report.unrecorded.get(RAN, 0) + shown.forgiven
    if matching.rules.on_host and any(_FOREACH in captured[i].name for i in shown.captured):
        report.note(ONE_BY_ONE)
    sides = (
        ("not executed", captured, matching.unmatched_captured, shown.captured),
        ("not captured", executed, matching.unmatched_executed, shown.executed),
    )
    for what, ops, positions, strange in sides:
        for i in positions:
            facts = ops[i]
            place = facts.source or facts.origin
            if what == "not captured":
                place = facts.source or f"row {int(rows[i])} of {trace.path}"
            counts = facts.kind.must_match or i in strange
            report.add(Difference(what, facts.kind, rank, i, described(facts), place, counts))
    for i in sorted({i for i, _ in matching.reordered} | shown.moved):
        facts = captured[i]
        place = facts.source or facts.origin
        report.add(
            Difference(
                "in another order", facts.kind, rank, i, described(facts), place,
                i in shown.moved or (facts.kind.collective if compiled else facts.kind.must_match),
            )
        )  # fmt: skip


def _is_compiled(trace: Observed) -> bool:
    """Whether ``torch.compile`` compiled parts of what ran."""
    return any(facts.name.startswith(_COMPILED) for facts in trace.facts)


def add_edges(report: Report, matching: Matching, trace: Observed, rows: Ints) -> None:
    """Check dependencies among heavy ops against when they began, or against their order.

    Execution traces have no times, Chakra's only durations.
    """
    captured, expected = matching.captured, matching.expected
    assert expected is not None
    began = np.full(len(expected), -1, dtype=np.int64)
    order = np.arange(len(rows), dtype=np.int64)
    times = trace.start[rows] if (trace.start[rows] >= 0).any() else order
    if matching.earlier:  # as in the step before
        times = times - np.where(order < matching.earlier, np.ptp(times) + 1, 0)
    for i, j, _ in matching.pairs:
        if trace.form == "chakra" and captured[i].kind in MESSAGES:
            continue  # posted as early as possible: their place in the file shows nothing
        if captured[i].kind.must_match and i in matching.certain:
            began[i] = max(began[i], int(times[j]))
    unsure = sum(
        captured[i].kind.must_match and i not in matching.certain for i, _, _ in matching.pairs
    )
    if unsure:
        text = "pairs among several identical ones: their dependencies are not checked"
        report.note(text, unsure)
    # XLA's CPU backend removes optimization barriers before it orders anything.
    barriers = matching.rules.recorded or not matching.rules.on_host
    held = sum(int(joins(graph).sum()) for graph in expected.graphs)
    if held and not barriers:
        report.note(
            "optimization barriers, which a CPU does not keep: their order is not checked", held
        )
    issued = not _is_compiled(trace)
    checked, wrong = contradictions(expected, began, barriers=barriers, issued=issued)
    report.edges += checked
    report.contradicted += len(wrong)
    for producer, consumer in wrong[: max(0, _LISTED_EDGES - len(report.contradictions))]:
        report.contradictions.append(
            f"rank {matching.rank}: {described(captured[consumer])} "
            f"({captured[consumer].source}) waits for {described(captured[producer])} "
            f"({captured[producer].source}) but started before it"
        )
