"""A PyTorch step -> a workload: recorded rank by rank, emitted, walked.

The idea: a child per recorded rank builds the user's model on the fake cluster, records one step
and writes it as StableHLO; here it is found which ranks do the same, and each distinct program is
read and walked as any saved module is.

    workload = capture(request)
"""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from flint.capturing.converting import Part, workload_of_parts
from flint.capturing.request import Request
from flint.errors import FlintError, UsageError
from flint.frontends.torch.children import run_all, scratch
from flint.frontends.torch.ranks.behaviours import FEW, Answers, Behaviour, behaviours
from flint.host.child_processes import Limits
from flint.host.environment import check_version
from flint.host.readable import counted
from flint.host.stages import stage
from flint.mesh.mesh import Mesh
from flint.mesh.ranks import from_mask
from flint.registry import SPARES
from flint.stablehlo.read.reader import read_mlir
from flint.stablehlo.walker import walk
from flint.workload.programs import Level
from flint.workload.workload import Workload

#: Versions of torch whose private parts are known to be as used here.
KNOWN_VERSIONS = ">=2.13,<2.14"

_MODULE, _REPORT = "module.mlirbc", "report.json"


def capture(request: Request) -> Workload:
    """Capture a PyTorch step.

    Raises:
        UsageError, FlintError: as ``flint.capturing.decorator.Capture.capture``.
    """
    if request.level is not Level.PARTITIONED:
        raise UsageError(
            f"level {request.level!s}: PyTorch runs op by op and has one level, partitioned"
        )
    check_version("torch", KNOWN_VERSIONS)
    for name, frontend in SPARES.items():
        if frontend == "torch":  # imported once, before children are forked
            import_module(name)
    mesh = Mesh(request.shape, request.axes or ())
    limits = Limits(request.options.time_limit, request.options.memory_limit)
    with scratch() as folder:
        recorded: dict[int, Path] = {}

        def sign(ranks: Sequence[int]) -> dict[int, str]:
            stage(f"recording {counted(len(ranks), 'rank')}, {len(recorded):,} done before")

            def work(rank: int, place: Path) -> None:
                _record(request, mesh, rank, place)

            recorded.update(run_all(work, ranks, folder, limits))
            return {rank: _report(recorded[rank])["signature"] for rank in ranks}

        def breaks() -> list[list[int]]:
            known = _report(recorded[0])["breaks"]
            return [known.get(axis, []) for axis in mesh.axes]

        def answers() -> Answers:
            return _answers([_report(place) for place in recorded.values()], mesh.size)

        found = behaviours(mesh.shape, sign, breaks, answers)
        parts = [_part(request, mesh, item, recorded) for item in found]
        warnings: Counter[str] = Counter()
        for item in found:
            for text, count in _report(recorded[item.representative])["warnings"].items():
                warnings[text] = max(warnings[text], count)
        unseen = {text for place in recorded.values() for text in _report(place)["unseen"]}
        if mesh.size > FEW and len(recorded) < mesh.size:
            for text in unseen:
                warnings[
                    f"{text}: what only unrecorded ranks do is not captured ({len(recorded)} of "
                    f"{mesh.size:,} were); compare torch.distributed.get_rank()"
                ] = 1
        warnings |= _not_recorded(answers(), recorded)
        checked = ", ".join(str(rank) for rank in sorted(recorded)[:8])
        more = ", ..." if len(recorded) > 8 else ""
    return workload_of_parts(
        parts,
        mesh,
        options=request.options.walk,
        source={
            "function": request.name,
            "framework": "torch",
            "ranks recorded": f"{checked}{more} of {mesh.size}",
            "sha256": hashlib.sha256(b"".join(part.saved[0] for part in parts)).hexdigest(),
        },
        warnings=dict(warnings),
    )


def _record(request: Request, mesh: Mesh, rank: int, folder: Path) -> None:
    """In a child: record one rank's step and leave its module and a report."""
    from flint.frontends.torch.emission import emitted
    from flint.frontends.torch.ranks.root_masks import root_masks
    from flint.frontends.torch.ranks.signatures import signature
    from flint.frontends.torch.session import record

    recording = record(
        request.function,
        request.setup,
        mesh.shape,
        mesh.axes,
        rank,
        arguments=request.arguments,
        settings=dict(request.settings),
    )
    made = emitted(recording, strict=request.options.walk.strict)
    (folder / _MODULE).write_bytes(made.data)
    warnings = Counter(recording.warnings) + Counter(made.warnings)
    report = {
        "signature": signature(recording),
        "warnings": dict(warnings),
        "breaks": dict(recording.breaks),
        "asked": [zlib.compress(item).hex() for item in (*recording.asked, *root_masks(recording))],
        "unseen": list(recording.unseen),
    }
    (folder / _REPORT).write_text(json.dumps(report))


def _report(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / _REPORT).read_text())
    return document


def _answers(reports: Sequence[dict[str, Any]], world: int) -> Answers:
    """Which ranks get the same answers to all that recorded ones asked about themselves."""
    kinds = np.zeros(world, np.int64)
    for text in sorted({text for report in reports for text in report["asked"]}):
        packed = np.frombuffer(zlib.decompress(bytes.fromhex(text)), np.uint8)
        bits = np.unpackbits(packed, count=world)
        kinds = np.unique(kinds * 2 + bits, return_inverse=True)[1].astype(np.int64)
    return Answers(kinds, any(report["unseen"] for report in reports))


def _not_recorded(answers: Answers, recorded: Iterable[int]) -> Counter[str]:
    """A warning of kinds of ranks none of which was recorded."""
    seen, kinds = np.unique(answers.kinds[list(recorded)]), np.unique(answers.kinds)
    if len(seen) == len(kinds):
        return Counter()
    return Counter(
        [
            f"the step compares its own rank in ways that make {len(kinds):,} kinds of ranks, of "
            f"which {len(seen):,} were recorded: what only the other ranks do is not captured"
        ]
    )


def _part(request: Request, mesh: Mesh, item: Behaviour, recorded: dict[int, Path]) -> Part:
    """The program of ranks that do the same."""
    data = (recorded[item.representative] / _MODULE).read_bytes()
    module = read_mlir(data, f"{request.name} (rank {item.representative})")
    if module.num_partitions != math.prod(mesh.shape):
        raise FlintError(
            f"rank {item.representative} was recorded for {module.num_partitions} ranks"
        )
    walked = walk(module, mesh, request.options.walk)
    return Part(walked, module, from_mask(item.ranks), (data, ".mlirbc"))
