"""``flint simulate``: how long a step takes on a system, what is exposed, what memory it needs."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from flint import registry
from flint.cli.comparison_tables import show_comparison
from flint.cli.engines import BOTH, AstraSimOption, EngineOption, TimeLimitOption, refuse_of_others
from flint.cli.options import AlgorithmOption, FolderArgument, JsonOption, WithoutOption
from flint.cli.parsing import a_file, simplified
from flint.cli.refusals import refuse_of_profiles
from flint.cli.saving import announce
from flint.cli.shared import loaded, print_json, print_warnings
from flint.cli.simulate_tables import show
from flint.cli.truer_level import truer_level
from flint.cost.hardware import System
from flint.errors import UsageError
from flint.execution.chains import CommunicationOrder
from flint.passes.what_if import parse_passes
from flint.simulation.attention_choice import FUSED, check_attention
from flint.simulation.result import SimulationResult
from flint.workload.folder import chained_by, read_document, traced_system
from flint.workload.programs import Level
from flint.workload.workload import Workload


def simulate_command(
    folder: FolderArgument,
    system: Annotated[
        str | None,
        typer.Option(
            "--system",
            help="The cluster: a name (flint systems) or a TOML file [default: that of the "
            "folder's traces, else dgx-h100].",
        ),
    ] = None,
    granularity: Annotated[
        str | None,
        typer.Option(
            "--granularity",
            help="op, kernel, xla, inductor or region [default: kernel; with astra-sim that of "
            "the folder's traces].",
        ),
    ] = None,
    without: WithoutOption = None,
    algorithm: AlgorithmOption = None,
    communication_order: Annotated[
        str | None,
        typer.Option(
            "--communication-order",
            help="rank: all communications of a rank run one after another, as in consumers of "
            "its trace; communicator: only those of one communicator do, and communicators "
            "share the rank's links [default: communicator for PyTorch's programs and for "
            "folders whose traces have a chain per communicator, else rank].",
        ),
    ] = None,
    communication: Annotated[
        str | None,
        typer.Option(
            "--communication",
            help="For a profile: measured (the time of the run) or modelled (on the system) "
            "[default: measured; modelled with --algorithm or --communication-order].",
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            "--host",
            help="For a profile: measured (launches and gaps as in the run), modelled (the "
            "system's launch overhead) or none (never waited for) [default: measured].",
        ),
    ] = None,
    engine: EngineOption = "embedded",
    astra_sim: AstraSimOption = None,
    time_limit: TimeLimitOption = None,
    estimator: Annotated[
        str | None,
        typer.Option(
            "--estimator",
            help="Model for kernel times: kernel (tiles and bandwidths), or systolic "
            "(SCALE-Sim's model, for systems that describe their array) [default: kernel].",
        ),
    ] = None,
    durations: Annotated[
        Path | None,
        typer.Option(
            "--durations",
            help="Measured kernel times: CSV with op,result,seconds, or a folder of flint "
            "inspect --scale-sim with SCALE-Sim's report.",
        ),
    ] = None,
    passes: Annotated[
        list[str] | None,
        typer.Option(
            "--pass",
            metavar="NAME[:OPTION=VALUE,...]",
            help="What-if pass: bucket, hoist, defer, split, replace or scale, for example "
            "hoist:by=2 or bucket:kind=all-gather,bytes=64MiB (repeatable).",
        ),
    ] = None,
    attention: Annotated[
        str | None,
        typer.Option(
            "--attention",
            help="How to time attention that a partitioned program writes out: as-written (op "
            "by op, as XLA runs it) or fused (as the kernel of training frameworks) "
            "[default: as-written; if the two differ by more than 10 %, both times are "
            "printed].",
        ),
    ] = None,
    microbatches: Annotated[
        str | None,
        typer.Option(
            "--microbatches",
            metavar="CAPTURED:SIMULATED",
            help="Simulate a pipeline with more microbatches than were captured, for example "
            "24:512: further microbatches repeat the steady state, to the picosecond.",
        ),
    ] = None,
    timeline: Annotated[
        Path | None,
        typer.Option(
            "--timeline",
            help="Write a timeline of the first rank of each program, for ui.perfetto.dev (.gz "
            "compresses).",
            callback=a_file,
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", help="Write the report as one self-contained HTML page.", callback=a_file
        ),
    ] = None,
    network: Annotated[
        Path | None,
        typer.Option(
            "--network",
            help="Write an SVG picture that shows which ranks communicate, and over which "
            "network tier.",
            callback=a_file,
        ),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Simulate one step: time, exposed communication, memory, utilisation."""
    chosen = parse_passes(passes or ())
    of_embedded = {
        "--algorithm": algorithm, "--estimator": estimator, "--durations": durations,
        "--timeline": timeline, "--html": html, "--network": network,
        "--communication-order": communication_order,
        "--communication": communication, "--host": host, "--microbatches": microbatches,
    }  # fmt: skip
    refuse_of_others(engine, "embedded", of_embedded)
    if engine != BOTH:
        of_its_own = {"--astra-sim": astra_sim, "--time-limit": time_limit}
        refuse_of_others(engine, "astra-sim", of_its_own)
    workload = loaded(folder)
    refuse_of_profiles(workload, communication, host)
    check_attention(attention)
    if attention == FUSED:
        _refuse_fused(workload, granularity)
    on: str | System | None = system
    if without:
        on = simplified(traced_system(folder) if system is None else system, without)
    if engine in ("astra-sim", BOTH):
        limit = {} if time_limit is None else {"time_limit": time_limit}
        of_astra_sim: dict[str, Any] = {
            "granularity": granularity, "passes": chosen, "attention": attention,
            "folder": folder, "binary": astra_sim, "announce": announce, **limit,
        }  # fmt: skip
        if engine == BOTH:
            compared = registry.converter("engines-compared")(workload, on, **of_astra_sim)
            show_comparison(compared, json_output)
            raise typer.Exit(0 if compared.agrees else 1)
        _say(workload, registry.engine(engine)(workload, on, **of_astra_sim), json_output, ())
        return
    on = traced_system(folder) if on is None else on
    granularity = "kernel" if granularity is None else granularity
    written = chained_by(read_document(folder))
    recorded = any(program.timing is not None for program in workload.programs)
    if communication_order is None and written == CommunicationOrder.COMMUNICATOR:
        communication_order = None if recorded and communication != "modelled" else written
    options: dict[str, Any] = {
        "granularity": granularity, "algorithm": algorithm, "kernels": durations,
        "estimator": estimator or "kernel", "passes": chosen,
        "attention": attention, "communication_order": communication_order,
        "communication": communication, "host": host,
    }  # fmt: skip
    if microbatches is not None:
        pictures = {"--timeline": timeline, "--html": html, "--network": network}
        drawn = next((name for name, path in pictures.items() if path is not None), None)
        if drawn is not None:
            raise UsageError(f"{drawn} draws the step that was captured: leave out --microbatches")
    result = workload.simulate(on, engine=engine, microbatches=microbatches, **options)
    if granularity in ("kernel", "xla"):
        truer = truer_level(workload, on)
        result = replace(result, notes=(*result.notes, *truer))
    if timeline is not None or html is not None or network is not None:
        from flint.simulation.recording import record  # takes 3 ms

        recording = record(workload, on, **options)
        if timeline is not None:
            registry.converter("timeline")(recording, timeline)
        if html is not None:
            registry.converter("report")(result, recording, html)
        if network is not None:
            registry.converter("network")(recording, network)
    _say(workload, result, json_output, (timeline, html, network))


def _refuse_fused(workload: Workload, granularity: str | None) -> None:
    """Refuse ``--attention fused`` if it has no effect.

    Raises:
        UsageError: it has no effect.
    """
    if workload.level == Level.OPTIMIZED:
        raise UsageError(
            "--attention fused is for partitioned programs: an optimized one is timed as the "
            "compiler wrote it"
        )
    if granularity == "op":
        raise UsageError(
            "--attention fused has no effect at granularity op: attention is always timed as "
            "written there"
        )


def _say(
    workload: Workload, result: SimulationResult, json_output: bool, files: tuple[Path | None, ...]
) -> None:
    if json_output:
        print_json(result.to_json())
        return
    print_warnings(workload.warnings)
    show(result)
    for file in files:
        if file is not None:
            sys.stderr.write(f"flint: wrote {file}\n")
