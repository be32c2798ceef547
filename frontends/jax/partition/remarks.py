"""The log of XLA's partitioner, as a few counted warnings.

The idea: if it finds no good way from one sharding to another, it replicates the whole tensor and
logs that.  This is unrequested communication, often the most expensive of the step, so it belongs
in the workload's warnings, with its op.

    remarks(log)      # {"XLA replicates a tensor and splits it anew ... (embedding, gather)": 3}
"""

from __future__ import annotations

import re
from collections import Counter

from flint.stablehlo.sources.phases import layer_of

_REMATERIALIZED = re.compile(
    r"Involuntary full rematerialization\..*?for HLO operation %\S+ = (\w+\[[\d,]*\]).*?"
    r"(?:op_name=\"([^\"]*)\"|$)"
)
#: The most places that one warning names.
_NAMED = 3


def remarks(log: str) -> dict[str, int]:
    """Warnings of a partitioner's log, text -> count.

    Args:
        log: the process's output on stderr.
    """
    found: Counter[str] = Counter()
    for line in log.splitlines():
        match = _REMATERIALIZED.search(line)
        if match:
            found[_place(match[2] or "", match[1])] += 1
    if not found:
        return {}
    places = [place for place, _ in found.most_common(_NAMED)]
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    text = (
        "XLA replicates a tensor and splits it again for lack of a better way (its log: "
        f"involuntary full rematerialization), at {', '.join(places)}{more}: a sharding "
        "constraint can avoid it"
    )
    return {text: found.total()}


def _place(path: str, shape: str) -> str:
    """The user's layer and op, and the tensor."""
    layer, op = layer_of(path), path.rpartition("/")[2]
    return f"{'/'.join(filter(None, (layer, op))) or 'an unnamed op'} {shape}"
