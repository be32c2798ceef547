"""What a user knows of values that a capture does not have, by the lines that need them.

shares_of(["0.5", "boxes.py:151=0.1"]).at("torchvision/ops/boxes.py:151")    # 0.1
numbers_of(["losses.py:42=10"]).at("yolox/losses.py:42")                     # 10
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from flint.errors import UsageError


@dataclass(frozen=True, slots=True)
class MaskShares:
    """Shares of the elements that unknown masks choose, each from 0 to 1.

    Attributes:
        usual: for lines without their own; all elements are an upper bound.
        by_line: ends of ``path:line`` -> the share there.
    """

    usual: float = 1.0
    by_line: Mapping[str, float] = field(default_factory=dict)

    def at(self, place: str) -> float | None:
        """The share that was given for a line (``path:line``); None: it has none of its own."""
        return _at(self.by_line, place)


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers that lines read from tensors on the device.

    Attributes:
        by_line: ends of ``path:line`` -> the number that is read there.
    """

    by_line: Mapping[str, float] = field(default_factory=dict)

    def at(self, place: str) -> float | None:
        """The number that was given for a line (``path:line``); None: it has none."""
        return _at(self.by_line, place)

    def typed(self, place: str, kind: str, what: str) -> tuple[bool | int | float, str] | None:
        """The number that a line reads, and the warning that says so; None: it was given none.

        Args:
            place: the line, ``path:line``.
            kind: of the number: "bool", "int" or "float".
            what: what it is read from.

        Raises:
            UsageError: it is none of this kind.
        """
        number = self.at(place)
        if number is None:
            return None
        typed = number if kind == "float" else bool(number) if kind == "bool" else int(number)
        if typed != number:
            raise UsageError(f"--value: {number} at {place} is read from {what}")
        return typed, f"a value is read at {place}: {typed}, as --value says"


def unused(numbers: Numbers, shares: MaskShares, warnings: Iterable[str]) -> list[str]:
    """What the user stated for lines that no warning names: they asked for nothing.

    Args:
        numbers, shares: what was stated.
        warnings: of the capture; each use of a stated value is one.
    """
    options = {"--value": numbers.by_line, "--mask-share": shares.by_line}
    texts = [(option, text) for text in warnings for option in options if option in text]
    return [
        f"{option} {line}={number:g}: this line reads no value that is not known"
        for option, given in options.items()
        for line, number in given.items()
        if not any(
            name == option and re.search(rf"[ /]{re.escape(line)}: ", text) for name, text in texts
        )
    ]


def _at(given: Mapping[str, float], place: str) -> float | None:
    found = (
        number for line, number in given.items() if place == line or place.endswith(f"/{line}")
    )
    return next(found, None)


def shares_of(texts: Sequence[str]) -> MaskShares:
    """``--mask-share``: SHARE, or FILE:LINE=SHARE, each given once.

    Raises:
        UsageError: no share from 0 to 1, or one line is given twice.
    """
    found = _by_line("--mask-share", texts)
    for text, share in zip(texts, found.values(), strict=True):
        if share is None or not 0.0 <= share <= 1.0:
            raise UsageError(
                f"--mask-share {text}: expected a share from 0 to 1, or FILE:LINE=SHARE"
            )
    shares = {line: share for line, share in found.items() if share is not None}
    return MaskShares(shares.pop("", 1.0), shares)


def numbers_of(texts: Sequence[str]) -> Numbers:
    """``--value``: FILE:LINE=NUMBER, each line given once.

    Raises:
        UsageError: no line or no finite number, or one line is given twice.
    """
    found = _by_line("--value", texts)
    for text, (line, number) in zip(texts, found.items(), strict=True):
        if not line or number is None or not math.isfinite(number):
            raise UsageError(f"--value {text}: expected FILE:LINE=NUMBER")
    return Numbers({line: number for line, number in found.items() if number is not None})


def _by_line(option: str, texts: Sequence[str]) -> dict[str, float | None]:
    """LINE=NUMBER, or NUMBER for the line ""; None for what is no number."""
    found: dict[str, float | None] = {}
    for text in texts:
        line, _, number = text.rpartition("=")
        if line in found:
            raise UsageError(f"{option} {text}: given twice")
        try:
            found[line] = float(number)
        except ValueError:
            found[line] = None
    return found
