"""A workload against post-execution traces.

The idea: every trace is read into observed ops, of one step per rank, and held against what the
capture says that this rank runs.  Where nothing can be concluded (another number of ranks, another
model, steps that are not alike) that is an error and not a verdict.

    report = validate(flint.load("out/"), [Path("kineto_rank0.json.gz")])
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from flint.errors import FlintError, UsageError
from flint.validation.classes import OpClass
from flint.validation.clocks import Meetings
from flint.validation.compiled import match_compiled, pair_repetitions
from flint.validation.conclusions import check_alike, conclude, meet
from flint.validation.dependencies import contradictions
from flint.validation.expected import Expected, expected_of
from flint.validation.keys import MESSAGES, STOPPED, TOGETHER, Rules, rules_for
from flint.validation.matching import Evidence, Matching, match
from flint.validation.modelled import Modelled
from flint.validation.observed import UNTOLD_RANK, Ints, Observed, OpFacts
from flint.validation.reading import expanded, read_trace
from flint.validation.report import Difference, Report, described
from flint.validation.selection import MOVED, moved, plain_name, selected, stopped
from flint.validation.steps import MEAN, Chosen, choose, mean_times
from flint.validation.told import launched_together, told, without_kernel
from flint.workload import Level, Order, Workload

_LISTED_EDGES = 20
#: How captures of PyTorch warn of reduces to one rank.
_ROOTED = "reduce to one rank"


def validate(
    workload: Workload,
    traces: Sequence[Path],
    *,
    step: str | None = None,
    system: str | Path | None = None,
) -> Report:
    """Compare a workload with what profilers recorded.

    Args:
        workload: partitioned or recorded, of the same mesh as the run.
        traces: one file or folder per trace, or a folder with a file per rank; each rank at most
            once.
        step: which step of the traces, by its name or the number in it ("ProfilerStep#4", "4");
            "mean" for the mean times of all steps alike; the last of those alike without.
        system: for modelled times beside the measured ones, a name or a TOML file.

    Raises:
        UsageError: no such step or system, no traces, a rank twice, a logical workload.
        FlintError: a trace that cannot be read, or of which nothing can be concluded.
    """
    if workload.level == Level.LOGICAL:
        raise UsageError("the program is not partitioned: there is nothing that a rank would run")
    if not traces:
        raise UsageError("give at least one --trace")
    traces = expanded(traces)
    report = Report([str(path) for path in traces], workload.mesh.size, False)
    report.comparable = workload.order == Order.RECORDED
    modelled = None
    if system is not None:
        modelled = Modelled.of(system, workload.mesh.size)
        report.times.system = modelled.system.name
    meetings = Meetings()
    for path in traces:
        trace = read_trace(path)
        _check_world(workload, trace)
        for text, count in trace.notes.items():
            report.note(text, count)
        for rank in trace.ranks:
            if rank in report.ranks:
                raise UsageError(_twice(trace, rank))
            chosen = choose(trace, rank, step)
            report.ranks.append(rank)
            report.step.append(trace.steps[chosen.step])
            for text in chosen.notes:
                report.note(text)
            _Comparison(workload, trace, rank, chosen, report).run(
                mean=step == MEAN, modelled=modelled, meetings=meetings
            )
    conclude(report, workload, meetings)
    return report


def _twice(trace: Observed, rank: int) -> str:
    text = f"{trace.path}: rank {rank} is in another trace as well"
    if UNTOLD_RANK in trace.notes:
        text += "; this one does not say whose it is: name the files rank0.json, rank1.json ..."
    return text


def _check_world(workload: Workload, trace: Observed) -> None:
    size = workload.mesh.size
    recorded = workload.order == Order.RECORDED
    if trace.form in ("kineto", "pytorch-et") and not recorded:
        raise FlintError(f"{trace.path}: a PyTorch trace; the capture is of an XLA program")
    if recorded and workload.options.get("fuse"):
        raise FlintError(
            f"{trace.path}: the capture's kernels were opened (--fuse) and are not PyTorch's own: "
            "capture it without"
        )
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


class _Comparison:
    """One rank's ops against those of one step of its trace."""

    def __init__(
        self, workload: Workload, trace: Observed, rank: int, chosen: Chosen, report: Report
    ) -> None:
        self.trace = trace
        self.rank = rank
        self.chosen = chosen
        self.report = report
        self.expected = expected_of(workload, rank)
        self.rooted = any(text.startswith(_ROOTED) for text in workload.warnings)
        self.captured = [self.expected.facts[number] for number in self.expected.op.tolist()]

    def run(self, *, mean: bool, modelled: Modelled | None, meetings: Meetings) -> None:
        """Match, count, and add to the report."""
        trace, report, rank = self.trace, self.report, self.rank
        rows, time = _rows(trace, rank, self.chosen.step, self.expected)
        if elsewhere := moved(trace, trace.rows(rank, self.chosen.step)):
            report.note(MOVED, elsewhere)
        if halted := stopped(trace, trace.rows(rank, self.chosen.step)):
            report.explained[STOPPED] = report.explained.get(STOPPED, 0) + halted
        if mean:
            others = [
                _rows(trace, rank, step, self.expected)
                for step in self.chosen.alike
                if step != self.chosen.step
            ]
            ops = [(trace.op[theirs], spent) for theirs, spent in others]
            time, steps = mean_times(trace.op[rows], time, ops)
            report.times.steps = min(report.times.steps, steps) if report.times.ranks else steps
        rows, time = self._with_kernels(rows, time)
        self._add_faults()
        executed = told(trace, rows)
        captured, expected = self.captured, self.expected
        if trace.form == "chakra":
            captured, expected = _as_in_chakra(captured, executed, expected, rank, report)
        rules = rules_for(
            captured, executed, recorded=report.comparable, backend=trace.backend,
            rooted=self.rooted,
        )  # fmt: skip
        streams = trace.stream[rows].tolist()
        if report.comparable or trace.backend == "cpu":
            found = match(captured, executed, rules, expected.address(), streams)
        else:
            found = match_compiled(expected, captured, executed, rules, streams, rank)
        pairs = [(i, j) for i, j, _ in found.pairs]
        if not report.comparable:
            pair_repetitions(expected, captured, found, rules)
        check_alike(trace, rank, captured, executed, found)
        prices = modelled.seconds(expected, rank) if modelled is not None else None
        if modelled is not None and trace.timed and trace.backend == "cpu":
            text = f"measured on a CPU, modelled for {modelled.system.name}"
            report.notes[text] = 1
        report.times.add(captured, executed, pairs, time, prices)
        meet(meetings, rank, captured, trace, rows, time, found)
        _count(report, captured, executed, found, rules)
        _differences(report, rank, captured, executed, found, trace, rows)
        _edges(report, trace, rank, expected, captured, rows, found)

    def _add_faults(self) -> None:
        """Report ops that the trace has more or less often than what always runs with them."""
        for rank, step, facts, times, others in self.trace.faults:
            if (rank, step) == (self.rank, self.chosen.step):
                place = f"{times:,} times where its computation ran {others:,} times"
                self.report.add(
                    Difference("not as often", facts.kind, rank, 0, described(facts), place, True)
                )

    def _with_kernels(self, rows: Ints, time: Ints) -> tuple[Ints, Ints]:
        """Report collectives that were asked for and have no kernel in a trace of a device.

        Those of a batch are launched by no op; their kernels are left out of the rows.
        """
        trace, report = self.trace, self.report
        silent, batches = without_kernel(trace, rows), launched_together(trace, rows)
        if silent and batches:
            report.explained[TOGETHER] = report.explained.get(TOGETHER, 0) + len(silent)
            kept = np.ones(len(rows), dtype=np.bool_)
            kept[batches] = False
            return rows[kept], time[kept]
        for place in silent:
            facts = trace.facts[int(trace.op[rows[place]])]
            report.add(
                Difference(
                    "without a kernel", facts.kind, self.rank, place, described(facts),
                    f"row {int(rows[place])} of {trace.path}", True,
                )
            )  # fmt: skip
        return rows, time


def _rows(trace: Observed, rank: int, step: int, expected: Expected) -> tuple[Ints, Ints]:
    """Rows to compare, in order, and nanoseconds of each, -1 where they are not known."""
    rows = trace.rows(rank, step)
    names = {plain_name(facts.name) for facts in expected.facts if not facts.kind.collective}
    if trace.form in ("kineto", "pytorch-et"):
        rows, time = selected(trace, rows, names)
        collective = np.array([facts.kind.collective for facts in trace.facts], dtype=np.bool_)
        # Of a collective without a kernel the host knows only when it was asked for.
        untold = collective[trace.op[rows]] & (trace.end[rows] < 0)
        untold |= trace.duration[rows] < 0
        return rows, np.where(untold, -1, time)
    left_out = {OpClass.FREE}
    if trace.form == "chakra" and not any(f.kind == OpClass.RECV for f in expected.facts):
        left_out.add(OpClass.RECV)
    time = trace.duration[rows]
    if (trace.parent[rows] >= 0).any():
        rows, time = selected(trace, rows, names)
    free = np.array([facts.kind in left_out for facts in trace.facts])[trace.op[rows]]
    rows, time = rows[~free], time[~free]
    if trace.form == "chakra":  # what has no duration there has 0
        time = np.where(time > 0, time, -1)
    return rows, time


def _as_in_chakra(
    captured: list[OpFacts], executed: list[OpFacts], expected: Expected, rank: int, report: Report
) -> tuple[list[OpFacts], Expected]:
    """Captured ops in Chakra's words, without those that its traces do not tell.

    Compute has PyTorch's names there, or none that could be compared; a permute is a send, and a
    receive that ``_rows`` leaves out.  What a rank sends to itself is a copy.  A broadcast may be
    the messages of a tree, as in our own traces.
    """
    in_tree = all(facts.kind != OpClass.BROADCAST for facts in executed)
    received = any(facts.kind == OpClass.RECV for facts in captured)
    named = report.comparable and any(
        not facts.kind.collective and facts.kind not in (OpClass.FREE, OpClass.OTHER)
        for facts in executed
    )
    kept, words = [], []
    for number, facts in enumerate(captured):
        if facts.kind == OpClass.COLLECTIVE_PERMUTE:
            if not facts.group or facts.group == (rank,):
                continue
            facts = replace(facts, kind=OpClass.SEND, peer=facts.group[0], group=None)
        if facts.kind == OpClass.BROADCAST and in_tree:
            for kind, peer in _tree(expected, number, rank):
                if kind == OpClass.SEND or received:
                    kept.append(number)
                    words.append(replace(facts, kind=kind, peer=peer, group=None))
            continue
        if facts.kind.collective or named:
            kept.append(number)
            words.append(facts)
        elif facts.kind.must_match:
            report.untold += 1
    return words, expected.only(kept)


def _tree(expected: Expected, number: int, rank: int) -> list[tuple[OpClass, int]]:
    """Messages of a rank in a broadcast down a binomial tree whose root is the first member.

    The member at place i, whose highest bit is h, receives from i - h and sends to i + 2h, i + 4h
    and so on (``flint.execution.peers``).
    """
    item = expected.graphs[int(expected.graph[number])][int(expected.node[number])].communication
    assert item is not None
    assert item.groups is not None
    members = item.groups.members(rank).tolist()
    place = members.index(rank)
    highest = 1 << place.bit_length() >> 1
    found = [(OpClass.RECV, members[place - highest])] if place else []
    step = max(2 * highest, 1)
    while place + step < len(members):
        found.append((OpClass.SEND, members[place + step]))
        step *= 2
    return found


def _count(
    report: Report,
    captured: list[OpFacts],
    executed: list[OpFacts],
    found: Matching,
    rules: Rules,
) -> None:
    for facts in captured:
        count = report.of(facts.kind)
        count.captured += 1
        count.captured_bytes += max(0, facts.bytes)
    for facts in executed:
        count = report.of(facts.kind)
        count.executed += 1
        count.executed_bytes += max(0, facts.bytes)
    seen = set()
    for i, j, evidence in found.pairs:
        if i in seen:  # one op of several buffers that ran as several ops
            continue
        seen.add(i)
        count = report.of(captured[i].kind)
        if evidence == Evidence.NAME:
            count.by_name += 1
        else:
            count.matched += 1
        count.of_any_group += rules.untold(captured[i], executed[j])
        report.identified += evidence == Evidence.IDENTITY
    for kind, number in found.in_order.items():
        report.of(kind).in_order += number
    for ops, positions in (
        (captured, found.without_captured),
        (executed, found.without_executed),
    ):
        for i in positions:
            report.of(ops[i].kind).explained += 1
    for reason, number in found.explained.items():
        report.explained[reason] = report.explained.get(reason, 0) + number
    for kind in rules.by_name:
        if kind.must_match:
            text = f"{kind}: where the trace has no sizes, only names and order count"
            report.notes[text] = report.of(kind).by_name


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
    """Dependencies among heavy ops against when they began, or against their order.

    Execution traces have no times, Chakra's only durations.
    """
    began = np.full(len(expected), -1, dtype=np.int64)
    order = np.arange(len(rows), dtype=np.int64)
    times = trace.start[rows] if (trace.start[rows] >= 0).any() else order
    for i, j, _ in found.pairs:
        if trace.form == "chakra" and captured[i].kind in MESSAGES:
            continue  # posted when they may be: their place in the file tells nothing
        if captured[i].kind.must_match and i in found.certain:
            began[i] = max(began[i], int(times[j]))
    unsure = sum(captured[i].kind.must_match and i not in found.certain for i, _, _ in found.pairs)
    if unsure:
        text = "pairs among several that look alike, whose dependencies are not checked"
        report.note(text, unsure)
    checked, wrong = contradictions(expected, began)
    report.edges += checked
    report.contradicted += len(wrong)
    for producer, consumer in wrong[: max(0, _LISTED_EDGES - len(report.contradictions))]:
        report.contradictions.append(
            f"rank {rank}: {described(captured[consumer])} ({captured[consumer].source}) waits for "
            f"{described(captured[producer])} ({captured[producer].source}) but began before it"
        )


def totals(report: Report, *, lighter: bool = False) -> Counter[str]:
    """Captured, executed, matched and explained ops over all classes that must match.

    Args:
        lighter: over all others instead.
    """
    found: Counter[str] = Counter()
    for kind, count in report.classes.items():
        if kind.must_match != lighter:
            found.update(
                captured=count.captured, executed=count.executed, matched=count.matched,
                by_name=count.by_name, of_any_group=count.of_any_group, explained=count.explained,
            )  # fmt: skip
    return found
