"""The same profiles as databases: those of rocprofv3 (rocpd) and of rocmProfileData (.rpd).

Tables and columns are those that their tools create (``rocpd_tables.sql`` of ROCprofiler-SDK,
``tableSchema.cmd`` of rocmProfileData); those that no reader needs are left out.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter

from tests.converters.profilers.rocprof_files import DEVICES, HOST, KINDS

_PROCESS = "_00001eca_d4de_74de_b70e_c34ecf8c3a87"


def _columns(names):
    return ", ".join(f'"{name}"' for name in names)


class _File:
    def __init__(self, path):
        self._data = sqlite3.connect(path)
        self._texts = {}
        self._count = Counter()

    def text(self, text):
        """The number of a text."""
        return self._texts.setdefault(text, len(self._texts) + 1)

    def create(self, table, *columns):
        self._data.execute(f'CREATE TABLE IF NOT EXISTS "{table}" ({_columns(columns)})')

    def add(self, table, **row):
        """Add a row to a table, which the first one creates; returns its number."""
        row.setdefault("id", self._count[table] + 1)
        self.create(table, *row)
        places = ", ".join("?" * len(row))
        columns = _columns(row)
        self._data.execute(f'INSERT INTO "{table}" ({columns}) VALUES ({places})', [*row.values()])
        self._count[table] += 1
        return self._count[table]

    def close(self, table):
        for text, number in self._texts.items():
            self.add(table, id=number, string=text)
        self._data.commit()
        self._data.close()


def _calls(profile):
    """The calls of a profile: what each is, its record, and a range's text."""
    messages = {item["key"]: item["value"] for item in profile.messages}
    for kind in ("hip_api", "rccl_api", "marker_api"):
        for record in profile.records[kind]:
            yield kind, record, messages.get(record["correlation_id"]["internal"], "")


def _operation(record):
    return KINDS[record["kind"]]["operations"][record["operation"]]


def _times(record):
    return {"start": record["start_timestamp"], "end": record["end_timestamp"]}


def rocpd(profile, path, own=_PROCESS):
    """Write what rocprofv3 writes by default."""
    file = _File(path)

    def table(name):
        return f"rocpd_{name}{own}"

    def event(category, record, message=""):
        return file.add(
            table("event"),
            category_id=file.text(category),
            stack_id=record["correlation_id"]["internal"],
            correlation_id=0,
            extdata=json.dumps({"message": message} if message else {}),
        )

    file.add(table("info_process"), id=908, pid=908, environment="{}")
    file.add(table("info_agent"), id=0, type="CPU", name="AMD EPYC 9575F", product_name="")
    for number, _ in enumerate(DEVICES, 1):
        file.add(table("info_agent"), id=number, type="GPU", name="gfx942", product_name="MI300X")
    agents = {HOST: 0, **{device: number for number, device in enumerate(DEVICES, 1)}}
    for name, number in profile.symbols.items():
        file.add(
            table("info_kernel_symbol"),
            id=number, kernel_name=f"_Z{name}.kd", display_name=name,
        )  # fmt: skip
    for _, record, message in _calls(profile):
        own_event = event(KINDS[record["kind"]]["kind"], record, message)
        file.add(
            table("region"),
            **_times(record),
            tid=record["thread_id"],
            name_id=file.text(_operation(record)),
            event_id=own_event,
        )
    for record in profile.records["kernel_dispatch"]:
        info = record["dispatch_info"]
        file.add(
            table("kernel_dispatch"),
            **_times(record),
            tid=record["thread_id"],
            agent_id=agents[info["agent_id"]["handle"]],
            kernel_id=info["kernel_id"],
            queue_id=info["queue_id"]["handle"],
            stream_id=record.get("stream_id", {"handle": 0})["handle"],
            event_id=event("KERNEL_DISPATCH", record),
        )
    for record in profile.records["memory_copy"]:
        file.add(
            table("memory_copy"),
            **_times(record),
            name_id=file.text(_operation(record)),
            dst_agent_id=agents[record["dst_agent_id"]["handle"]],
            src_agent_id=agents[record["src_agent_id"]["handle"]],
            size=record["bytes"],
            stream_id=record.get("stream_id", {"handle": 0})["handle"],
            event_id=event("MEMORY_COPY", record),
        )
    file.create(table("kernel_dispatch"), "id", "start", "end")
    file.close(table("string"))
    return path


def rpd(profile, path, pid=1560):
    """Write what rocmProfileData's tracer writes; calls of RCCL are not recorded by it."""
    file = _File(path)
    for kind, record, message in _calls(profile):
        file.add(
            "rocpd_api",
            **_times(record),
            id=record["correlation_id"]["internal"],
            pid=pid,
            tid=record["thread_id"],
            apiName_id=file.text("UserMarker" if kind == "marker_api" else _operation(record)),
            args_id=file.text(message),
        )
    names = {number: name for name, number in profile.symbols.items()}
    for record in [*profile.records["kernel_dispatch"], *profile.records["memory_copy"]]:
        info = record.get("dispatch_info")
        device = info["agent_id"] if info else record["dst_agent_id"]
        number = file.add(
            "rocpd_op",
            **_times(record),
            gpuId=DEVICES.index(device["handle"]),
            queueId=record["stream_id"]["handle"],
            description_id=file.text(names[info["kernel_id"]] if info else ""),
            opType_id=file.text("KernelExecution" if info else "CopyHostToDevice"),
        )
        call = record["correlation_id"]["internal"]
        file.add("rocpd_api_ops", api_id=call, op_id=number)
        if not info:
            file.add("rocpd_copyapi", api_ptr_id=call, size=record["bytes"])
    file.close("rocpd_string")
    return path
