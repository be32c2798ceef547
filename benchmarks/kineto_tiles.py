"""A profile that somebody recorded, many times one after the other: reading a large real trace.

    python benchmarks/kineto_tiles.py 100                  # ResNet-50 on NCCL, 100 MB of it
    python benchmarks/kineto_tiles.py 100 rank0.json.gz

The text of the events stays as the profiler wrote it; times go on from copy to copy, and so do the
numbers that tie events to each other, and those of steps.
"""

from __future__ import annotations

import argparse
import gzip
import re
import tempfile
from pathlib import Path

from cases import FLINT, remover
from measure import measure

_REAL = Path(__file__).parents[1] / "tests/data/traces/resnet50_ddp_nccl_calls_rank0.json.gz"
#: Whole numbers that no two copies may share, and the begins of events.
_NUMBERS = (
    b'"External id"|"external id"|"correlation"|"Record function id"|"Ev Idx"|"id"'
    b'|"wait_on_cuda_event_record_corr_id"|"Sequence number"'
)
_TIED = re.compile(
    rb"((?:" + _NUMBERS + rb'):\s*)(\d+)|("ts":\s*)(\d+)((?:\.\d+)?)|(ProfilerStep#)(\d+)'
)
_STEP = re.compile(rb"ProfilerStep#(\d+)")
_BEGIN, _END = re.compile(rb'"traceEvents":\s*\['), re.compile(rb"\s*\]\s*[,}]")


def write(path: Path, source: Path, size: int) -> int:
    """Write at least ``size`` bytes of copies of ``source``; returns how many copies."""
    data = source.read_bytes()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    listed = _BEGIN.search(data)
    if listed is None:
        raise SystemExit(f"{source}: not a Kineto trace")
    begin = listed.end()
    end = next(found.start() for found in _END.finditer(data, data.rindex(b'"ph"')))
    events = data[begin:end]
    times = [int(found[4]) for found in _TIED.finditer(events) if found[3]]
    numbers = [int(found[2]) for found in _TIED.finditer(events) if found[1]]
    recent = [when for when in times if when]
    span, step = max(recent) - min(recent) + 1_000_000, max(numbers) + 1
    steps = len(set(_STEP.findall(events))) + 1
    copies = -(-size // len(events))
    with path.open("wb") as file:
        file.write(data[:begin])
        for copy in range(copies):

            def moved(found: re.Match[bytes], copy: int = copy) -> bytes:
                if found[1]:
                    value = int(found[2])
                    return b"%b%d" % (found[1], value and value + copy * step)
                if found[3]:
                    return b"%b%d%b" % (found[3], int(found[4]) + copy * span, found[5])
                return b"%b%d" % (found[6], int(found[7]) + copy * steps)

            file.write((b"," if copy else b"") + _TIED.sub(moved, events))
        file.write(data[end:])
    return copies


def main() -> None:
    """Write, convert, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("megabytes", type=int, nargs="?", default=100)
    parser.add_argument("profile", type=Path, nargs="?", default=_REAL)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_intermixed_args()
    if not given.profile.is_file():
        parser.error(f"there is no file {given.profile}: name a Kineto trace")
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "rank0.json", Path(folder) / "out"
        copies = write(path, given.profile, given.megabytes * 10**6)
        command = [*FLINT, "convert", str(path), "-o", str(out), "--json"]
        found = measure(command, runs=given.runs, before=remover(out))
        print(
            f"{copies} copies, {path.stat().st_size / 1e6:.1f} MB: {found.wall:.2f} s "
            f"({found.user + found.system:.2f} s of processors), {found.peak >> 20} MiB"
        )


if __name__ == "__main__":
    main()
