"""Profiles of GPUs written by hand: the few fields of tsl/profiler/protobuf/xplane.proto.

A compiled module is run in thought: every instruction of its entry in the order of its schedule,
loops as often as the compiler has proved, one kernel each on its device's stream.
"""

from __future__ import annotations

import gzip
import json

from flint.hlo import hlo_pb2 as pb
from flint.hlo.attributes import backend_config
from flint.hlo.context import Context

#: No kernel and no transfer of their own.
SILENT = frozenset(
    {
        "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "iota",
        "partition-id", "replica-id", "opt-barrier", "add-dependency",
    }
)  # fmt: skip


def field(number, value):
    """One field, of a number or of bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value):
    out = b""
    while value >= 128:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


class Plane:
    """A plane: lines of events with text and number stats."""

    def __init__(self, name):
        self.name = name
        self.names: dict[str, int] = {}
        self.stats: dict[str, int] = {}
        self.lines: dict[str, list[bytes]] = {}
        self.blobs: list[tuple[str, bytes]] = []
        self.said: dict[str, str | int] = {}

    def event(self, line, name, start, took, **stats):
        """An event; nanoseconds."""
        number = self.names.setdefault(name, len(self.names) + 1)
        data = field(1, number) + field(2, start * 1000) + field(3, took * 1000)
        data += b"".join(field(4, self._stat(*item)) for item in stats.items())
        self.lines.setdefault(line, []).append(data)

    def _stat(self, key, value):
        number = field(1, self.stats.setdefault(key, len(self.stats) + 1))
        return number + (field(5, value) if isinstance(value, str) else field(3, value))

    def encoded(self):
        """The plane as bytes."""
        data = field(2, self.name)
        data += b"".join(field(6, self._stat(*item)) for item in self.said.items())
        for number, (name, events) in enumerate(self.lines.items()):
            line = field(1, number) + field(2, name) + field(3, 0)
            data += field(3, line + b"".join(field(4, event) for event in events))
        for name, number in self.names.items():
            metadata = field(1, number) + field(2, name)
            data += field(4, field(1, number) + field(2, metadata))
        for number, (name, blob) in enumerate(self.blobs, 1):
            metadata = field(1, number) + field(2, name) + field(5, field(1, 1) + field(6, blob))
            data += field(4, field(1, number) + field(2, metadata))
        for name, number in self.stats.items():
            data += field(5, field(1, number) + field(2, field(1, number) + field(2, name)))
        return data


class Run:
    """A module in thought: (instruction, start) in order, nanoseconds."""

    def __init__(self, path):
        self.data = gzip.decompress(path.read_bytes())
        self.module = pb.HloModuleProto.FromString(self.data)
        if not self.module.computations:
            self.module = pb.HloProto.FromString(self.data).hlo_module
        self.computations = {item.id: item for item in self.module.computations}
        self.context = Context(tuple(self.module.payloads))

    def executed(self, ends=False):
        """Names of instructions in the order in which they run, perhaps with those at which
        asynchronous ones end.
        """
        found = []
        silent = ("-update",) if ends else ("-done", "-update")
        self._walk(self.module.entry_computation_id, found, silent)
        return found

    def _walk(self, number, found, silent):
        computation = self.computations[number]
        by_id = {item.id: item for item in computation.instructions}
        order = self.module.schedule.sequences[number].instruction_ids or by_id
        for item in (by_id[one] for one in order):
            if item.opcode in ("while", "call", "conditional"):
                times = 1
                if item.opcode == "while":
                    config = backend_config(item, self.context)  # TPUs have none
                    times = int(json.loads(config)["known_trip_count"]["n"]) if config else 2
                body = item.called_computation_ids[0]
                for _ in range(times):
                    self._walk(body, found, silent)
            elif item.opcode not in SILENT and not item.opcode.endswith(silent):
                found.append(item.name)


def profile(run, path, devices, runs=2, kernels=1, said=()):
    """Write a profile of a module; returns the path.

    Args:
        kernels: of each instruction; how many different ones, or which in order.
        said: what each device's plane says of the device.
    """
    planes = []
    for device in range(devices):
        plane = Plane(f"/device:GPU:{device}")
        plane.said.update(said)
        clock = 1_000_000 + 10 * device
        for _ in range(runs):
            for name in run.executed():
                stats = {"hlo_op": name, "hlo_module": run.module.name, "program_id": 7}
                for kernel in range(kernels) if isinstance(kernels, int) else kernels:
                    plane.event("Stream #13(Compute)", f"k{kernel}_{name}", clock, 500, **stats)
                    # The same once more, as tools that group events add it.
                    plane.event("XLA Ops", name, clock, 500, **stats)
                    clock += 600
            plane.event("Stream #14(MemcpyD2H)", "MemcpyD2H", clock, 50)
            clock += 5_000
        planes.append(plane)
    metadata = Plane("/host:metadata")
    proto = pb.HloProto(hlo_module=run.module).SerializeToString()
    metadata.blobs.append((f"{run.module.name}(7)", proto))
    path.write_bytes(b"".join(field(1, plane.encoded()) for plane in [*planes, metadata]))
    return path


def tpu_profile(run, path, devices, took, runs=2, number=7, begin=1_000_000, ends=False, name=""):
    """Write a profile of a module on TPUs: ops are their text, and stand within a run.

    Args:
        took: (device, instruction) -> nanoseconds of it.
        ends: whether the ends of asynchronous instructions have a time, too.
        name: of the devices.
    """
    planes = []
    for device in range(devices):
        plane = Plane(f"/device:TPU:{device}")
        plane.said.update({"device_type_string": name} if name else {})
        clock = begin
        for _ in range(runs):
            first = clock
            for op in run.executed(ends):
                duration = took(device, op)
                plane.event("XLA Ops", f"%{op} = f32[] op(f32[] %x)", clock, duration)
                plane.event("Async XLA Ops", f"%{op} = f32[] op(f32[] %x)", clock, 3)
                clock += duration + 10
            plane.event("XLA Modules", f"{run.module.name}({number})", first, clock - first)
            clock += 5_000
        plane.event("XLA Ops", "%outside = f32[] copy(f32[] %x)", clock, 10)
        planes.append(plane)
    metadata = Plane("/host:metadata")
    proto = pb.HloProto(hlo_module=run.module).SerializeToString()
    metadata.blobs.append((f"{run.module.name}({number})", proto))
    path.write_bytes(b"".join(field(1, plane.encoded()) for plane in [*planes, metadata]))
    return path
