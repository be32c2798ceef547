"""How many elements a mask chooses if its values are not known.

shares_of(["0.5", "boxes.py:151=0.1"]).at("torchvision/ops/boxes.py:151")    # 0.1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        given = (
            share
            for line, share in self.by_line.items()
            if place == line or place.endswith(f"/{line}")
        )
        return next(given, None)


def shares_of(texts: Sequence[str]) -> MaskShares:
    """``--mask-share``: SHARE, or FILE:LINE=SHARE, each given once.

    Raises:
        UsageError: no share from 0 to 1, or one line is given twice.
    """
    found: dict[str, float] = {}
    for text in texts:
        line, _, number = text.rpartition("=")
        if line in found:
            raise UsageError(f"--mask-share {text}: given twice")
        try:
            found[line] = float(number)
        except ValueError:
            found[line] = -1.0
        if not 0.0 <= found[line] <= 1.0:
            raise UsageError(
                f"--mask-share {text}: expected a share from 0 to 1, or FILE:LINE=SHARE"
            )
    return MaskShares(found.pop("", 1.0), found)
