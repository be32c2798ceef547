"""Whole op paths inside ``shard_map``.

The idea: JAX names an op in the body of a ``shard_map``, or of a function, relative to it.  When
XLA opens a function's call it puts the call's path before the names inside; bodies of manual
computations it inserts unchanged, so that only ``ring/ppermute`` remains of
``jit(step)/transpose(jvp(blocks))/while/body/attention/shard_map/ring/ppermute``.  Here the path is
first put before the names, so that phases and layers of these ops are known too.

    name_bodies(module)        # in place, before it goes to the partitioner
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from flint.stablehlo.read.bindings import ir, location_kind
from flint.stablehlo.read.locations import name_path

_MANUAL = "sdy.manual_computation"


def name_bodies(module: Any) -> None:
    """Put paths before the names of all ops in manual computations of a lowered ``ir.Module``.

    A function that is called from several places gets the common beginning of their paths.
    """
    functions = {
        ir.StringAttr(function.attributes["sym_name"]).value: function
        for function in module.body.operations
        if function.operation.name == "func.func"
    }
    # Function -> (caller, path inside the caller) of its calls.
    calls: dict[str, list[tuple[str, str]]] = defaultdict(list)
    bodies: list[tuple[str, str, Any]] = []
    for name, function in functions.items():
        for path, op in _inside(function.operation):
            if op.name == "func.call":
                callee = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
                calls[callee].append((name, path))
            elif op.name == _MANUAL:
                bodies.append((name, path, op))
    known: dict[str, str] = {}

    def prefix(name: str) -> str:
        if name not in known:
            known[name] = ""  # no function calls itself, but a module may state it
            known[name] = _common([_joined(prefix(by), path) for by, path in calls[name]])
        return known[name]

    # Paths were read before any was changed: a body inside a body already has its whole path.
    renamed = [
        (inner, _joined(prefix(name), path))
        for name, manual, op in bodies
        for path, inner in _inside(op, manual)
    ]
    for op, path in renamed:
        location = op.location
        while location_kind(location) == "name" and path.endswith(name_path(location)):
            location = location.child_loc
        op.location = ir.Location.name(path, childLoc=location, context=module.context)


def _inside(op: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Path, relative to the function, and operation: of everything in an op's regions."""
    for region in op.regions:
        for block in region.blocks:
            for item in block.operations:
                inner = item.operation
                whole = _joined(path, _name(inner))
                yield whole, inner
                yield from _inside(inner, whole if inner.name == _MANUAL else path)


def _name(op: Any) -> str:
    location = op.location
    return name_path(location) if location_kind(location) == "name" else ""


def _joined(prefix: str, path: str) -> str:
    return "/".join(filter(None, (prefix, path)))


def _common(paths: list[str]) -> str:
    """The parts that all paths begin with."""
    parts = zip(*(path.split("/") for path in paths), strict=False)
    same = itertools.takewhile(lambda names: len(set(names)) == 1, parts)
    return "/".join(names[0] for names in same)
