"""The warnings of a capture of many ranks: those of recorded ranks, and what the others may do.

rank_warnings(reports, partition, found, shape=(64, 8))      # text -> count
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from flint.frontends.torch.evidence import Evidence
from flint.frontends.torch.ranks.moved_questions import moved
from flint.frontends.torch.ranks.partition import Partition, unlike_questions
from flint.frontends.torch.ranks.rank_report import RankReport
from flint.frontends.torch.ranks.search import Behaviour


def rank_warnings(
    reports: Mapping[int, RankReport],
    partition: Partition,
    behaviours: Sequence[Behaviour],
    shape: tuple[int, ...],
) -> Counter[str]:
    """The warnings of the capture, text -> count.

    Args:
        reports: rank -> its report, of the recorded ones.
        partition: of all ranks.
        behaviours: the classes of all ranks.
        shape: devices per mesh axis.
    """
    found = Counter[str]()
    for item in behaviours:
        found |= Counter(reports[item.representative].warnings)
    found = _all_warnings(found, reports.values())
    return found | Counter(dict.fromkeys(_about_others(reports, partition, behaviours, shape), 1))


def _about_others(
    reports: Mapping[int, RankReport],
    partition: Partition,
    behaviours: Sequence[Behaviour],
    shape: tuple[int, ...],
) -> Iterator[str]:
    world = math.prod(shape)
    data, pieces, done = 0, 0, len(reports)
    for item in behaviours:
        one = reports[item.representative]
        others = [report for rank, report in reports.items() if item.ranks[rank]]
        unlike = [report for report in others if report.signature != one.signature]
        like = sum(report.besides_updates == one.besides_updates for report in unlike)
        data, pieces = data + len(unlike) - like, pieces + like
    stand = f"recorded ranks compute otherwise than those that stand for all {world:,}"
    if data:
        yield (
            f"ranks have data of different sizes: {data} of {done} {stand}, and communicate the "
            "same"
        )
    if pieces:
        yield f"optimizers update other pieces on other ranks: {pieces} of {done} {stand}"
    if done == world:
        return
    were = f"what only unrecorded ranks do is not captured ({done} of {world:,} were)"
    for text in {text for report in reports.values() for text in report.unseen}:
        yield f"{text}: {were}; compare torch.distributed.get_rank()"
    for place in (*partition.counted, *partition.left_out):
        yield (
            f"the step compares its own rank{place} in more ways than can be distinguished: {were}"
        )
    for place in _unlike(reports, partition, shape):
        yield (
            f"the step compares its own rank{place} with different numbers on different ranks: "
            f"{were}"
        )


def _unlike(
    reports: Mapping[int, RankReport], partition: Partition, shape: tuple[int, ...]
) -> list[str]:
    """Places whose questions do not say what unrecorded ranks do.

    Ranks that a fact distinguishes, such as stages, may ask about other numbers: ranks of each kind
    are recorded, along all axes.
    """
    evidence = {rank: report.evidence for rank, report in reports.items()}
    alike: dict[int, list[Iterable[Evidence]]] = {}
    for rank, items in evidence.items():
        alike.setdefault(int(partition.facts[rank]), []).append(items)
    places = {place for items in alike.values() for place in unlike_questions(items)}
    return sorted(places - moved(evidence, shape).keys())


def _all_warnings(found: Counter[str], reports: Iterable[RankReport]) -> Counter[str]:
    """Warnings with those of ranks that do the same as others, where these say nothing like it."""
    known = set(map(_without_numbers, found))
    every = Counter(found)
    for report in reports:
        new = {text for text in report.warnings if _without_numbers(text) not in known}
        every |= Counter({text: report.warnings[text] for text in new})
        known |= set(map(_without_numbers, new))
    return every


def _without_numbers(text: str) -> str:
    """A warning as other ranks have it, whose sizes may differ."""
    return re.sub(r"\d+", "#", text)
