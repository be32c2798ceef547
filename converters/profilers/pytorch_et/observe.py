"""PyTorch execution traces (``ExecutionTraceObserver``) -> observed ops.

The idea: a node is an op that ran, with all its tensors; ``ctrl_deps`` is the enclosing op, and
``rf_id`` counts the ops in the order in which they began.  There are no times in it.  Schemas 1.0.1
to 1.1.1 are known; older ones are refused rather than misread.

    observe(Path("et.json")).rows(rank=0, step=1)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from flint.converters.profilers.json_traces import JsonTrace
from flint.converters.profilers.pytorch_et.nodes import Nodes, read_nodes
from flint.converters.profilers.pytorch_et.unmarked import unmarked_steps
from flint.errors import FlintError
from flint.mesh.ragged import Ints
from flint.observed.columns import CUT_OFF, UNKNOWN_RANK, Observed
from flint.post_execution.storages import Accesses

_SCHEMA = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_OLDEST, _NEWEST = (1, 0, 1), (1, 1, 1)
_RANK = re.compile(r"(?:rank[-_.]?|[-_](?=\d+$))(\d{1,7})", re.IGNORECASE)
_AFTER = "ops that the observer records inside a collective: treated as following it"
UNFINISHED = "ops of the step in which the file ends: left out"
#: Ops that are never inside a collective.
_AFTER_COLLECTIVES = ("aten::", "c10d::", "_c10d_functional::")


def observe(path: Path) -> Observed:
    """The ops of an execution trace, gzip allowed.

    Raises:
        FlintError: it is not such a file, or has an unknown schema, or is cut off or damaged.
    """
    return linked(path)[0]


def linked(
    path: Path, stated: Mapping[str, tuple[int, ...]] | None = None
) -> tuple[Observed, Accesses]:
    """The ops, and the memory accesses of each (see ``observe``).

    Args:
        path: the file.
        stated: ranks of process groups that it names but does not list.
    """
    trace = JsonTrace.read(path)
    nodes = read_nodes(trace, stated or {})
    _check(path, str(trace.rest("nodes").get("schema", "")))
    if not nodes.id:
        raise FlintError(f"{path} contains no ops")
    notes: dict[str, int] = {CUT_OFF: 1} if trace.cut_off else {}
    order = np.lexsort((nodes.id, nodes.order))
    rank = _rank(path)
    if rank is None:
        notes[UNKNOWN_RANK] = 1
    parent = _parents(nodes, order, path, notes)
    rows = order.tolist()
    step, steps = _steps(nodes, order)
    if steps and trace.cut_off:  # nodes are written when they end, as the last step did not
        marks = set(steps)
        unfinished = order > max(row for row, name in enumerate(nodes.name) if name in marks)
        step[unfinished] = -1
        if unfinished.any():
            notes[UNFINISHED] = int(unfinished.sum())
    if not steps:
        step, steps = unmarked_steps(nodes, rows, parent, notes)

    def unknown() -> Ints:
        return np.full(len(rows), -1, np.int64)

    observed = Observed(
        path=str(path), form="pytorch-et", backend="gpu" if nodes.on_device else "cpu",
        world=nodes.world, facts=nodes.facts, op=np.array(nodes.fact, np.int64)[order],
        rank=np.full(len(rows), rank or 0, np.int64), step=step, start=unknown(),
        duration=unknown(), end=unknown(), stream=np.array(nodes.thread, np.int64)[order],
        parent=parent, launches=unknown(), steps=steps or ("whole trace",), notes=notes,
    )  # fmt: skip
    accesses = Accesses(
        np.array(nodes.record, np.int64)[order],
        [nodes.name[row] for row in rows],
        [nodes.tensors[row] for row in rows],
        nodes.groups,
    )
    return observed, accesses


def _check(path: Path, schema: str) -> None:
    found = _SCHEMA.match(schema)
    known = f"known are {'.'.join(map(str, _OLDEST))} to {'.'.join(map(str, _NEWEST))}"
    if found is None:
        raise FlintError(
            f"{path}: no schema version, so it is not a PyTorch execution trace ({known})"
        )
    version = tuple(map(int, found.groups()))
    if not _OLDEST <= version <= _NEWEST:
        raise FlintError(f"{path}: execution trace schema {schema[:40]}; {known}")


def _rank(path: Path) -> int | None:
    """The rank from the file's name, because the file does not contain it."""
    named = _RANK.search(path.name.removesuffix(".gz").removesuffix(".json"))
    return int(named[1]) if named else None


def _steps(nodes: Nodes, order: Ints) -> tuple[Ints, tuple[str, ...]]:
    """The step of each row, and the steps' names."""
    names = {name for name in set(nodes.name) if name.startswith("ProfilerStep")}
    marks = [i for i in order.tolist() if nodes.name[i] in names] if names else []
    if not marks:
        return np.zeros(len(order), np.int64), ()
    begins = [nodes.order[mark] for mark in marks]
    count = np.array(nodes.order, np.int64)[order]
    step = np.searchsorted(np.array(begins, np.int64), count, side="right") - 1
    return step.astype(np.int64), tuple(nodes.name[mark] for mark in marks)


def _parents(nodes: Nodes, order: Ints, path: Path, notes: dict[str, int]) -> Ints:
    """The enclosing row of each row, -1 for none."""
    rows = order.tolist()
    outer = [nodes.outer[row] for row in rows]
    names = [nodes.name[row] for row in rows]
    number = {nodes.id[row]: i for i, row in enumerate(rows)}
    if len(number) < len(rows):
        [(twice, _)] = Counter(nodes.id).most_common(1)
        raise FlintError(f"{path}: two nodes with the id {twice}, so ctrl_deps are ambiguous")
    talk = {name for name in set(names) if name.startswith(("c10d::", "gloo:"))}
    if talk:
        collectives = {nodes.id[row] for row in rows if nodes.name[row] in talk}
        around = dict(zip(nodes.id, nodes.outer, strict=True))
        running = _running(nodes, order, collectives)
        for i, (name, node) in enumerate(zip(names, outer, strict=True)):
            if node in collectives and name.startswith(_AFTER_COLLECTIVES):
                # An annotation of gloo that ends on another thread mixes up the observer's stack:
                # later ops on the collective's own thread are recorded as inside it.
                notes[_AFTER] = notes.get(_AFTER, 0) + 1
                outer[i] = running.get(i, _outside(node, collectives, around, path))
    found = np.array([number.get(node, -1) for node in outer], np.int64)
    found[found >= np.arange(len(found))] = -1  # an op that begins later does not enclose it
    return found


def _running(nodes: Nodes, order: Ints, collectives: set[int]) -> dict[int, int]:
    """The innermost node on a row's own thread when it began, except collectives.

    Rows are in order of start; the file has them in order of end: an op that begins later and ends
    earlier is inside.
    """
    found: dict[int, int] = {}
    stacks: dict[int, list[int]] = {}
    for i, row in enumerate(order.tolist()):
        stack = stacks.setdefault(nodes.thread[row], [])
        while stack and stack[-1] < row:
            stack.pop()
        if stack:
            found[i] = nodes.id[stack[-1]]
        if nodes.id[row] not in collectives:
            stack.append(row)
    return found


def _outside(node: int, collectives: set[int], outer_of: dict[int, int], path: Path) -> int:
    """The innermost node around a collective that is not a collective."""
    passed: set[int] = set()
    while node in collectives:
        if node in passed:
            raise FlintError(f"{path}: node {node} is inside itself by its ctrl_deps")
        passed.add(node)
        node = outer_of[node]
    return node
