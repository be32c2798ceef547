"""How recorded modules describe their ops: discardable attributes ``flint.*``.

The idea: a recorder writes on every op how the framework issued it; the attributes survive bytecode
and other tools ignore them.  A module that has them is marked, so that other modules are not
searched.

    %3 = stablehlo.composite "aten.mm.default" %1, %2 {flint.id = 7 : i64, flint.stream = 2 : i64,
         flint.after = array<i64: 4, 5>, flint.phase = "backward", flint.module = "layers.0.wq"}
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from flint.errors import FlintError
from flint.graph.allocations import Allocations
from flint.stablehlo.read.bindings import ir
from flint.stablehlo.read.locations import source_of_attribute
from flint.stablehlo.read.records import Issue, SourceInfo

#: On the module: it is recorded.
RECORDED = "flint.recorded"
#: On the module: its allocations (``Allocations.rows``, i64), and whether segments grow (bool).
ALLOCATIONS, EXPANDABLE = "flint.allocations", "flint.expandable_segments"
#: On an op: number of the recorded op (i64).
ID = "flint.id"
#: On an op: it is plumbing between kernels (unit).
VIEW = "flint.view"
#: On an op: its stream (i64, default 0), and numbers of ops that it waits for (array of i64).
STREAM, AFTER = "flint.stream", "flint.after"
#: On an op: a CUDA graph launches it (unit).
GRAPHED = "flint.graphed"
#: On an op: phase and module path (strings).
PHASE, MODULE = "flint.phase", "flint.module"
#: On an op: what the library's kernel for it does (string, see ``flint.cost.library_kernels``).
DOES = "flint.does"
#: On an entry parameter: role and name (strings).
ROLE, NAME = "flint.role", "flint.name"


def allocations_of(attributes: Any) -> Allocations | None:
    """The allocations of a recorded module; None if it has none.

    Raises:
        FlintError: they are impossible.
    """
    if ALLOCATIONS not in attributes:
        return None
    try:
        stated = ir.DenseIntElementsAttr(attributes[ALLOCATIONS])
        if stated.is_splat and len(stated) > 5:  # a short text may claim any number of rows
            raise ValueError("all its rows are the same")
        expandable = EXPANDABLE in attributes and ir.BoolAttr(attributes[EXPANDABLE]).value
        return Allocations.from_rows(np.array(stated, np.int64), expandable)
    except ValueError as error:
        raise FlintError(f"{ALLOCATIONS}: {error}") from error


def issue_of(op: Any) -> Issue | None:
    """How an op was issued; None when that is not recorded."""
    attributes = op.attributes
    if ID not in attributes:
        return Issue() if VIEW in attributes else None
    after: tuple[int, ...] = ()
    if AFTER in attributes:
        after = tuple(ir.DenseI64ArrayAttr(attributes[AFTER]))
    stream = ir.IntegerAttr(attributes[STREAM]).value if STREAM in attributes else 0
    return Issue(ir.IntegerAttr(attributes[ID]).value, stream, after, GRAPHED in attributes)


def location_of(op: Any) -> tuple[Any, str, str]:
    """A hashable key that ``recorded_source`` turns into an op's origin."""
    attributes = op.attributes
    return op.location.attr, text(attributes, MODULE), text(attributes, PHASE)


def recorded_source(location: tuple[Any, str, str]) -> SourceInfo:
    """Where an op of a recorded module comes from."""
    attribute, layer, phase = location
    return replace(source_of_attribute(attribute), layer=layer, phase=phase)


def text(attributes: Any, key: str) -> str:
    """A string attribute; "" if it is missing."""
    return str(ir.StringAttr(attributes[key]).value) if key in attributes else ""
