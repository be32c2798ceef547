"""One step out of a Kineto trace, with what validation reads of it; see README.md.

python cut.py kineto_resnet50_ddp_2xGPU_nccl_rank0.json.gz ProfilerStep#6 OUT.json.gz [calls]

With ``calls`` the runtime's calls are kept, too: what launched kernels, and made streams wait.
"""

from __future__ import annotations

import gzip
import json
import sys

KEPT = {
    "External id", "correlation", "stream", "Collective name", "In msg nelems", "dtype",
    "Group size", "Process Group Name", "Process Group Ranks",
}  # fmt: skip
WAITS = {"cudaStreamWaitEvent", "cudaDeviceSynchronize"}
CATEGORIES = {"cpu_op", "kernel", "gpu_memcpy", "gpu_memset", "user_annotation"}


def main(path, step, out, calls=""):
    with gzip.open(path) as file:
        trace = json.load(file)
    events = [event for event in trace["traceEvents"] if event.get("cat") in CATEGORIES]
    runtime = [event for event in trace["traceEvents"] if event.get("cat") == "cuda_runtime"]
    [span] = [event for event in events if event["name"] == step]
    first, last = span["ts"], span["ts"] + span["dur"]
    issued = [
        event
        for event in events
        if event["cat"] in ("cpu_op", "user_annotation") and first <= event["ts"] <= last
    ]
    numbers = {event["args"].get("External id") for event in issued}
    launched = [
        event
        for event in events
        if event["cat"] not in ("cpu_op", "user_annotation")
        and event["args"].get("External id") in numbers
    ]
    numbers = {event["args"].get("correlation") for event in launched} - {None}
    called = [
        event
        for event in runtime
        if calls
        and first <= event["ts"] <= last
        and (event["name"] in WAITS or event["args"].get("correlation") in numbers)
    ]
    kept = []
    for event in issued + launched + called:
        args = {key: value for key, value in event["args"].items() if key in KEPT}
        if event["cat"] == "kernel":
            args = {key: args[key] for key in ("External id", "correlation", "stream")}
            event["name"] = event["name"].split("(")[0][:40]
        kept.append(
            {
                "ph": "X", "cat": event["cat"], "name": event["name"], "tid": event["tid"],
                "ts": round(event["ts"] - first, 3), "dur": event["dur"], "args": args,
            }
        )  # fmt: skip
    document = {"distributedInfo": trace["distributedInfo"], "traceEvents": kept}
    with gzip.GzipFile(out, "wb", mtime=0) as file:
        file.write(json.dumps(document, separators=(",", ":")).encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
