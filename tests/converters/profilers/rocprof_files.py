"""Files of rocprofv3 written by hand, with the fields that ROCprofiler-SDK writes.

Times are in microseconds.  ``generateJSON.cpp`` and the tests of ROCprofiler-SDK show the form; the
published profile next to these tests has kernels only.
"""

from __future__ import annotations

import json

KINDS = [
    {"kind": "NONE", "operations": []},
    {"kind": "HIP_RUNTIME_API", "operations": ["hipLaunchKernel", "hipMemcpyAsync"]},
    {
        "kind": "MARKER_CORE_API",
        "operations": ["roctxMarkA", "roctxRangePushA", "roctxRangeStartA"],
    },
    {"kind": "MEMORY_COPY", "operations": ["MEMORY_COPY_NONE", "MEMORY_COPY_HOST_TO_DEVICE"]},
    {"kind": "RCCL_API", "operations": ["ncclAllReduce", "ncclGroupStart"]},
]
HOST, DEVICES = 40, (50, 51)


class Profile:
    """The profile of a process."""

    def __init__(self, path, streams=True):
        self.path, self.streams = path, streams
        self.records = {"kernel_dispatch": [], "memory_copy": [], "hip_api": [], "marker_api": []}
        self.records["rccl_api"] = []
        self.symbols, self.messages, self.count = {}, [], 0

    def _record(self, kind, operation, start, dur, thread, **more):
        self.count += 1
        times = {"start_timestamp": start * 1000, "end_timestamp": (start + dur) * 1000}
        correlation = {"internal": self.count, "external": 0}
        return {"size": 184, "kind": kind, "operation": operation, "thread_id": thread,
                "correlation_id": correlation, **times, **more}  # fmt: skip

    def _launch(self, operation, ts, thread):
        self.records["hip_api"].append(self._record(1, operation, ts, 1, thread))
        return self.records["hip_api"][-1]["correlation_id"]

    def _of_stream(self, stream):
        return {"stream_id": {"handle": stream}} if self.streams else {}

    def kernel(self, ts, start, dur, name="gemm", stream=7, device=0, thread=1):
        number = self.symbols.setdefault(name, len(self.symbols) + 1)
        info = {"agent_id": {"handle": DEVICES[device]}, "queue_id": {"handle": stream},
                "kernel_id": number, "dispatch_id": 1}  # fmt: skip
        own = self._launch(0, ts, thread)
        record = self._record(11, 2, start, dur, thread, dispatch_info=info)
        self.records["kernel_dispatch"].append(
            {**record, "correlation_id": own, **self._of_stream(stream)}
        )

    def copy(self, ts, start, dur, size=4096, stream=7):
        own = self._launch(1, ts, 1)
        ends = {"src_agent_id": {"handle": HOST}, "dst_agent_id": {"handle": DEVICES[0]}}
        record = self._record(3, 1, start, dur, 1, bytes=size, **ends)
        self.records["memory_copy"].append(
            {**record, "correlation_id": own, **self._of_stream(stream)}
        )

    def range(self, name, ts, dur, thread=1, started=False):
        self.records["marker_api"].append(self._record(2, 1 + started, ts, dur, thread))
        self.messages.append({"key": self.count, "value": name})

    def rccl(self, ts, dur, thread=1):
        self.records["rccl_api"].append(self._record(4, 0, ts, dur, thread))

    def write(self):
        symbols = [
            {"kernel_id": number, "kernel_name": f"_Z{name}.kd", "formatted_kernel_name": name}
            for name, number in self.symbols.items()
        ]
        agents = [{"id": {"handle": HOST}, "type": 1, "name": "AMD EPYC 9575F"}]
        agents += [
            {"id": {"handle": one}, "type": 2, "name": "gfx942", "product_name": "MI300X"}
            for one in DEVICES
        ]
        process = {
            "metadata": {"pid": 908, "init_time": 0, "fini_time": 1},
            "agents": agents,
            "counters": [],
            "strings": {"buffer_records": KINDS, "marker_api": self.messages},
            "kernel_symbols": symbols,
            "callback_records": {"counter_collection": []},
            "buffer_records": self.records,
        }
        self.path.write_text(json.dumps({"rocprofiler-sdk-tool": [process]}))
        return self.path
