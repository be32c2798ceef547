"""What ``flint run`` does for programs that import torch (see ``flint.launching.hooks``).

The idea: from its first line the program runs as one rank of a fake cluster, on tensors of an
absent device.  After its step has run once, the next one is recorded; the process writes the
recording and ends.  Then as many other ranks run as are needed to know all of them: they continue
from the point at which the program first asked for its rank, in copies of the process kept at that
point.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flint.errors import FlintError, UsageError
from flint.frontends.torch.programs.package_modules import PACKAGES
from flint.frontends.torch.stage_shapes import Peers, waiting
from flint.host.tasks import Forks, Starter
from flint.host.template import Template
from flint.launching.commands.variables import differing, variables
from flint.launching.hooks import read_found
from flint.launching.next_imports import import_next
from flint.launching.own import Own, watch_variables
from flint.launching.program import ProgramRequest, SeenStep, StepChoice
from flint.workload.programs import Level
from flint.workload.workload import Workload

if TYPE_CHECKING:
    from flint.frontends.torch.programs.rank import ProgramRank

PROVIDED = frozenset(PACKAGES)
PARTLY = {
    "transformer_engine": "pip install --no-deps transformer_engine triton",
    "xformers": "pip install --no-deps xformers",
}
STEP = (
    "a step lies between two steps of an optimizer on the device, two rounds of a loop or two "
    "calls of flint.step()"
)

#: The rank that this process is, and its neighbours, for as long as it lives.
_ranks: list[ProgramRank] = []
_peers: list[Peers] = []
#: Refuses the program's device, if it is none of PyTorch's.
_refusing: list[Callable[[], None]] = []
_always = contextlib.ExitStack()


def prepare(request: ProgramRequest, own: Own, template: Template | None) -> None:
    """Set the variables that a launcher sets; reading the process's identity makes it a rank."""
    if request.cluster.world == 1 or request.step.unlaunched:
        if request.program.ranks_one:
            _set(request, own)
        if template is not None:
            template.discard()
        return
    _set(request, own)
    # As torchrun does; also, a forked copy would wait for computation threads that it does not
    # have.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    own.at_first_question(functools.partial(_become, request, own, template))
    watch_variables([name for each in _launchers(request) for name in differing(each)], own)


def _set(request: ProgramRequest, own: Own) -> None:
    cluster, rank = request.cluster, own.rank
    for launcher in request.program.launchers:
        found = variables(launcher, rank, world=cluster.world, per_host=cluster.per_node)
        os.environ.update(found)
    if request.program.manager:
        host = rank // cluster.per_node
        os.environ.update(variables(request.program.manager, host, world=cluster.hosts, per_host=1))


def _launchers(request: ProgramRequest) -> tuple[str, ...]:
    program = request.program
    return program.launchers + ((program.manager,) if program.manager else ())


def _become(request: ProgramRequest, own: Own, template: Template | None) -> None:
    """The process is its rank from here on; copies made here are other ranks."""
    if template is not None and own.can_be_copied():
        import_next(sys._getframe())
        if _ranks:
            _ranks[0].import_rest()
    if template is not None and _ranks and not own.reads and own.can_be_copied():
        came = template.leave()
        if came is not None:
            own.become(*came)
    elif template is not None:
        template.discard()
    peers = _always.enter_context(waiting(own.rank))
    if peers.is_asked:
        place = own.folder / f"asked{peers.rank}"
        place.mkdir(exist_ok=True)
        own.become(peers.rank, place)
        own.fail = peers.fail
    else:  # otherwise it has the knowledge of the asking process
        peers.learn(own.folder.parent)
    _peers.append(peers)
    _set(request, own)
    if _ranks:
        _ranks[0].become(peers)


def begin(request: ProgramRequest, own: Own) -> None:
    """Make this process a rank of the cluster, and watch for the step.

    A program for a device that PyTorch does not call "cuda" is not PyTorch's: it may import torch
    for its data.  One that trains with it, or that imports nothing else, is refused.
    """
    from flint.frontends.torch import versions
    from flint.frontends.torch.cluster.device_module import is_cuda, properties_of

    versions.check()
    from flint.frontends.torch.programs.rank import ProgramRank

    device = request.cluster.device
    if device is not None and not is_cuda(device):
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        def refuse(*_: object) -> None:
            properties_of(device)

        _refusing.append(refuse)
        register_optimizer_step_pre_hook(refuse)
        return
    _ranks.append(ProgramRank(request, own, _peers[0] if _peers else Peers(own.rank)))
    _ranks[0].begin()


def seen() -> Sequence[SeenStep]:
    """The steps that were seen; the step of an inference program is written now."""
    if _refusing and "jax" not in sys.modules:
        _refusing[0]()
    return _ranks[0].ended() if _ranks else ()


def caught() -> BaseException | None:
    """The error that ended the program's training, if the program has caught it."""
    error: BaseException | None = _ranks[0].caught() if _ranks else None
    return error


def repeated() -> str:
    """An optimizer's steps are captured behind an error, and other steps after the end alone."""
    return ""


def assumed() -> Mapping[str, int]:
    """The values that the program was given for unknown ones."""
    if not _ranks:
        return {}
    from flint.frontends.torch.context import capture

    return capture().answers()


def cause(error: BaseException) -> BaseException:
    """The original error if C++ has lost it, with advice."""
    from flint.frontends.torch.failures import advice, lost_error, without_stand_in

    found = lost_error(error)
    if _ranks:
        _ranks[0].failed(found)
    if missing := without_stand_in(found):
        return missing
    more = advice(found)
    if more and isinstance(found, Exception):
        found.args = (f"{found}{more}",)
    return found if isinstance(found, Exception) else error


def workload(
    request: ProgramRequest, folder: Path, place: Path, template: Template
) -> Workload | StepChoice:
    """The workload of a recorded rank and the further ranks that are needed.

    If one of these finds a step only when its program runs again, all ranks do so for that step:
    one that has no optimizer repeats a loop, which those that have one repeat as well.
    """
    from flint.frontends.torch.capturing import RecordedRanks, prepare, workload_of
    from flint.frontends.torch.ranks import rank_report
    from flint.launching.child import be_program, limits_of
    from flint.mesh.mesh import Mesh

    if request.cluster.slices > 1:
        raise UsageError("--slices is for JAX programs; give the hosts of ranks: --gpus-per-node")
    first = rank_report.read(folder)
    if not first.mesh:
        raise FlintError("the program was recorded without a mesh")
    level = Level.PARTITIONED if request.target is None else Level.OPTIMIZED
    starter: Starter = template
    if not template.is_there():
        # A single rank needs no copy, and no second import of torch.
        starter = Forks(functools.partial(be_program, request), functools.partial(prepare, level))
    axes, shape = zip(*first.mesh, strict=True)
    ranks = RecordedRanks(starter, Mesh(shape, axes), limits_of(request), place, own_data=True)
    ranks.folders[0] = folder
    ranks.read((0,))
    try:
        return workload_of(ranks, request.program.name, request.options, level)
    except rank_report.UnreportedError as error:
        again = read_found(error.folder).again
        if again is None or again == request.step:
            raise
        return again
