"""MLIR locations -> where an op comes from.

JAX writes ``loc("jit(step)/transpose(jvp(attn))/dot_general"(file:line:col))``: a name path around
the user's line.  Resolved only for the distinct locations of a module.
"""

from __future__ import annotations

from typing import Any

from flint.stablehlo.read.bindings import ir, location_kind
from flint.stablehlo.read.records import SourceInfo


def source_of_attribute(attribute: Any) -> SourceInfo:
    """``source_info`` of a location in the form of an attribute, which can be interned."""
    return source_info(ir.Location.from_attr(attribute, attribute.context))


def source_info(location: Any) -> SourceInfo:
    """Name path, file and line of an ``ir.Location`` (empty if unknown)."""
    name = ""
    queue = [location]
    steps = 0
    while queue and steps < 64:
        steps += 1
        current = queue.pop(0)
        kind = location_kind(current)
        if kind == "name":
            name = name or name_path(current)
            queue.insert(0, current.child_loc)
        elif kind == "file":
            return SourceInfo(name, str(current.filename), int(current.start_line))
        elif kind == "call":
            queue[:0] = [current.callee, current.caller]
        elif kind == "fused":
            queue[:0] = list(current.locations)
    return SourceInfo(name)


def name_path(location: Any) -> str:
    """The path that a location of kind "name" states.

    Where JAX has taken a body into the code around it, the path so far is around the whole one:
    ``loc("eval_jaxpr"("eval_jaxpr/while/body/ppermute"(...)))``.
    """
    path = str(location.name_str).rstrip(":")
    child = location.child_loc
    if location_kind(child) == "name" and str(child.name_str).startswith(f"{path}/"):
        return name_path(child)
    return path
