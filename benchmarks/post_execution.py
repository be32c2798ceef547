"""How long ``flint convert`` takes on profiles: read, linked, converted, written.

Kineto traces of growing size (``kineto_trace.py`` makes them) show time and memory; an execution
trace of 10,000 nodes of the simplest kind stands against MLCommons Chakra's converter, whose time
for as many is known from a machine like ours (the package registry has no such package, so that it
cannot run here).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import kineto_trace
from cases import FLINT, remover
from measure import measure, slope

Results = dict[str, Any]

MEGABYTES = (25, 50, 100)
#: Chakra's converter on a trace of 10,000 nodes (seconds), on a machine like ours.
PEER_SECONDS, NODES = 1.7, 10_000


def conversions(folder: Path, runs: int, *, quick: bool = False) -> Results:
    """Kineto traces by size, and the execution trace that the peer was measured with."""
    sizes = MEGABYTES[:1] if quick else MEGABYTES
    found = {str(size): _kineto(folder, size, runs) for size in sizes}
    result: Results = {"kineto": found, "nodes": _nodes(folder, runs), "peer": PEER_SECONDS}
    if not quick:
        last = [found[str(size)] for size in sizes[-2:]]
        for what in ("wall", "peak"):
            result[f"{what}_exponent"] = slope(sizes, [i[what] for i in found.values()])
            result[f"last_{what}_exponent"] = slope(sizes[-2:], [i[what] for i in last])
    return result


def _kineto(folder: Path, megabytes: int, runs: int) -> Results:
    trace = folder / "rank0.json"
    events = kineto_trace.write(trace, megabytes * 10**6, steps=1)
    found = _converted(trace, folder / "out", runs)
    size = trace.stat().st_size
    trace.unlink()
    return {**found, "events": events, "bytes": size}


def _nodes(folder: Path, runs: int) -> Results:
    trace = folder / "et_rank0.json"
    trace.write_text(json.dumps(execution_trace(NODES)))
    found = _converted(trace, folder / "out", runs)
    trace.unlink()
    return found


def _converted(trace: Path, out: Path, runs: int) -> Results:
    command = [*FLINT, "convert", str(trace), "-o", str(out), "--json"]
    measured = measure(command, runs=runs, before=remover(out))
    remover(out)()
    structures = json.loads(measured.said[-1])["et"]["structures"]
    return {
        **measured.to_json(),
        "work": measured.document("seconds", "graph") + measured.document("seconds", "write"),
        "nodes": max(sum(item["nodes"].values()) for item in structures),
    }


def execution_trace(nodes: int) -> dict[str, Any]:
    """A chain of products as PyTorch's ``ExecutionTraceObserver`` writes it, schema 1.1.1."""

    def side(*storages: int) -> dict[str, Any]:
        count = len(storages)
        return {
            "values": [[storage, storage, 0, 1 << 20, 4, "cuda:0"] for storage in storages],
            "shapes": [[1024, 1024]] * count,
            "types": ["Tensor(float)"] * count,
            "strides": [[1024, 1]] * count,
        }

    def node(number: int) -> dict[str, Any]:
        attributes = {
            "rf_id": number + 1, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": 1, "fw_tid": 0,
            "op_schema": "aten::mm(Tensor self, Tensor mat2) -> Tensor",
        }  # fmt: skip
        return {
            "id": number + 2,
            "name": "aten::mm",
            "ctrl_deps": 1,
            "inputs": side(10 + number % 997, 5),
            "outputs": side(10 + (number + 1) % 997),
            "attrs": [{"name": k, "type": "", "value": v} for k, v in attributes.items()],
        }

    return {"schema": "1.1.1-chakra.0.0.4", "nodes": [node(number) for number in range(nodes)]}
