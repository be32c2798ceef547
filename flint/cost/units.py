"""Quantities with units, as in system descriptions.

The idea: a figure without its unit is a mistake waiting to happen, so every figure is text: a
number, an SI or binary prefix, a unit.  A unit must measure the same quantity as the entry.

    >>> parse("400 Gb/s", "bytes/s")
    50000000000.0
"""

from __future__ import annotations

import re
from decimal import Decimal, DecimalException
from typing import Final

#: Unit -> what it measures, and its size.
_UNITS: Final = {
    "B": ("bytes", Decimal(1)),
    "b": ("bytes", Decimal("0.125")),
    "B/s": ("bytes/s", Decimal(1)),
    "b/s": ("bytes/s", Decimal("0.125")),
    "FLOP/s": ("operations/s", Decimal(1)),
    "OP/s": ("operations/s", Decimal(1)),
    "s": ("seconds", Decimal(1)),
    "Hz": ("hertz", Decimal(1)),
}
_PREFIXES: Final = {
    prefix: Decimal(size)
    for prefix, size in (
        ("", "1"), ("n", "1e-9"), ("u", "1e-6"), ("m", "1e-3"), ("k", "1e3"), ("M", "1e6"),
        ("G", "1e9"), ("T", "1e12"), ("P", "1e15"),
        ("Ki", 2**10), ("Mi", 2**20), ("Gi", 2**30), ("Ti", 2**40),
    )
}  # fmt: skip
_EXAMPLES: Final = {
    "bytes": "80 GB",
    "bytes/s": "3.35 TB/s or 400 Gb/s",
    "operations/s": "989.4 TFLOP/s",
    "seconds": "0.9 us",
    "hertz": "1.05 GHz",
}
_FORM: Final = re.compile(r"\s*([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*([A-Za-z/]*)\s*")


def parse(text: object, measures: str) -> float:
    """A quantity in bytes, bytes/s, operations/s, seconds or hertz.

    Args:
        text: the text of the description.
        measures: what it must be, one of these five.

    Raises:
        ValueError: no such quantity; the message says what was expected.
    """
    expected = f"expected a quantity in {measures} such as {_EXAMPLES[measures]!r}"
    if isinstance(text, int | float) and not isinstance(text, bool):
        raise ValueError(f"{text} has no unit: {expected}")
    match = _FORM.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{text!r}: {expected}")
    try:
        number = Decimal(match[1])
    except DecimalException:
        raise ValueError(f"{text!r}: {expected}") from None
    if not match[2]:
        raise ValueError(f"{text!r} has no unit: {expected}")
    for unit, (measured, size) in _UNITS.items():
        prefix = match[2].removesuffix(unit)
        if match[2].endswith(unit) and prefix in _PREFIXES and measured == measures:
            try:
                return float(number * _PREFIXES[prefix] * size)
            except (DecimalException, OverflowError):
                break
    else:
        raise ValueError(f"{text!r}: unknown unit here: {expected}")
    raise ValueError(f"{text!r} is out of range: {expected}")
