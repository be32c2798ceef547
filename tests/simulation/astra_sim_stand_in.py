"""A stand-in for ASTRA-sim's analytical binary, for tests: its command line, its files, its lines.

It reads and checks every file that its options name, runs the traces as the reference consumer
does, with their kernels' durations and with communication as long as ``astra_sim_model`` says, and
prints what ASTRA-sim prints.  The environment says how it is to end: STAND_IN=ok, old (before
November 2024), lose, hang, crash, one-dim.
"""

from __future__ import annotations

import json
import os
import sys
import time
from math import prod
from pathlib import Path

import numpy as np
import yaml

from flint.converters.chakra.check.trace_views import Facts
from flint.converters.chakra.network import Network
from flint.converters.chakra.read.trace_set import TraceSet, load_trace_set
from flint.converters.chakra.schema import CollectiveKind, NodeType
from tests.converters.chakra.consumer import execute
from tests.simulation.astra_sim_model import Model

EXPECTED = {
    "workload-configuration", "system-configuration", "network-configuration",
    "remote-memory-configuration", "comm-group-configuration",
}  # fmt: skip
IMPLEMENTATIONS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")


def stop(words: str, status: int = 1) -> None:
    print(words)
    sys.exit(status)


def log(level: str, name: str, words: str) -> None:
    print(f"[2026-11-21 10:00:00.000] [{name}] [{level}] {words}", flush=True)


def main() -> None:
    options = dict(part.removeprefix("--").split("=", 1) for part in sys.argv[1:])
    if unknown := set(options) - EXPECTED:
        stop(f"unknown options {unknown}")
    network = yaml.safe_load(Path(options["network-configuration"]).read_text())
    dims = len(network["topology"])
    if {len(network[key]) for key in ("npus_count", "bandwidth", "latency")} != {dims}:
        stop("[Error] (network/analytical) length doesn't match with dims_count", 255)
    if any(count < 2 for count in network["npus_count"]):
        stop("[Error] (network/analytical) npus_count should be larger than 1", 255)
    if any(not isinstance(value, float | int) or value <= 0 for value in network["bandwidth"]):
        stop("[Error] (network/analytical) bandwidth should be larger than 0", 255)
    system = json.loads(Path(options["system-configuration"]).read_text())
    if any(len(system[f"{name}-implementation"]) != dims for name in IMPLEMENTATIONS):
        stop("an implementation for each dim is missing")
    if system["roofline-enabled"] or "preferred-dataset-splits" not in system:
        stop("the durations are not those of the traces")
    memory = json.loads(Path(options["remote-memory-configuration"]).read_text())
    if memory != {"memory-type": "NO_MEMORY_EXPANSION"}:
        stop("remote memory")
    groups = options.get("comm-group-configuration")
    if groups is not None and not json.loads(Path(groups).read_text()):
        stop("no groups")
    how = os.environ.get("STAND_IN", "ok")
    if how == "one-dim":
        stop("[Error] (network/analytical/congestion_aware) only support 1-dim topology", 255)
    prefix = Path(options["workload-configuration"])
    for rank in range(prod(network["npus_count"])):
        if not prefix.with_name(f"{prefix.name}.{rank}.et").is_file():
            stop(f"workload file: {prefix}.{rank}.et does not exist")
    times = spent(
        load_trace_set(
            prefix,
            comm_groups=None if groups is None else Path(groups),
            npus_count=tuple(network["npus_count"]),
        ),
        Model(system, network),
    )
    if how == "crash":
        print("AstraSim: Workload.cc:261: Assertion `comm_size > 0' failed.", flush=True)
        os.abort()
    if how == "hang":
        time.sleep(600)
    for rank, (done, compute, talk) in enumerate(times):
        if how == "lose" and rank in (1, 2):
            continue
        exposed = "" if how == "old" else f", exposed communication {done - compute} cycles."
        log("info", "workload", f"sys[{rank}] finished, {done} cycles{exposed}")
        if how != "old":
            log("info", "statistics", f"sys[{rank}], GPU time: {compute}")
            log("info", "statistics", f"sys[{rank}], Comm time: {talk}")
    if how == "lose":
        log("critical", "HardwareResource", "!!!Hardware Resource sys.id=1 has unreleased nodes!!!")
        log("critical", "HardwareResource", "GPU comm node id: 2")


def spent(traces: TraceSet, model: Model) -> list[tuple[int, int, int]]:
    """When each rank is done, and the nanoseconds in which it computes and communicates."""
    ticks = ticks_of(traces, model)
    done = execute(traces, durations=lambda rank, ids: ticks[rank][0])
    if not done.finished.all():
        stop(f"stuck: {done.stuck[0]}", 0)
    return [
        (int(time), int(took[computes].sum()), int(took[~computes].sum()))
        for time, (took, computes) in zip(done.time, ticks, strict=True)
    ]


def ticks_of(traces: TraceSet, model: Model) -> list[tuple[np.ndarray, np.ndarray]]:
    """Nanoseconds of each node of each rank, and which nodes compute."""
    facts = Facts(traces)
    network = Network(tuple(model.count))
    found: list[tuple[np.ndarray, np.ndarray]] = [(np.zeros(0), np.zeros(0))] * traces.size
    for view in facts.views:
        trace = view.trace
        computes = trace.type == NodeType.COMP
        own = np.where(computes, np.maximum(1000 * trace.duration.astype(np.int64), 1), 0)
        communicators, of_row = view.communicators
        for rank in view.ranks.tolist():
            took = own.copy()
            priced: dict[tuple[int, ...], int] = {}
            for row in np.flatnonzero(trace.type == NodeType.COLL).tolist():
                group = communicators[of_row[row]]
                kind, size = CollectiveKind(trace.comm_type[row]), int(trace.comm_size[row])
                key = (int(of_row[row]), kind, size)
                if key not in priced:
                    mask = tuple(map(bool, group.mask)) or (True,) * len(model.count)
                    listed = traces.groups.members[group.group] if group.group else ()
                    members = sorted(int(member) for member in listed)
                    priced[key] = model.collective(kind, size, mask, members)
                took[row] = priced[key]
            for row in np.flatnonzero(trace.type == NodeType.SEND).tolist():
                took[row] = model.message(rank, int(trace.comm_dst[row]), int(trace.comm_size[row]))
            found[rank] = took, computes
    assert network.ranks == traces.size
    return found


if __name__ == "__main__":
    main()
