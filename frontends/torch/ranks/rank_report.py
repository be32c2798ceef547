"""The report that the child that records a rank writes, for the search for ranks that do the same.

The idea: signatures show whether two ranks do the same.  If they should and do not, the hashes of
their ops, one per line, show the first difference.

    write(folder, Signed(recording), warnings)
    read(folder).signature
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from flint.capturing.user_frames import short_path
from flint.errors import FlintError
from flint.frontends.torch.evidence import Evidence
from flint.frontends.torch.ranks.recorded_evidence import recorded_evidence
from flint.frontends.torch.ranks.signatures import Signed
from flint.frontends.torch.recording.recording import Op
from flint.stablehlo.options import WalkOptions

_REPORT, _OPS = "report.json", "ops.txt"


class UnreportedError(FlintError):
    """A rank's program ended without a report."""

    def __init__(self, folder: Path) -> None:
        """Of the rank whose folder this is."""
        super().__init__(
            f"{folder.name}: as that rank, unlike others, the program ended before its step: name "
            "a step that all ranks have with --step (--list-steps shows those of rank 0)"
        )
        self.folder = folder


@dataclass(frozen=True, slots=True)
class RankReport:
    """The data about one recorded rank.

    Attributes:
        signature: what it did.
        messages: what it communicated.
        besides_updates: this, and what it did but for its optimizers.
        evidence: its evidence of differences among ranks.
        warnings: text -> count.
        unseen: the places where its own rank was read without its questions being seen.
        mesh: ((axis, size), ...).
    """

    signature: str
    messages: str
    besides_updates: str
    evidence: tuple[Evidence, ...]
    warnings: Mapping[str, int]
    unseen: tuple[str, ...]
    mesh: tuple[tuple[str, int], ...]


def write(folder: Path, signed: Signed, warnings: Mapping[str, int]) -> None:
    """Write the report of a recording into a folder."""
    recording = signed.recording
    evidence = (*recording.evidence, *recorded_evidence(recording))
    document = {
        "signature": signed.whole,
        "messages": signed.messages,
        "besides_updates": signed.besides_updates,
        "evidence": [[item.place, item.asked, item.packed.hex(), item.close] for item in evidence],
        "warnings": dict(warnings),
        "unseen": list(recording.unseen),
        "mesh": recording.mesh,
    }
    (folder / _REPORT).write_text(json.dumps(document), encoding="utf-8")
    ops = zip(signed.ops, map(_line, recording.ops), strict=True)
    (folder / _OPS).write_text("\n".join(map(" ".join, ops)), encoding="utf-8")
    (folder / f"{recording.rank}.{signed.whole}").touch()  # for ranks that end in the meantime


def is_known(folder: Path, signed: Signed) -> bool:
    """Whether a lower rank that does the same has written its report into a neighbouring folder."""
    left = folder.parent.rglob(f"*.{signed.whole}")
    return any(int(file.stem) < signed.recording.rank for file in left)


def read(folder: Path) -> RankReport:
    """The report that is in a folder.

    Raises:
        UnreportedError: the rank's program ended without one.
    """
    if not (folder / _REPORT).exists():
        raise UnreportedError(folder)
    document = json.loads((folder / _REPORT).read_text(encoding="utf-8"))
    return RankReport(
        signature=document["signature"],
        messages=document["messages"],
        besides_updates=document["besides_updates"],
        evidence=tuple(
            Evidence(place, asked, bytes.fromhex(packed), close)
            for place, asked, packed, close in document["evidence"]
        ),
        warnings=document["warnings"],
        unseen=tuple(document["unseen"]),
        mesh=tuple((axis, size) for axis, size in document["mesh"]),
    )


def first_difference(one: Path, other: Path) -> str:
    """The first difference between two recorded ranks: "op 3 is ... there, ... here"."""
    lines = [(folder / _OPS).read_text(encoding="utf-8").splitlines() for folder in (one, other)]
    for number, (first, second) in enumerate(itertools.zip_longest(*lines, fillvalue="")):
        if first.partition(" ")[0] != second.partition(" ")[0]:
            what = [line.partition(" ")[2] or "no further op" for line in (first, second)]
            if what[0] == what[1]:
                return f"op {number:,}, {what[0]}, has other sizes, groups or waits"
            return f"op {number:,} is {what[1]}, not {what[0]}"
    return "the ops are the same, but sizes of tensors from before the step differ"


def _line(op: Op) -> str:
    where = f" at {short_path(op.file)}:{op.line}" if op.file else ""
    return f"{op.name}{where}"


def left(options: WalkOptions, reports: Iterable[RankReport]) -> WalkOptions:
    """Options without the trip counts that recordings have used: no loop is left of theirs."""
    said = [text for report in reports for text in report.warnings if "--trip-count" in text]
    unused = {
        line: count
        for line, count in options.trip_counts.items()
        if not any(f"{line}: " in text for text in said)
    }
    return replace(options, trip_counts=unused)
