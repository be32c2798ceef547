"""Phases and layers from a framework's op paths.

The idea: JAX's name stack shows what part of the step an op belongs to: ``transpose(...)`` around
``jvp(...)`` is the backward pass, ``rematted_computation`` (or ``checkpoint`` under a transpose) is
recomputation, ``jvp(...)`` alone the forward pass.  If the path does not show it, the phase stays
unknown here; ``passes/optimizer_phase.py`` finds the ops that use gradients.

    >>> phase_of("jit(step)/transpose(jvp(Block))/attn/dot_general")
    <Phase.BACKWARD: 2>
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from flint.graph.graph import Phase, Source, WorkloadGraph, with_tables
from flint.stablehlo.read.records import SourceInfo

_RULES: tuple[tuple[re.Pattern[str], Phase], ...] = (
    (re.compile(r"rematted_computation"), Phase.RECOMPUTE),
    (re.compile(r"transpose\("), Phase.BACKWARD),
    (re.compile(r"jvp\("), Phase.FORWARD),
    (re.compile(r"(^|/)(optimizer|optim|adamw?|sgd|lion|adafactor|apply_updates)(/|$)", re.I),
     Phase.OPTIMIZER),
)  # fmt: skip

#: Phases as recorded modules state them.
_STATED = {
    "forward": Phase.FORWARD,
    "backward": Phase.BACKWARD,
    "recompute": Phase.RECOMPUTE,
    "optimizer": Phase.OPTIMIZER,
}

#: Parts of a path that are transformations and control flow, not the user's modules.
_TRANSFORM = re.compile(
    r"^(jit|pjit|jvp|transpose|vmap|shard_map|while|body|body_fun|cond|cond_fun|scan|closed_call|"
    r"core_call|eval_jaxpr|checkpoint|remat\d?|rematted_computation|custom_[jv][vj]p(_call)?)"
    r"(\(.*\))?$"
    r"|^branch_\d+_fun$|^[\w,. ]*->[\w. ]*$"  # a branch's function; an einsum's specification
)
_WRAPPED = re.compile(r"^(?:jvp|transpose|vmap|checkpoint)\((.*)\)$")
#: Where the stack of a forward pass begins (anew, inside a backward pass that recomputes).
_BEGINS = ("jvp(", "transpose(jvp(")
#: The names after which the stack of a loop's or a branch's body, or of recomputed code, begins.
_BODY = re.compile(r"^(body|closed_call|eval_jaxpr|branch_\d+_fun)$")
_REMAT = re.compile(r"^(checkpoint|remat\d?)$")


def phase_of(path: str) -> Phase:
    """The part of the training step that an op path belongs to."""
    for pattern, phase in _RULES:
        if pattern.search(path):
            return phase
    return Phase.UNKNOWN


def layer_of(path: str) -> str:
    """The user's module path inside an op path: transformations and the op itself left out.

    >>> layer_of("jit(step)/transpose(jvp(Net))/jvp(Net)/checkpoint/block_0/attn/dot_general")
    'Net/block_0/attn'
    >>> layer_of("transpose(jvp(Net))/while/body/block/block/checkpoint/attn/dot_general")
    'Net/block/attn'
    """
    # XLA joins the paths of ops that it has merged by semicolons.
    parts = path.partition(";")[0].rstrip(":").split("/")[:-1]
    begins = [number for number, part in enumerate(parts) if part.startswith(_BEGINS)]
    kept = []
    for part in _once(parts[begins[-1] if begins else 0 :]):
        while wrapped := _WRAPPED.match(part):
            part = wrapped.group(1)
        if part and not _TRANSFORM.match(part):
            kept.append(part)
    return "/".join(kept)


def named_by(path: str) -> Iterator[tuple[str, Phase, str]]:
    """Layer, phase and op of each path that the compiler joined into one; nothing for another name.

    >>> list(named_by("jit(step)/jvp(mlp)/tanh"))
    [('mlp', <Phase.FORWARD: 1>, 'tanh')]
    """
    for one in path.split(";"):
        begin, _, op = one.rstrip(":").rpartition("/")
        # Combined collectives have all their names in brackets.
        if begin.startswith(("jit(", "pjit(", "pmap(")) and ":" not in begin:
            yield layer_of(one), phase_of(one), op


def _once(parts: list[str]) -> list[str]:
    """A path without the second stack of a loop's body that a backward pass recomputes.

    There the names around the checkpoint in the body occur twice, as ``jvp(...)`` shows outside
    loops.
    """
    end = next((number for number, part in enumerate(parts) if _REMAT.match(part)), 0)
    begin = max((n + 1 for n, part in enumerate(parts[:end]) if _BODY.match(part)), default=0)
    half = (end - begin) // 2
    backward = any("transpose(" in part for part in parts[:begin])
    if not backward or parts[begin : begin + half] != parts[begin + half : end]:
        return parts
    return parts[: begin + half] + parts[end:]


def path_inside(call: str, path: str) -> str:
    """The whole path of an op in a function, from the path of the function's call.

    JAX names what is in a function relative to it; XLA, when it has opened calls, does not.

    >>> path_inside("jit(step)/jvp(Net)/while/body/closed_call", "mlp/dot_general")
    'jit(step)/jvp(Net)/while/body/closed_call/mlp/dot_general'
    >>> path_inside("jit(step)/jvp(Net)/jit(silu)", "jit(step)/jvp(Net)/jit(silu)/mul")
    'jit(step)/jvp(Net)/jit(silu)/mul'
    """
    if not call or not path or path.split("/")[0] == call.split("/")[0]:
        return path
    return f"{call}/{path}"


def source_of(info: SourceInfo) -> Source:
    """Layer, line and phase of an op's origin."""
    if info.layer or info.phase:
        return Source(info.layer, info.file, info.line, _STATED.get(info.phase, Phase.UNKNOWN))
    if not info.name and not info.file:
        return Source()
    return Source(layer_of(info.name), info.file, info.line, phase_of(info.name))


def within(graph: WorkloadGraph, path: str) -> WorkloadGraph:
    """A program's graph with the layer and phase of the code around its call.

    Recomputation in a backward pass stays recomputation; otherwise the calling pass decides.

    Args:
        graph: the program's graph.
        path: scopes and transformations around its call ("" none).
    """
    if not path:
        return graph
    layer, phase = layer_of(f"{path}/"), phase_of(path)

    def placed(source: Source) -> Source:
        whole = "/".join(filter(None, (layer, source.layer)))
        own = source.phase
        if phase is not Phase.UNKNOWN and own is not Phase.RECOMPUTE:
            own = phase
        return replace(source, layer=whole, phase=own)

    tables = graph.tables
    first, *others = tables.sources
    return with_tables(graph, replace(tables, sources=(first, *map(placed, others))))
