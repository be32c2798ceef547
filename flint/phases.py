"""Phases and layers from a framework's op paths.

The idea: JAX's name stack says what part of the step an op belongs to: ``transpose(...)`` around
``jvp(...)`` is the backward pass, ``rematted_computation`` (or ``checkpoint`` under a transpose) is
recomputation, ``jvp(...)`` alone the forward pass.  What the path does not tell stays unknown.

    >>> phase_of("jit(step)/transpose(jvp(Block))/attn/dot_general")
    <Phase.BACKWARD: 2>
"""

from __future__ import annotations

import re

from flint.graph import Phase, Source
from flint.stablehlo.records import SourceInfo

_RULES: tuple[tuple[re.Pattern[str], Phase], ...] = (
    (re.compile(r"rematted_computation"), Phase.RECOMPUTE),
    (re.compile(r"transpose\("), Phase.BACKWARD),
    (re.compile(r"jvp\("), Phase.FORWARD),
    (re.compile(r"(^|/)(optimizer|optim|adamw?|sgd|lion|adafactor|apply_updates)(/|$)", re.I),
     Phase.OPTIMIZER),
)  # fmt: skip

_TRANSFORM = re.compile(
    r"^(jit|pjit|jvp|transpose|vmap|shard_map|checkpoint|remat|rematted_computation|while|body|"
    r"closed_call|scan|cond|custom_jvp|custom_vjp)(\(.*\))?$"
)
_WRAPPED = re.compile(r"^(?:jvp|transpose|vmap|checkpoint)\((.*)\)$")


def phase_of(path: str) -> Phase:
    """The part of the training step that an op path belongs to."""
    for pattern, phase in _RULES:
        if pattern.search(path):
            return phase
    return Phase.UNKNOWN


def layer_of(path: str) -> str:
    """The user's module path inside an op path: transformations and the op itself left out."""
    parts = path.rstrip(":").split("/")[:-1]
    kept = []
    for part in parts:
        while wrapped := _WRAPPED.match(part):
            part = wrapped.group(1)
        if part and not _TRANSFORM.match(part):
            kept.append(part)
    return "/".join(kept)


def source_of(info: SourceInfo) -> Source:
    """Layer, line and phase of an op's origin."""
    if not info.name and not info.file:
        return Source()
    return Source(layer_of(info.name), info.file, info.line, phase_of(info.name))
