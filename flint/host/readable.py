"""Quantities for people: bytes, FLOPs, seconds and parts of a whole, the same on screen and pages.

The idea: four digits at most and the unit that fits; JSON, CSV and Parquet have the plain numbers.

    human_bytes(3 * 2**30), human_flops(3.411e16), human_seconds(0.263)   # 3.0 GiB, 34.1 PFLOP, ...
"""

from __future__ import annotations

import math

#: Units, the largest first.
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_BYTES = tuple(
    (1024.0**power, unit)
    for power, unit in reversed(list(enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB"))))
)


def human_bytes(number: float) -> str:
    """Bytes in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} PiB"


def bytes_unit(largest: float) -> tuple[float, str]:
    """The binary unit in which numbers up to ``largest`` bytes are shown on one scale."""
    return _unit(largest, _BYTES)


def seconds_unit(largest: float) -> tuple[float, str]:
    """The unit in which times up to ``largest`` seconds are shown on one scale."""
    return _unit(largest, _SECONDS)


def _unit(largest: float, units: tuple[tuple[float, str], ...]) -> tuple[float, str]:
    return next((unit for unit in units if largest >= unit[0]), units[-1])


def human_flops(number: float) -> str:
    """FLOPs in decimal units."""
    for unit in ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "FLOP" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} ZFLOP"


def human_seconds(number: float) -> str:
    """Seconds in the unit that fits; not a number is what an engine does not say."""
    if math.isnan(number):
        return "unknown"
    for size, unit in _SECONDS[:3]:
        if number >= size:
            return f"{number / size:.4g} {unit}"
    return f"{number * 1e9:.3g} ns" if number else "0"


def counted(number: int, noun: str) -> str:
    """How many of what; the noun takes an s."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def percentage(part: float, whole: float) -> str:
    """A part of a whole; ``-`` where there is no whole."""
    return f"{100 * part / whole:.1f}%" if whole else "-"
