"""What a program's own lines ask about its rank, as evidence of differences among ranks.

The idea: a comparison is noted at the line that makes it, as the ranks for which it holds; so is a
membership.  Where a number passes to code that cannot be followed, its different values are noted.

    ask(np.arange(8) % 4 == 1)           # the line asks; ranks 1 and 5 are answered yes
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from flint.frontends.torch.context import capture
from flint.frontends.torch.evidence import Kinds
from flint.frontends.torch.shims.over_ranks import world
from flint.frontends.torch.user_lines import at_line, at_user_line, inside_torch

#: Modules whose frames lie between a program's line and the question.
_BETWEEN = (
    __name__, "flint.launching.followed_functions", "numpy.lib.mixins",
    *(
        f"flint.frontends.torch.shims.own_{name}"
        for name in ("arrays", "calls", "methods", "paths", "things", "values", "words")
    ),
)  # fmt: skip

#: Up to this many different values are all noted if comparisons with them are not seen.
FEW_VALUES = 16


def ask(yes: Any) -> None:
    """A comparison, as the ranks for which it holds, at its line of code."""
    frame = _outside()
    if _counts(frame):
        mask = np.broadcast_to(np.asarray(yes).astype(bool), world())
        capture().evidence.ask(at_line(frame.f_code.co_filename, frame.f_lineno), mask)


def ask_whether_among(yes: Any) -> None:
    """A membership, as the ranks for which it holds, at its line of code.

    A program that asks for each of many groups whether it is in it wants to know which is its own.
    """
    frame = _outside()
    members = tuple(np.flatnonzero(yes).tolist())
    if members and _counts(frame):
        place = at_line(frame.f_code.co_filename, frame.f_lineno)
        capture().groups_asked.setdefault(place, {})[members] = None


def leaves(values: Kinds, how: str) -> None:
    """A number passes to code where comparisons with it are not seen."""
    if not inside_torch(_outside()):
        note_values(values, how)


def note_values(values: Kinds, how: str) -> None:
    """Ranks with different values may behave differently, in a way that is not seen."""
    kinds = np.unique(values, return_inverse=True)[1].reshape(-1)
    evidence, place = capture().evidence, at_user_line()
    if kinds.max() < FEW_VALUES:
        evidence.ask_value(place, kinds)
        return
    # Programs usually compare with the first, the last and the hosts' first ranks.
    evidence.ask(f"{place} (the first)", kinds == 0)
    evidence.ask(f"{place} (the last)", kinds == kinds.max())
    evidence.ask(f"{place} (the first of a host)", np.arange(len(kinds)) % capture().per_host == 0)
    capture().unseen.add(f"the own rank {how}{place}")


def _outside() -> Any:
    """The innermost frame of the code that asks."""
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") in _BETWEEN:
        frame = frame.f_back
    return frame


def _counts(frame: Any) -> bool:
    """Whether a comparison may affect behaviour: not one in PyTorch's caches."""
    name = str(frame.f_globals.get("__name__", ""))
    return not inside_torch(frame) or name.startswith("torch.distributed.")
