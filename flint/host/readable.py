"""Readable quantities: bytes, FLOPs, seconds and percentages, the same on screen and on pages.

The idea: at most four digits and a suitable unit; JSON, CSV and Parquet have the plain numbers.
Values that are not numbers are shown as "unknown".

    human_bytes(3 * 2**30), human_flops(3.411e16), human_seconds(0.263)   # 3.0 GiB, 34.1 PFLOP, ...
"""

from __future__ import annotations

import math
from collections.abc import Sequence

UNKNOWN = "unknown"
#: Units, the largest first.
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
#: Units, the smallest first.
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_FLOPS = ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP", "ZFLOP")


def human_bytes(number: float) -> str:
    """Bytes in binary units."""
    return _in_units(number, 1024, _BYTES)


def human_flops(number: float) -> str:
    """FLOPs in decimal units."""
    return _in_units(number, 1000, _FLOPS)


def _in_units(number: float, base: int, units: tuple[str, ...]) -> str:
    if math.isnan(number):
        return UNKNOWN
    for unit in units[:-1]:
        if number < base:
            return f"{number:.0f} {unit}" if unit == units[0] else f"{number:.1f} {unit}"
        number /= base
    return f"{number:.1f} {units[-1]}"


def bytes_unit(largest: float) -> tuple[float, str]:
    """The binary unit in which numbers up to ``largest`` bytes are shown on one scale."""
    sizes = [(1024.0**power, unit) for power, unit in enumerate(_BYTES)]
    return _unit(largest, sizes[::-1])


def seconds_unit(largest: float) -> tuple[float, str]:
    """The unit in which times up to ``largest`` seconds are shown on one scale."""
    return _unit(largest, _SECONDS)


def _unit(largest: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    return next((unit for unit in units if largest >= unit[0]), units[-1])


def human_seconds(number: float) -> str:
    """Seconds in a suitable unit."""
    if math.isnan(number):
        return UNKNOWN
    for size, unit in _SECONDS[:3]:
        if number >= size:
            return f"{number / size:.4g} {unit}"
    return f"{number * 1e9:.3g} ns" if number else "0"


def counted(number: int, noun: str) -> str:
    """A number and a noun; the plural is formed with s."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[str], most: int = 3, noun: str = "") -> str:
    """Up to so many names and the number of the others: "a, b, c and 4 more lines".

    Args:
        names: the names, in order.
        most: how many are named.
        noun: what they are, in the singular.
    """
    others = len(names) - most
    more = counted(others, f"more {noun}") if noun else f"{others:,} more"
    return ", ".join(names[:most]) + (f" and {more}" if others > 0 else "")


def percentage(part: float, whole: float) -> str:
    """A part of a whole in percent; ``-`` if there is no whole."""
    if math.isnan(part) or math.isnan(whole):
        return UNKNOWN
    return f"{100 * part / whole:.1f}%" if whole else "-"


def why_unreadable(error: Exception) -> str:
    """Why a file cannot be read, without its name: "Is a directory", "not UTF-8 text"."""
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 text (at byte {error.start})"
    return (isinstance(error, OSError) and error.strerror) or str(error)
