"""A PyTorch step -> a workload: recorded rank by rank, emitted, walked.

The idea: a child per recorded rank builds the user's model on the fake cluster, records one step
and writes it as StableHLO; here the ranks that do the same are found, and each distinct program is
read and walked like any saved module.

    workload = capture(request)
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from flint.capturing.parts import Part, workload_of_parts
from flint.capturing.request import CaptureOptions, Request
from flint.capturing.targets import named
from flint.capturing.user_frames import crashed_line
from flint.errors import FlintError, UsageError
from flint.frontends.torch import versions
from flint.frontends.torch.evidence import Evidence
from flint.frontends.torch.forking import check_forks
from flint.frontends.torch.ranks import rank_report
from flint.frontends.torch.ranks.audit import audit, chosen, default_count
from flint.frontends.torch.ranks.behaviours import behaviours
from flint.frontends.torch.ranks.moved_questions import with_moved
from flint.frontends.torch.ranks.rank_report import RankReport
from flint.frontends.torch.ranks.rank_warnings import rank_warnings
from flint.frontends.torch.ranks.search import Behaviour
from flint.frontends.torch.ranks.signatures import Signed
from flint.frontends.torch.recording.recording import Recording
from flint.host.child_processes import Limits
from flint.host.readable import counted
from flint.host.stages import stage
from flint.host.tasks import Forks, Starter, run_each
from flint.host.temporary import temporary_folder
from flint.mesh.mesh import Mesh
from flint.mesh.ranks import from_mask
from flint.registry import SPARES
from flint.stablehlo.read.reader import read_mlir
from flint.stablehlo.walker import walk
from flint.workload.programs import Level
from flint.workload.workload import Workload

_MODULE = "module.mlirbc"
#: The modules that compile, which take seconds to import, and those that they import when they do.
_COMPILER = "torch._inductor.compile_fx"
_COMPILERS_LATER = (
    "sympy.tensor.tensor",
    "torch._dynamo.repro.after_dynamo",
    "torch._inductor.choices",
    "torch._inductor.codegen.cuda_combined_scheduling",
    "torch._inductor.codegen.halide",
    "torch._inductor.codegen.mps",
    "torch._inductor.codegen.pallas",
    "torch._inductor.fx_passes.fuse_attention",
    "torch._inductor.fx_passes.freezing_patterns",
    *(f"torch._inductor.fx_passes.serialized_patterns._sfdp_pattern_{n}" for n in range(1, 31)),
    "torch._inductor.runtime.caching",
    "torch._inductor.tiling_utils",
    "torch.distributed.tensor.experimental",
    "torch.export._trace",
    "torch.fx.experimental.validator",
)


def capture(request: Request) -> Workload:
    """Capture a PyTorch step.

    Raises:
        UsageError, FlintError: as ``flint.capturing.decorator.Capture.capture``.
    """
    if request.target is not None and request.options.compiler_options:
        raise UsageError("XLA's options are not for PyTorch: torch.compile has its own (options=)")
    check_forks()
    compile_for = compiled_for(request.target)
    mesh = Mesh(request.shape, request.axes or ())
    prepare(request.level)

    settings = dict(request.settings)
    if request.options.walk.routing is not None:
        settings["routing"] = request.options.walk.routing

    def record(rank: int, folder: Path) -> None:
        """In a child: record one rank's step and leave its module and a report."""
        from flint.frontends.torch.session import record

        recording = record(
            request.function,
            request.setup,
            mesh.shape,
            mesh.axes,
            rank,
            arguments=request.arguments,
            settings=settings,
            compile_for=compile_for,
            lowered=folder.parent / "lowered",
            trip_counts=request.options.walk.trip_counts,
        )
        leave(recording, folder, request.options.walk.strict)

    with temporary_folder() as folder:
        ranks = RecordedRanks(Forks(record), mesh, limits_of(request.options), folder)
        return workload_of(ranks, request.name, request.options, request.level)


def compiled_for(target: str | None) -> str | None:
    """The accelerator that ``torch.compile`` compiles for at a target; None without one.

    Raises:
        UsageError: PyTorch does not support the target.
    """
    if target is None:
        return None
    found = named(target)
    if found.platform != "cuda":
        raise UsageError(f"target {found.name}: PyTorch compiles only for GPUs")
    return found.accelerator


def limits_of(options: CaptureOptions) -> Limits:
    """The limits of a child that records a rank."""
    return Limits(options.time_limit, options.memory_limit)


def leave(recording: Recording, folder: Path, strict: bool) -> None:
    """In a child: write a rank's module, and a report of it.

    A rank that does the same as a lower one writes no module: the lowest one represents all.
    """
    warnings = Counter(recording.warnings)
    signed = Signed(recording)
    if not rank_report.is_known(folder, signed):
        from flint.frontends.torch.emission import emitted

        made = emitted(recording, strict=strict)
        (folder / _MODULE).write_bytes(made.data)
        warnings += Counter(made.warnings)
    rank_report.write(folder, signed, warnings)


def workload_of(
    ranks: RecordedRanks, name: str, options: CaptureOptions, level: Level = Level.PARTITIONED
) -> Workload:
    """The workload of a step, after recording as many ranks as are needed to know all.

    Args:
        ranks: records them.
        name: the step's name in messages.
        options: options of the capture.
        level: partitioned, or optimized if ``torch.compile`` compiled.

    Raises:
        FlintError: a rank's error, or ranks whose differences follow no pattern.
    """
    mesh = ranks.mesh
    own = ranks.own_data
    messages, others = (ranks.messages, ranks.besides_updates) if own else (None, None)
    before = tuple(ranks.folders)
    found, partition = behaviours(
        mesh.shape, ranks.sign, ranks.evidence, ranks.unseen, before, messages, others
    )
    options = replace(options, walk=rank_report.left(options.walk, ranks.reports.values()))
    parts = [_part(name, options, mesh, item, ranks.module(item.representative)) for item in found]
    digest = hashlib.sha256(b"".join(part.saved[0] for part in parts)).hexdigest()
    recorded = set(ranks.folders)
    count = default_count(len(recorded)) if options.audit is None else options.audit
    audited = chosen(mesh.size, recorded, count, f"{digest} {mesh.shape}".encode())
    audit(found, audited, ranks.sign, ranks.difference, messages)
    warnings = rank_warnings(ranks.reports, partition, found, mesh.shape)
    return workload_of_parts(
        parts,
        mesh,
        options=options.walk,
        source={
            "function": name,
            "framework": "torch",
            "ranks recorded": _listed(recorded, mesh.size),
            "ranks audited": _listed(audited, mesh.size),
            "sha256": digest,
        },
        warnings=dict(warnings),
        level=level,
    )


def prepare(level: Level = Level.PARTITIONED) -> None:
    """Import once what every child needs, which takes longer than recording a small step.

    Args:
        level: at the optimized one, children compile.

    Raises:
        FlintError: the version of torch is not a known one.
    """
    versions.check()
    for name, frontend in SPARES.items():
        if frontend == "torch":
            importlib.import_module(name)
    from flint.frontends.torch import everywhere  # imports torch

    everywhere.search()
    if level is Level.OPTIMIZED:
        importlib.import_module(_COMPILER)
        for name in _COMPILERS_LATER:
            with contextlib.suppress(ImportError):  # other versions have others
                importlib.import_module(name)


@dataclass(frozen=True, slots=True)
class RecordedRanks:
    """Records ranks, each in a child.

    Attributes:
        children: children of ranks; each writes the files of ``leave`` into its folder.
        mesh: the mesh of the ranks.
        limits: the limits of a child.
        place: parent of the children's folders.
        own_data: every rank reads its own data, which may give tensors other sizes.
        folders: rank -> the folder of its child.
        reports: rank -> its report.
    """

    children: Starter
    mesh: Mesh
    limits: Limits
    place: Path
    own_data: bool = False
    folders: dict[int, Path] = field(default_factory=dict)
    reports: dict[int, RankReport] = field(default_factory=dict)

    def sign(self, ranks: Sequence[int]) -> dict[int, str]:
        """Record those not yet recorded; returns rank -> its signature."""
        new = [rank for rank in ranks if rank not in self.folders]
        if new:
            done = len(self.folders)
            stage(f"recording {counted(len(new), 'rank')}, {done:,} done before")
            self.folders.update(
                run_each(self.children, new, self.place, self.limits, line_of=crashed_line)
            )
            self.read(new)
        return {rank: self.reports[rank].signature for rank in ranks}

    def read(self, ranks: Iterable[int]) -> None:
        """Read the reports of ranks that have been recorded."""
        self.reports.update({rank: rank_report.read(self.folders[rank]) for rank in ranks})

    def module(self, rank: int) -> Path:
        """The file of what a recorded rank does: the lowest that does the same has written it."""
        signature = self.reports[rank].signature
        lowest = min(at for at, report in self.reports.items() if report.signature == signature)
        return self.folders[lowest] / _MODULE

    def evidence(self) -> Iterator[Evidence]:
        """The evidence of differences among ranks from those recorded so far."""
        evidence = {rank: report.evidence for rank, report in self.reports.items()}
        return with_moved(evidence, self.mesh.shape)

    def unseen(self) -> bool:
        """Whether ranks recorded so far may have asked about their number unseen."""
        return any(report.unseen for report in self.reports.values())

    def difference(self, one: int, other: int) -> str:
        """What a rank does differently from another one."""
        return rank_report.first_difference(self.folders[one], self.folders[other])

    def messages(self, rank: int) -> str:
        """What a recorded rank communicates."""
        return self.reports[rank].messages

    def besides_updates(self, rank: int) -> str:
        """This, and what it does but for its optimizers."""
        return self.reports[rank].besides_updates


def _listed(ranks: Iterable[int], world: int) -> str:
    """A few of some ranks: "0, 1, 7 of 64"."""
    shown = sorted(ranks)
    if not shown:
        return "none"
    more = ", ..." if len(shown) > 8 else ""
    return f"{', '.join(map(str, shown[:8]))}{more} of {world}"


def _part(name: str, options: CaptureOptions, mesh: Mesh, item: Behaviour, file: Path) -> Part:
    """The program of ranks that do the same."""
    data = file.read_bytes()
    module = read_mlir(data, f"{name} (rank {item.representative})")
    if module.num_partitions != math.prod(mesh.shape):
        raise FlintError(
            f"rank {item.representative} was recorded for {module.num_partitions} ranks"
        )
    walked = walk(module, mesh, options.walk)
    return Part(walked, module, from_mask(item.ranks), (data, ".mlirbc"))
