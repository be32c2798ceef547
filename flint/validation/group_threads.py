"""Checking captured groups against the threads of gloo that ran the collectives.

The idea: in gloo each process group has threads of its own, so all collectives that one thread ran
are of one group.  If one of them names it, it is that of the others, too.  If none does, and they
were captured in several groups, those of the less frequent ones were captured in a wrong one.

    executed = named_by_threads(trace, rows, executed)
    add_other_groups(report, matching, trace, rows)
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from flint.mesh.ragged import Ints
from flint.observed.columns import Observed, OpFacts
from flint.observed.op_text import described
from flint.validation.matching.pairing import Matching
from flint.validation.report.report import Difference, Report


def named_by_threads(trace: Observed, rows: Ints, executed: Sequence[OpFacts]) -> list[OpFacts]:
    """Executed ops, with the group that others on the same thread name."""
    threads = [trace.workers.get(row, -1) for row in rows.tolist()]
    groups: dict[int, set[tuple[int, ...]]] = defaultdict(set)
    for thread, facts in zip(threads, executed, strict=True):
        if thread >= 0 and facts.group is not None:
            groups[thread].add(facts.group)
    named = {thread: next(iter(some)) for thread, some in groups.items() if len(some) == 1}
    return [
        replace(facts, group=named[thread]) if facts.group is None and thread in named else facts
        for thread, facts in zip(threads, executed, strict=True)
    ]


def add_other_groups(report: Report, matching: Matching, trace: Observed, rows: Ints) -> None:
    """Add collectives that ran on a thread of another group than the captured one.

    Args:
        report: differences are added here.
        matching: the matching of one rank.
        trace: the trace of its executed ops.
        rows: their rows.
    """
    captured = matching.captured
    pairs, used = (Counter(pair[side] for pair in matching.pairs) for side in (0, 1))
    of_thread: dict[int, list[int]] = defaultdict(list)
    for i, j, _ in matching.pairs:
        thread = trace.workers.get(int(rows[j]), -1)
        alone = i in matching.certain and pairs[i] == used[j] == 1
        if thread >= 0 and alone and captured[i].group is not None:
            of_thread[thread].append(i)
    for found in of_thread.values():
        [(right, most), *others] = Counter(captured[i].group for i in found).most_common()
        if not others:
            continue
        place = f"a thread of gloo's whose process group ran {most:,} among {list(right or ())}"
        for i in found:
            if captured[i].group != right:
                facts = captured[i]
                report.add(
                    Difference(
                        "in another group", facts.kind, matching.rank, i, described(facts), place,
                        True,
                    )
                )  # fmt: skip
