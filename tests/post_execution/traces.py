"""Hand-made Kineto traces: times are microseconds, one host thread launches kernels 5 behind."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import numpy as np

from flint.graph.graph import EdgeKind

#: Streams of work and of collectives.
WORK, COMMS = 7, 20


class Profile:
    """One rank's trace, event by event."""

    def __init__(self, rank, world, **info):
        self.info = {"rank": rank, "world_size": world, **info}
        self.events = []
        self.count = 100

    def op(self, name, ts, dur, tid=1, **args):
        """A host op; its number."""
        self.count += 1
        args = {"External id": self.count, "Record function id": self.count} | args
        self._add("cpu_op", name, ts, dur, tid, args)
        return self.count

    def kernel(self, op, launch, ts, dur, name="gemm", stream=WORK, tid=1, **more):
        """A kernel and the call that launched it."""
        self.count += 1
        self.call("cudaLaunchKernel", launch, tid, self.count)
        args = {"External id": op, "correlation": self.count, "stream": stream} | more
        self._add("kernel", name, ts, dur, stream, args)

    def call(self, name, ts, tid=1, correlation=None):
        """A call of the runtime; its correlation."""
        if correlation is None:
            self.count += 1
            correlation = self.count
        self._add("cuda_runtime", name, ts, 1, tid, {"correlation": correlation})
        return correlation

    def work(self, ts, start, dur, name="aten::mm", tid=1, stream=WORK, **args):
        """An op with one kernel."""
        self.kernel(self.op(name, ts, 4, tid, **args), ts + 2, start, dur, "gemm", stream, tid)

    def collective(
        self, ts, start, dur, name="allreduce", count=1000, group=(0, 1), tid=1, stream=COMMS,
        **more,
    ):  # fmt: skip
        """A record of a collective with one kernel, and the library's own wait within it."""
        args = {
            "Collective name": name, "dtype": "Float", "In msg nelems": count,
            "Group size": len(group), "Process Group Ranks": str(list(group)),
        } | more  # fmt: skip
        op = self.op("record_param_comms", ts, 4, tid, **args)
        self.call("cudaStreamWaitEvent", ts + 1, tid)
        if start is not None:
            kernel = f"ncclDevKernel_{name}"
            self.kernel(op, ts + 2, start, dur, kernel, stream, tid)

    def waits(self, ts, stream, awaited, recorded, **more):
        """A resolved wait: at ``ts`` one stream waits for an event of another."""
        record = self.call("cudaEventRecord", recorded)
        call = self.call("cudaStreamWaitEvent", ts)
        args = {
            "stream": stream, "wait_on_stream": awaited, "correlation": call,
            "wait_on_cuda_event_record_corr_id": record,
        } | more  # fmt: skip
        self._add("cuda_sync", "Stream Wait Event", ts, 0, stream, args)

    def span(self, name, ts, dur, tid=1):
        """An annotation."""
        self._add("user_annotation", name, ts, dur, tid, {})

    def write(self, path: Path) -> Path:
        """The file."""
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"distributedInfo": self.info, "traceEvents": self.events}))
        return path

    def _add(self, category, name, ts, dur, tid, args):
        self.events.append(
            {
                "ph": "X", "cat": category, "name": name, "ts": ts, "dur": dur, "pid": 1,
                "tid": tid, "args": args,
            }
        )  # fmt: skip


def edges(graph):
    """(before, after) of all dependencies of a graph."""
    waits = np.repeat(np.arange(len(graph)), np.diff(graph.order_ptr))
    found = set(zip(graph.order_node.tolist(), waits.tolist(), strict=True))
    data = zip(graph.producer[graph.operand].tolist(), graph.consumer.tolist(), strict=True)
    return found | {pair for pair in data if pair[0] >= 0}


def stream_edges(graph):
    """Those of kind stream."""
    waits = np.repeat(np.arange(len(graph)), np.diff(graph.order_ptr))
    chosen = graph.order_kind == EdgeKind.STREAM
    return set(zip(graph.order_node[chosen].tolist(), waits[chosen].tolist(), strict=True))


def described(workload):
    """The mesh, and of each program its nodes, times and edges, in numbers that can be compared."""
    found = []
    for program in sorted(workload.programs, key=lambda item: item.name):
        graph, timing = program.graph, program.timing
        names = [] if timing is None else [field.name for field in fields(timing)]
        found.append(
            (
                program.name,
                [(node.op, node.communication) for node in graph],
                graph.measured_by_node().tolist(),
                sorted(edges(graph)),
                [np.asarray(getattr(timing, name)).tolist() for name in names],
            )
        )
    return workload.mesh, found


def exchanged(workload):
    """(kind, ranks in the group, bytes) of the first program's communications, in order."""
    graph = workload.programs[0].graph
    table = graph.tables.communications
    used = [
        table[int(detail)]
        for kind, detail in zip(graph.kind, graph.detail, strict=True)
        if kind == 1
    ]
    return [(item.kind, int(item.groups.group_size([0])[0]), item.bytes_in) for item in used]
