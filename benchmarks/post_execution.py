"""How long ``flint convert`` takes on profiles: read, linked, converted, written.

Kineto traces of growing size (``kineto_trace.py`` makes them) show time and memory; execution
traces of the simplest nodes stand against MLCommons Chakra's converter.  The package registry has
no such package; where ``CHAKRA`` names a folder with a checkout of mlcommons/chakra called
``chakra`` (its ``schema/protobuf/et_def.proto`` compiled), its command runs on the same files by
turns with ours.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import kineto_trace
from cases import FLINT, remover
from measure import Measured, measure, slope, together

Results = dict[str, Any]

MEGABYTES = (25, 50, 100)
#: Chakra's converter on a trace of 10,000 nodes (seconds), as measured once on another machine.
PEER_SECONDS, NODES = 1.7, (10_000, 20_000, 40_000)
#: What its console script ``chakra_converter`` runs.
_PEER = "import sys; from chakra.src.converter.converter import main; sys.exit(main())"


def conversions(folder: Path, runs: int, *, quick: bool = False) -> Results:
    """Kineto traces by size, and execution traces like the one that the peer was measured with."""
    sizes = MEGABYTES[:1] if quick else MEGABYTES
    found = {str(size): _kineto(folder, size, runs) for size in sizes}
    counts = NODES[:1] if quick else NODES
    nodes = {str(count): _nodes(folder, count, 2 * runs + 1) for count in counts}
    result: Results = {"kineto": found, "nodes": nodes, "peer": PEER_SECONDS}
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


def _nodes(folder: Path, count: int, runs: int) -> Results:
    trace = folder / "et_rank0.json"
    # By a process of its own: what this one held would count as its commands' memory.
    subprocess.run([sys.executable, __file__, str(count), str(trace)], check=True)
    checkout = os.environ.get("CHAKRA")
    if checkout is None:
        found = _converted(trace, folder / "out", runs)
    else:
        written = folder / "peer.et"
        peer = [
            "env", "-C", str(folder), f"PYTHONPATH={checkout}", sys.executable, "-c", _PEER,
            "PyTorch", "--input", str(trace), "--output", str(written),
        ]  # fmt: skip
        # By turns: what else the machine does meets both.
        turns = [
            (_run(trace, folder / "out", 1), measure(peer, runs=1, warm=False))
            for _ in range(runs + 1)
        ][1:]
        found = _described(together([ours for ours, _ in turns]))
        found["peer"] = together([theirs for _, theirs in turns]).to_json()
        found["peer"]["bytes"] = written.stat().st_size
        written.unlink()
    trace.unlink()
    return found


def _converted(trace: Path, out: Path, runs: int) -> Results:
    return _described(_run(trace, out, runs))


def _run(trace: Path, out: Path, runs: int) -> Measured:
    command = [*FLINT, "convert", str(trace), "-o", str(out), "--json"]
    measured = measure(command, runs=runs, warm=runs > 1, before=remover(out))
    remover(out)()
    return measured


def _described(measured: Measured) -> Results:
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


def for_both(nodes: int) -> dict[str, Any]:
    """The same chain in the form that Chakra's converter takes, too.

    A schema that it knows, the header that it reads, and a root around the ops.
    """
    nothing: dict[str, Any] = {"values": [], "shapes": [], "types": [], "strides": []}
    attributes = {
        "rf_id": 0, "fw_parent": 0, "seq_id": -1, "scope": 7, "tid": 1, "fw_tid": 0,
        "op_schema": "",
    }  # fmt: skip
    root = {
        "id": 1, "name": "[pytorch|profiler|execution_trace|thread]", "ctrl_deps": 0,
        "inputs": nothing, "outputs": nothing,
        "attrs": [{"name": k, "type": "", "value": v} for k, v in attributes.items()],
    }  # fmt: skip
    header = {"schema": "1.1.0-chakra.0.0.4", "pid": 1, "time": "", "start_ts": 1, "finish_ts": 2}
    return {**header, "nodes": [root, *execution_trace(nodes)["nodes"]]}


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(for_both(int(sys.argv[1]))))
