"""The traces in folders, by their files' endings and content.

The idea: a folder stands for the traces of its run.  Where the run's writer made folders of its
own, by host or by rank, the traces are in those.

    expanded([Path("run/")])        # [run/host/12_results.db, run/host/13_results.db]
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from flint.errors import FlintError, NoTraceError, UsageError
from flint.host.packed_files import check_all_plain
from flint.observed.reading import form_of, is_jax_profile

#: Files of a folder that count as profiles, and as traces of ranks.
PROFILES = (".json", ".json.gz", ".sqlite", ".db", ".rpd", ".csv")
ENDINGS = (*PROFILES, ".et", ".et.gz")
#: How far below a folder its traces are looked for: rocprofv3 writes HOST/PROCESS_results.db.
_DEEPEST = 3
#: What a workload folder has; with it, tables of groups next to Chakra traces.
_WORKLOAD = "workload.json"
_NO_TRACES = ("comm_group.json", "comm_groups.json", _WORKLOAD)


def expanded(paths: Sequence[Path]) -> list[Path]:
    """Traces of ranks in place of a folder that contains them; JAX profile folders stay.

    Raises:
        UsageError: there is no such file or folder.
        FlintError: a folder without anything that is a trace.
    """
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path}: no such file or folder")
        if not path.is_dir() or is_jax_profile(path):
            found.append(path)
            continue
        if (path / _WORKLOAD).is_file():
            raise FlintError(f"{path}: no trace in the folder but its own, in et/")
        traces, _ = traces_in(path, ENDINGS)
        if not traces:
            raise FlintError(
                f"{path}: no trace in the folder: it contains neither .xplane.pb files at any "
                "depth (a JAX profile) nor .json or .et files (one trace per rank)"
            )
        found += sorted(traces, key=_by_number)
    return found


def of_prefixes(paths: Sequence[Path]) -> list[Path]:
    """Chakra traces ``PREFIX.<rank>.et`` in place of a PREFIX, as simulators are given it."""
    found: list[Path] = []
    for path in paths:
        named = re.compile(re.escape(path.name) + r"\.\d+\.et")
        beside = path.parent.iterdir() if not path.exists() and path.parent.is_dir() else ()
        traces = [item for item in beside if named.fullmatch(item.name)]
        found += sorted(traces, key=_by_number) or [path]
    return found


def traces_in(folder: Path, endings: tuple[str, ...]) -> tuple[list[Path], list[Path]]:
    """The traces in a folder, or in the nearest folders below that have some, and the files
    beside them that are none; nothing where no file ends like a trace.

    Raises:
        FlintError: there are such files, and none is a trace, or one cannot be read.
    """
    refused: NoTraceError | None = None
    for files in files_by_depth(folder, endings):
        check_all_plain(files)
        try:
            return traces_among(files)
        except NoTraceError as error:
            refused = refused or error
    if refused is not None:
        raise refused
    return [], []


def files_by_depth(folder: Path, endings: tuple[str, ...]) -> Iterator[list[Path]]:
    """The files with these endings in a folder, then those in the folders below, and so on."""
    level = [str(folder)]
    for _ in range(1 + _DEEPEST):
        inside: list[os.DirEntry[str]] = []
        for place in level:
            try:
                inside += sorted(os.scandir(place), key=lambda entry: entry.name)
            except OSError as error:
                if place == str(folder):
                    raise FlintError(f"{place}: cannot be read ({error.strerror})") from error
        files = [
            Path(entry.path)
            for entry in inside
            if entry.name.endswith(endings) and entry.name not in _NO_TRACES
        ]
        if files:
            yield files
        level = [
            entry.path
            for entry in inside
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
        ]


def traces_among(files: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """The traces in a folder, and its files that are none, such as a run's configuration.

    CSV is read where nothing else is: beside other profiles it has tables of the same run.

    Raises:
        FlintError: no trace is among them, or one cannot be read.
    """
    traces: list[Path] = []
    others: dict[Path, NoTraceError] = {}
    for file in files:
        try:
            form_of(file)
        except NoTraceError as error:
            others[file] = error
        else:
            traces.append(file)
    if not traces:
        raise next(iter(others.values()))
    full = [file for file in traces if file.suffix != ".csv"]
    if full:
        return full, [file for file in others if file.suffix != ".csv"]
    return traces, [*others]


def _by_number(path: Path) -> tuple[list[int], str]:
    """rank2 before rank10."""
    return [int(digits) for digits in re.findall(r"\d+", path.name)], path.name
