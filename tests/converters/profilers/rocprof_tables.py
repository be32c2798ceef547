"""The same profiles as the CSV of rocprofv3, with the columns of its ``generateCSV.cpp``."""

from __future__ import annotations

import csv

from tests.converters.profilers.rocprof_files import DEVICES, HOST, KINDS

#: The nodes of the agents: how ``--agent-index`` calls them by default is "Agent 0", ...
AGENTS = [HOST, *DEVICES]
CALLS = "Domain,Function,Process_Id,Thread_Id,Correlation_Id,Start_Timestamp,End_Timestamp"
KERNELS = (
    "Kind,Agent_Id,Queue_Id,Stream_Id,Thread_Id,Dispatch_Id,Kernel_Id,Kernel_Name,Correlation_Id,"
    "Start_Timestamp,End_Timestamp,Grid_Size_X"
)
COPIES = (
    "Kind,Direction,Stream_Id,Source_Agent_Id,Destination_Agent_Id,Correlation_Id,"
    "Start_Timestamp,End_Timestamp"
)


def _times(record):
    return record["correlation_id"]["internal"], record["start_timestamp"], record["end_timestamp"]


def _agent(handle):
    return f"Agent {AGENTS.index(handle['handle'])}"


def write(path, header, rows):
    with path.open("w", newline="") as file:
        table = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        table.writerows([header.split(","), *rows])
    return path


def tables(profile, folder, begins="908_"):
    """Write a profile's files; returns their folder."""
    names = {number: name for name, number in profile.symbols.items()}
    messages = {item["key"]: item["value"] for item in profile.messages}
    kernels, copies, agents = [], [], []
    for item in profile.records["kernel_dispatch"]:
        info, stream = item["dispatch_info"], item["stream_id"]["handle"]
        kernels.append(
            ("KERNEL_DISPATCH", _agent(info["agent_id"]), info["queue_id"]["handle"], stream,
             item["thread_id"], 1, info["kernel_id"], names[info["kernel_id"]], *_times(item), 64)
        )  # fmt: skip
    for item in profile.records["memory_copy"]:
        direction = KINDS[item["kind"]]["operations"][item["operation"]]
        ends = _agent(item["src_agent_id"]), _agent(item["dst_agent_id"])
        copies.append(("MEMORY_COPY", direction, item["stream_id"]["handle"], *ends, *_times(item)))
    for node, handle in enumerate(AGENTS):
        kind, name = ("CPU", "EPYC") if handle == HOST else ("GPU", "gfx942")
        agents.append((node, node, kind, name, "AMD", "MI300X" if kind == "GPU" else name))
    write(folder / f"{begins}kernel_trace.csv", KERNELS, kernels)
    write(folder / f"{begins}memory_copy_trace.csv", COPIES, copies)
    columns = "Node_Id,Logical_Node_Id,Agent_Type,Name,Vendor_Name,Product_Name"
    write(folder / f"{begins}agent_info.csv", columns, agents)
    for of in ("hip_api", "rccl_api", "marker_api"):
        rows = []
        for item in profile.records[of]:
            kind = KINDS[item["kind"]]
            name = messages.get(item["correlation_id"]["internal"])
            name = name or kind["operations"][item["operation"]]
            rows.append((kind["kind"], name, 908, item["thread_id"], *_times(item)))
        write(folder / f"{begins}{of}_trace.csv", CALLS, rows)
    return folder
