"""A stand-in for ASTRA-sim's analytical binary, for tests: its command line, its files, its lines.

It reads and checks every file that its options name, takes the kernels' durations out of the
traces, and prints what ASTRA-sim prints.  The environment says how it is to end: STAND_IN=ok, old
(before November 2024), lose, hang, crash, one-dim.  A rank's time is made up: the sum of its
kernels' durations and ``1000`` cycles for each communication.
"""

from __future__ import annotations

import json
import os
import sys
import time
from math import prod
from pathlib import Path

import yaml

from flint.converters.chakra.read.reader import read_trace
from flint.converters.chakra.schema import NodeType

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
    ranks = prod(network["npus_count"])
    times = [spent(Path(f"{options['workload-configuration']}.{r}.et")) for r in range(ranks)]
    if how == "crash":
        print("AstraSim: Workload.cc:261: Assertion `comm_size > 0' failed.", flush=True)
        os.abort()
    if how == "hang":
        time.sleep(600)
    for rank, (compute, talk) in enumerate(times):
        if how == "lose" and rank in (1, 2):
            continue
        exposed = "" if how == "old" else f", exposed communication {talk} cycles."
        log("info", "workload", f"sys[{rank}] finished, {compute + talk} cycles{exposed}")
        if how != "old":
            log("info", "statistics", f"sys[{rank}], GPU time: {compute}")
            log("info", "statistics", f"sys[{rank}], Comm time: {talk}")
    if how == "lose":
        log("critical", "HardwareResource", "!!!Hardware Resource sys.id=1 has unreleased nodes!!!")
        log("critical", "HardwareResource", "GPU comm node id: 2")


def spent(path: Path) -> tuple[int, int]:
    if not path.is_file():
        stop(f"workload file: {path} does not exist")
    columns = read_trace(path)
    compute = columns.type == NodeType.COMP
    nanoseconds = [max(1000 * int(micros), 1) for micros in columns.duration[compute]]
    return sum(nanoseconds), 1000 * int((~compute).sum())


if __name__ == "__main__":
    main()
