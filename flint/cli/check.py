"""``flint check``: is this something that consumers can run?"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from flint import registry
from flint.cli.options import JsonOption, ReaderMemoryOption
from flint.cli.parsing import existing
from flint.cli.pipes import reader_bytes
from flint.cli.shared import print_json
from flint.errors import UsageError
from flint.host.readable import counted
from flint.host.reading_memory import allowed
from flint.mesh.mesh import parse_mesh


def check_command(
    folder: Annotated[
        Path, typer.Argument(help="Workload folder, or a folder or prefix of .et files.")
    ],
    groups: Annotated[
        Path | None,
        typer.Option(
            "--groups", help="Communicator groups (JSON) of traces that Flint did not write."
        ),
    ] = None,
    npus: Annotated[
        str | None,
        typer.Option(
            "--npus-count", help="Network dims of these traces, innermost first, for example 8,64."
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Findings to show per rule.")] = 3,
    memory_limit: ReaderMemoryOption = None,
    json_output: JsonOption = False,
) -> int:
    """Check traces over all ranks together; exit status 1 if consumers cannot run them."""
    check = registry.converter("chakra-check")
    if groups is not None:
        existing(groups)
    dims = _dims(npus) if npus is not None else None
    with allowed(reader_bytes(memory_limit)):
        report = check(folder, comm_groups=groups, npus_count=dims)
    if json_output:
        counts = {"ok": report.ok, "errors": report.errors, "warnings": report.warnings}
        print_json(counts | asdict(report))
        return 0 if report.ok else 1
    shown: dict[str, int] = {}
    for finding in report.findings:
        shown[finding.rule] = shown.get(finding.rule, 0) + 1
        if shown[finding.rule] <= limit:
            sys.stdout.write(f"{finding}\n")
    for rule, count in report.counts.items():
        if count > min(limit, shown.get(rule, 0)):
            sys.stdout.write(f"  [{rule}] {count:,} findings in total\n")
    for reason in sorted(set(report.not_checked.values())):
        rules = [rule for rule, why in report.not_checked.items() if why == reason]
        sys.stdout.write(f"not checked, because {reason}: {', '.join(sorted(rules))}\n")
    verdict = "consumers can run it" if report.ok else "consumers cannot run it"
    if {item.rule for item in report.findings if item.severity == "error"} == {"slot-order"}:
        verdict = "consumers with one communication slot could hang"
    if report.ok and report.not_checked:
        verdict = "no errors in the checked part"
    if report.ok and report.size == 1:
        verdict = "one rank: nothing to simulate between ranks"
    sys.stdout.write(
        f"{folder}: {report.ranks:,} of {report.size:,} ranks "
        f"({counted(report.distinct_files, 'distinct file')}), {report.nodes:,} nodes, "
        f"{len(report.checked)} rules: {counted(report.errors, 'error')}, "
        f"{counted(report.warnings, 'warning')}: {verdict}\n"
    )
    return 0 if report.ok else 1


def _dims(text: str) -> tuple[int, ...]:
    try:
        return parse_mesh(text).shape
    except UsageError:
        shown = text if len(text) < 60 else f"{text[:60]}..."
        raise UsageError(f"--npus-count {shown!r}: expected sizes such as 8,64") from None
