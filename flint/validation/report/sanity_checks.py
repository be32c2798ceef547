"""What can be concluded from one rank's ops and from all ranks together.

The idea: if almost nothing matches, or no group of ranks is the same, the trace is of something
else, and a list of differences would only hide that.  Across ranks, collectives show the
differences of clocks and how much of their time was waiting; the order of ops of different ranks is
never judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from flint.errors import FlintError
from flint.mesh.ragged import Ints
from flint.observed.classes import OpClass
from flint.observed.clocks import Clock, Meetings, Presence
from flint.observed.columns import Observed, OpFacts
from flint.validation.matching.pairing import Matching, without
from flint.validation.matching.unrecorded import LIGHTER
from flint.validation.report.report import WARNED, Report
from flint.workload.workload import Workload

#: If a smaller share of heavy ops has a partner, the only conclusion is "another program".
_ALIKE = 0.25
#: If this share of the heavy ops of the shorter side are on the other one, in whatever order, the
#: programs are alike; of fewer ops than that, this says nothing.
_SAME, _FEW = 0.9, 4
_TO_ONE = frozenset({OpClass.COLLECTIVE_PERMUTE, OpClass.SEND, OpClass.RECV})


def check_alike(trace: Observed, matching: Matching) -> None:
    """Refuse traces of another model or another mesh.

    Ops without a partner for a known reason are no evidence for either, and no error: a conditional
    may contain all products of a step, or communicate over other axes, and take the branch not
    captured.

    Raises:
        FlintError: the trace is of another model or mesh.
    """
    captured, executed = (
        [ops[number] for number in without(list(range(len(ops))), explained)]
        for ops, explained in (
            (matching.captured, matching.without_captured),
            (matching.executed, matching.without_executed),
        )
    )
    heavy, run = (sum(facts.kind.must_match for facts in ops) for ops in (captured, executed))
    paired = sum(matching.captured[i].kind.must_match for i in {i for i, _, _ in matching.pairs})
    # Another type does not mean another model.
    other = sum(facts.of_no_captured_type for facts in matching.executed)
    asked, ran = (
        any(facts.kind.must_match for facts in ops)
        for ops in (matching.captured, matching.executed)
    )
    if asked and not ran and not paired:
        raise FlintError(f"{trace.path}: no op of the step can be compared")
    groups, run_groups = _groups(captured), _groups(executed)
    if groups and run_groups and not groups & run_groups:
        raise FlintError(
            f"{trace.path}: rank {matching.rank} communicates among {_shown(run_groups)}; in the "
            f"capture, among {_shown(groups)}: the run had another mesh, or its axes in another "
            "order"
        )
    if max(heavy, run) >= 4 and paired + other < _ALIKE * max(heavy, run):
        raise FlintError(
            f"{trace.path}: of {heavy:,} captured collectives, GEMMs, convolutions and "
            f"attentions and {run:,} in the trace only {paired:,} match: "
            f"{_why(captured, executed)}, so nothing can be concluded"
        )


def _why(captured: Sequence[OpFacts], executed: Sequence[OpFacts]) -> str:
    """Why almost nothing matches, by the heavy ops on both sides regardless of their order."""
    ours, theirs = (
        Counter(_content(facts) for facts in ops if facts.kind.must_match)
        for ops in (captured, executed)
    )
    common, less = (ours & theirs).total(), min(ours.total(), theirs.total())
    if less < _FEW or common < _SAME * less:
        return "the trace is of another model, other sizes or another parallelism"
    if ours.total() == theirs.total():
        return (
            f"{common:,} are the same ones in another order, as if the step began elsewhere in the "
            "trace (mark each step as a whole, or choose another one with --step)"
        )
    if theirs.total() > less:
        return (
            f"{common:,} of the captured ones are among those in the trace, whose step is longer: "
            "several steps under one mark, or more layers"
        )
    return (
        f"{common:,} of those in the trace are among the captured ones: its step is a part of the "
        "captured one, or has fewer layers (mark each step as a whole, or choose another one with "
        "--step)"
    )


def _content(facts: OpFacts) -> tuple[object, ...]:
    """What is equal for the same op of a capture and of a run, whatever they write first."""
    gemms = tuple(sorted(tuple(sorted(dims)) for dims in facts.gemms or ()))
    return facts.kind, gemms, facts.bytes if facts.kind.collective else -1


def _groups(ops: Sequence[OpFacts]) -> set[tuple[int, ...]]:
    """Groups of two or more ranks in which a rank communicates."""
    return {
        facts.group
        for facts in ops
        if facts.kind.collective
        and facts.kind not in _TO_ONE
        and facts.group is not None
        and len(facts.group) > 1
    }


def _shown(groups: set[tuple[int, ...]]) -> str:
    texts = []
    for group in sorted(groups)[:3]:
        ranks = ", ".join(map(str, group[:8]))
        texts.append(f"[{ranks}{f', ... {len(group):,} ranks' if len(group) > 8 else ''}]")
    return ", ".join(texts) + (", ..." if len(groups) > 3 else "")


def meet(meetings: Meetings, matching: Matching, trace: Observed, rows: Ints, time: Ints) -> None:
    """Add a rank's collectives: the n-th of a group is the same one on all of its ranks.

    Only those with a certain partner and a known time count.
    """
    partner: dict[int, int] = {}
    taken: set[int] = set()
    for i, j, _ in matching.pairs:
        if i in matching.certain and i not in partner and j not in taken:
            partner[i] = j
            taken.add(j)
    count: Counter[tuple[int, ...]] = Counter()
    for i, facts in enumerate(matching.captured):
        group = facts.group
        if not facts.kind.collective or facts.kind in _TO_ONE or not group or len(group) < 2:
            continue
        number = count[group]
        count[group] += 1
        if i not in partner:
            continue
        j = partner[i]
        if time[j] < 0 or trace.end[rows[j]] < 0 or trace.start[rows[j]] < 0:
            continue
        row = int(rows[j])
        here = Presence(int(trace.start[row]), int(trace.end[row]), int(time[j]))
        meetings.add(matching.rank, (facts.kind, group, number), here)


def conclude(report: Report, workload: Workload, meetings: Meetings) -> None:
    """Conclusions from all traces together: clocks, waiting, ranks and programs without a trace.

    If a run differs, the capture's warnings are added.
    """
    if len(set(report.step)) > 1:
        names = ", ".join(sorted(set(report.step))[:4])
        report.note(f"steps of different name are compared ({names}), so no times across ranks")
    else:
        report.clocks = meetings.clocks()
        differ = any(item.kind.collective for item in report.differences)
        for clock in report.clocks:
            if text := _clock_words(clock, differ=differ):
                report.note(text)
        for (kind, _, _), ranks in meetings.waiting().items():
            report.times.of(kind).waiting += sum(ranks.values()) * 1e-9
            report.times.met += len(ranks)
    if report.times.system and not report.times.known:
        report.note("the traces have no times to compare modelled times with")
    missing = np.setdiff1d(np.arange(workload.mesh.size), report.ranks)
    if len(missing):
        report.note(f"no trace of {shown_ranks(missing)}: they are not checked")
    compared = np.array(report.ranks, dtype=np.int64)
    for program in workload.programs:
        if not program.ranks.contains(compared).any():
            report.note(f"no rank of program {program.name} is compared")
    if report.others:
        report.unrecorded[LIGHTER] = report.others
    if not report.ok:  # what was left out may be what is missing
        for text, count in workload.warnings.items():
            report.note(WARNED + text, count)


def _clock_words(clock: Clock, *, differ: bool) -> str:
    """A wrong clock as text; "" if it may be right.

    Args:
        clock: the clock.
        differ: whether some collectives are not as captured, so that the n-th one of two ranks need
            not be the same.
    """
    who = f"the clock of rank {clock.rank}"
    if not clock.agree:
        why = "It drifts, or the traces are of different runs"
        if differ:
            why = "Some differ from the captured ones, so they may not be the same ones on both"
        return (
            f"{who} does not fit rank {clock.reference}'s: at no offset do all "
            f"{clock.collectives:,} of their collectives overlap. {why}; times across these ranks "
            "are meaningless"
        )
    if not clock.ahead:
        return ""
    side = "ahead of" if clock.ahead > 0 else "behind"
    return (
        f"{who} is {abs(clock.ahead) * 1e3:,.3f} ms {side} rank {clock.reference}'s, as "
        f"{clock.collectives:,} collective{'s' * (clock.collectives > 1)} must overlap"
    )


def shown_ranks(ranks: Ints) -> str:
    """Ranks as text: "rank 3", "ranks 1-3, 7"."""
    ends = np.flatnonzero(np.diff(ranks) != 1)
    first = np.concatenate([ranks[:1], ranks[ends + 1]]).tolist()
    last = np.concatenate([ranks[ends], ranks[-1:]]).tolist()
    runs = [f"{a:,}" if a == b else f"{a:,}-{b:,}" for a, b in zip(first[:8], last, strict=False)]
    more = f", ... ({len(ranks):,} ranks)" if len(first) > 8 else ""
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(runs) + more
