"""``flint inspect``: what is in a workload, and its graph as GraphML, DOT or a timeline."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from flint import registry
from flint.cli.inspect_tables import show
from flint.cli.option_groups import given, with_options
from flint.cli.options import (
    AxesOption,
    JsonOption,
    MeshOption,
    ReaderMemoryOption,
    ReplicasOption,
)
from flint.cli.parsing import DEFAULT_SYSTEM, a_file, existing
from flint.cli.pipes import reader_bytes
from flint.cli.program_options import ProgramOptions, SavedOptions, convert_file
from flint.cli.refusals import refuse
from flint.cli.shared import loaded, print_json
from flint.cli.tables import Table
from flint.cost.hardware import System
from flint.errors import UsageError
from flint.graph.described import node_attributes
from flint.graph.nesting import blocks
from flint.host.readable import human_bytes, human_flops
from flint.workload.folder import traced_system
from flint.workload.inspection import at_granularity, summarise
from flint.workload.programs import Level
from flint.workload.workload import Workload

#: Rows per table on a terminal without ``--top``.
_TOP = 15


@with_options
def inspect_command(
    path: Annotated[
        Path,
        typer.Argument(
            help="Workload folder, or StableHLO or HLO file in any form.", callback=existing
        ),
    ],
    *,
    program: Annotated[
        str | None, typer.Option("--program", help="Only this program [default: all].")
    ] = None,
    granularity: Annotated[
        str | None,
        typer.Option(
            "--granularity",
            help="op, kernel, xla, inductor or region, as in execution traces [default: the ops "
            "as written].",
        ),
    ] = None,
    top: Annotated[
        int | None, typer.Option("--top", min=1, help=f"Rows per table [default: {_TOP}].")
    ] = None,
    nodes: Annotated[bool, typer.Option("--nodes", help="List the nodes too.")] = False,
    graphml: Annotated[
        Path | None, typer.Option("--graphml", help="Write the graph as GraphML.", callback=a_file)
    ] = None,
    dot: Annotated[
        Path | None, typer.Option("--dot", help="Write the graph for graphviz.", callback=a_file)
    ] = None,
    scale_sim: Annotated[
        Path | None,
        typer.Option(
            "--scale-sim",
            metavar="FOLDER",
            help="Write the matrix products as SCALE-Sim's GEMM, topology and configuration files.",
        ),
    ] = None,
    perfetto: Annotated[
        Path | None,
        typer.Option(
            "--perfetto",
            help="Write a timeline of one rank in a simulated step for ui.perfetto.dev (.gz "
            "compresses); flint simulate --timeline writes one rank of each program.",
            callback=a_file,
        ),
    ] = None,
    rank: Annotated[
        int | None, typer.Option("--rank", help="Rank of the timeline [default: the first].")
    ] = None,
    system: Annotated[
        str | None,
        typer.Option(
            "--system",
            help="System of the timeline, or whose array SCALE-Sim simulates: a name or a TOML "
            "file [default: that of the folder's traces, else dgx-h100].",
        ),
    ] = None,
    mesh: MeshOption = None,
    axes: AxesOption = None,
    replicas: ReplicasOption = False,
    options: ProgramOptions,
    saved: SavedOptions,
    memory_limit: ReaderMemoryOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show ops, work, collectives, memory and loops of a workload, per rank."""
    if perfetto is None:
        of_timeline = {"--rank": rank is not None}
        if scale_sim is None:
            of_timeline["--system"] = system is not None
        refuse(of_timeline, "for a timeline: give --perfetto FILE")
    if path.is_dir():
        of_programs: dict[str, object] = {
            "--mesh": mesh, "--axes": axes, "--replicas": replicas,
            "--memory-limit": memory_limit is not None,
        }  # fmt: skip
        of_programs |= given(options) | given(saved)
        refuse(of_programs, f"for programs: {path} is a workload folder, converted already")
        workload = loaded(path)
    else:
        workload = convert_file(
            path, mesh, axes, options, saved, replicas=replicas,
            memory_limit=reader_bytes(memory_limit), level=Level.LOGICAL,
        )  # fmt: skip
    if (graphml or dot) and program is None and len(workload.programs) > 1:
        names = ", ".join(item.name for item in workload.programs[:8])
        raise UsageError(f"a graph file holds one program: give --program, one of {names}")
    shown = at_granularity(workload, granularity)
    summary = summarise(shown, program)
    written = {"graphml": graphml, "dot": dot}
    for name, file in written.items():
        if file is not None:
            registry.converter(name)(shown, file, program=program)
    if perfetto is not None:
        registry.converter("perfetto")(
            workload, perfetto, program=program, granularity=granularity or "kernel", rank=rank,
            system=_system_of(path) if system is None else system,
        )  # fmt: skip
    if scale_sim is not None:
        on = _system_of(path) if system is None else system
        registry.converter("scale-sim")(workload, scale_sim, on, granularity or "kernel")
    if json_output:
        document = summary.to_json()
        document["granularity"] = granularity or "as written"
        if nodes:
            document["nodes"] = _node_list(shown, program)
        print_json(document)
        return
    extra = _node_tables(shown, program, top) if nodes else []
    show(summary, top or _TOP, extra)
    for file in (graphml, dot, perfetto, scale_sim):
        if file is not None:
            sys.stderr.write(f"flint: wrote {file}\n")


def _node_list(workload: Workload, program: str | None) -> list[dict[str, Any]]:
    """Every node with its path, how often it runs, its work and its results."""
    chosen = workload.programs if program is None else (workload.program(program),)
    unknown = {"layer": "", "file": "", "line": 0}
    return [
        {"program": item.name, "node": block.path(node), "times": block.times} | unknown | fields
        for item in chosen
        for block in blocks(item.graph)
        for node, fields in enumerate(node_attributes(block.graph, workload.mesh))
    ]


def _node_tables(workload: Workload, program: str | None, top: int | None) -> list[Table]:
    columns = (
        "node", "op", "?category", "?>times", ">FLOPs", "?>read", "?>written", "results", "?where",
    )  # fmt: skip
    tables = []
    names = [item.name for item in workload.programs] if program is None else [program]
    for name in names:
        listed = _node_list(workload, name)
        rows = [
            (
                node["node"], node["op"], node["category"], f"{node['times']:,}",
                human_flops(node["flops"]) if node["flops"] else "-",
                human_bytes(node["bytes_read"]), human_bytes(node["bytes_written"]),
                " ".join(node["results"]),
                f"{node['layer']} {node['file']}:{node['line']}" if node["file"] else node["layer"],
            )
            for node in listed[:top]
        ]  # fmt: skip
        tables.append(Table(f"nodes of program {name}", columns, rows, len(listed) - len(rows)))
    return tables


def _system_of(path: Path) -> str | System:
    """The system of the folder's traces; for a file, the default system."""
    return traced_system(path) if path.is_dir() else DEFAULT_SYSTEM
