"""Attribute dictionaries that HLO carries as MLIR text.

Custom calls of the typed interface and composites keep their attributes in MLIR's notation.  Flat
dictionaries with numbers, strings and booleans are read here; anything else stays text.

    flat_dictionary('{uplo = 76 : ui8, name = "x"}')  ->  {"uplo": 76, "name": "x"}
"""

from __future__ import annotations

import re

_ENTRY = re.compile(
    r"""\s*(?P<key>[A-Za-z_][\w.$]*|"[^"\\]*")\s*=\s*
    (?: (?P<boolean>true|false)
      | "(?P<string>[^"\\]*)"
      | (?P<number>-?\d+(?:\.\d*(?:[eE][-+]?\d+)?)?) (?:\s*:\s*[a-z]+\d+)?
    )\s*(?:,|\Z)""",
    re.VERBOSE,
)


def flat_dictionary(text: str) -> dict[str, int | float | bool | str] | None:
    """``text`` as a dictionary; None if it is not a flat dictionary."""
    inner = text.strip()
    if not (inner.startswith("{") and inner.endswith("}")):
        return None
    inner = inner[1:-1].strip()
    entries: dict[str, int | float | bool | str] = {}
    position = 0
    while position < len(inner):
        entry = _ENTRY.match(inner, position)
        if entry is None:
            return None
        entries[entry["key"].strip('"')] = _value(entry)
        position = entry.end()
    return entries


def _value(entry: re.Match[str]) -> int | float | bool | str:
    if entry["boolean"] is not None:
        return entry["boolean"] == "true"
    if entry["string"] is not None:
        return entry["string"]
    number = entry["number"]
    return int(number) if number.lstrip("-").isdigit() else float(number)
