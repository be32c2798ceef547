"""One rank's captured ops against those of one step of its trace.

Comparison(workload, trace, rank, chosen, report).run(mean=False, modelled=None, ...)
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from flint.graph.tensor_types import TOKEN
from flint.mesh.ragged import Ints
from flint.observed.classes import OpClass
from flint.observed.clocks import Meetings
from flint.observed.columns import Functions, Observed, Taken
from flint.observed.group_lookup import (
    TOGETHER,
    launched_together,
    with_outer_facts,
    without_kernel,
)
from flint.observed.op_text import described
from flint.observed.selection import (
    MOVED,
    STOPPED,
    moved,
    outermost,
    plain_name,
    selected,
    stopped,
)
from flint.observed.steps import Chosen, mean_times
from flint.validation.expected.chakra_words import as_in_chakra
from flint.validation.expected.modelled import Modelled
from flint.validation.expected.named_ops import captured_names, missing
from flint.validation.expected.ops import Expected, expected_of, program_of
from flint.validation.group_evidence import GroupEvidence
from flint.validation.group_threads import add_other_groups, named_by_threads
from flint.validation.matching.equivalence import rules_for
from flint.validation.matching.functions import differing
from flint.validation.matching.pairing import Matching
from flint.validation.matching.turning import turned_by
from flint.validation.matching.unrecorded import WHOLE
from flint.validation.report.rank_report import add_counts, add_differences, add_edges
from flint.validation.report.report import Difference, Report
from flint.validation.report.sanity_checks import check_alike, meet
from flint.validation.rewrites.branches import OtherBranches
from flint.validation.rewrites.pass_direction import other_pass
from flint.validation.rewrites.recurrent import AROUND
from flint.validation.rewrites.removed_ops import explain_removed
from flint.validation.rewrites.table import match
from flint.validation.rewrites.widened_types import as_stored
from flint.workload.workload import Workload

#: The warning of PyTorch captures about reduces to one rank.
_ROOTED = "reduce to one rank"


class Comparison:
    """One rank's ops against those of one step of its trace."""

    def __init__(
        self, workload: Workload, trace: Observed, rank: int, chosen: Chosen, report: Report
    ) -> None:
        self.trace = trace
        self.rank = rank
        self.chosen = chosen
        self.report = report
        self.program = program_of(workload, rank)
        self.expected = expected_of(workload, rank)
        self.version = workload.input.get("version", "")
        self.rooted = any(text.startswith(_ROOTED) for text in workload.warnings)

    def run(
        self,
        *,
        mean: bool,
        modelled: Modelled | None,
        meetings: Meetings,
        evidence: GroupEvidence,
        branches: OtherBranches,
    ) -> None:
        """Match, count, and add to the report."""
        trace, report, rank = self.trace, self.report, self.rank
        rows, time = rows_of(trace, rank, self.chosen.step, self.expected)
        if elsewhere := moved(trace, trace.rows(rank, self.chosen.step)):
            report.note(MOVED, elsewhere)
        if halted := stopped(trace, trace.rows(rank, self.chosen.step)):
            report.explained[STOPPED] = report.explained.get(STOPPED, 0) + halted
        if mean:
            ops = [(trace.op[of_step], spent) for of_step, spent in self._others()]
            time, steps = mean_times(trace.op[rows], time, ops)
            report.times.steps = min(report.times.steps, steps) if report.times.ranks else steps
        rows, time = self._with_kernels(rows, time)
        self._add_faults()
        self._add_types()
        executed = named_by_threads(trace, rows, with_outer_facts(trace, rows))
        captured, expected = self.expected.captured, self.expected
        if trace.form == "chakra":
            captured, expected, uncompared = as_in_chakra(
                captured, executed, expected, rank, recorded=report.comparable
            )
            report.uncompared += uncompared
            if uncompared:
                report.unrecorded[WHOLE] = report.unrecorded.get(WHOLE, 0) + uncompared
        rules = rules_for(
            executed, recorded=report.comparable, backend=trace.backend, rooted=self.rooted
        )
        executed = as_stored(expected, captured, executed, rules)
        turned = turned_by(captured, executed, rules) if trace.form != "chakra" else 0
        rows, time = (np.concatenate([one[turned:], one[:turned]]) for one in (rows, time))
        executed = [*executed[turned:], *executed[:turned]]
        streams = trace.stream[rows].tolist()
        around = outermost(trace, rows, AROUND)
        matching = match(Matching(captured, executed, rules, expected, rank, streams, around))
        matching.earlier = len(rows) - turned if turned else 0
        if not report.comparable:
            self._explain_xla(matching, branches)
        check_alike(trace, matching)
        prices = modelled.seconds(expected, rank) if modelled is not None else None
        if modelled is not None and trace.timed and trace.backend == "cpu":
            text = f"measured on a CPU, modelled for {modelled.system.name}"
            report.notes[text] = 1
        report.times.add(matching, time, prices)
        meet(meetings, matching, trace, rows, time)
        evidence.add(matching, trace, rows)
        add_counts(report, matching)
        add_differences(report, matching, trace, rows, lambda: [some for some, _ in self._others()])
        add_other_groups(report, matching, trace, rows)
        add_edges(report, matching, trace, rows)

    def _others(self) -> list[tuple[Ints, Ints]]:
        """Rows and times of the other steps that are like this one."""
        return [
            rows_of(self.trace, self.rank, step, self.expected)
            for step in self.chosen.alike
            if step != self.chosen.step
        ]

    def _explain_xla(self, matching: Matching, branches: OtherBranches) -> None:
        """Explain branches chosen by data and ops removed by a compiler; report ops that ran
        elsewhere.
        """
        chosen = self.rank, self.chosen.step
        taken = [one for one in self.trace.taken if (one.rank, one.step) == chosen]
        branches.explain(matching, taken)
        times = [one.times for one in self.trace.iterated if (one.rank, one.step) == chosen]
        explain_removed(matching, times[0] if times else None)
        self._add_denied(branches.denied(matching, taken))
        for one in self.trace.functions:
            # Data may have chosen another branch, whose light ops are not captured.
            if (one.rank, one.step) == chosen and not taken:
                found = differing(matching, one)
                found = found or self._differing_names(matching, one)
                for what, name, layer in found:
                    place = f"layer {layer}" if layer else "the program"
                    op = f"{name} among the fused ops"
                    kind = OpClass.ELEMENTWISE
                    self.report.add(Difference(what, kind, self.rank, 0, op, place, True))
        for i, j in other_pass(matching):
            captured, executed = matching.captured[i], matching.executed[j]
            place = f"{executed.origin} in the run, {captured.origin} in the capture"
            op = described(captured)
            self.report.add(
                Difference("in another pass", captured.kind, self.rank, i, op, place, True)
            )

    def _differing_names(self, matching: Matching, ran: Functions) -> list[tuple[str, str, str]]:
        """Light ops by the framework's names, if nothing heavier tells that the programs differ.

        Each platform lowers some ops in its own way, so they are compared on a CPU alone; so does
        each version of JAX.
        """
        if (
            matching.unmatched_captured
            or matching.unmatched_executed
            or self.trace.backend != "cpu"
        ):
            return []
        ran_in, captured_in = self.trace.version, self.version
        if ran_in and captured_in and ran_in != captured_in:
            self.report.note(
                f"the run was of jax {ran_in}, the capture of {captured_in}: names of lighter ops "
                "are not compared"
            )
        same = ran_in and ran_in == captured_in
        names = captured_names(self.program) if same else None
        return missing(names, ran) if names is not None else []

    def _add_denied(self, conditional: Taken | None) -> None:
        """Report a conditional that took another branch, although the ops of the captured one
        ran.
        """
        if conditional is not None:
            times = ", ".join(map(str, conditional.times))
            op = f"{conditional.name}, whose branches ran {times} times"
            place = "yet the ops that ran are those of the captured branch"
            self.report.add(
                Difference("other branch", OpClass.OTHER, self.rank, 0, op, place, True)
            )

    def _add_faults(self) -> None:
        """Report ops that the trace has more or less often than ops that always run with them."""
        for rank, step, facts, times, others in self.trace.faults:
            if (rank, step) == (self.rank, self.chosen.step):
                place = f"{times:,} times where its computation ran {others:,} times"
                self.report.add(
                    Difference(
                        "different count", facts.kind, rank, 0, described(facts), place, True
                    )
                )

    def _add_types(self) -> None:
        """Report a program with other argument or result tensors.

        Fused ops are not compared, and data that a backend computes and sends in wider types looks
        alike; arguments and results do not.
        """
        graph = self.expected.graphs[0]
        for name, place, tensors, values in (
            ("parameter", "the program's inputs", self.trace.parameters, range(graph.inputs)),
            ("result", "the program's outputs", self.trace.results, graph.outputs.tolist()),
        ):
            if not tensors:
                continue
            types = [graph.type_of(value) for value in values]
            captured = Counter((one.shape, one.dtype) for one in types)
            executed = Counter(tensors)
            for items in (captured, executed):  # tokens order effects on the host, and hold nothing
                del items[TOKEN.shape, TOKEN.dtype]
            for what, more in (
                ("not executed", captured - executed),
                ("not captured", executed - captured),
            ):
                for (shape, dtype), count in sorted(more.items()):
                    op = f"{count} x a {name} {'x'.join([*map(str, shape), dtype])}"
                    self.report.add(Difference(what, OpClass.OTHER, self.rank, 0, op, place, True))

    def _with_kernels(self, rows: Ints, time: Ints) -> tuple[Ints, Ints]:
        """Report collectives that were called but have no kernel in a trace of a device.

        Kernels of a batch are launched by no single op and are left out of the rows.
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


def rows_of(trace: Observed, rank: int, step: int, expected: Expected) -> tuple[Ints, Ints]:
    """Rows to compare, in order, and nanoseconds of each, -1 if unknown."""
    rows = trace.rows(rank, step)
    names = {plain_name(facts.name) for facts in expected.facts if not facts.kind.collective}
    if trace.form in ("kineto", "pytorch-et"):
        rows, time = selected(trace, rows, names)
        collective = np.array([facts.kind.collective for facts in trace.facts], dtype=np.bool_)
        # For a collective without a kernel, the host knows only when it was called.
        unknown = collective[trace.op[rows]] & (trace.end[rows] < 0)
        unknown |= trace.duration[rows] < 0
        return rows, np.where(unknown, -1, time)
    left_out = {OpClass.FREE}
    if trace.form == "chakra" and not any(f.kind == OpClass.RECV for f in expected.facts):
        left_out.add(OpClass.RECV)
    time = trace.duration[rows]
    if (trace.parent[rows] >= 0).any():
        rows, time = selected(trace, rows, names)
    free = np.array([facts.kind in left_out for facts in trace.facts])[trace.op[rows]]
    rows, time = rows[~free], time[~free]
    if trace.form == "chakra":  # rows without a duration there have 0
        time = np.where(time > 0, time, -1)
    return rows, time
