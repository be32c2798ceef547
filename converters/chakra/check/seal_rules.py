"""Rules about the folder as a whole: its files are those that Flint wrote, byte by byte.

The idea: ``workload.json`` states size and checksum of every file (``flint.workload.sealing``).
Users may edit settings of the simulator, so changes in them are only a warning, unless the
simulator refuses what they became.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from flint.converters.chakra.check.findings import ERROR, WARNING, Hits, Round, whole_set
from flint.converters.chakra.check.refused_settings import NEEDED, refusals
from flint.converters.chakra.network import read_json_object, read_settings
from flint.workload.document import Document
from flint.workload.folder import DOCUMENT, is_workload_folder, read_document
from flint.workload.sealing import broken

#: Applied to a folder and its files that do not match its seal: name, and what is wrong.
SEAL_RULES: Final = Round[[Path, list[tuple[str, str]]]]()
_SETTINGS: Final = "astra-sim/"


@SEAL_RULES.rule("changed-file", ERROR)
def changed_file(home: Path, found: list[tuple[str, str]]) -> Iterator[Hits]:
    """Programs, graphs, traces and tables are as Flint wrote them."""
    for name, what in found:
        if not name.startswith(_SETTINGS):
            yield whole_set(f"{home / name} {what}; write the folder again")


@SEAL_RULES.rule("changed-setting", WARNING)
def changed_setting(home: Path, found: list[tuple[str, str]]) -> Iterator[Hits]:
    """The simulator's settings are as Flint wrote them."""
    for name, what in found:
        if name.startswith(_SETTINGS):
            yield whole_set(
                f"{home / name} {what}: the simulator will use other settings than Flint wrote"
            )


@SEAL_RULES.rule("refused-setting", ERROR)
def refused_setting(home: Path, found: list[tuple[str, str]]) -> Iterator[Hits]:
    """Settings that were changed are there, and of a form that ASTRA-sim starts with."""
    for name, _ in found:
        file = home / name
        if not name.startswith(_SETTINGS):
            continue
        if not file.is_file():
            if file.name in NEEDED:
                yield whole_set(f"{file} is missing: ASTRA-sim does not start without it")
            continue
        for problem in refusals(file.name, read_settings(file)):
            yield whole_set(f"{file}: {problem}; ASTRA-sim does not start with it")


def document_of(home: Path | None) -> Document | None:
    """The document of a folder that Flint wrote; None if there is none."""
    if home is None or not is_workload_folder(home):
        return None
    return read_document(home) if "schema" in dict(read_json_object(home / DOCUMENT)) else None


def broken_files(home: Path, document: Document) -> list[tuple[str, str]]:
    """Files of a folder that do not match its document: name, and what is wrong."""
    return list(broken(home, document.files or {}, document.traces))
