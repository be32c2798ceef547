"""An op of a capture or a trace as one line of text, for reports and errors.

described(facts)        # "all_reduce 4,096 bytes f32 among [0, 1]"
"""

from __future__ import annotations

from flint.observed.classes import OpClass
from flint.observed.columns import OpFacts


def described(facts: OpFacts) -> str:
    """An op as text: its name, and its sizes as far as they are known."""
    text = facts.name
    if facts.gemms:
        text += " " + ", ".join(f"{b}x{m}x{n}x{k}" for b, m, n, k in facts.gemms[:3])
        text += f" (batch, m, n, k) {facts.dtype}"
        text += f" {facts.compared}" if facts.of_no_captured_type else ""
    elif facts.kind.collective:
        if facts.parts is not None:
            buffers = f" in {len(facts.parts)} buffers" if len(facts.parts) > 1 else ""
            text += f" {facts.bytes:,} bytes{buffers} {facts.dtype}".rstrip()
            text += f" {facts.compared}" if facts.of_no_captured_type else ""
        text += f" {facts.reduction}" if facts.reduction not in ("", "add") else ""
        if facts.group is not None:
            shown = ", ".join(map(str, facts.group[:8]))
            more = f", ... ({len(facts.group):,})" if len(facts.group) > 8 else ""
            to = "to" if facts.kind == OpClass.COLLECTIVE_PERMUTE else "among"
            text += f" {to} [{shown}{more}]"
        elif facts.members >= 0:
            text += f" among {facts.members:,} ranks"
        if facts.root >= 0:
            ranks = (facts.group or ())[facts.root : facts.root + 1]
            text += f" from {ranks[0] if ranks else f'member {facts.root}'}"
        if facts.peer >= 0:
            text += f" {'to' if facts.kind == OpClass.SEND else 'from'} {facts.peer}"
    elif facts.operands:
        shapes = ["x".join([*map(str, shape), dtype]) for shape, dtype in facts.operands[:4]]
        text += f" ({', '.join(shapes)}{', ...' if len(facts.operands) > 4 else ''})"
        if facts.convolved:
            text += " to {:,} numbers in {:,} FLOPs".format(*facts.convolved)
    return text
