"""What ``flint run`` does for programs that import torch (see ``flint.launching.hooks``).

The idea: the program runs as one rank of a fake cluster from its first line on, on tensors of a
device that is not there.  When its step has run once, it is recorded the next time; the process
leaves the recording and ends.  Then other ranks run, as many as it takes to know all of them.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from flint.errors import FlintError
from flint.frontends.torch.stage_shapes import Peers, waiting
from flint.launching.program import ProgramRequest, SeenStep
from flint.workload.programs import Level
from flint.workload.workload import Workload

if TYPE_CHECKING:
    from flint.frontends.torch.programs.rank import ProgramRank

#: The rank that this process is, and its neighbours, for as long as it lives.
_ranks: list[ProgramRank] = []
_peers: list[Peers] = []
_always = contextlib.ExitStack()


def prepare(request: ProgramRequest, rank: int) -> None:
    """Set the variables that a launcher sets, and have neighbours that can be asked."""
    from flint.frontends.torch.cluster.environment import environment

    if request.cluster.world == 1:
        return
    if not _peers:
        run = functools.partial(_be_asked, request)
        _peers.append(_always.enter_context(waiting(run, rank)))
    os.environ.update(environment(rank, request.cluster.world, request.cluster.per_node))


def _be_asked(request: ProgramRequest, peers: Peers) -> None:
    """In a copy of a process that has not begun: be another rank, until it has said what it sends.

    Raises:
        FlintError: the program ended or failed before.
    """
    from flint.launching.child import be_program

    assert peers.place is not None
    _peers[:] = [peers]
    be_program(replace(request, lists_steps=False), peers.rank, peers.place)


def begin(request: ProgramRequest, rank: int, folder: Path) -> None:
    """Make this process a rank of the cluster, and watch for the step."""
    from flint.frontends.torch.programs.rank import ProgramRank

    _ranks.append(ProgramRank(request, rank, folder, _peers[0] if _peers else Peers(rank)))
    _ranks[0].begin()


def seen() -> Sequence[SeenStep]:
    """The steps that were seen; of a program that only infers, its step is left now."""
    return _ranks[0].ended() if _ranks else ()


def cause(error: BaseException) -> BaseException:
    """The error that C++ lost on the way, if that is what it is; with advice."""
    from flint.frontends.torch.failures import advice, lost_error

    found = lost_error(error)
    more = advice(found)
    if more and isinstance(found, Exception):
        found.args = (f"{found}{more}",)
    return found if isinstance(found, Exception) else error


def workload(request: ProgramRequest, folder: Path, place: Path) -> Workload:
    """The workload of a recorded rank and those that it takes to know all."""
    from flint.frontends.torch.capturing import RecordedRanks, prepare, workload_of
    from flint.frontends.torch.ranks import rank_report
    from flint.launching.child import be_program, limits_of
    from flint.mesh.mesh import Mesh

    first = rank_report.read(folder)
    if not first.mesh:
        raise FlintError("the program was recorded without a mesh")
    level = Level.PARTITIONED if request.target is None else Level.OPTIMIZED
    prepare(level)
    axes, shape = zip(*first.mesh, strict=True)
    ranks = RecordedRanks(
        functools.partial(be_program, request), Mesh(shape, axes), limits_of(request), place
    )
    ranks.folders[0] = folder
    ranks.read((0,))
    return workload_of(ranks, request.program.name, request.options, level)
