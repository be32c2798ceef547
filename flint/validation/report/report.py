"""What a comparison found: counts per class, differences with both sides, one verdict.

report = validate(workload, [Path("kineto_rank0.json.gz")])
report.ok, report.verdict
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from flint.observed.classes import OpClass
from flint.observed.clocks import Clock
from flint.observed.columns import CUT_OFF
from flint.validation.matching.unrecorded import COUNTS, GROUP, LIGHTER, PEER, SIZES, VALUES, WHOLE
from flint.validation.report.times import ClassTime, Times

#: The most differences that are kept in full; all are counted.
MAX_LISTED = 200
#: A difference of which only the capture knows.
NOT_EXECUTED = "not executed"
#: Prefix of notes with the capture's warnings, which a report with differences includes.
WARNED = "the capture warns: "
#: Facts for which the verdict has a separate sentence if the traces do not record them.
_WORDED = frozenset({SIZES, GROUP, PEER, WHOLE, LIGHTER})


@dataclass(slots=True)
class ClassCount:
    """One class over all compared ranks.

    Attributes:
        captured, executed: ops on both sides.
        matched: captured ops with a partner of the same sizes.
        by_name: captured ops with a partner of the same name and position in the order, if the
            trace has no sizes: a weak match.
        in_order: matched ops that follow each other in both.
        of_any_group: those of them that are communications whose ranks the trace lacks.
        explained: ops of either side without a partner for a known reason.
        explained_captured: the captured ones of these.
        captured_bytes, executed_bytes: what collectives send per rank, summed; -1 unknown.
    """

    captured: int = 0
    executed: int = 0
    matched: int = 0
    by_name: int = 0
    in_order: int = 0
    of_any_group: int = 0
    explained: int = 0
    explained_captured: int = 0
    captured_bytes: int = 0
    executed_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Difference:
    """An op without a partner, or a pair in another order.

    Attributes:
        what: "not executed", "not captured", "in another order", "without a kernel" (a collective
            that was called but has no kernel in a trace of a device), or "not as often" (an
            instruction that ran another number of times than the others of its computation).
        kind: the class.
        rank: its rank.
        position: position among the ops of the rank, in the order of its side.
        op: a description.
        where: the source line or layer, or the trace's name and row.
        counts: whether it decides the verdict.
    """

    what: str
    kind: OpClass
    rank: int
    position: int
    op: str
    where: str
    counts: bool


@dataclass(slots=True)
class Report:
    """A comparison of a capture with traces.

    Attributes:
        traces: the files.
        ranks: ranks that were compared.
        world: ranks of the capture.
        step: which step of each trace.
        comparable: whether every class is compared op by op (PyTorch), or only those that XLA does
            not fuse.
        classes: per class.
        identified: pairs that also agree in their source line.
        explained: reason -> pairs that differ in form because of it.
        differences: the first of them; ``failures`` and ``others`` count all.
        failures: differences that decide the verdict.
        unseen: failures of which only the capture knows: ops that did not run, or are missing in
            traces that are cut off.
        others: differences in classes that need not match one by one.
        edges: captured dependencies that were checked against the order of the run.
        contradictions: producer and consumer, as text, of edges that the run contradicts.
        contradicted: number of such edges.
        uncompared: captured collectives, GEMMs, convolutions and attentions with which nothing in
            the traces can be compared.
        unrecorded: fact ("group", "reduce op", ...) -> number of captured ops for which the traces
            do not record it, so that it may differ (``matching.unrecorded``).
        notes: what the traces lack, with counts; if there are differences, also the capture's
            warnings (``WARNED``).
        times: measured and modelled times.
        clocks: clocks of ranks relative to each other.
    """

    traces: list[str]
    world: int
    comparable: bool
    ranks: list[int] = field(default_factory=list)
    step: list[str] = field(default_factory=list)
    classes: dict[OpClass, ClassCount] = field(default_factory=dict)
    identified: int = 0
    explained: dict[str, int] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    failures: int = 0
    unseen: int = 0
    others: int = 0
    edges: int = 0
    contradictions: list[str] = field(default_factory=list)
    contradicted: int = 0
    uncompared: int = 0
    unrecorded: dict[str, int] = field(default_factory=dict)
    notes: dict[str, int] = field(default_factory=dict)
    times: Times = field(default_factory=Times)
    clocks: list[Clock] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether all that should match does."""
        return not self.failures and not self.contradicted

    @property
    def inconclusive(self) -> bool:
        """Whether all that differs may be in the missing part of traces that are cut off."""
        missing = 0 < self.failures == self.unseen and not self.contradicted
        return missing and CUT_OFF in self.notes

    @property
    def not_compared(self) -> tuple[str, ...]:
        """What no trace could contradict, as text: facts that a workload does not have."""
        return (VALUES,) if self.comparable else (VALUES, COUNTS)

    def of(self, kind: OpClass) -> ClassCount:
        """The counts of a class, made on first use."""
        return self.classes.setdefault(kind, ClassCount())

    def note(self, text: str, count: int = 1) -> None:
        """Count a note for the reader of the report."""
        self.notes[text] = self.notes.get(text, 0) + count

    def add(self, difference: Difference) -> None:
        """Count a difference, and keep it among the first."""
        if difference.counts:
            self.failures += 1
            self.unseen += difference.what == NOT_EXECUTED
        else:
            self.others += 1
        kept = sum(item.counts == difference.counts for item in self.differences)
        if kept < MAX_LISTED:
            self.differences.append(difference)

    @property
    def verdict(self) -> str:
        """One line."""
        heavy = [count for kind, count in self.classes.items() if kind.must_match]
        total = sum(count.captured for count in heavy)
        sized, named, anywhere = (
            sum(getattr(c, name) for c in heavy) for name in ("matched", "by_name", "of_any_group")
        )
        without = max(0, total - sized - named) if self.ok else 0  # of those captured
        who = f"{len(self.ranks):,} of {self.world:,} ranks"
        if self.ok:
            text = (
                f"agrees: all {total:,} collectives, GEMMs, convolutions and attentions ran as "
                "captured"
            )
            if named or anywhere or self.uncompared:
                text = (
                    f"agrees as far as the traces show: of {total + self.uncompared:,} "
                    f"collectives, GEMMs, convolutions and attentions {sized:,} have the captured "
                    "sizes"
                )
                if named:
                    text += (
                        f"; {named:,} agree in name and order, but the traces do not record "
                        "their sizes"
                    )
                if anywhere:
                    text += (
                        f"; for {anywhere:,} the traces do not record among which ranks they ran"
                    )
                if self.uncompared:
                    text += f"; {self.uncompared:,} are not compared: the traces do not name them"
                if without:
                    text += f"; {without:,} are unmatched for a known reason"
            elif without:
                text = (
                    f"agrees: of {total:,} collectives, GEMMs, convolutions and attentions "
                    f"{sized:,} ran as captured, {without:,} are unmatched for a known reason"
                )
            if facts := {k: n for k, n in self.unrecorded.items() if k not in _WORDED}:
                listed = ", ".join(f"{fact} ({count:,})" for fact, count in facts.items())
                text += f"; not recorded: {listed}"
            if self.others:
                text += f"; {self.others:,} lighter ops differ"
        elif self.inconclusive:
            text = (
                f"nothing can be concluded: {self.failures:,} captured ops are not in the traces, "
                "which are cut off"
            )
        else:
            parts = []
            if self.failures:
                count = f"{self.failures:,} ops"
                parts.append(f"{count} are unmatched, out of order or without a kernel")
            if self.contradicted:
                parts.append(f"{self.contradicted:,} dependencies ran in reverse")
            text = f"differs: {', '.join(parts)}"
        return f"{text}; {who} compared"

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "ok": self.ok,
            "verdict": self.verdict,
            "traces": self.traces,
            "ranks": self.ranks,
            "world": self.world,
            "step": self.step,
            "classes": {str(kind): asdict(self.classes[kind]) for kind in ordered(self.classes)},
            "identified": self.identified,
            "explained": dict(sorted(self.explained.items())),
            "failures": self.failures,
            "others": self.others,
            "differences": [asdict(item) for item in self.differences],
            "edges": self.edges,
            "contradicted": self.contradicted,
            "contradictions": self.contradictions,
            "untold": self.uncompared,
            "not_told": self.unrecorded,
            "not_compared": list(self.not_compared),
            "notes": self.notes,
            "times": self._times_to_json(),
            "clocks": [asdict(clock) for clock in self.clocks],
        }

    def _times_to_json(self) -> dict[str, Any] | None:
        """Seconds per rank; None if the traces have no times."""
        if not self.times.known:
            return None
        rows: dict[str, ClassTime] = {
            str(kind): self.times.classes[kind] for kind in ordered(self.times.classes)
        }
        rows["compute"] = self.times.total(collective=False)
        rows["communication"] = self.times.total(collective=True)
        ranks = self.times.ranks
        return {
            "system": self.times.system or None,
            "mean_of_steps": self.times.steps,
            "per_rank": {
                name: {
                    "measured_seconds": time.measured / ranks,
                    "matched_seconds": time.matched / ranks,
                    "waiting_seconds": time.waiting / ranks,
                    "modelled_seconds": time.modelled / ranks if self.times.system else None,
                    "ratio": time.ratio,
                    "ops_without_time": time.unknown,
                }
                for name, time in rows.items()
            },
        }


def ordered(kinds: Iterable[OpClass]) -> list[OpClass]:
    """Classes in the order in which they are shown."""
    order = list(OpClass)
    return sorted(kinds, key=order.index)
